"""Makes a plan: classifies the listed objects, runs the guards, and stores the plan if no guard refuses it."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from retention_assets.config.durations import format_duration
from retention_assets.config.settings import LakeFSSettings
from retention_assets.config.timestamps import start_of_day
from retention_assets.core import guards
from retention_assets.core.age import AgeCutoff
from retention_assets.core.amounts import Amount, counted
from retention_assets.core.digest import digest_of, digested_buckets
from retention_assets.core.guards import CheckResult, LiveListed
from retention_assets.core.other_references import NO_OTHERS, OtherReferences
from retention_assets.core.settle import candidates, settled, settling_start
from retention_assets.core.states import YOUNG
from retention_assets.core.totals import Totals, observed_totals, with_totals
from retention_assets.errors import GuardRefused, ObjectMissing, TableContractError
from retention_assets.inventory.unusual import name_warnings
from retention_assets.lakefs.names.columns import issued_at
from retention_assets.lakefs.names.legacy import (
    KINDS,
    is_own_name,
    keep_old_names,
    kinds_warning,
    with_foreign_names,
)
from retention_assets.lakefs.rules.candidates import (
    classified,
    commits_by_address,
    due,
    held_paths,
    live_entries,
    one_by_address,
    with_names,
)
from retention_assets.lakefs.rules.lifecycle import kept_by_duplicates, whole_pairs, with_lifecycle
from retention_assets.lakefs.rules.references import References
from retention_assets.lakefs.rules.reflog import Memory, SeenHead, lost_commits, memory_digest, reported_heads
from retention_assets.lakefs.rules.same_content import (
    at_risk,
    etag_differs,
    head_contents,
    keep_same_content,
    of_same_content,
    to_compare,
    unreferenced,
)
from retention_assets.lakefs.rules.tables import REFERENCES, references_of
from retention_assets.lakefs.source.checksums import FEW_OBJECTS, has_unread, md5_of, md5_of_few
from retention_assets.lakefs.source.inventory_snapshot import STILL_LISTED, is_usable
from retention_assets.lakefs.sweep.guards import (
    NEW_LIST,
    ONE_RUN,
    USE_SERVER,
    partial_staged_list,
    unusable_staged_list,
)
from retention_assets.lakefs.sweep.memory import keep_memory
from retention_assets.objectstore.access import StoreAccess
from retention_assets.policy.lint import duration_warnings
from retention_assets.policy.rules import Policy
from retention_assets.spark.frames import CachedFrames, collect_together, from_arrow
from retention_assets.state.acknowledged import acknowledged_addresses, first_of, record_missing
from retention_assets.state.approval import terms_hash
from retention_assets.state.binding import require_of_storage
from retention_assets.state.ledger import collected_addresses
from retention_assets.state.memory import due_objects, require_no_future_plan
from retention_assets.state.plan import (
    Duplicate,
    Heads,
    Plan,
    Planned,
    last_plan,
    plan_hash,
    withdraw_plan,
)
from retention_assets.state.reuse import Inputs, KnownPlan, inputs_digest, keep_known, known_plan
from retention_assets.state.storing import PlanObjects, keep_objects, live_not_shrunk, make_current, same_objects
from retention_assets.tables import COMMIT_GRAPH, DUE_OBJECTS, STORAGE_INVENTORY
from retention_assets.warehouse.metadata import Details, needed
from retention_assets.warehouse.warehouse import Rows, Warehouse

_ONE_DAY = timedelta(days=1)  # a plan warns of references older than this, and of commits further in the future
_FEW = 5  # names in a message
_ORIGINS = {  # in messages
    "policy_hash": "policy",
    "references_hash": "references",
    "memory_digest": "deleted branches that earlier plans found",
    "terms_hash": "settings",
}
_FEW_DUPLICATES = 3  # addresses that another path keeps, and paths of each


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """The tables that a plan is made from, each with the time when it was taken."""

    inventory: Rows
    staged: Rows
    graph: Rows
    addresses: Rows
    others: OtherReferences = NO_OTHERS

    @property
    def staged_known(self) -> bool:
        """Whether there is a staged list. Without one, any object may be staged."""
        return self.staged.details.known is True

    @property
    def oldest(self) -> datetime:
        """The time until which listing, staged list (if there is one) and references are all complete."""
        return min(self.inventory.taken_at, self.settling_until)

    @property
    def settling_from(self) -> datetime:
        """The time at which the settling time begins for an object that no earlier plan found due."""
        return settling_start(min(self.inventory.taken_at, *self.checked_at), max(self.checked_at))

    @property
    def settling_until(self) -> datetime:
        """The time by which the settling time of an object must be over: the older time of staged list and references.

        So the staged list of a plan that deletes an object is newer than the references of the first plan that found
        the object due. An object that was staged after the first plan's list was written, and before its references
        were read, is in the later list.
        """
        return min(self.staged_until, self.graph.taken_at) if self.staged_known else self.graph.taken_at

    @property
    def staged_until(self) -> datetime:
        """The time until which the staged list has every staged object. Tables of earlier versions do not have it."""
        return self.staged.details.complete_until or self.staged.taken_at

    @property
    def checked_at(self) -> tuple[datetime, ...]:
        """The times of the staged list (if there is one) and the references."""
        references_at = self.graph.taken_at
        return (self.staged.taken_at, references_at) if self.staged_known else (references_at,)

    @property
    def references_hash(self) -> str:
        """The hash of the references of the commit graph."""
        return needed(self.graph.details.references_hash, COMMIT_GRAPH.name, "references_hash")

    def references(self) -> References:
        """Return all commits, branches (hidden ones too) and tags of the commit graph."""
        return references_of(self.graph.columns(*REFERENCES), self.graph.taken_at)

    def kinds_in_use(self) -> frozenset[str]:
        """Return the kinds of old names that lakeFS gave to objects of the repository; see `names.legacy`.

        Tables of earlier versions may not have them. Then objects with old names stay.
        """
        return self.addresses.details.legacy_kinds or frozenset()


@dataclass(frozen=True, slots=True)
class PlanParameters:
    """The parameters of a plan."""

    repository: str
    day: date
    policy: Policy
    policy_run: str  # the run that read this version of the policy
    settings: LakeFSSettings
    now: datetime
    run_id: str
    access: StoreAccess  # to the objects; some are read to compute checksums
    memory: Memory  # the heads and commits that earlier plans found
    terms: Mapping[str, str]  # `planned_terms`; a plan without them is not approved

    @property
    def as_of(self) -> datetime:
        """The time 00:00 UTC of the day. Source: docs/retention.md, "Rule"."""
        return start_of_day(self.day)

    @property
    def of_dump(self) -> bool:
        """Whether the references are those of a dump, and not of a server."""
        return self.settings.source.dump is not None

    def reported_heads(self, references: References) -> tuple[SeenHead, ...]:
        """Return the heads of earlier plans that are gone and still keep commits. See `reflog.reported_heads`."""
        return reported_heads(references, self.memory, self.policy, self.as_of)


def blocked(parameters: PlanParameters, inputs: PlanInputs, references: References) -> str | None:
    """Return why a plan from these tables must not be executed; None if it may.

    Source: docs/uncommitted.md, "The order of reading is a safety property".
    """
    if problem := lost_commits(parameters.repository, references, parameters.memory, parameters.policy):
        return problem
    if not inputs.staged_known:
        return (
            "no staged list is known, so staged objects cannot be distinguished from others. Name the folder of the "
            "server's staged list in `staged`, or use `source.api`."
        )
    of_dump = parameters.of_dump
    times = inputs.staged.taken_at, inputs.staged_until, inputs.graph.taken_at
    if problem := unusable_staged_list(*times, of_dump=of_dump, settle=parameters.settings.settle):
        return f"{problem} {NEW_LIST if of_dump else ONE_RUN}"
    problem = partial_staged_list(parameters.terms.get("namespace", ""), of_dump=of_dump)
    return problem and f"{problem} {USE_SERVER}"


def require_one_origin(parameters: PlanParameters, inputs: PlanInputs) -> None:
    """Refuse an inventory of another storage, and addresses of another policy, settings, references or memory.

    This happens when some assets were materialized again and others were not. Errors: GuardRefused.
    """
    tables = {STORAGE_INVENTORY.name: inputs.inventory.details}
    require_of_storage(parameters.repository, parameters.day, parameters.terms.get("storage"), tables)
    origin = Details(
        policy_hash=parameters.policy.policy_hash,
        references_hash=inputs.references_hash,
        memory_digest=memory_digest(inputs.references(), parameters.memory, parameters.policy),
        terms_hash=terms_hash(parameters.terms),
    )
    differing = inputs.addresses.details.differing(origin)
    if differing:
        named = " and ".join(_ORIGINS[one] for one in differing)
        raise GuardRefused(
            f"{parameters.repository} {parameters.day}: the addresses do not match the plan (different: {named}). "
            f"Nothing was deleted. Plan again: `retention plan {parameters.repository} --as-of {parameters.day}`."
        )


@dataclass(frozen=True, slots=True)
class Classification:
    """The listed objects, classified under a policy. No guard has run yet, and nothing is stored."""

    due: DataFrame  # the candidates and the waiting objects
    totals: Observation  # of all listed objects: see `observed_totals`
    live: DataFrame  # every live entry
    pairs: DataFrame  # `addresses` with the columns of `with_lifecycle`
    references: References
    age_cutoff: AgeCutoff
    legacy: frozenset[str]  # the kinds of old names that count as generated
    unread: bool  # whether the content of an object could not be read now, so that the object was kept

    @property
    def candidates(self) -> DataFrame:
        """The candidates, one row per address."""
        return candidates(self.due)


@dataclass(frozen=True, slots=True)
class CheckSummary:
    """The amounts in a classification, and the results of the guards."""

    totals: Totals
    candidates: Amount
    live: int  # addresses
    listed: LiveListed  # the result of the guard `live_listed`
    check_results: Sequence[CheckResult]
    digest: str  # of the candidates, without their ETags
    unused_prefixes: Sequence[str]  # of holds in force: the repository has no path below them
    duplicates: tuple[Duplicate, ...]  # a few of the addresses that are due at one path and that another path keeps
    absent: int  # live addresses that are not listed, of any age

    def known(self, plan: Plan, inputs: Inputs, *, unread: bool) -> KnownPlan:
        """Return what a later plan from the same inputs takes over. `unread`: see `Classification`."""
        if self.absent or unread:  # later, the address may be so old that it must be listed, or the object can be read
            inputs = replace(inputs, digest=None)
        changes_at = self.totals.changes("oldest")
        return KnownPlan(plan, inputs, self.digest, changes_at, self.check_results, plan.made_at, self.unused_prefixes)


def classify(
    parameters: PlanParameters,
    inputs: PlanInputs,
    frames: CachedFrames,
    *,
    earlier: DataFrame | None = None,
    planned: DataFrame | None = None,
) -> Classification:
    """Classify every listed object under the policy of `parameters`. Nothing is written.

    Plans and comparisons with another policy both use this function. For a plan, it also reads objects that may have
    the same content as an entry of a head, if their ETags do not show this.

    Args:
        parameters: the parameters of the plan.
        inputs: the tables that the plan is made from.
        frames: keeps what is cached until the caller has used the classification.
        earlier: for a plan, the `due_objects` of the last plan. An object that is not among them has to settle.
        planned: for another policy, the `due_objects` of the current plan. A policy does not change which objects are
            unreferenced. So unreferenced objects stay if the current plan does not name them, and no object is read.
    """
    settings = parameters.settings
    age_cutoff = AgeCutoff(inputs.oldest, settings.grace, settings.token_life, issued=issued_at)
    prefixes = parameters.policy.held_prefixes(parameters.day)
    inventory, staged = inputs.inventory.frame, inputs.staged.frame
    references = inputs.references()
    addresses = inputs.addresses.frame
    pairs = with_lifecycle(
        whole_pairs(addresses) if parameters.policy.lifecycle else addresses,
        parameters.policy.lifecycle,
        parameters.memory.branch_names(references.branches),
        parameters.as_of,
    )
    legacy = KINDS if settings.legacy_names else inputs.kinds_in_use()
    by_address = commits_by_address(pairs, prefixes)
    objects = classified(inventory, by_address, staged, age_cutoff, staged_known=inputs.staged_known)
    objects = with_foreign_names(objects, legacy)
    if planned is None and references.hides_old_objects(of_dump=parameters.of_dump):
        objects = keep_old_names(objects)
    objects = frames.compute(inputs.others.keep(objects))
    is_unread = False
    if planned is None:
        hidden, is_unread = _of_same_content(objects, pairs, parameters.access, frames)
    else:
        hidden = unreferenced(objects).select("address").join(planned, on="address", how="left_anti")
    if hidden is not None:
        objects = keep_same_content(objects, hidden)
    if earlier is not None:
        objects = settled(
            objects,
            earlier,
            inputs.settling_from,
            inputs.settling_until,
            settings.settle,
            settle_expired=settings.settle_expired,
        )
    objects, totals = with_totals(objects, F.when(F.col("state") == YOUNG, age_cutoff.young_until(F.col("reason"))))
    found = due(objects)
    columns = [name for name in ("state", *DUE_OBJECTS.schema.names) if name in found.columns]
    named = frames.cache(with_names(frames.compute(found.select(*columns)), pairs))
    live = live_entries(pairs, staged, prefixes)
    return Classification(named, totals, live, pairs, references, age_cutoff, legacy, is_unread)


def _of_same_content(
    objects: DataFrame, pairs: DataFrame, access: StoreAccess, frames: CachedFrames
) -> tuple[DataFrame | None, bool]:
    """Return the addresses of unreferenced candidates that may be staged; None: there are none.

    For this, objects are read whose ETag does not show their MD5: see `md5_of`. Also return `has_unread`.
    """
    contents = frames.cache(head_contents(pairs, objects))
    risky = frames.cache(at_risk(objects, contents))
    wanted = to_compare(risky, contents)
    found = collect_together(
        {
            "risky": risky.agg(F.count(F.lit(1)).alias("objects")),
            "objects": objects.agg(F.count_if(etag_differs()).alias("differing")),
            "wanted": wanted.limit(FEW_OBJECTS + 1),
        }
    )
    if not found["risky"][0]["objects"]:
        return None, False
    are_checksums = not found["objects"][0]["differing"]
    few = md5_of_few(found["wanted"], access, etags_are_checksums=are_checksums)
    if few is not None:
        return of_same_content(risky, from_arrow(objects.sparkSession, few)), has_unread(few)
    compared = frames.cache(md5_of(wanted, access, etags_are_checksums=are_checksums))
    return of_same_content(risky, compared), has_unread(compared)


def run_checks(
    spark: SparkSession,
    warehouse: Warehouse,
    parameters: PlanParameters,
    inputs: PlanInputs,
    classification: Classification,
) -> CheckSummary:
    """Run the guards on a classification and return their results. Reads earlier plans and ledgers; writes nothing."""
    inventory, live, chosen = inputs.inventory.frame, classification.live, classification.candidates
    settings = parameters.settings
    listing_cutoff = AgeCutoff(inputs.inventory.taken_at, settings.grace, issued=issued_at)
    compared = guards.tally(
        chosen,
        live,
        inventory,
        classification.age_cutoff,
        listing_cutoff=listing_cutoff,
        staged_known=inputs.staged_known,
        generated=partial(is_own_name, legacy=classification.legacy),
    )
    prefixes = parameters.policy.held_prefixes(parameters.day)
    queries = {"tally": compared, "digest": digested_buckets(chosen.drop("etag"))}
    if prefixes:
        queries["held"] = held_paths(inputs.addresses.frame, prefixes)
    if parameters.policy.lifecycle:
        queries["duplicates"] = kept_by_duplicates(classification.pairs, _FEW_DUPLICATES)
    found = collect_together(queries)
    (tally,) = found["tally"]
    unused = [prefix for at, prefix in enumerate(prefixes) if not found["held"][0][str(at)]]
    listed_live = guards.ALL_LISTED
    if tally["unlisted"]:
        listed_live = _unlisted(spark, warehouse, parameters, classification, inventory, listing_cutoff)
    totals = observed_totals(classification.totals)
    amount = Amount(tally["candidates"], tally["candidate_bytes"])
    check_results = (
        listed_live.check_result,
        guards.live_not_empty(tally["live"], totals.objects),
        live_not_shrunk(
            warehouse, parameters.repository, parameters.day, tally["live"], settings.guards.max_live_shrink
        ),
        *guards.check_candidates(tally),
        guards.totals_balance(totals.by_state, tally["listed"], amount),
    )
    digest = digest_of(found["digest"])
    duplicates = _duplicates(found.get("duplicates", ()))
    return CheckSummary(
        totals, amount, tally["live"], listed_live, check_results, digest, unused, duplicates, tally["absent"]
    )


def _duplicates(rows: Iterable[Mapping[str, Any]]) -> tuple[Duplicate, ...]:
    """Return the rows of `kept_by_duplicates`, the largest first."""
    return tuple(
        Duplicate(row["address"], *(", ".join(row[name][:_FEW_DUPLICATES]) for name in ("let_go", "kept_by")))
        for row in sorted(rows, key=lambda row: (-row["size"], row["address"]))
    )


def _unlisted(
    spark: SparkSession,
    warehouse: Warehouse,
    parameters: PlanParameters,
    classification: Classification,
    inventory: DataFrame,
    listing_cutoff: AgeCutoff,
) -> guards.LiveListed:
    """Return the result of `live_listed` when live addresses are missing from the listing."""
    live = one_by_address(classification.live).where("certain")
    listed = _listed_before(spark, warehouse, parameters)
    with CachedFrames() as frames:
        unlisted = frames.cache(guards.unlisted_live(live, inventory, listing_cutoff))
        collected = _not_listed_since(listed, collected_addresses(spark, warehouse, parameters.repository, unlisted))
        acknowledged = acknowledged_addresses(spark, warehouse, parameters.repository)
        found = guards.live_listed(unlisted, inventory, collected, acknowledged)
    if listed:
        listed.require_unchanged()
    return found


def _listed_before(spark: SparkSession, warehouse: Warehouse, parameters: PlanParameters) -> Rows | None:
    """Return the inventory of the last plan of an earlier day; None if there is none that can be used."""
    before = last_plan(warehouse, parameters.repository, parameters.day - timedelta(days=1))
    table = parameters.repository, STORAGE_INVENTORY.name
    if before is None or not is_usable(warehouse, *table, before.day.isoformat()):
        return None
    return warehouse.rows(spark, *table, before.day)


def _not_listed_since(listed: Rows | None, collected: DataFrame) -> DataFrame:
    """Return the collected addresses, without those that the earlier inventory `listed` after their sweep.

    Somebody brought the objects of these addresses back. If such an object is missing now, no sweep of ours deleted it.
    """
    if listed is None:
        return collected.select("address")
    brought_back = collected.where(F.col("at") < F.lit(listed.taken_at - STILL_LISTED))
    brought_back = brought_back.join(listed.frame, on="address", how="left_semi")
    return collected.join(brought_back, on="address", how="left_anti").select("address")


def make_plan(
    spark: SparkSession, warehouse: Warehouse, parameters: PlanParameters, inputs: PlanInputs, *, full: bool = False
) -> Planned:
    """Make the plan of `parameters.day`, and store it if no guard refuses it.

    The day's earlier plan is always withdrawn. A plan from the same inputs as the last one is the same plan: then only
    its day and the times of its inputs are new. With `full`, every object is classified anyway.
    """
    withdraw_plan(warehouse, parameters.repository, parameters.day)
    require_no_future_plan(warehouse, parameters.repository, parameters.now)
    of_plan = inputs_of(parameters, inputs)
    same = None if full else known_plan(warehouse, parameters.repository, of_plan, parameters.now)
    if same and (planned := _reused_plan(spark, warehouse, parameters, inputs, of_plan, same)):
        return planned
    with CachedFrames() as frames:
        earlier = due_objects(spark, warehouse, parameters.repository)
        classification = classify(parameters, inputs, frames, earlier=earlier.objects)
        return _new_plan(spark, warehouse, parameters, inputs, of_plan, classification, earlier.plans)


def inputs_of(parameters: PlanParameters, inputs: PlanInputs) -> Inputs:
    """Return everything that decides about an object, and the times up to which its age and its wait are counted."""
    policy = parameters.policy
    names = parameters.memory.branch_names(inputs.references().branches) if policy.lifecycle else []
    digest = inputs_digest(
        repository=parameters.repository,
        listed=inputs.inventory.details.digest,
        staged=inputs.staged.details.digest,
        staged_known=inputs.staged_known,
        addresses=inputs.addresses.details.inputs,
        references=inputs.references_hash,
        old_names=sorted(inputs.kinds_in_use()),
        others="" if inputs.others.parts is None else None,  # they are not compared: no digest, so nothing is reused
        policy=policy.policy_hash,
        holds=sorted(policy.held_prefixes(parameters.day)),
        lifecycle=[parameters.as_of, *names] if policy.lifecycle else [],
        settings=parameters.settings.model_dump(mode="json"),
        terms=dict(parameters.terms),
    )
    read_at = {
        "oldest": inputs.oldest,
        "listed": inputs.inventory.taken_at,
        "settling_from": inputs.settling_from,
        "settling_until": inputs.settling_until,
    }
    return Inputs(digest, read_at)


def _reused_plan(
    spark: SparkSession,
    warehouse: Warehouse,
    parameters: PlanParameters,
    inputs: PlanInputs,
    of_plan: Inputs,
    same: KnownPlan,
) -> Planned | None:
    """Store a plan with the objects of an earlier one. None: its objects cannot be reused."""
    limit = parameters.settings.guards.max_live_shrink
    found = same_objects(spark, warehouse, same, parameters.day, limit)
    if found is None:
        return None
    objects, check_results = found
    references = inputs.references()
    plan = _with_state(same.plan, parameters, inputs, references, same.unused_prefixes)
    record_missing(warehouse, parameters.repository, "live_listed", [], parameters.now)
    try:
        stored = _store(spark, warehouse, parameters, inputs, references, plan, objects)
    except (TableContractError, ObjectMissing):  # another run removed what is copied
        return None
    keep_known(warehouse, replace(same, plan=plan, inputs=of_plan, check_results=check_results))
    return Planned(stored, plan, check_results, same.plan)


def _new_plan(
    spark: SparkSession,
    warehouse: Warehouse,
    parameters: PlanParameters,
    inputs: PlanInputs,
    of_plan: Inputs,
    classification: Classification,
    includes: Collection[str],
) -> Planned:
    """Run the guards, and store the plan if none refuses it. `includes`: see `keep_due`."""
    found = run_checks(spark, warehouse, parameters, inputs, classification)
    chosen, check_results, listed = classification.candidates, found.check_results, found.listed
    missing = [] if listed.check_result.passed or listed.missing is None else first_of(listed.missing)
    record_missing(warehouse, parameters.repository, "live_listed", missing, parameters.now)
    if guards.refusals(check_results):
        return Planned(chosen.limit(0), None, check_results)
    policy_hash, references_hash = parameters.policy.policy_hash, inputs.references_hash
    plan = Plan(
        repository=parameters.repository,
        day=parameters.day,
        plan_hash=plan_hash(parameters.repository, policy_hash, references_hash, found.digest),
        policy_hash=policy_hash,
        policy_run=parameters.policy_run,
        references_hash=references_hash,
        candidates=found.candidates,
        totals=found.totals.by_state,
        live=found.live,
        collected=listed.collected,
        warnings=(),
        blocked=None,
        instance=None,
        made_at=parameters.now,
        run_id=parameters.run_id,
        first_wait_ends=found.totals.first_wait_ends,
        last_wait_ends=found.totals.last_wait_ends,
        lost=listed.lost,
        duplicates=found.duplicates,
    )
    references = classification.references
    plan = _with_state(plan, parameters, inputs, references, found.unused_prefixes)
    tables = inputs.inventory, inputs.staged, inputs.graph, inputs.addresses, inputs.others
    objects = PlanObjects(chosen, classification.due, includes, tables)
    stored = _store(spark, warehouse, parameters, inputs, references, plan, objects)
    keep_known(warehouse, found.known(plan, of_plan, unread=classification.unread))
    return Planned(stored, plan, check_results)


def _with_state(
    plan: Plan, parameters: PlanParameters, inputs: PlanInputs, references: References, unused_prefixes: Sequence[str]
) -> Plan:
    """Return the plan with everything that depends on when and where it is made, and not on single objects."""
    problem = blocked(parameters, inputs, references)
    return replace(
        plan,
        day=parameters.day,
        policy_run=parameters.policy_run,
        warnings=tuple(_warnings(parameters, inputs, references, problem, unused_prefixes)),
        blocked=problem,
        instance=inputs.graph.details.instance or None,
        made_at=parameters.now,
        run_id=parameters.run_id,
        terms=parameters.terms,
        reflog=tuple(f"{head.kind} {head.name}" for head in parameters.reported_heads(references)),
    )


def _store(
    spark: SparkSession,
    warehouse: Warehouse,
    parameters: PlanParameters,
    inputs: PlanInputs,
    references: References,
    plan: Plan,
    objects: PlanObjects,
) -> DataFrame:
    """Store the plan with its objects and all that later plans read, and return the stored candidates."""
    heads = Heads(references.branches, references.tags)
    stored = keep_objects(warehouse, plan, objects, heads, inputs.checked_at)
    keep_memory(warehouse, plan, references, parameters.policy)
    make_current(spark, warehouse, plan, objects, parameters.policy, inputs.inventory.frame)
    return stored


def _warnings(
    parameters: PlanParameters,
    inputs: PlanInputs,
    references: References,
    problem: str | None,
    unused_prefixes: Sequence[str],
) -> list[str]:
    """Return the warnings of a plan. `problem`: see `blocked`. `unused_prefixes`: see `CheckSummary`."""
    warnings = []
    if problem:
        warnings.append(f"This plan must not be executed: {problem}")
    warnings += [
        f"The hold on the prefix {prefix!r} keeps nothing: no commit has a path below it. Compare its spelling with "
        "the paths of the repository."
        for prefix in unused_prefixes
    ]
    warnings += duration_warnings(parameters.policy.durations())
    taken_at, settings = inputs.graph.taken_at, parameters.settings
    oldest_dump = settings.source.oldest_dump
    if oldest_dump is not None and parameters.now - taken_at > oldest_dump:
        warnings.append(
            f"The dump was taken at {taken_at:%Y-%m-%d %H:%M} UTC. `retention sweep` refuses dumps that are older than "
            f"{format_duration(oldest_dump)}, because they do not show which objects are live again by now. "
            "Replace it with a new dump (`lakectl refs-dump`), taken after a new staged list, plan again, and sweep. "
            "`retention sweep --dump-age` accepts an older dump."
        )
    elif oldest_dump is None and parameters.now - taken_at > _ONE_DAY:
        warnings.append(
            f"The references were read at {taken_at:%Y-%m-%d %H:%M} UTC. They do not show which objects are live again "
            "by now: a sweep reads the references again."
        )
    if odd := sorted(
        one.commit_id for one in references.commits.values() if one.created_at > parameters.now + _ONE_DAY
    ):
        warnings.append(
            f"{counted(len(odd), 'commit has', 'commits have')} a date that is impossible or in the future, such as "
            f"{odd[0]}. The version that such a commit replaced is kept for its retention period after that date. If "
            "the date is impossible, the version is kept for ever."
        )
    if references.hides_old_objects(of_dump=parameters.of_dump):
        warnings.append(
            "A commit is older than 2022, or its date is impossible. A dump does not show objects that were "
            "staged until April 2021 and never committed. So unreferenced objects with the names of that time stay. "
            "`source.api` shows which of them are staged, so that the others can be deleted."
        )
    if text := inputs.staged.details.staged_warning:
        warnings.append(text)
    if not settings.legacy_names and (warning := kinds_warning(inputs.kinds_in_use())):
        warnings.append(warning)
    if text := inputs.addresses.details.unusual_entries:
        warnings.append(f"In the commits, {text}.")
    if reason := inputs.inventory.details.fell_back:
        warnings.append(f"The whole store was listed, although `listing: optimized` is configured: {reason}.")
    if gone := [head for head in parameters.reported_heads(references) if head.kind == "branch"]:
        names = ", ".join(sorted({head.name for head in gone})[:_FEW])
        heads = counted(len(gone), "branch head of earlier plans is", "branch heads of earlier plans are")
        warnings.append(
            f"{heads} gone: {names}. The reflog keeps the commits of each branch for its retention period. If a "
            f"branch was deleted by mistake, create it again from its commit: {gone[0].name} was at "
            f"{gone[0].commit_id}. `retention lint {parameters.repository}` lists all of them with their commits."
        )
    warnings += name_warnings(inputs.inventory)
    if not settings.grace:
        warnings.append(
            "The grace period is zero: an object of a commit can be a candidate, however young it is. Only "
            "`token_life` protects a new upload that is not linked yet."
        )
    return [*warnings, *inputs.others.warnings]
