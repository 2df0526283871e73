"""The asset graph of one lakeFS repository, from commits to candidates and their deletion. Source: DESIGN.md."""

from dataclasses import replace

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
from dagster_pyspark import LazyPySparkResource

from retention_assets.assets import plan_inputs
from retention_assets.assets.options import ReadOptions, SweepOptions
from retention_assets.assets.partitions import day_of
from retention_assets.assets.previews import plan_metadata
from retention_assets.assets.reporting import retention_report
from retention_assets.assets.repository_resource import Made, RepositoryResource, checked
from retention_assets.assets.resources import session
from retention_assets.lakefs.rules.addresses import addresses as pairs_of
from retention_assets.lakefs.rules.addresses import canonical
from retention_assets.lakefs.rules.legacy_names import LEGACY_KINDS, kinds_counted, kinds_of
from retention_assets.lakefs.rules.ranges import active_ranges as ranges_of
from retention_assets.lakefs.rules.tables import references_of
from retention_assets.lakefs.source.ranges import metaranges, ranges
from retention_assets.lakefs.sweep import verification as proof
from retention_assets.lakefs.sweep.guards import ranges_complete
from retention_assets.lakefs.sweep.liveness import LivenessQuery, commits_now
from retention_assets.lakefs.sweep.planning import PlanInputs, Terms, make_plan, require_one_origin
from retention_assets.lakefs.sweep.results import write_results
from retention_assets.lakefs.sweep.sweeping import liveness_query, report
from retention_assets.repositories.other_repositories import not_configured
from retention_assets.state.approval import planned_terms
from retention_assets.state.plan import POLICY_HASH, REFERENCES_HASH
from retention_assets.state.policies import POLICY_RUN, current_rules_of
from retention_assets.state.warehouse import Rows
from retention_assets.sweep.sweep_run import Sweep, verification_inputs
from retention_assets.sweep.verification import by_check
from retention_assets.tables import DELETION_PROOF

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


def lakefs_assets(resource: RepositoryResource) -> list[dg.AssetsDefinition]:
    """Return the assets of one repository, in the order in which they run."""
    makers = (
        plan_inputs.policy_table,
        plan_inputs.current_rules,
        plan_inputs.storage_inventory,
        plan_inputs.uncommitted_objects,
        plan_inputs.commit_graph,
        potential_commits,
        active_ranges,
        addresses,
        deletion_candidates,
        retention_report,
        deletion_report,
        deletion_proof,
    )
    return [make(resource) for make in makers]


def potential_commits(resource: RepositoryResource) -> dg.AssetsDefinition:
    """Return the asset of the commits, with the retention of each."""

    @resource.asset("potential_commits", reads=["commit_graph", "current_rules"])
    def asset(context: dg.AssetExecutionContext, commit_graph: Rows, current_rules: Rows) -> Made:
        """Every commit: kept by retention (`active`), by a tag or hold (`protected`), or due since when.

        `potential`: may hold what lifecycle rules made due since they were last carried out whole.
        """
        references = references_of(commit_graph.table, commit_graph.taken_at)
        query = LivenessQuery(resource.open(), resource.policy(day_of(context)), day_of(context), resource.memory())
        commits = commits_now(query, references, current_rules_of(current_rules.table))
        counts = {name: pc.sum(commits[name]).as_py() or 0 for name in ("active", "protected", "potential")}
        origin = {POLICY_HASH: query.policy.policy_hash, REFERENCES_HASH: commit_graph.notes[REFERENCES_HASH]}
        rows = Rows(commits, commit_graph.taken_at, origin)
        return checked(rows, numbers=counts)

    return asset


def active_ranges(resource: RepositoryResource) -> dg.AssetsDefinition:
    """Return the asset of the ranges that commits contain."""

    @resource.asset("active_ranges", reads=["potential_commits"])
    def asset(
        context: dg.AssetExecutionContext, config: ReadOptions, pyspark: LazyPySparkResource, potential_commits: Rows
    ) -> Made:
        """Every range that a commit holds, with the union of its branches; metaranges are read on executors."""
        named = potential_commits.frame.where("metarange_id != ''")
        of_commits, reading = resource.cache(context, pyspark, config).rows(named, metaranges())
        held = ranges_of(potential_commits.frame, of_commits)
        rows = Rows(held, potential_commits.taken_at, potential_commits.notes)
        return checked(rows, numbers={"metaranges_read": reading.files, "metarange_bytes": reading.bytes})

    return asset


def addresses(resource: RepositoryResource) -> dg.AssetsDefinition:
    """Return the asset of the (path, address) pairs."""

    @resource.asset("addresses", reads=["potential_commits", "active_ranges"], checks=["ranges_complete"])
    def asset(
        context: dg.AssetExecutionContext,
        config: ReadOptions,
        pyspark: LazyPySparkResource,
        potential_commits: Rows,
        active_ranges: Rows,
    ) -> Made:
        """Every (path, address) pair of any commit; each range is read once, on executors, and cached by its id."""
        cache = resource.cache(context, pyspark, config)
        entries, reading = cache.rows(active_ranges.frame, ranges())
        named = potential_commits.frame.where("metarange_id != ''")
        known = resource.cache(context, pyspark, ReadOptions()) if config.full else cache
        of_commits = known.known_rows(named, metaranges())  # `active_ranges` was made of these metaranges
        check_result = ranges_complete(of_commits, entries, active_ranges.frame)
        pairs = pairs_of(active_ranges.frame, canonical(entries, resource.open().inside))
        rows, counted = resource.write(
            "addresses", day_of(context), Rows(pairs, active_ranges.taken_at, active_ranges.notes), kinds_counted()
        )
        kinds = " ".join(sorted(kinds_of(counted)))
        rows = replace(rows, notes={**rows.notes, LEGACY_KINDS: kinds})
        return checked(rows, [check_result], {"ranges_read": reading.files, "range_bytes": reading.bytes})

    return asset


def deletion_candidates(resource: RepositoryResource) -> dg.AssetsDefinition:
    """Return the asset of the plan."""
    reads = ["policy_table", "storage_inventory", "uncommitted_objects", "commit_graph", "addresses"]

    @resource.asset("deletion_candidates", reads=reads, checks=PLAN_GUARDS)
    def asset(
        context: dg.AssetExecutionContext,
        pyspark: LazyPySparkResource,
        policy_table: Rows,
        storage_inventory: Rows,
        uncommitted_objects: Rows,
        commit_graph: Rows,
        addresses: Rows,
    ) -> Made:
        """What may be deleted and why, one row per address; empty when any guard refuses."""
        day, settings = day_of(context), resource.repository.lakefs
        terms = Terms(
            repository=resource.name,
            day=day,
            policy=resource.policy(day),
            policy_run=policy_table.notes[POLICY_RUN],
            grace=settings.grace,
            token_life=settings.token_life,
            max_live_shrink=settings.guards.max_live_shrink,
            legacy_names=settings.legacy_names,
            now=resource.clock(),
            run_id=context.run_id,
            access=resource.open().access,
            settle=settings.settle,
            settle_expired=settings.settle_expired,
            memory=resource.memory(),
            settings=planned_terms(resource.repository),
            oldest_dump=settings.source.oldest_dump,
        )
        others = resource.other_references(context, pyspark)
        if warning := not_configured(resource.open().source, resource.configuration.repositories.values()):
            others = replace(others, warnings=(*others.warnings, warning))
        taken = PlanInputs(storage_inventory, uncommitted_objects, commit_graph, addresses, others)
        require_one_origin(terms, taken)
        planned = make_plan(session(pyspark), resource.warehouse, terms, taken)
        if settings.write_results and planned.plan:
            write_results(resource.open().access, planned.candidates, day, context.run_id)
        rows = resource.write_planned(day, planned, taken.oldest)
        metadata = plan_metadata(resource.warehouse, planned)
        return checked(rows, planned.check_results, metadata, version=planned.version)

    return asset


def deletion_report(resource: RepositoryResource) -> dg.AssetsDefinition:
    """Return the asset of the results of the sweep."""

    @resource.asset("deletion_report", after=["deletion_candidates"], stage="sweep")
    def asset(context: dg.AssetExecutionContext, config: SweepOptions, pyspark: LazyPySparkResource) -> Made:
        """The ledger of the day's plan: what became of each candidate; no rows while the mode is `plan`.

        Only a run that was started to sweep executes the plan first: "Materialize all" deletes nothing.
        """
        log, day = context.log.info, day_of(context)
        of_run = resource.with_options(config)
        sweep = Sweep(
            session(pyspark),
            resource.warehouse,
            of_run.open(),
            day,
            context.run_id,
            log,
            resource.clock,
            resource.elsewhere(context, pyspark),
        )
        reported = report(sweep, execute=config.may_sweep(context.run, resource.name), plan_hash=config.plan_hash)
        notes = {"plan_hash": reported.plan.plan_hash}
        return checked(Rows(reported.ledger, resource.clock(), notes), numbers=reported.numbers())

    return asset


def deletion_proof(resource: RepositoryResource) -> dg.AssetsDefinition:
    """Return the asset of the verification."""

    @resource.asset("deletion_proof", after=["deletion_report"], checks=proof.CHECKS, stage="verify")
    def asset(context: dg.AssetExecutionContext, pyspark: LazyPySparkResource) -> Made:
        """What exists, held against what is referenced and against every ledger: all read again, nothing cached."""
        spark, log, day, began = session(pyspark), context.log.info, day_of(context), resource.clock()
        sweep = Sweep(
            spark,
            resource.warehouse,
            resource.open(),
            day,
            context.run_id,
            log,
            resource.clock,
            resource.elsewhere(context, pyspark),
        )
        check_results = proof.verify(verification_inputs(sweep), liveness_query(sweep, sweep.opened.policy()))
        rows = [{"check": one.guard, "passed": one.passed, "saw": one.detail} for one in check_results]
        table = pa.Table.from_pylist(rows, schema=DELETION_PROOF.schema)
        return checked(Rows(table, began), by_check(check_results, proof.CHECKS))

    return asset
