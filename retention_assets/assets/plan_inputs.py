"""The assets of a plan's inputs: policy, storage inventory, staged objects, commits. They are read in this order.

Each input has the time at which it was read. Candidates come from an older input, the storage inventory; liveness comes
from the newer ones. Source: DESIGN.md, The way data flows.
"""

from dataclasses import replace

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import functions as F

from retention_assets.assets.partitions import day_of
from retention_assets.assets.repository_resource import Made, RepositoryResource, checked
from retention_assets.assets.resources import session
from retention_assets.core import guards
from retention_assets.inventory.unusual import unusual_counts, unusual_names
from retention_assets.lakefs.rules.committed import commit_graph as graph_of
from retention_assets.lakefs.rules.references import references_hash
from retention_assets.lakefs.rules.tables import commit_graph_rows
from retention_assets.lakefs.source.inventory_snapshot import InventoryContext, place_of, take_snapshot
from retention_assets.lakefs.source.staged_objects import staged_objects
from retention_assets.lakefs.sweep.guards import heads_present
from retention_assets.lakefs.sweep.planning import INSTANCE, KNOWN
from retention_assets.objectstore.listing import unlisted
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.state.binding import require_same_place
from retention_assets.state.memory import require_past
from retention_assets.state.plan import POLICY_HASH, REFERENCES_HASH, withdraw_plan
from retention_assets.state.policies import POLICY_RUN, policy_versions, rules_in_force
from retention_assets.state.warehouse import Rows
from retention_assets.sweep.sweep_run import clocks


def policy_table(resource: RepositoryResource) -> dg.AssetsDefinition:
    """Return the asset of the policy."""

    @resource.asset("policy_table")
    def asset(context: dg.AssetExecutionContext) -> Made:
        """Every version of the policy that a run of this day saw, by `policy_hash` and run. Source: seed 002."""
        require_same_place(resource.warehouse, resource.repository)
        require_past(resource.warehouse, resource.name, resource.clock())
        withdraw_plan(resource.warehouse, resource.name, day_of(context))  # the plan's inputs are made again
        day, policy = day_of(context), resource.open().policy()
        rows = policy_versions(resource.warehouse, resource.name, day, policy, context.run_id)
        notes = {POLICY_HASH: policy.policy_hash, POLICY_RUN: context.run_id}
        return checked(Rows(rows, resource.clock(), notes), numbers=notes)

    return asset


def current_rules(resource: RepositoryResource) -> dg.AssetsDefinition:
    """Return the asset of the lifecycle rules in force."""

    @resource.asset("current_rules", reads=["policy_table"])
    def asset(policy_table: Rows) -> Made:
        """Each lifecycle rule of now, and up to which day it was last carried out whole. Source: seed 002."""
        rows = rules_in_force(resource.warehouse, resource.name, policy_table)
        return checked(Rows(rows, policy_table.taken_at))

    return asset


def storage_inventory(resource: RepositoryResource) -> dg.AssetsDefinition:
    """Return the asset of the objects in the store."""

    @resource.asset("storage_inventory", checks=["listing_complete", "namespaces_apart", "clock_agrees"])
    def asset(context: dg.AssetExecutionContext, pyspark: LazyPySparkResource) -> Made:
        """Every object below the namespace, `_lakefs/` left out: listed, or as the store's own inventory has it."""
        withdraw_plan(resource.warehouse, resource.name, day_of(context))  # the plan's inputs are made again
        spark, opened = session(pyspark), resource.open()
        snapshot = take_snapshot(InventoryContext(spark, opened, resource.warehouse, day_of(context), resource.clock))
        listed = Rows(snapshot.frame, snapshot.taken_at)
        seen = F.collect_set(place_of(F.col("address"))).alias("places")
        rows, counted = resource.write("storage_inventory", day_of(context), listed, [seen, *unusual_counts()])
        notes = {**snapshot.notes, **unusual_names(counted)}
        check_results = [
            guards.listing_complete(unlisted(counted["places"], snapshot.places, ObjectReader(opened.access))),
            guards.namespaces_apart(resource.name, resource.places()),
            clocks(resource.repository, opened.access, resource.clock),
        ]
        numbers: dict[str, float | str] = {
            "prefixes": len(snapshot.places.deep),
            "prefixes_listed": snapshot.listed,
            **notes,
        }
        return checked(replace(rows, notes=notes), check_results, numbers)

    return asset


def uncommitted_objects(resource: RepositoryResource) -> dg.AssetsDefinition:
    """Return the asset of the staged objects."""

    @resource.asset("uncommitted_objects", after=["storage_inventory"])
    def asset(context: dg.AssetExecutionContext, pyspark: LazyPySparkResource) -> Made:
        """What is staged on any branch, as the server lists it; `known` is false when nobody can tell."""
        opened = resource.open()
        staged = opened.source.staged()
        files, shown = (staged.files, staged.shown) if staged else ((), ())
        frame = staged_objects(session(pyspark), opened.access, files, opened.inside, shown)
        notes = {KNOWN: str(staged is not None).lower()}
        rows = Rows(frame, staged.taken_at if staged else resource.clock(), notes)
        if staged is not None:
            rows, _ = resource.write("uncommitted_objects", day_of(context), rows)  # `release` removes the list
            opened.source.release(staged)
        return checked(rows, numbers=notes)

    return asset


def commit_graph(resource: RepositoryResource) -> dg.AssetsDefinition:
    """Return the asset of the commits."""

    @resource.asset("commit_graph", after=["uncommitted_objects"], checks=["heads_present"])
    def asset() -> Made:
        """Every commit, dangling ones too, with the branches and tags that name or reach it."""
        references = resource.open().source.references()
        notes = {REFERENCES_HASH: references_hash(references), INSTANCE: references.instance or ""}
        rows = Rows(commit_graph_rows(graph_of(references)), references.taken_at, notes)
        numbers = {"branches": len(references.branches), "tags": len(references.tags)}
        return checked(rows, [heads_present(references)], numbers)

    return asset
