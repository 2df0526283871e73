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
from retention_assets.assets.resources import session
from retention_assets.assets.workbench import Made, Workbench, checked
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
    Scene,
    make_plan,
    origin_of,
    require_one_origin,
    scene_of,
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


def icechunk_assets(bench: Workbench) -> list[dg.AssetsDefinition]:
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
    return [make(bench) for make in makers]


def policy_table(bench: Workbench) -> dg.AssetsDefinition:
    """Return the asset of the policy."""

    @bench.asset("policy_table")
    def asset(context: dg.AssetExecutionContext) -> Made:
        """Every version of the policy that a run of this day saw, by `policy_hash` and run."""
        require_same_place(bench.warehouse, bench.repository)
        require_past(bench.warehouse, bench.name, bench.clock())
        withdraw_plan(bench.warehouse, bench.name, day_of(context))  # the plan's inputs are made again
        day, policy, run_id = day_of(context), bench.open_icechunk().policy(), context.run_id
        rows = snapshot_policy_rows(policy, day, run_id)
        versions = with_earlier_runs(bench.warehouse, bench.name, day, rows, run_id)
        notes = {POLICY_HASH: policy.policy_hash, POLICY_RUN: run_id}
        return checked(Rows(versions, bench.clock(), notes), numbers=notes)

    return asset


def storage_inventory(bench: Workbench) -> dg.AssetsDefinition:
    """Return the asset of the objects in the store."""

    @bench.asset("storage_inventory", checks=["listing_complete", "namespaces_apart", "clock_agrees"])
    def asset(context: dg.AssetExecutionContext, pyspark: LazyPySparkResource) -> Made:
        """Every object of the repository, listed now; chunks in parts, on executors."""
        withdraw_plan(bench.warehouse, bench.name, day_of(context))  # the plan's inputs are made again
        opened, taken_at = bench.open_icechunk(), bench.clock()
        access = opened.access
        reader = ObjectReader(access)
        places = icechunk_prefixes(reader)
        listed = Rows(list_objects(session(pyspark), access, places), taken_at)
        seen = F.collect_set(top_of(F.col("address"))).alias("places")
        rows, counted = bench.write("storage_inventory", day_of(context), listed, [seen, *unusual_counts()])
        check_results = [
            guards.listing_complete(unlisted(counted["places"], places, reader)),
            guards.namespaces_apart(bench.name, bench.places()),
            clocks(bench.repository, opened.access, bench.clock),
        ]
        notes = unusual_names(counted)
        return checked(replace(rows, notes=notes), check_results, notes)

    return asset


def repository_history(bench: Workbench) -> dg.AssetsDefinition:
    """Return the asset of the snapshots and references."""

    @bench.asset("repository_history", after=["policy_table", "storage_inventory"])
    def asset(context: dg.AssetExecutionContext) -> Made:
        """Every snapshot with its parent and the branches and tags that name or reach it, as of one instant."""
        state = bench.open_icechunk().source.state()
        listed = bench.warehouse.facts(bench.name, "storage_inventory", day_of(context)).taken_at
        cutoff = min(listed, state.taken_at) - bench.repository.settings.grace
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


def expired_snapshots(bench: Workbench) -> dg.AssetsDefinition:
    """Return the asset of the policy's decision on each snapshot."""

    @bench.asset("expired_snapshots", reads=["repository_history"])
    def asset(context: dg.AssetExecutionContext, repository_history: Rows) -> Made:
        """Every snapshot: kept, released by the policy or dropped since nothing reaches it; and why."""
        scene = _scene(bench, context, repository_history)
        rows = decision_rows(scene.state, scene.stand)
        edits = scene.edits
        names = ("released", "dropped", "deleted_branches", "deleted_tags")
        return checked(_of(bench, context, scene, rows), numbers={name: len(getattr(edits, name)) for name in names})

    return asset


def reachable_manifests(bench: Workbench) -> dg.AssetsDefinition:
    """Return the asset of the manifests."""
    reads = ["storage_inventory", "repository_history"]

    @bench.asset("reachable_manifests", after=["expired_snapshots"], reads=reads, checks=["metadata_exists"])
    def asset(
        context: dg.AssetExecutionContext,
        config: ReadOptions,
        pyspark: LazyPySparkResource,
        storage_inventory: Rows,
        repository_history: Rows,
    ) -> Made:
        """Every manifest of a snapshot that stays (`live`), and those that only released snapshots name."""
        scene, lost = _scene(bench, context, repository_history), bench.lost(pyspark, storage_inventory)
        cache = bench.cache(context, pyspark, config, lost)
        snapshots = holders(session(pyspark), scene.stand, scene.stand.leaving(scene.state))
        named, reading = cache.rows(snapshots, snapshot_manifests())
        metadata = storage_inventory.frame.where(~F.col("address").startswith(CHUNKS))
        there = metadata.select("address", F.lit(True).alias("there"))
        every = manifests_of(snapshots, named).join(there, on="address", how="left")
        found = every.where(F.col("live") | F.col("there")).drop("there").cache()
        listed_at = AgeCutoff(storage_inventory.taken_at, bench.repository.settings.grace, issued=tells_no_time)
        stay = others(session(pyspark), scene.stand).where(F.col("address").startswith(SNAPSHOTS))
        live = found.where("live").select("address").unionByName(stay)
        access = bench.open_icechunk().access
        referenced = referenced_exist("metadata_exists", live, there, access, listed_at, lost)
        bench.note_missing(referenced)
        read = named.select(F.concat(F.lit(SNAPSHOTS), "snapshot_id").alias("address"))
        unread = stay.join(lost, on="address", how="left_semi").join(read, on="address", how="left_anti").count()
        numbers = {"snapshots_read": reading.files, "snapshot_bytes": reading.bytes, "lost": referenced.lost}
        rows = _of(bench, context, scene, found)
        rows = replace(rows, notes={**rows.notes, LOST: str(referenced.lost), UNREAD: str(unread)})
        return checked(rows, [referenced.check_result], numbers)

    return asset


def reachable_chunks(bench: Workbench) -> dg.AssetsDefinition:
    """Return the asset of the chunks."""
    reads = ["storage_inventory", "reachable_manifests"]
    checks = ["manifests_whole", "chunks_exist"]

    @bench.asset("reachable_chunks", reads=reads, checks=checks)
    def asset(
        context: dg.AssetExecutionContext,
        config: ReadOptions,
        pyspark: LazyPySparkResource,
        storage_inventory: Rows,
        reachable_manifests: Rows,
    ) -> Made:
        """Every chunk that a manifest names; each manifest is read once, on executors, and cached by its id."""
        lost, manifests = bench.lost(pyspark, storage_inventory), reachable_manifests.frame
        cache = bench.cache(context, pyspark, config, lost)
        named, reading = cache.rows(manifests, manifest_chunks())
        found = chunks_of(manifests, named, cache.place).cache()
        opened, inventory = bench.open_icechunk(), storage_inventory.frame
        listed_at = AgeCutoff(storage_inventory.taken_at, bench.repository.settings.grace, issued=tells_no_time)
        refs = refs_of(named).cache()
        must_exist = found.where("live AND certain")
        referenced = referenced_exist("chunks_exist", must_exist, inventory, opened.access, listed_at, lost)
        bench.note_missing(referenced)
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


def deletion_candidates(bench: Workbench) -> dg.AssetsDefinition:
    """Return the asset of the plan."""
    reads = ["policy_table", "storage_inventory", "repository_history", "reachable_manifests", "reachable_chunks"]

    @bench.asset("deletion_candidates", reads=reads, checks=GUARDS)
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
        day, settings, spark = day_of(context), bench.repository.icechunk, session(pyspark)
        terms = IcechunkTerms(
            repository=bench.name,
            day=day,
            policy=bench.snapshot_policy(day),
            policy_run=policy_table.notes[POLICY_RUN],
            grace=settings.grace,
            collect_overwritten=settings.collect_overwritten,
            max_live_shrink=settings.guards.max_live_shrink,
            now=bench.clock(),
            run_id=context.run_id,
            settle=settings.settle,
            settings=planned_terms(bench.repository),
        )
        scene = scene_of(repository_history, terms.policy, day)
        others = bench.other_references(context, pyspark)
        inputs = IcechunkPlanInputs(storage_inventory, reachable_manifests, reachable_chunks, others)
        require_one_origin(terms, scene, inputs)
        planned = make_plan(spark, bench.warehouse, terms, scene, inputs)
        rows = bench.write_planned(day, planned, storage_inventory.taken_at)
        metadata = plan_metadata(bench.warehouse, planned)
        return checked(rows, planned.check_results, metadata, version=planned.version)

    return asset


def _scene(bench: Workbench, context: dg.AssetExecutionContext, history: Rows) -> Scene:
    day = day_of(context)
    return scene_of(history, bench.snapshot_policy(day), day)


def _of(bench: Workbench, context: dg.AssetExecutionContext, scene: Scene, rows: DataFrame | pa.Table) -> Rows:
    """Return rows with notes that identify their policy and history."""
    policy_hash = bench.snapshot_policy(day_of(context)).policy_hash
    return Rows(rows, scene.state.taken_at, {POLICY_HASH: policy_hash, **origin_of(scene)})
