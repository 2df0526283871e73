"""The asset graph of one Icechunk repository, from its history to candidates and their deletion. Source: DESIGN.md.

The store is listed before the references are read, so the references include all commits made in between.
"""

from dataclasses import replace

import dagster as dg
import pyarrow as pa
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from retention_assets.assets.icechunk_sweep import deletion_proof, deletion_report
from retention_assets.assets.options import ReadOptions
from retention_assets.assets.partitions import day_of
from retention_assets.assets.previews import plan_metadata
from retention_assets.assets.reporting import retention_report
from retention_assets.assets.repository_resource import Made, RepositoryResource, checked
from retention_assets.assets.resources import session
from retention_assets.core import guards
from retention_assets.core.age import AgeCutoff, tells_no_time
from retention_assets.icechunk.formats.paths import CHUNKS, SNAPSHOTS
from retention_assets.icechunk.rules.reach import KINDS, chunks_of, manifests_of, refs_of
from retention_assets.icechunk.source.history import history_notes, history_rows
from retention_assets.icechunk.source.places import icechunk_prefixes, top_of
from retention_assets.icechunk.source.tables import manifest_chunks, snapshot_manifests
from retention_assets.icechunk.sweep.decisions import decision_rows
from retention_assets.icechunk.sweep.guards import manifests_whole, referenced_exist
from retention_assets.icechunk.sweep.planning import (
    CUTOFF,
    GUARDS,
    LOST,
    UNREAD,
    IcechunkPlanInputs,
    IcechunkTerms,
    PlanBasis,
    make_plan,
    origin_of,
    plan_basis_of,
    require_one_origin,
)
from retention_assets.icechunk.sweep.reach import holders, others
from retention_assets.inventory.unusual import unusual_counts, unusual_names
from retention_assets.objectstore.listing import list_objects, unlisted
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.policy.snapshot_table import snapshot_policy_rows
from retention_assets.state.approval import planned_terms
from retention_assets.state.binding import require_same_place
from retention_assets.state.memory import require_past
from retention_assets.state.plan import POLICY_HASH, withdraw_plan
from retention_assets.state.policies import POLICY_RUN, with_earlier_runs
from retention_assets.state.warehouse import Rows
from retention_assets.sweep.sweep_run import clocks


def icechunk_assets(resource: RepositoryResource) -> list[dg.AssetsDefinition]:
    """Return the assets of one repository, in the order in which they run."""
    makers = (
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
    return [make(resource) for make in makers]


def policy_table(resource: RepositoryResource) -> dg.AssetsDefinition:
    """Return the asset of the policy."""

    @resource.asset("policy_table")
    def asset(context: dg.AssetExecutionContext) -> Made:
        """Every version of the policy that a run of this day saw, by `policy_hash` and run."""
        require_same_place(resource.warehouse, resource.repository)
        require_past(resource.warehouse, resource.name, resource.clock())
        withdraw_plan(resource.warehouse, resource.name, day_of(context))  # the plan's inputs are made again
        day, policy, run_id = day_of(context), resource.open_icechunk().policy(), context.run_id
        rows = snapshot_policy_rows(policy, day, run_id)
        versions = with_earlier_runs(resource.warehouse, resource.name, day, rows, run_id)
        notes = {POLICY_HASH: policy.policy_hash, POLICY_RUN: run_id}
        return checked(Rows(versions, resource.clock(), notes), numbers=notes)

    return asset


def storage_inventory(resource: RepositoryResource) -> dg.AssetsDefinition:
    """Return the asset of the objects in the store."""

    @resource.asset("storage_inventory", checks=["listing_complete", "namespaces_apart", "clock_agrees"])
    def asset(context: dg.AssetExecutionContext, pyspark: LazyPySparkResource) -> Made:
        """Every object of the repository, listed now; chunks in parts, on executors."""
        withdraw_plan(resource.warehouse, resource.name, day_of(context))  # the plan's inputs are made again
        opened, taken_at = resource.open_icechunk(), resource.clock()
        access = opened.access
        reader = ObjectReader(access)
        places = icechunk_prefixes(reader)
        listed = Rows(list_objects(session(pyspark), access, places), taken_at)
        seen = F.collect_set(top_of(F.col("address"))).alias("places")
        rows, counted = resource.write("storage_inventory", day_of(context), listed, [seen, *unusual_counts()])
        check_results = [
            guards.listing_complete(unlisted(counted["places"], places, reader)),
            guards.namespaces_apart(resource.name, resource.places()),
            clocks(resource.repository, opened.access, resource.clock),
        ]
        notes = unusual_names(counted)
        return checked(replace(rows, notes=notes), check_results, notes)

    return asset


def repository_history(resource: RepositoryResource) -> dg.AssetsDefinition:
    """Return the asset of the snapshots and references."""

    @resource.asset("repository_history", after=["policy_table", "storage_inventory"])
    def asset(context: dg.AssetExecutionContext) -> Made:
        """Every snapshot with its parent and the branches and tags that name or reach it, as of one instant."""
        state = resource.open_icechunk().source.state()
        listed = resource.warehouse.metadata(resource.name, "storage_inventory", day_of(context)).taken_at
        cutoff = min(listed, state.taken_at) - resource.repository.settings.grace
        notes = {**history_notes(state), CUTOFF: cutoff.isoformat()}
        rows = Rows(history_rows(state), state.taken_at, notes)
        history = state.history
        numbers = {
            "format": state.format,
            "snapshots": len(history.snapshots),
            "branches": len(history.branches),
            "tags": len(history.tags),
        }
        return checked(rows, numbers=numbers)

    return asset


def expired_snapshots(resource: RepositoryResource) -> dg.AssetsDefinition:
    """Return the asset of the policy's decision on each snapshot."""

    @resource.asset("expired_snapshots", reads=["repository_history"])
    def asset(context: dg.AssetExecutionContext, repository_history: Rows) -> Made:
        """Every snapshot: kept, released by the policy or dropped since nothing reaches it; and why."""
        basis = _basis(resource, context, repository_history)
        rows = decision_rows(basis.state, basis.retained)
        edits = basis.edits
        names = ("released", "dropped", "deleted_branches", "deleted_tags")
        return checked(_of(resource, context, basis, rows), numbers={name: len(getattr(edits, name)) for name in names})

    return asset


def reachable_manifests(resource: RepositoryResource) -> dg.AssetsDefinition:
    """Return the asset of the manifests."""
    reads = ["storage_inventory", "repository_history"]

    @resource.asset("reachable_manifests", after=["expired_snapshots"], reads=reads, checks=["metadata_exists"])
    def asset(
        context: dg.AssetExecutionContext,
        config: ReadOptions,
        pyspark: LazyPySparkResource,
        storage_inventory: Rows,
        repository_history: Rows,
    ) -> Made:
        """Every manifest of a snapshot that stays (`live`), and those that only released snapshots name."""
        basis, lost = _basis(resource, context, repository_history), resource.lost(pyspark, storage_inventory)
        cache = resource.cache(context, pyspark, config, lost)
        snapshots = holders(session(pyspark), basis.retained, basis.retained.leaving(basis.state))
        named, reading = cache.rows(snapshots, snapshot_manifests())
        metadata = storage_inventory.frame.where(~F.col("address").startswith(CHUNKS))
        there = metadata.select("address", F.lit(True).alias("there"))
        every = manifests_of(snapshots, named).join(there, on="address", how="left")
        found = every.where(F.col("live") | F.col("there")).drop("there").cache()
        listed_at = AgeCutoff(storage_inventory.taken_at, resource.repository.settings.grace, issued=tells_no_time)
        stay = others(session(pyspark), basis.retained).where(F.col("address").startswith(SNAPSHOTS))
        live = found.where("live").select("address").unionByName(stay)
        access = resource.open_icechunk().access
        referenced = referenced_exist("metadata_exists", live, there, access, listed_at, lost)
        resource.note_missing(referenced)
        read = named.select(F.concat(F.lit(SNAPSHOTS), "snapshot_id").alias("address"))
        unread = stay.join(lost, on="address", how="left_semi").join(read, on="address", how="left_anti").count()
        numbers = {"snapshots_read": reading.files, "snapshot_bytes": reading.bytes, "lost": referenced.lost}
        rows = _of(resource, context, basis, found)
        rows = replace(rows, notes={**rows.notes, LOST: str(referenced.lost), UNREAD: str(unread)})
        return checked(rows, [referenced.check_result], numbers)

    return asset


def reachable_chunks(resource: RepositoryResource) -> dg.AssetsDefinition:
    """Return the asset of the chunks."""
    reads = ["storage_inventory", "reachable_manifests"]
    checks = ["manifests_whole", "chunks_exist"]

    @resource.asset("reachable_chunks", reads=reads, checks=checks)
    def asset(
        context: dg.AssetExecutionContext,
        config: ReadOptions,
        pyspark: LazyPySparkResource,
        storage_inventory: Rows,
        reachable_manifests: Rows,
    ) -> Made:
        """Every chunk that a manifest names; each manifest is read once, on executors, and cached by its id."""
        lost, manifests = resource.lost(pyspark, storage_inventory), reachable_manifests.frame
        cache = resource.cache(context, pyspark, config, lost)
        named, reading = cache.rows(manifests, manifest_chunks())
        found = chunks_of(manifests, named, cache.place).cache()
        opened, inventory = resource.open_icechunk(), storage_inventory.frame
        listed_at = AgeCutoff(storage_inventory.taken_at, resource.repository.settings.grace, issued=tells_no_time)
        refs = refs_of(named).cache()
        must_exist = found.where("live AND certain")
        referenced = referenced_exist("chunks_exist", must_exist, inventory, opened.access, listed_at, lost)
        resource.note_missing(referenced)
        unread = manifests.where("live").join(lost, on="address", how="left_semi").select("manifest_id")
        unread = unread.join(refs, on="manifest_id", how="left_anti").cache()
        read = manifests.join(unread, on="manifest_id", how="left_anti")
        check_results = [manifests_whole(read, refs), referenced.check_result]
        row = refs.agg(*(F.coalesce(F.sum(kind), F.lit(0)).alias(kind) for kind in KINDS)).first()
        assert row is not None
        files = {"manifests_read": reading.files, "manifest_bytes": reading.bytes, "lost": referenced.lost}
        numbers = {**row.asDict(), **files}
        notes = {LOST: str(referenced.lost), UNREAD: str(unread.count())}
        # The other notes stay: policy and history are the same.
        rows = Rows(found, reachable_manifests.taken_at, {**reachable_manifests.notes, **notes})
        return checked(rows, check_results, numbers)

    return asset


def deletion_candidates(resource: RepositoryResource) -> dg.AssetsDefinition:
    """Return the asset of the plan."""
    reads = ["policy_table", "storage_inventory", "repository_history", "reachable_manifests", "reachable_chunks"]

    @resource.asset("deletion_candidates", reads=reads, checks=GUARDS)
    def asset(
        context: dg.AssetExecutionContext,
        pyspark: LazyPySparkResource,
        policy_table: Rows,
        storage_inventory: Rows,
        repository_history: Rows,
        reachable_manifests: Rows,
        reachable_chunks: Rows,
    ) -> Made:
        """What may be deleted and why, one row per address; empty when any guard refuses."""
        day, settings, spark = day_of(context), resource.repository.icechunk, session(pyspark)
        terms = IcechunkTerms(
            repository=resource.name,
            day=day,
            policy=resource.snapshot_policy(day),
            policy_run=policy_table.notes[POLICY_RUN],
            grace=settings.grace,
            collect_overwritten=settings.collect_overwritten,
            max_live_shrink=settings.guards.max_live_shrink,
            now=resource.clock(),
            run_id=context.run_id,
            settle=settings.settle,
            settings=planned_terms(resource.repository),
        )
        basis = plan_basis_of(repository_history, terms.policy, day)
        others = resource.other_references(context, pyspark)
        inputs = IcechunkPlanInputs(storage_inventory, reachable_manifests, reachable_chunks, others)
        require_one_origin(terms, basis, inputs)
        planned = make_plan(spark, resource.warehouse, terms, basis, inputs)
        rows = resource.write_planned(day, planned, storage_inventory.taken_at)
        metadata = plan_metadata(resource.warehouse, planned)
        return checked(rows, planned.check_results, metadata, version=planned.version)

    return asset


def _basis(resource: RepositoryResource, context: dg.AssetExecutionContext, history: Rows) -> PlanBasis:
    day = day_of(context)
    return plan_basis_of(history, resource.snapshot_policy(day), day)


def _of(
    resource: RepositoryResource, context: dg.AssetExecutionContext, basis: PlanBasis, rows: DataFrame | pa.Table
) -> Rows:
    """Return rows with notes that identify their policy and history."""
    policy_hash = resource.snapshot_policy(day_of(context)).policy_hash
    return Rows(rows, basis.state.taken_at, {POLICY_HASH: policy_hash, **origin_of(basis)})
