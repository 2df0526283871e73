"""Makes the plan of an Icechunk repository: classifies the listed files, runs the guards, stores the plan and edits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from itertools import chain

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from retention_assets.config.settings import IcechunkSettings
from retention_assets.config.timestamps import start_of_day
from retention_assets.core import guards
from retention_assets.core.age import AgeCutoff, no_issue_time
from retention_assets.core.amounts import Amount, counted
from retention_assets.core.digest import digest_of, digested_buckets, table_digest
from retention_assets.core.guards import CheckResult
from retention_assets.core.other_references import NO_OTHERS, OtherReferences
from retention_assets.core.settle import candidates, settled, settling_start
from retention_assets.core.totals import Totals, observed_totals, with_totals
from retention_assets.errors import GuardRefused, ObjectMissing, TableContractError
from retention_assets.icechunk.edits.stored import hash_with_edits, keep_edits
from retention_assets.icechunk.formats.ids import encode_id
from retention_assets.icechunk.rules.candidates import (
    classified,
    due,
    hold_content,
    holding_of,
    is_generated,
    unchanged_until,
)
from retention_assets.icechunk.rules.planned import PlannedEdits
from retention_assets.icechunk.rules.retention import LOST_UNREACHED
from retention_assets.icechunk.source.history import history_hash, state_of
from retention_assets.icechunk.source.repository import IcechunkState
from retention_assets.icechunk.sweep.reach import live_addresses, snapshots_and_logs, snapshots_of
from retention_assets.icechunk.sweep.retained_set import RetainedSet, edits_of, encoded, retained_set_of
from retention_assets.inventory.unusual import name_warnings
from retention_assets.policy.lint import duration_warnings
from retention_assets.policy.snapshots import SnapshotPolicy
from retention_assets.spark.frames import CachedFrames, collect_together, from_arrow
from retention_assets.state.binding import require_of_storage
from retention_assets.state.memory import due_objects, require_no_future_plan
from retention_assets.state.plan import (
    Heads,
    Plan,
    Planned,
    plan_hash,
    withdraw_plan,
)
from retention_assets.state.reuse import Inputs, KnownPlan, inputs_digest, keep_known, known_plan
from retention_assets.state.storing import PlanObjects, keep_objects, live_not_shrunk, make_current, same_objects
from retention_assets.tables import REPOSITORY_HISTORY, STORAGE_INVENTORY
from retention_assets.warehouse.metadata import Details, needed
from retention_assets.warehouse.warehouse import Rows, Warehouse

GUARDS = (
    "live_not_empty",
    "live_not_shrunk",
    "nothing_young",
    "only_generated_names",
    "nothing_live",
    "only_listed",
    "totals_balance",
)
_NOT_APPLICABLE = "nothing_unknown"  # Icechunk has no staged list: age protects uncommitted files


@dataclass(frozen=True, slots=True)
class IcechunkPlanParameters:
    """The parameters of a plan."""

    repository: str
    day: date
    policy: SnapshotPolicy
    policy_run: str
    settings: IcechunkSettings
    now: datetime
    run_id: str
    terms: Mapping[str, str]  # the settings for which the plan is approved; see `planned_terms`


@dataclass(frozen=True, slots=True)
class PlanBasis:
    """The repository state that a plan is made from, its retained set, and the edits that lead to that set."""

    state: IcechunkState
    retained: RetainedSet
    edits: PlannedEdits
    history: Rows

    @property
    def cutoff(self) -> datetime:
        """The age cutoff (UTC): only files that the store wrote before it may be deleted."""
        return self.edits.cutoff

    @property
    def age_cutoff(self) -> AgeCutoff:
        """`cutoff` for Spark columns. Its `grace` is zero, because the grace period is already subtracted."""
        return AgeCutoff(self.cutoff, timedelta(0), issued=no_issue_time)

    def blocked(self, repository: str) -> str | None:
        """Return why a sweep would refuse the edits although they can be planned; None if a sweep would apply them."""
        details = self.history.details
        if details.replaced:
            return details.replaced
        if details.availability != "online":
            return (
                f"the repository is {details.availability} (reason: {details.limits or 'none given'}). When its owner "
                f"agrees, set it to online: `retention icechunk {repository} status online`."
            )
        if self.edits.deleted_tags and details.tags_deletable is not True:
            first = self.edits.deleted_tags[0]
            tags = counted(len(self.edits.deleted_tags), f"tag, {first!r}, has", f"tags, {first!r} first, have")
            return (
                f"{tags} expired, and the repository's feature flag delete_tag is off. Take delete_expired_tags out of "
                "the policy, or turn the flag on with icechunk (`Repository.set_feature_flag`)."
            )
        return None

    def heads(self) -> Heads:
        """Return the snapshot that each branch and each tag names in `state`."""
        history = self.state.history
        branches = {name: encode_id(tip) for name, tip in history.branches.items()}
        return Heads(branches, {name: encode_id(tip) for name, tip in history.tags.items()})


def plan_basis_of(history: Rows, policy: SnapshotPolicy, day: date) -> PlanBasis:
    """Return the state, its retained set and the edits under `policy`, as of 00:00 of `day` (UTC).

    The result depends only on the arguments, so every asset gets the same result. Errors: as `retained_set_of`.
    """
    state = state_of(history.table, history.details, history.taken_at)
    as_of = start_of_day(day)
    cutoff = needed(history.details.cutoff, REPOSITORY_HISTORY.name, "cutoff")
    retained = retained_set_of(state, policy, as_of, cutoff)
    return PlanBasis(state, retained, edits_of(state, retained, as_of, cutoff), history)


@dataclass(frozen=True, slots=True)
class IcechunkPlanInputs:
    """The tables that a plan is made from."""

    inventory: Rows
    manifests: Rows
    chunks: Rows
    others: OtherReferences = NO_OTHERS

    @property
    def lost(self) -> int:
        """The number of files that must stay but are acknowledged as lost."""
        return (self.manifests.details.lost or 0) + (self.chunks.details.lost or 0)

    @property
    def unread(self) -> int:
        """The number of snapshots and manifests that must stay but are lost, and that no run has ever read."""
        return (self.manifests.details.unread or 0) + (self.chunks.details.unread or 0)


def require_one_origin(parameters: IcechunkPlanParameters, basis: PlanBasis, inputs: IcechunkPlanInputs) -> None:
    """Refuse tables of another origin than the plan: another storage, policy, history, cutoff or other snapshots.

    This happens when some assets were materialized again and others were not. Errors: GuardRefused.
    """
    tables = {STORAGE_INVENTORY.name: inputs.inventory.details, REPOSITORY_HISTORY.name: basis.history.details}
    require_of_storage(parameters.repository, parameters.day, parameters.terms.get("storage"), tables)
    origin = origin_of(basis, parameters.policy.policy_hash)
    for name, rows in (("reachable_manifests", inputs.manifests), ("reachable_chunks", inputs.chunks)):
        if differing := rows.details.differing(origin):
            raise GuardRefused(
                f"{parameters.repository} {parameters.day}: {name} does not match the plan (another "
                f"{' and '.join(one.replace('_', ' ') for one in differing)}). Nothing was deleted. Plan again: "
                f"`retention plan {parameters.repository} --as-of {parameters.day}`."
            )


def origin_of(basis: PlanBasis, policy_hash: str) -> Details:
    """Return the details that identify the origin of a table.

    The same history can retain other snapshots later: an open session may need snapshots that a branch has left.
    """
    return Details(
        policy_hash=policy_hash,
        references_hash=history_hash(basis.state.history),
        cutoff=basis.cutoff,
        snapshots_digest=_snapshots_digest(basis),
    )


def _snapshots_digest(basis: PlanBasis) -> str:
    return table_digest(snapshots_of(basis.retained, basis.retained.leaving(basis.state)), "snapshot_id")


@dataclass(frozen=True, slots=True)
class _Checked:
    """The due objects of a plan with their totals, and the results of the guards."""

    objects: PlanObjects
    amount: Amount
    totals: Totals
    live: int
    check_results: Sequence[CheckResult]
    digest: str  # of the candidates, without their ETags


def make_plan(
    spark: SparkSession,
    warehouse: Warehouse,
    parameters: IcechunkPlanParameters,
    basis: PlanBasis,
    inputs: IcechunkPlanInputs,
    *,
    full: bool = False,
) -> Planned:
    """Make the plan of `parameters.day`, and store the plan with its edits if every guard passes.

    The day's earlier plan is withdrawn first. If a guard refuses, the day has no plan. If all inputs are those of the
    last plan, the objects and amounts are those of that plan. With `full`, every object is classified anyway.
    """
    withdraw_plan(warehouse, parameters.repository, parameters.day)
    require_no_future_plan(warehouse, parameters.repository, parameters.now)
    of_plan = inputs_of(parameters, basis, inputs)
    same = None if full else known_plan(warehouse, parameters.repository, of_plan, parameters.now)
    if same and (planned := _reused_plan(spark, warehouse, parameters, basis, inputs, of_plan, same)):
        return planned
    with CachedFrames() as frames:
        found = _checked(spark, warehouse, parameters, basis, inputs, frames)
        return _new_plan(spark, warehouse, parameters, basis, inputs, of_plan, found)


def inputs_of(parameters: IcechunkPlanParameters, basis: PlanBasis, inputs: IcechunkPlanInputs) -> Inputs:
    """Return everything that decides about an object, and the times up to which its age and its wait are counted."""
    state, retained = basis.state, basis.retained
    read_at = {
        "cutoff": basis.cutoff,
        "listed": inputs.inventory.taken_at,
        "settling_from": _settling_from(basis, inputs),
        "settling_until": state.taken_at,
    }
    digest = inputs_digest(
        repository=parameters.repository,
        listed=inputs.inventory.details.digest,
        manifests=inputs.manifests.details.inputs,
        chunks=inputs.chunks.details.inputs,
        lost=[inputs.lost, inputs.unread],
        history=history_hash(state.history),
        snapshots=_snapshots_digest(basis),
        logs=encoded(retained.transaction_logs),
        # `None` makes the digest None: references of other repositories are not compared, so the plan is not reused.
        others="" if inputs.others.parts is None else None,
        policy=parameters.policy.policy_hash,
        settings=parameters.settings.model_dump(mode="json"),
        terms=dict(parameters.terms),
    )
    return Inputs(digest, read_at)


def _reused_plan(
    spark: SparkSession,
    warehouse: Warehouse,
    parameters: IcechunkPlanParameters,
    basis: PlanBasis,
    inputs: IcechunkPlanInputs,
    of_plan: Inputs,
    same: KnownPlan,
) -> Planned | None:
    """Store a plan with the objects of an earlier one. None: its objects cannot be reused.

    The edits depend on the day, so the plan gets edits and a hash of its own.
    """
    limit = parameters.settings.guards.max_live_shrink
    found = same_objects(spark, warehouse, same, parameters.day, limit)
    if found is None:
        return None
    objects, check_results = found
    plan = _with_state(same.plan, parameters, basis, inputs, same.digest)
    try:
        stored = _store(spark, warehouse, parameters, basis, inputs, plan, objects)
    except (TableContractError, ObjectMissing):  # another run removed what is copied
        return None
    keep_known(warehouse, replace(same, plan=plan, inputs=of_plan, check_results=check_results))
    return Planned(stored, plan, check_results, same.plan)


def _new_plan(
    spark: SparkSession,
    warehouse: Warehouse,
    parameters: IcechunkPlanParameters,
    basis: PlanBasis,
    inputs: IcechunkPlanInputs,
    of_plan: Inputs,
    found: _Checked,
) -> Planned:
    """Store the plan with its edits, unless a guard refuses."""
    if guards.refusals(found.check_results):
        return Planned(found.objects.candidates.limit(0), None, found.check_results)
    plan = Plan(
        repository=parameters.repository,
        day=parameters.day,
        plan_hash="",
        policy_hash=parameters.policy.policy_hash,
        policy_run=parameters.policy_run,
        references_hash="",
        candidates=found.amount,
        totals=found.totals.by_state,
        live=found.live,
        collected=0,
        warnings=(),
        blocked=None,
        instance=None,
        made_at=parameters.now,
        run_id=parameters.run_id,
        first_wait_ends=found.totals.first_wait_ends,
        last_wait_ends=found.totals.last_wait_ends,
        lost=inputs.lost,
    )
    plan = _with_state(plan, parameters, basis, inputs, found.digest)
    stored = _store(spark, warehouse, parameters, basis, inputs, plan, found.objects)
    changes_at = found.totals.changes("cutoff")
    keep_known(warehouse, KnownPlan(plan, of_plan, found.digest, changes_at, found.check_results, plan.made_at))
    return Planned(stored, plan, found.check_results)


def _with_state(
    plan: Plan, parameters: IcechunkPlanParameters, basis: PlanBasis, inputs: IcechunkPlanInputs, digest: str
) -> Plan:
    """Return the plan with its hash, and with everything that depends on its run and on the repository now."""
    references = hash_with_edits(history_hash(basis.state.history), basis.edits)
    warnings = _warnings(parameters, basis, inputs.unread), name_warnings(inputs.inventory), inputs.others.warnings
    return replace(
        plan,
        day=parameters.day,
        plan_hash=plan_hash(parameters.repository, parameters.policy.policy_hash, references, digest),
        policy_run=parameters.policy_run,
        references_hash=references,
        warnings=tuple(chain.from_iterable(warnings)),
        blocked=basis.blocked(parameters.repository),
        made_at=parameters.now,
        run_id=parameters.run_id,
        terms=parameters.terms,
    )


def _store(
    spark: SparkSession,
    warehouse: Warehouse,
    parameters: IcechunkPlanParameters,
    basis: PlanBasis,
    inputs: IcechunkPlanInputs,
    plan: Plan,
    objects: PlanObjects,
) -> DataFrame:
    """Store the plan with its edits, its objects and all that later plans read, and return the stored candidates."""
    # The due objects are stored even if the settling time is zero, because a later plan may have another one.
    stored = keep_objects(warehouse, plan, objects, basis.heads(), (inputs.inventory.taken_at, basis.state.taken_at))
    keep_edits(warehouse, parameters.repository, plan.plan_hash, history_hash(basis.state.history), basis.edits)
    make_current(spark, warehouse, plan, objects, parameters.policy, inputs.inventory.frame)
    return stored


def _settling_from(basis: PlanBasis, inputs: IcechunkPlanInputs) -> datetime:
    read_at = basis.state.taken_at
    return settling_start(min(inputs.inventory.taken_at, read_at), read_at)


def _checked(
    spark: SparkSession,
    warehouse: Warehouse,
    parameters: IcechunkPlanParameters,
    basis: PlanBasis,
    inputs: IcechunkPlanInputs,
    frames: CachedFrames,
) -> _Checked:
    inventory, manifests, chunks = inputs.inventory.frame, inputs.manifests.frame, inputs.chunks.frame
    stay = snapshots_and_logs(spark, basis.retained)
    gone = from_arrow(spark, snapshots_of(basis.retained, basis.retained.leaving(basis.state))).where("NOT live")
    holding = holding_of(manifests, chunks, stay, gone)
    settings = parameters.settings
    objects = inputs.others.keep(classified(inventory, holding, basis.age_cutoff, settings.collect_overwritten))
    if inputs.unread:
        objects = hold_content(objects)
    earlier = due_objects(spark, warehouse, parameters.repository)
    found_at, read_at = _settling_from(basis, inputs), basis.state.taken_at
    objects = settled(objects, earlier.objects, found_at, read_at, settings.settle, settle_expired=True)
    objects, observed = with_totals(objects, unchanged_until(basis.age_cutoff, settings.collect_overwritten))
    named = frames.compute(due(objects))
    chosen = candidates(named)
    live = live_addresses(manifests, chunks, stay).withColumns(
        {"last_modified": F.lit(None).cast("timestamp"), "certain": F.lit(True)}
    )
    compared = guards.tally(
        chosen, live, inventory, basis.age_cutoff, listing_cutoff=None, staged_known=True, generated=is_generated
    )
    found = collect_together({"tally": compared, "digest": digested_buckets(chosen.drop("etag"))})
    (tally,) = found["tally"]
    amount, totals = Amount(tally["candidates"], tally["candidate_bytes"]), observed_totals(observed)
    of_candidates = guards.check_candidates(tally)
    check_results = (
        guards.live_not_empty(tally["live"], totals.objects),
        live_not_shrunk(
            warehouse, parameters.repository, parameters.day, tally["live"], settings.guards.max_live_shrink
        ),
        *(check_result for check_result in of_candidates if check_result.guard != _NOT_APPLICABLE),
        guards.totals_balance(totals.by_state, tally["listed"], amount),
    )
    digest = digest_of(found["digest"])
    tables = basis.history, inputs.inventory, inputs.manifests, inputs.chunks, inputs.others
    planned = PlanObjects(chosen, named, earlier.plans, tables)
    return _Checked(planned, amount, totals, tally["live"], check_results, digest)


def _warnings(parameters: IcechunkPlanParameters, basis: PlanBasis, unread: int) -> list[str]:
    warnings = []
    if unread:
        warnings.append(
            f"{counted(unread, 'snapshot or manifest is', 'snapshots or manifests are')} needed but lost, and no run "
            "ever read these files. So the files that they reference are unknown, and no manifest and no chunk is "
            f"deleted. Restore the lost files, or delete the branches and tags that need them. {LOST_UNREACHED}"
        )
    if problem := basis.blocked(parameters.repository):
        warnings.append(f"This plan must not be executed: {problem}")
    if not parameters.settings.grace:
        warnings.append("The grace period is zero: files that an open session has not yet committed can be deleted.")
    return [*warnings, *duration_warnings(parameters.policy.durations())]
