"""The asset graph of one Icechunk repository, from its policy to the verification of its sweeps.

The store is listed before the references are read. So the references include every commit made during the listing.
"""

from dataclasses import replace

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import functions as F

from retention_assets.assets.catalog import NONE_FAILED
from retention_assets.assets.declaration import Declaration, Made, checked, declared, report_result, verification_result
from retention_assets.assets.reporting import plan_metadata, policy_table, retention_report
from retention_assets.assets.resources import RepositoryResource, session
from retention_assets.assets.runs import ReadOptions, SweepOptions, day_of
from retention_assets.core import guards
from retention_assets.core.age import AgeCutoff, no_issue_time
from retention_assets.core.digest import counted_digest, digest_counted
from retention_assets.core.totals import top_of
from retention_assets.icechunk.formats.ids import decode_id
from retention_assets.icechunk.formats.paths import CHUNKS, SNAPSHOTS
from retention_assets.icechunk.rules.reach import chunks_of, manifests_of
from retention_assets.icechunk.source.history import history_details, history_rows
from retention_assets.icechunk.source.tables import manifest_chunks, snapshot_manifests
from retention_assets.icechunk.sweep import verification
from retention_assets.icechunk.sweep.guards import count_refs, missing_snapshots, referenced_exist
from retention_assets.icechunk.sweep.layout import icechunk_prefixes
from retention_assets.icechunk.sweep.left_tips import with_left_tips
from retention_assets.icechunk.sweep.planning import (
    GUARDS,
    IcechunkPlanInputs,
    IcechunkPlanParameters,
    PlanBasis,
    make_plan,
    origin_of,
    plan_basis_of,
    require_one_origin,
)
from retention_assets.icechunk.sweep.reach import snapshots_and_logs, snapshots_of
from retention_assets.icechunk.sweep.replaced import EarlierPlans, with_log
from retention_assets.icechunk.sweep.retained_set import decision_rows
from retention_assets.icechunk.sweep.sweeping import report
from retention_assets.icechunk.sweep.true_ages import with_true_ages
from retention_assets.inventory.unusual import unusual_counts, unusual_names
from retention_assets.objectstore.listing import list_objects, unlisted
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.spark.frames import from_arrow
from retention_assets.state.approval import planned_terms, terms_hash
from retention_assets.state.clocks import clocks
from retention_assets.state.plan import withdraw_plan
from retention_assets.state.reuse import inputs_digest
from retention_assets.tables import POLICY_TABLE
from retention_assets.warehouse.metadata import Details, needed
from retention_assets.warehouse.warehouse import Rows


@declared(checks=["listing_complete", "namespaces_apart", "clock_agrees"])
def storage_inventory(
    context: dg.AssetExecutionContext, resource: RepositoryResource, pyspark: LazyPySparkResource
) -> Made:
    """Every object of the repository, listed by this run. Executors list a large repository in parallel."""
    resource.require_location()
    withdraw_plan(resource.warehouse, resource.name, day_of(context))  # this run replaces the plan's inputs
    access, taken_at = resource.open_icechunk().access, resource.clock.now()
    reader = ObjectReader(access)
    prefixes = icechunk_prefixes(reader)
    listed = Rows(list_objects(session(pyspark), access, prefixes), taken_at)
    listed_prefixes = F.collect_set(top_of(F.col("address"))).alias("prefixes")
    counts = [listed_prefixes, *unusual_counts(), *digest_counted(listed.frame)]
    rows, counted = resource.write("storage_inventory", day_of(context), listed, counts)
    check_results = [
        guards.listing_complete(unlisted(counted["prefixes"], prefixes, reader)),
        guards.namespaces_apart(resource.name, resource.configuration.locations()),
        clocks(resource.repository, access, resource.clock.now),
    ]
    details = Details(unusual_names=unusual_names(counted), storage=resource.repository.storage)
    with_digest = replace(details, digest=counted_digest(counted))
    return checked(replace(rows, details=with_digest), check_results, details.texts())


@declared(after=["policy_table", "storage_inventory"])
def repository_history(context: dg.AssetExecutionContext, resource: RepositoryResource) -> Made:
    """Every snapshot with its parent, and with the branches and tags that name or reach it."""
    withdraw_plan(resource.warehouse, resource.name, day_of(context))  # this run replaces the plan's inputs
    opened = resource.open_icechunk()
    state = opened.source.state()
    listed = resource.warehouse.metadata(resource.name, "storage_inventory", day_of(context)).taken_at
    cutoff = min(listed, state.taken_at) - resource.repository.settings.grace
    reader = ObjectReader(opened.access)
    state = with_left_tips(state, reader, resource.warehouse, resource.name, cutoff)
    plans = EarlierPlans(resource.warehouse, resource.name, state.taken_at)
    state = with_true_ages(state, plans)
    details = replace(history_details(state, cutoff), storage=resource.repository.storage)
    if state.repo:
        details = with_log(details, reader, state.repo, plans, day_of(context), cutoff)
    plans.keep(day_of(context))
    rows = Rows(history_rows(state), state.taken_at, details)
    history = state.history
    numbers = {
        "format": state.format,
        "snapshots": len(history.snapshots),
        "branches": len(history.branches),
        "tags": len(history.tags),
    }
    return checked(rows, numbers=numbers)


@declared()
def expired_snapshots(
    context: dg.AssetExecutionContext, resource: RepositoryResource, repository_history: Rows
) -> Made:
    """The decision on every snapshot, with its reason: kept, released by the policy, or dropped as unreachable."""
    basis = _basis(resource, context, repository_history)
    rows = decision_rows(basis.state, basis.retained)
    names = ("released", "dropped", "deleted_branches", "deleted_tags")
    numbers = {name: len(getattr(basis.edits, name)) for name in names}
    return checked(Rows(rows, basis.state.taken_at, _origin(resource, context, basis)), numbers=numbers)


@declared(after=["expired_snapshots"], checks=["metadata_exists"])
def reachable_manifests(
    context: dg.AssetExecutionContext,
    resource: RepositoryResource,
    config: ReadOptions,
    pyspark: LazyPySparkResource,
    storage_inventory: Rows,
    repository_history: Rows,
) -> Made:
    """Every manifest of a retained snapshot (`live`), and every listed manifest that only released snapshots use."""
    basis, lost = _basis(resource, context, repository_history), resource.lost(pyspark, storage_inventory)
    access = resource.open_icechunk().access
    missing = missing_snapshots(session(pyspark), basis.retained, basis.state, access)
    origin = _origin(resource, context, basis)
    snapshots, inputs = snapshots_of(basis.retained, basis.retained.leaving(basis.state)), None
    if missing is None and not resource.knows_lost():
        inputs = inputs_digest(
            table="reachable_manifests",
            storage=resource.repository.storage,
            listed=storage_inventory.details.digest,
            snapshots=origin.snapshots_digest,
        )
    cache = resource.cache(context, pyspark, config, lost, missing)
    references, reading = cache.rows(snapshots, snapshot_manifests())
    read = {"snapshots_read": reading.files, "snapshot_bytes": reading.bytes}
    if same := resource.reused(context, pyspark, config, "reachable_manifests", inputs):
        known_at, replaced = same.details.computed_at, repository_history.details.replaced
        details = replace(origin, inputs=inputs, computed_at=known_at, lost=0, unread=0, replaced=replaced)
        rows = replace(same, taken_at=basis.state.taken_at, details=details)
        return checked(rows, resource.passed_again(same), {**read, "lost": 0})
    metadata = storage_inventory.frame.where(~F.col("address").startswith(CHUNKS))
    listed = metadata.select("address", F.lit(True).alias("is_listed"))
    every = manifests_of(from_arrow(session(pyspark), snapshots), references).join(listed, on="address", how="left")
    found = Rows(every.where("live OR is_listed").drop("is_listed"), basis.state.taken_at, origin)
    rows, _ = resource.write("reachable_manifests", day_of(context), found)
    listing_cutoff = AgeCutoff(storage_inventory.taken_at, resource.repository.settings.grace, issued=no_issue_time)
    stay = snapshots_and_logs(session(pyspark), basis.retained).where(F.col("address").startswith(SNAPSHOTS))
    live = rows.frame.where("live").select("address").unionByName(stay)
    referenced = referenced_exist("metadata_exists", live, listed, access, listing_cutoff, lost)
    check_result = resource.record_missing(pyspark, referenced)
    reason = repository_history.details.replaced
    if reason and not check_result.passed:
        check_result = replace(check_result, detail=f"{check_result.detail}. A possible cause: {reason}")
    unread = len(basis.retained.snapshots.intersection(map(decode_id, reading.unread)))
    # No later run may reuse these rows if the check read the store, or if lost files were never read.
    inputs = inputs if referenced.all_listed and not unread else None
    details = replace(rows.details, lost=referenced.lost, unread=unread, replaced=reason, inputs=inputs)
    rows = replace(rows, details=details)
    return checked(rows, [check_result], {**read, "lost": referenced.lost})


@declared(checks=["manifests_whole", "chunks_exist"])
def reachable_chunks(
    context: dg.AssetExecutionContext,
    resource: RepositoryResource,
    config: ReadOptions,
    pyspark: LazyPySparkResource,
    storage_inventory: Rows,
    reachable_manifests: Rows,
) -> Made:
    """Every chunk that a manifest references. Each manifest is read once, and its rows are cached."""
    inputs = inputs_digest(
        table="reachable_chunks",
        manifests=reachable_manifests.details.inputs,
        listed=storage_inventory.details.digest,
    )
    lost, manifests = resource.lost(pyspark, storage_inventory), reachable_manifests.frame
    cache = resource.cache(context, pyspark, config, lost)
    references, reading = cache.rows(reachable_manifests.ids("manifest_id"), manifest_chunks())
    read = {"manifests_read": reading.files, "manifest_bytes": reading.bytes}
    if same := resource.reused(context, pyspark, config, "reachable_chunks", inputs):
        of_rows = ("inputs", "computed_at", "outside", "by_kind")
        known = {name: getattr(same.details, name) for name in of_rows}
        details = replace(reachable_manifests.details, **known)
        rows = replace(same, taken_at=reachable_manifests.taken_at, details=details)
        return checked(rows, resource.passed_again(same), {**(details.by_kind or {}), **read, "lost": 0})
    # The details are copied: both tables come from the same policy and history.
    found = Rows(chunks_of(manifests, references, cache.url), reachable_manifests.taken_at, reachable_manifests.details)
    rows, _ = resource.write("reachable_chunks", day_of(context), found)
    opened, inventory = resource.open_icechunk(), storage_inventory.frame
    listing_cutoff = AgeCutoff(storage_inventory.taken_at, resource.repository.settings.grace, issued=no_issue_time)
    must_exist = rows.frame.where("live AND certain")
    referenced = referenced_exist("chunks_exist", must_exist, inventory, opened.access, listing_cutoff, lost)
    refs = count_refs(manifests, references, reading.unread)
    check_results = [refs.check_result, resource.record_missing(pyspark, referenced)]
    numbers = {**refs.by_kind, **read, "lost": referenced.lost}
    details = replace(
        rows.details,
        lost=referenced.lost,
        unread=refs.unread,
        outside=refs.located,
        by_kind=refs.by_kind,
        inputs=inputs if referenced.all_listed and not refs.unread else None,
    )
    return checked(replace(rows, details=details), check_results, numbers)


@declared(checks=GUARDS)
def deletion_candidates(
    context: dg.AssetExecutionContext,
    resource: RepositoryResource,
    config: ReadOptions,
    pyspark: LazyPySparkResource,
    policy_table: Rows,
    storage_inventory: Rows,
    repository_history: Rows,
    reachable_manifests: Rows,
    reachable_chunks: Rows,
) -> Made:
    """What may be deleted and why, one row per address; empty if a guard refuses."""
    day, spark = day_of(context), session(pyspark)
    parameters = IcechunkPlanParameters(
        repository=resource.name,
        day=day,
        policy=resource.snapshot_policy(day),
        policy_run=needed(policy_table.details.policy_run, POLICY_TABLE.name, "policy_run"),
        settings=resource.repository.icechunk,
        now=resource.clock.now(),
        run_id=context.run_id,
        terms=planned_terms(resource.repository),
    )
    basis = plan_basis_of(repository_history, parameters.policy, day)
    others = resource.elsewhere(context, pyspark).for_plan()
    inputs = IcechunkPlanInputs(storage_inventory, reachable_manifests, reachable_chunks, others)
    require_one_origin(parameters, basis, inputs)
    full = config.reads_all(context.run)
    planned = make_plan(spark, resource.warehouse, parameters, basis, inputs, full=full)
    rows = resource.write_planned(context, planned, storage_inventory.taken_at)
    metadata = plan_metadata(resource.warehouse, planned)
    return checked(rows, planned.check_results, metadata, version=planned.version)


def _basis(resource: RepositoryResource, context: dg.AssetExecutionContext, history: Rows) -> PlanBasis:
    day = day_of(context)
    return plan_basis_of(history, resource.snapshot_policy(day), day)


def _origin(resource: RepositoryResource, context: dg.AssetExecutionContext, basis: PlanBasis) -> Details:
    """Return the details that identify the policy, the history and the settings that a table comes from."""
    origin = origin_of(basis, resource.snapshot_policy(day_of(context)).policy_hash)
    return replace(origin, terms_hash=terms_hash(planned_terms(resource.repository)))


@declared(after=["deletion_candidates"], checks=[NONE_FAILED], stage="sweep")
def deletion_report(
    context: dg.AssetExecutionContext, resource: RepositoryResource, config: SweepOptions, pyspark: LazyPySparkResource
) -> Made:
    """The outcome of each candidate, and of each branch and tag of the plan's edits; no rows before a sweep.

    The plan is executed first if the run is of the sweep job, has the option `execute`, or has the tag
    `retention/sweep`. "Materialize all" deletes no data.
    """
    sweep = resource.sweep(context, pyspark, resource.with_options(config).open_icechunk())
    execute = config.may_sweep(context.run, resource.name)
    return report_result(report(sweep, execute=execute, plan_hash=config.plan_hash), resource.clock.now())


@declared(after=["deletion_report"], checks=verification.CHECKS, stage="verify")
def deletion_proof(
    context: dg.AssetExecutionContext, resource: RepositoryResource, pyspark: LazyPySparkResource
) -> Made:
    """The checks of a verification. It compares the store with all references and ledgers, and uses no cache."""
    began, sweep = resource.clock.now(), resource.sweep(context, pyspark, resource.open_icechunk())
    return verification_result(verification.verify(sweep), verification.CHECKS, began)


ICECHUNK_ASSETS: tuple[Declaration, ...] = (  # in the order in which they run
    policy_table,
    storage_inventory,
    repository_history,
    expired_snapshots,
    reachable_manifests,
    reachable_chunks,
    deletion_candidates,
    retention_report,
    deletion_report,
    deletion_proof,
)
