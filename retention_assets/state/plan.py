"""The plan: the objects that a dry run shows and a sweep deletes. A plan is immutable and has a hash.

`plans/<day>/current.json` is the plan of the day that may be approved. The same directory has every plan that was made
for that day, until housekeeping removes old plans. `planned_objects/<hash>` has the objects of a plan.
`planned_heads/<hash>.json` has the heads of branches and tags at planning. Source: docs/safety.md,
"Guards: the checks of a plan".
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from retention_assets.config.documents import plain, problem_in
from retention_assets.core.amounts import Amount, plot_numbers
from retention_assets.core.states import STATES
from retention_assets.errors import GuardRefused, TableContractError, brief
from retention_assets.tables import DELETION_CANDIDATES
from retention_assets.warehouse.warehouse import Warehouse

if TYPE_CHECKING:  # Spark is imported in the functions that use it: commands without Spark start faster
    from pyspark.sql import DataFrame, SparkSession

    from retention_assets.core.guards import CheckResult

PLANS, PLANNED_OBJECTS, PLANNED_HEADS = "plans", "planned_objects", "planned_heads"
CURRENT = "current.json"  # the document of the current plan of a day
PAGE = "report.html"  # the page of the day's current plan, beside it
_SHORTEST_HASH = 8  # digits of the shortest abbreviation of a plan hash
_DIGITS = 12  # digits of the hash in the name of a plan
_MADE_AT = "%Y%m%dT%H%M%S%f"  # the time in the name of a plan


@dataclass(frozen=True, slots=True)
class Duplicate:
    """An address that is due at some paths, and that other paths keep. The texts name the first paths of each kind."""

    address: str
    let_go: str
    kept_by: str


@dataclass(frozen=True, slots=True)
class Plan:
    """One plan of one repository and day. Bytes are as listed; timestamps are UTC."""

    repository: str
    day: date
    plan_hash: str
    policy_hash: str
    policy_run: str  # the run whose rows of `policy_table` are the rules of this plan
    references_hash: str
    candidates: Amount
    totals: Mapping[str, Amount]  # all listed objects, by state
    live: int  # live addresses inside the namespace
    collected: int  # live addresses that our sweeps deleted before, according to the ledger
    warnings: tuple[str, ...]
    blocked: str | None  # the reason why no sweep may execute the plan; None: a sweep may
    instance: str | None  # the id of the repository, if its source has one; see `References`
    made_at: datetime
    run_id: str
    first_wait_ends: datetime | None = None  # when the first waiting object has settled; None: no object waits
    last_wait_ends: datetime | None = None  # when the last waiting object has settled
    reflog: tuple[str, ...] = ()  # gone heads of earlier plans that still keep objects, as `kind name`
    terms: Mapping[str, str] = field(default_factory=dict)  # `planned_terms`; empty: an earlier version made the plan
    lost: int = 0  # live addresses that are missing and that a person acknowledged as lost
    duplicates: tuple[Duplicate, ...] = ()  # a few of the addresses that only another path keeps, the largest first

    @property
    def key(self) -> tuple[str, str]:
        """The day and the hash, which identify the ledger of the plan."""
        return self.day.isoformat(), self.plan_hash

    @property
    def again(self) -> str:
        """The remedy in an error when this plan cannot be used."""
        return f"Plan again: `retention plan {self.repository} --as-of {self.day}`."

    def document(self) -> dict[str, Any]:
        """Return the plan as a JSON document."""
        document: dict[str, Any] = plain(self)
        return document


class _Terms(TypedDict):
    """The keys of a plan's document that are read although another version may have written it."""

    terms: NotRequired[dict[str, str]]


def plan_hash(repository: str, policy_hash: str, references_hash: str, digest: str) -> str:
    """Return the hash of a plan over its policy, references and candidates. Run id and time are not included."""
    parts = {"repository": repository, "policy": policy_hash, "references": references_hash, "candidates": digest}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Heads:
    """The target of every branch and every tag at planning, by name."""

    branches: Mapping[str, str]
    tags: Mapping[str, str]


def keep_planned(
    warehouse: Warehouse, plan: Plan, candidates: "DataFrame", heads: Heads, same: Plan | None = None
) -> "DataFrame":
    """Store the candidates and heads of a plan under its hash, and return the stored rows.

    Candidates that are already stored are not rewritten, unless they are damaged. But they are marked as complete
    again: housekeeping may be about to remove them with an old plan, and it removes nothing that was written since it
    made its list.

    `same`: an earlier plan with these candidates, if `planned_objects` has just read them. Its files are copied if no
    candidates are stored under the hash of the new plan.

    Errors: TableContractError when the stored rows are not as many as the plan has candidates.
    """
    from retention_assets.warehouse.table_writer import conform

    parts = plan.repository, PLANNED_OBJECTS, plan.plan_hash
    try:
        if same is None or same.plan_hash != plan.plan_hash:
            planned_objects(candidates.sparkSession, warehouse, plan)
        warehouse.mark_complete(*parts)
    except GuardRefused:
        if same is None:
            warehouse.write_frame(conform(candidates, DELETION_CANDIDATES), *parts)
        else:
            warehouse.copy_table((same.repository, PLANNED_OBJECTS, same.plan_hash), parts)
    _require_planned(warehouse, plan)
    warehouse.write_document(asdict(heads), plan.repository, PLANNED_HEADS, f"{plan.plan_hash}.json")
    return warehouse.frame(candidates.sparkSession, *parts)


def planned_directory(warehouse: Warehouse, plan: Plan) -> tuple[str, str, str]:
    """Return the directory of the candidates of the plan, as names below the root of the warehouse.

    The table `deletion_candidates` of the day may be of another plan. It is written after the plan becomes the current
    one: the run may have been killed before that, or two runs may have written the table at the same time.

    Errors: TableContractError when the candidates are no longer stored, or when rows are missing.
    """
    parts = plan.repository, PLANNED_OBJECTS, plan.plan_hash
    if not warehouse.is_complete(*parts):
        raise TableContractError(
            f"{plan.repository}: the objects of the plan of {plan.day} are no longer stored. Nothing was deleted. "
            f"{plan.again}"
        )
    _require_planned(warehouse, plan)
    return parts


def _require_planned(warehouse: Warehouse, plan: Plan) -> None:
    parts = plan.repository, PLANNED_OBJECTS, plan.plan_hash
    warehouse.require_row_count(plan.candidates.objects, *parts, remedy=plan.again)


def planned_objects(spark: "SparkSession", warehouse: Warehouse, plan: Plan) -> "DataFrame":
    """Return the candidates of the plan, as rows of `deletion_candidates`.

    Errors: GuardRefused when the stored rows are incomplete or damaged, or do not match the hash of the plan.
    """
    from retention_assets.core.digest import candidates_digest

    again = f"Nothing was deleted. {plan.again}"
    if not warehouse.is_complete(plan.repository, PLANNED_OBJECTS, plan.plan_hash):
        raise GuardRefused(
            f"{plan.repository} {plan.day}: the stored objects of the plan {plan.plan_hash} are not complete. {again}"
        )
    try:
        rows = warehouse.frame(spark, plan.repository, PLANNED_OBJECTS, plan.plan_hash)
        digest = candidates_digest(rows.drop("etag"))  # not hashed: an inventory may have no ETags
    except Exception as error:  # Spark has many kinds of errors for a damaged file
        raise GuardRefused(
            f"{plan.repository} {plan.day}: the stored objects of the plan {plan.plan_hash} cannot be read "
            f"({brief(error)}). {again}"
        ) from error
    if plan_hash(plan.repository, plan.policy_hash, plan.references_hash, digest) != plan.plan_hash:
        raise GuardRefused(
            f"{plan.repository} {plan.day}: the stored deletion_candidates do not match the hash of the plan. {again}"
        )
    return rows


def planned_of_all(spark: "SparkSession", warehouse: Warehouse, plans: Sequence[Plan]) -> "DataFrame":
    """Return the candidates of all `plans`, with the `plan_hash` of each. Plans whose rows were removed are left out.

    Plans of several days may have equal hashes. Their candidates are the same rows, and are returned once.

    Errors: TableContractError when the stored rows of a plan are not as many as it has candidates.
    """
    from pyspark.sql import functions as F

    from retention_assets.spark.frames import from_arrow

    columns = ["plan_hash", *DELETION_CANDIDATES.schema.names]
    found = from_arrow(spark, DELETION_CANDIDATES.schema.empty_table()).withColumn("plan_hash", F.lit(""))
    for plan in {one.plan_hash: one for one in plans}.values():
        if warehouse.is_complete(plan.repository, PLANNED_OBJECTS, plan.plan_hash):
            _require_planned(warehouse, plan)
            rows = warehouse.frame(spark, plan.repository, PLANNED_OBJECTS, plan.plan_hash)
            found = found.unionByName(rows.withColumn("plan_hash", F.lit(plan.plan_hash)))
    return found.select(*columns)


def planned_heads(warehouse: Warehouse, plan: Plan) -> Heads:
    """Return the heads of branches and tags at planning. Errors: GuardRefused when they are no longer stored."""
    heads = _read_heads(warehouse, plan.repository, f"{plan.plan_hash}.json")
    if heads is None:
        raise GuardRefused(
            f"{plan.repository} {plan.day}: the heads of branches and tags at planning are no longer stored. Nothing "
            f"was deleted. {plan.again}"
        )
    return heads


def _read_heads(warehouse: Warehouse, repository: str, name: str) -> Heads | None:
    document = warehouse.read_document(repository, PLANNED_HEADS, name, shape=Heads)
    return Heads(document["branches"], document["tags"]) if document else None


def heads_since(
    warehouse: Warehouse, repository: str, since: datetime
) -> list[tuple[datetime, datetime | None, Heads]]:
    """Return the heads that plans found and that may still have been current at `since` (UTC), oldest plan first.

    Each has the time at which its plan was made, and the time at which the next plan was made; None: there is none. A
    plan of an older day is not a next plan: it may have been made again from the stored tables of that day, with the
    heads of that day. Plans whose heads are no longer stored are left out.
    """
    stored = {name[:_DIGITS]: name for name in warehouse.documents(repository, PLANNED_HEADS)}
    plans = (
        (name.removesuffix(".json").rpartition("-"), day) for name, day in documents_of_plans(warehouse, repository)
    )
    known = [(time_in_name(at), day, stored[digits]) for (at, _, digits), day in plans if digits in stored]
    newest_days = accumulate((day for _, day, _ in known), max)
    found, next_at = list[tuple[datetime, datetime | None, str]](), None
    for (made_at, day, name), newest_day in reversed(list(zip(known, newest_days, strict=True))):
        if next_at is None or next_at >= since:
            found.append((made_at, next_at, name))
        if day == newest_day:
            next_at = made_at
    stored_heads = [(one, _read_heads(warehouse, repository, one[2])) for one in reversed(found)]
    return [(made_at, end, heads) for (made_at, end, _), heads in stored_heads if heads is not None]


def find_plan(warehouse: Warehouse, repository: str, start_of_hash: str, day: date | None = None) -> Plan:
    """Return the newest plan whose hash begins with `start_of_hash`. `day` limits the search to one day.

    Errors: GuardRefused unless exactly one hash matches.
    """
    wanted = start_of_hash.lower()
    found: dict[str, Plan] = {}
    days = [day.isoformat()] if day else warehouse.directories(repository, PLANS)
    for day_of_plan in days if len(wanted) >= _SHORTEST_HASH else ():
        for name in warehouse.documents(repository, PLANS, day_of_plan):
            if name == CURRENT or not _may_name(name, wanted):
                continue
            plan = plan_made(warehouse, repository, day_of_plan, name.removesuffix(".json"))
            if plan and plan.plan_hash.startswith(wanted):
                found[plan.plan_hash] = plan
    if len(found) == 1:
        return next(iter(found.values()))
    problem = f"{len(found)} plans were" if found else "no plan was"
    problem += f" found whose hash begins with {start_of_hash!r}"
    if len(wanted) < _SHORTEST_HASH:
        problem = f"{start_of_hash!r} has fewer than {_SHORTEST_HASH} digits, so no plan was looked for"
    raise GuardRefused(
        f"{repository}: {problem}. Nothing was changed. Give at least {_SHORTEST_HASH} digits of the hash of one plan. "
        f"`retention status {repository} --json` has the hash of the newest plan."
    )


def current_day_of(warehouse: Warehouse, repository: str, plan_hash: str) -> date | None:
    """Return the newest day whose current plan has this hash; None if no day has such a current plan."""
    for day in reversed(warehouse.directories(repository, PLANS)):
        document = warehouse.read_document(repository, PLANS, day, CURRENT)
        if document and document.get("plan_hash") == plan_hash:
            return date.fromisoformat(day)
    return None


def _may_name(name: str, wanted: str) -> bool:
    """Return whether the document `name` can be of a plan with the wanted hash: it has the first digits of the hash."""
    digits = name.removesuffix(".json").rpartition("-")[2]
    return digits.startswith(wanted) or wanted.startswith(digits)


def withdraw_plan(warehouse: Warehouse, repository: str, day: date) -> None:
    """Remove the current plan of the day and its page, so that no sweep executes it. Planning begins with this."""
    for name in (CURRENT, PAGE):
        warehouse.remove_document(repository, PLANS, day.isoformat(), name)


def made_name(plan: Plan) -> str:
    """Return a unique name for a plan. The names sort by the time at which the plans were made."""
    return f"{made_at_name(plan.made_at)}-{plan.plan_hash[:_DIGITS]}"


def made_at_name(at: datetime) -> str:
    """Return the first part of the names of plans that were made at this time (UTC)."""
    return at.strftime(_MADE_AT)


def time_in_name(name: str) -> datetime:
    """Return the time (UTC) of `made_at_name`."""
    return datetime.strptime(name, _MADE_AT).replace(tzinfo=UTC)


def keep_plan(warehouse: Warehouse, plan: Plan) -> None:
    """Store the plan among all plans of its day, and make it the current one."""
    made = f"{made_name(plan)}.json"
    warehouse.write_document(plan.document(), plan.repository, PLANS, plan.day.isoformat(), made)
    warehouse.write_document(plan.document(), plan.repository, PLANS, plan.day.isoformat(), CURRENT)


def load_plan(warehouse: Warehouse, repository: str, day: date) -> Plan:
    """Return the current plan of the day. Errors: GuardRefused when there is none."""
    document = warehouse.read_document(repository, PLANS, day.isoformat(), CURRENT)
    if document is None:
        raise GuardRefused(
            f"{repository}: there is no current plan of {day}. Nothing was deleted. "
            f"Make one: `retention plan {repository} --as-of {day}`."
        )
    return _plan(document, repository, day.isoformat())


def plan_made(warehouse: Warehouse, repository: str, day: str, name: str) -> Plan | None:
    """Return the plan with this `made_name`, also if it was withdrawn; None if its document was removed.

    Errors: TableContractError if another version wrote it.
    """
    document = warehouse.read_document(repository, PLANS, day, f"{name}.json")
    return None if document is None else _plan(document, repository, day)


def last_plan_of(warehouse: Warehouse, repository: str, day: date) -> Plan:
    """Return the current plan of the day. If the day has none now, return the plan that was made last.

    A planning run removes the current plan first, and a guard can refuse the next one.
    Errors: GuardRefused when the day never had a plan.
    """
    try:
        return load_plan(warehouse, repository, day)
    except GuardRefused:
        made = [name for name in warehouse.documents(repository, PLANS, day.isoformat()) if name != CURRENT]
        document = warehouse.read_document(repository, PLANS, day.isoformat(), max(made)) if made else None
        if document is None:
            raise
        return _plan(document, repository, day.isoformat())


def require_plan(warehouse: Warehouse, repository: str, day: date, plan_hash: str, *, undone: str = "changed") -> Plan:
    """Return the current plan of the day. Errors: GuardRefused if it has another hash.

    `undone`: completes the message "Nothing was ...", such as `approved`.
    """
    plan = load_plan(warehouse, repository, day)
    if plan.plan_hash != plan_hash.strip().lower():
        is_part = plan_hash.strip() and plan.plan_hash.startswith(plan_hash.strip().lower())
        whole = "Give the whole hash. " if is_part else ""
        raise GuardRefused(
            f"{repository}: {plan_hash} is not the current plan of {day}. The current plan is {plan.plan_hash}. "
            f"{whole}Nothing was {undone}. See what the current plan would delete: `retention show {repository} "
            f"deletion_candidates --as-of {day}`."
        )
    return plan


def require_not_blocked(plan: Plan) -> None:
    """Raise GuardRefused if no sweep may execute the plan."""
    if plan.blocked:
        raise GuardRefused(
            f"{plan.repository} {plan.day}: {plan.blocked} Nothing was deleted. Correct this, then plan again: "
            f"`retention plan {plan.repository} --as-of {plan.day}`."
        )


def require_same_policy(plan: Plan, policy_hash: str, undone: str = "was deleted") -> None:
    """Raise GuardRefused if the plan was made under another policy than the one with this hash.

    `undone`: completes the message "Nothing ...".
    """
    if policy_hash != plan.policy_hash:
        raise GuardRefused(
            f"{plan.repository} {plan.day}: the policy was changed after the plan was made. Nothing {undone}. "
            f"{plan.again}"
        )


def last_plan(warehouse: Warehouse, repository: str, until: date) -> Plan | None:
    """Return the newest plan of the day `until` or an earlier day, by the time it was made; None if there is none."""
    name, day = _last_document(warehouse, repository, until)
    return plan_made(warehouse, repository, day, name.removesuffix(".json")) if name else None


def last_terms(warehouse: Warehouse, repository: str) -> Mapping[str, str]:
    """Return the `terms` of the newest plan; empty if there is no plan, or if an earlier version made it."""
    name, day = _last_document(warehouse, repository, date.max)
    document = warehouse.read_document(repository, PLANS, day, name, shape=_Terms) if name else None
    return (document or {}).get("terms", {})


def _last_document(warehouse: Warehouse, repository: str, until: date) -> tuple[str, str]:
    """Return (name, day) of the document of the newest plan; two empty texts if there is none."""
    plans = [(name, day) for name, day in documents_of_plans(warehouse, repository) if day <= until.isoformat()]
    return plans[-1] if plans else ("", "")


def documents_of_plans(warehouse: Warehouse, repository: str) -> list[tuple[str, str]]:
    """Return (name, day) of the documents of all plans, of the oldest plan first."""
    files = (path.split("/")[-2:] for path in warehouse.tree(repository, PLANS) if path.endswith(".json"))
    return sorted((name, day) for day, name in files if name != CURRENT)


def _plan(document: Mapping[str, Any], repository: str, day: str) -> Plan:
    """Return the plan in a document that is stored under the name of `repository`, in the directory of this `day`.

    Errors: TableContractError if the plan is of another repository. Its sweep would take the lease, and write the
    ledger, under that name: two sweeps could run at once. TableContractError also if another version wrote it.
    """
    made_for = document.get("repository", repository)
    if isinstance(made_for, str) and made_for != repository:
        raise TableContractError(
            f"{repository}: the directory of this name in the warehouse has a plan of the repository {made_for}, for "
            f"the day {document.get('day')}. The directory was renamed or copied. Nothing was changed or deleted. Name "
            f"the directory and the repository in the configuration {made_for} again."
        )
    try:
        fields = {
            **document,
            "day": date.fromisoformat(document["day"]),
            "made_at": datetime.fromisoformat(document["made_at"]),
            "candidates": Amount(**document["candidates"]),
            "totals": {state: Amount(**amount) for state, amount in document["totals"].items()},
            "warnings": tuple(document["warnings"]),
            "reflog": tuple(document.get("reflog", ())),
            "duplicates": tuple(Duplicate(**one) for one in document.get("duplicates", ())),
            **{name: _timestamp(document.get(name)) for name in ("first_wait_ends", "last_wait_ends")},
        }
        plan = Plan(**fields)
        if problem := problem_in(document, Plan):
            raise ValueError(problem)
        return plan
    except (AttributeError, TypeError, KeyError, ValueError) as error:
        problem = f"has no {error.args[0]!r}" if isinstance(error, KeyError) else f"cannot be read ({error})"
        if unknown := sorted(document.keys() - Plan.__dataclass_fields__.keys()):
            problem = f"has the unknown field {unknown[0]!r}"
        raise TableContractError(
            f"{repository}: the plan of {day} was written by another version, or is damaged: it {problem}. Nothing "
            f"was deleted. Plan again: `retention plan {repository} --as-of {day}`. If the plan was swept, copy its "
            "document from a backup of the warehouse instead."
        ) from error


def _timestamp(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


@dataclass(frozen=True, slots=True)
class Planned:
    """The result of planning. If a guard refused, there are no candidates and no plan."""

    candidates: "DataFrame"
    plan: Plan | None
    check_results: Sequence["CheckResult"]
    same: Plan | None = None  # the earlier plan whose objects these are; None: all objects were classified

    @property
    def version(self) -> str | None:
        """The hash of the plan; None if a guard refused."""
        return self.plan.plan_hash if self.plan else None

    def numbers(self) -> dict[str, float | str]:
        """Return the numbers of the plan that Dagster plots, by name. Bytes are as listed.

        A state without objects has the number 0, so that plots have no gaps.
        """
        if self.plan is None:
            return {"plan_hash": "none: a guard refused"}
        return {
            "plan_hash": self.plan.plan_hash,
            "live_addresses": self.plan.live,
            "lost_addresses": self.plan.lost,
            **plot_numbers({**dict.fromkeys(STATES, Amount()), **self.plan.totals}),
        }
