"""The asset graph of one lakeFS repository.

The inputs of a plan are read in this order: policy, storage inventory, staged objects, commits. Each has the time at
which it was read. The candidates come from the storage inventory. The newer inputs decide which objects are live.
"""

from dataclasses import replace

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import functions as F

from retention_assets.assets.catalog import NONE_FAILED
from retention_assets.assets.declaration import Declaration, Made, checked, declared, report_result, verification_result
from retention_assets.assets.reporting import plan_metadata, policy_table, retention_report
from retention_assets.assets.resources import RepositoryResource, session
from retention_assets.assets.runs import ReadOptions, SweepOptions, day_of
from retention_assets.core import guards
from retention_assets.core.digest import counted_digest, digest_counted, table_digest
from retention_assets.inventory.unusual import unusual_counts, unusual_names
from retention_assets.lakefs.names.columns import outside_counted
from retention_assets.lakefs.names.legacy import kinds_counted, kinds_of
from retention_assets.lakefs.rules.committed import commit_graph as graph_of
from retention_assets.lakefs.rules.name_sets import NameSets
from retention_assets.lakefs.rules.ranges import OF_COMMITS, canonical, unusual_entries, unusual_entries_counted
from retention_assets.lakefs.rules.ranges import active_ranges as ranges_of
from retention_assets.lakefs.rules.ranges import addresses as addresses_of
from retention_assets.lakefs.rules.references import references_hash
from retention_assets.lakefs.rules.reflog import lost_commits, memory_digest
from retention_assets.lakefs.rules.tables import REFERENCES, commit_graph_rows, references_of
from retention_assets.lakefs.source.inventory_snapshot import InventoryContext, directory_prefix, take_snapshot
from retention_assets.lakefs.source.ranges import metaranges, ranges
from retention_assets.lakefs.source.repository import staged_list
from retention_assets.lakefs.source.staged_objects import count_outside, staged_objects
from retention_assets.lakefs.sweep import verification
from retention_assets.lakefs.sweep.guards import heads_present, kinds_given, locations_apart, ranges_complete
from retention_assets.lakefs.sweep.liveness import LivenessQuery, commits_now
from retention_assets.lakefs.sweep.planning import PlanInputs, PlanParameters, make_plan, require_one_origin
from retention_assets.lakefs.sweep.results import write_results
from retention_assets.lakefs.sweep.sweeping import liveness_query, report
from retention_assets.objectstore.listing import unlisted
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.repositories.other_repositories import not_configured
from retention_assets.state.approval import planned_terms, terms_hash
from retention_assets.state.clocks import clocks
from retention_assets.state.plan import withdraw_plan
from retention_assets.state.policies import current_rules_of, rules_in_force
from retention_assets.state.reuse import inputs_digest
from retention_assets.sweep.sweep_run import verification_inputs
from retention_assets.tables import COMMIT_GRAPH, POLICY_TABLE
from retention_assets.warehouse.metadata import Details, needed
from retention_assets.warehouse.warehouse import Rows

PLAN_GUARDS = (
    "live_listed",
    "live_not_empty",
    "live_not_shrunk",
    "nothing_young",
    "nothing_unknown",
    "only_generated_names",
    "nothing_live",
    "only_listed",
    "totals_balance",
)


@declared()
def current_rules(resource: RepositoryResource, policy_table: Rows) -> Made:
    """Each lifecycle rule in force, and the day up to which a run deleted everything that was due under the rule."""
    rows = rules_in_force(resource.warehouse, resource.name, policy_table)
    return checked(Rows(rows, policy_table.taken_at))


@declared(checks=["listing_complete", "namespaces_apart", "clock_agrees"])
def storage_inventory(
    context: dg.AssetExecutionContext, resource: RepositoryResource, pyspark: LazyPySparkResource
) -> Made:
    """Every object below the namespace except `_lakefs/`: from a listing, or from the store's own inventory."""
    resource.require_location()
    withdraw_plan(resource.warehouse, resource.name, day_of(context))  # this run replaces the plan's inputs
    spark, opened = session(pyspark), resource.open()
    snapshot = take_snapshot(InventoryContext(spark, opened, resource.warehouse, day_of(context), resource.clock.now))
    listed = Rows(snapshot.frame, snapshot.taken_at)
    listed_prefixes = F.collect_set(directory_prefix(F.col("address"))).alias("prefixes")
    counts = [listed_prefixes, *unusual_counts(), *digest_counted(snapshot.frame)]
    rows, counted = resource.write("storage_inventory", day_of(context), listed, counts)
    details = replace(snapshot.details, unusual_names=unusual_names(counted))
    check_results = [
        guards.listing_complete(unlisted(counted["prefixes"], snapshot.prefixes, ObjectReader(opened.access))),
        locations_apart(opened, resource.configuration.locations()),
        clocks(resource.repository, opened.access, resource.clock.now),
    ]
    numbers: dict[str, float | str] = {
        "prefixes": len(snapshot.prefixes.deep),
        "prefixes_listed": snapshot.listed,
        **details.texts(),
    }
    return checked(replace(rows, details=replace(details, digest=counted_digest(counted))), check_results, numbers)


@declared(after=["storage_inventory"])
def uncommitted_objects(
    context: dg.AssetExecutionContext, resource: RepositoryResource, pyspark: LazyPySparkResource
) -> Made:
    """Every object staged on any branch, from the server's list. Without a list, `known` in the details is false."""
    withdraw_plan(resource.warehouse, resource.name, day_of(context))  # this run replaces the plan's inputs
    opened = resource.open()
    with staged_list(opened.source) as staged:
        found = staged_objects(session(pyspark), opened.access, staged, opened.namespace_urls)
        details = Details(known=staged is not None)
        if staged:
            details = replace(details, staged_warning=staged.warning, complete_until=staged.first_page_at)
        rows = Rows(found, staged.taken_at if staged else resource.clock.now(), details)
        if rows.is_held:
            outside, digest = count_outside(rows.table), table_digest(rows.table, "address")
        else:  # the rows are written before the list is removed
            counts = [*outside_counted(), *digest_counted(rows.frame)]
            rows, counted = resource.write("uncommitted_objects", day_of(context), rows, counts)
            outside, digest = counted["outside"], counted_digest(counted)
    return checked(replace(rows, details=replace(details, outside=outside, digest=digest)), numbers=details.texts())


@declared(after=["uncommitted_objects"], checks=["heads_present"])
def commit_graph(context: dg.AssetExecutionContext, resource: RepositoryResource) -> Made:
    """Every commit, dangling ones too, with the branches and tags that name or reach it."""
    withdraw_plan(resource.warehouse, resource.name, day_of(context))  # this run replaces the plan's inputs
    references = resource.open().source.references()
    details = Details(references_hash=references_hash(references), instance=references.instance or "")
    rows = commit_graph_rows(graph_of(references))
    numbers = {"branches": len(references.branches), "tags": len(references.tags)}
    return checked(Rows(rows, references.taken_at, details), [heads_present(references, rows)], numbers)


@declared()
def potential_commits(
    context: dg.AssetExecutionContext, resource: RepositoryResource, commit_graph: Rows, current_rules: Rows
) -> Made:
    """Every commit: kept by retention (`active`), kept by a tag or hold (`protected`), or due since `due_since`.

    A `potential` commit may contain objects that became due under lifecycle rules since `last_deleted` of these rules.
    """
    references = references_of(commit_graph.columns(*REFERENCES), commit_graph.taken_at)
    query = LivenessQuery(resource.open(), resource.policy(day_of(context)), day_of(context), resource.memory())
    commits = commits_now(query, references, current_rules_of(current_rules.table))
    counts = {name: pc.sum(commits[name]).as_py() or 0 for name in ("active", "protected", "potential")}
    origin = Details(
        policy_hash=query.policy.policy_hash,
        references_hash=needed(commit_graph.details.references_hash, COMMIT_GRAPH.name, "references_hash"),
        memory_digest=memory_digest(references, query.memory, query.policy),
        terms_hash=terms_hash(planned_terms(resource.repository)),
        replaced=lost_commits(resource.name, references, query.memory, query.policy),
        digest=table_digest(commits),
    )
    rows = Rows(commits, commit_graph.taken_at, origin)
    return checked(rows, numbers=counts)


@declared()
def active_ranges(
    context: dg.AssetExecutionContext,
    resource: RepositoryResource,
    config: ReadOptions,
    pyspark: LazyPySparkResource,
    potential_commits: Rows,
) -> Made:
    """Every range of any commit, with the branches of these commits. Each metarange is read once and cached."""
    inputs = inputs_digest(table="active_ranges", commits=potential_commits.details.digest)
    origin = replace(potential_commits.details, digest=None, inputs=inputs, computed_at=resource.clock.now())
    of_commits, reading = resource.cache(context, pyspark, config).rows(_metaranges_of(potential_commits), metaranges())
    numbers = {"metaranges_read": reading.files, "metarange_bytes": reading.bytes}
    if same := resource.reused(context, pyspark, config, "active_ranges", inputs):
        details = replace(origin, computed_at=same.details.computed_at)
        return checked(replace(same, taken_at=potential_commits.taken_at, details=details), numbers=numbers)
    found = ranges_of(potential_commits.columns(*OF_COMMITS), of_commits)
    return checked(Rows(found, potential_commits.taken_at, origin), numbers=numbers)


def _metaranges_of(potential_commits: Rows) -> pa.Table:
    """Return the ids of the metaranges of all commits. A commit without entries has none."""
    commits = potential_commits.columns("metarange_id")
    return commits.filter(pc.not_equal(commits["metarange_id"], ""))


@declared(checks=["ranges_complete"])
def addresses(
    context: dg.AssetExecutionContext,
    resource: RepositoryResource,
    config: ReadOptions,
    pyspark: LazyPySparkResource,
    potential_commits: Rows,
    active_ranges: Rows,
) -> Made:
    """Every (path, address) pair of any commit. Each range is read once, and its rows are cached."""
    namespace_urls = resource.open().namespace_urls
    inputs = inputs_digest(
        table="addresses",
        ranges=active_ranges.details.inputs,
        commits=potential_commits.details.digest,
        namespace_urls=namespace_urls,
    )
    cache = resource.cache(context, pyspark, config)
    entries, reading = cache.rows(active_ranges.ids("range_id"), ranges())
    numbers = {"ranges_read": reading.files, "range_bytes": reading.bytes}
    if same := resource.reused(context, pyspark, config, "addresses", inputs):
        return checked(_same_addresses(same, active_ranges), same.details.check_results or (), numbers)
    # With `full`, a cache returns only rows that this run has read. If an earlier run made `active_ranges`, this run
    # has not read the metaranges.
    known = resource.cache(context, pyspark, None) if config.reads_all(context.run) else cache
    of_commits = known.cached_rows(_metaranges_of(potential_commits), metaranges())
    check_result = ranges_complete(of_commits, entries, active_ranges.frame)
    names = NameSets.of_commits(potential_commits.columns(*OF_COMMITS))
    pairs = addresses_of(active_ranges.frame, canonical(entries, namespace_urls), names)
    found = Rows(pairs, active_ranges.taken_at, active_ranges.details)
    counts = [*kinds_counted(), *unusual_entries_counted(), *outside_counted()]
    rows, counted = resource.write("addresses", day_of(context), found, counts, inputs)
    kinds = frozenset[str]()
    if kinds_of(counted):  # few repositories have old names
        kinds = kinds_given(potential_commits.columns("created_at")["created_at"].to_pylist(), lambda: entries)
    unusual = unusual_entries(counted)
    details = replace(rows.details, legacy_kinds=kinds, unusual_entries=unusual, outside=counted["outside"])
    rows = replace(rows, details=details)
    return checked(rows, [check_result], numbers)


def _same_addresses(known: Rows, active_ranges: Rows) -> Rows:
    """Return addresses that an earlier run made from the same ranges. Their origin is that of `active_ranges`."""
    of_rows = ("inputs", "computed_at", "legacy_kinds", "unusual_entries", "outside")
    details = replace(active_ranges.details, **{name: getattr(known.details, name) for name in of_rows})
    return replace(known, taken_at=active_ranges.taken_at, details=details)


@declared(checks=PLAN_GUARDS)
def deletion_candidates(
    context: dg.AssetExecutionContext,
    resource: RepositoryResource,
    config: ReadOptions,
    pyspark: LazyPySparkResource,
    policy_table: Rows,
    storage_inventory: Rows,
    uncommitted_objects: Rows,
    commit_graph: Rows,
    addresses: Rows,
) -> Made:
    """What may be deleted and why, one row per address; empty if a guard refuses."""
    day, settings = day_of(context), resource.repository.lakefs
    parameters = PlanParameters(
        repository=resource.name,
        day=day,
        policy=resource.policy(day),
        policy_run=needed(policy_table.details.policy_run, POLICY_TABLE.name, "policy_run"),
        settings=settings,
        now=resource.clock.now(),
        run_id=context.run_id,
        access=resource.open().access,
        memory=resource.memory(),
        terms=planned_terms(resource.repository),
    )
    others = resource.elsewhere(context, pyspark).for_plan()
    if warning := not_configured(resource.open().source, resource.configuration.repositories.values()):
        others = replace(others, warnings=(*others.warnings, warning))
    inputs = PlanInputs(storage_inventory, uncommitted_objects, commit_graph, addresses, others)
    require_one_origin(parameters, inputs)
    full = config.reads_all(context.run)
    planned = make_plan(session(pyspark), resource.warehouse, parameters, inputs, full=full)
    rows = resource.write_planned(context, planned, inputs.oldest)
    if settings.write_results and planned.plan:  # last, so that an error here does not prevent the table
        write_results(resource.open().access, planned.candidates, day, context.run_id)
    metadata = plan_metadata(resource.warehouse, planned)
    return checked(rows, planned.check_results, metadata, version=planned.version)


@declared(after=["deletion_candidates"], checks=[NONE_FAILED], stage="sweep")
def deletion_report(
    context: dg.AssetExecutionContext, resource: RepositoryResource, config: SweepOptions, pyspark: LazyPySparkResource
) -> Made:
    """The ledger of the day's plan: the outcome of each candidate; no rows if no sweep worked on the plan.

    The plan is executed first if the run is of the sweep job, has the option `execute`, or has the tag
    `retention/sweep`. "Materialize all" deletes no data.
    """
    sweep = resource.sweep(context, pyspark, resource.with_options(config).open())
    execute = config.may_sweep(context.run, resource.name)
    return report_result(report(sweep, execute=execute, plan_hash=config.plan_hash), resource.clock.now())


@declared(after=["deletion_report"], checks=verification.CHECKS, stage="verify")
def deletion_proof(
    context: dg.AssetExecutionContext, resource: RepositoryResource, pyspark: LazyPySparkResource
) -> Made:
    """The checks of a verification. It compares the store with all references and ledgers, and uses no cache."""
    began, sweep = resource.clock.now(), resource.sweep(context, pyspark, resource.open())
    query = liveness_query(sweep, sweep.opened.policy())
    check_results = verification.verify(verification_inputs(sweep), query, began)
    return verification_result(check_results, verification.CHECKS, began)


LAKEFS_ASSETS: tuple[Declaration, ...] = (  # in the order in which they run
    policy_table,
    current_rules,
    storage_inventory,
    uncommitted_objects,
    commit_graph,
    potential_commits,
    active_ranges,
    addresses,
    deletion_candidates,
    retention_report,
    deletion_report,
    deletion_proof,
)
