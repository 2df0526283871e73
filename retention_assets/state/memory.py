"""Stores data of a plan for later plans: the heads and commits that it read, and the objects that it found due.

The directories are `memory/<plan>` and `due_objects/<plan>` of a repository. A plan reads the directories of the plan
that saw the newest state of the repository. This need not be the newest plan: a plan from the tables of an old day saw
an older state. The document `newest_due.json` names the plan of the newest state, so a loss of its due objects is
noticed. The document `memory/newest.json` names the memory that was stored last, for the same reason. Plans that ran at
the same time did not read each other's due objects. Each set of due objects names the sets that it includes, and later
plans and sweeps also read the sets that are not included. Source: promises 10 and 11 of docs/safety.md.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, TypedDict

from pydantic import AfterValidator

from retention_assets.errors import GuardRefused, TableContractError
from retention_assets.state.lease import MARGIN
from retention_assets.state.plan import PLANNED_OBJECTS, Plan, made_at_name, made_name, planned_objects, time_in_name
from retention_assets.tables import DUE_OBJECTS, SAME_OBJECT
from retention_assets.warehouse.warehouse import Warehouse

if TYPE_CHECKING:  # Spark is imported in the functions that use it: commands without Spark start faster
    from pyspark.sql import DataFrame, SparkSession

MEMORY = "memory"
NEWEST_MEMORY = "newest.json"  # document in `MEMORY`: the name and the `seen_at` of the memory that was stored last
_ROWS = "_rows.json"  # document of due objects: the number of rows, the times of the state, and the included plans
_NEWEST_DUE = "newest_due.json"  # document with the name and the `seen_at` of the plan of the newest state
_WITHOUT_DUE = (
    f"Copy it from a backup of the warehouse. If there is none, remove this file and the directory {DUE_OBJECTS.name} "
    "of the repository: the settling time of all objects then begins again."
)
PLANS_STORED = 2  # the number of plans whose data is stored: the newest, and one that another run may still read
_LONGEST_READ = timedelta(hours=1)  # assumption: a plan reads the references of a repository in less time
LONGEST_WRITE = timedelta(days=1)  # if a plan is older and its data is incomplete, the plan was interrupted


class NewestMemory(TypedDict):
    """The keys of the document `NEWEST_MEMORY`."""

    name: str
    seen_at: datetime


class _NewestDue(TypedDict):
    """The keys of the document `_NEWEST_DUE`."""

    name: str
    seen_at: str


class _Rows(TypedDict):
    """The keys of the document `_ROWS`. Earlier versions did not write all of them."""

    rows: int
    seen_at: NotRequired[str]
    seen_until: NotRequired[Annotated[str, AfterValidator(time_in_name)]]
    includes: NotRequired[list[str]]


@dataclass(frozen=True, slots=True)
class EarlierDue:
    """The objects that earlier plans found due, also those that still wait, and the names of these plans."""

    objects: "DataFrame"
    plans: tuple[str, ...]


def forget(warehouse: Warehouse, repository: str) -> None:
    """Remove the memory and the due objects of all plans."""
    for table in (MEMORY, DUE_OBJECTS.name):
        warehouse.remove_directory(repository, table)
    warehouse.remove_document(repository, _NEWEST_DUE)


def require_no_future_plan(warehouse: Warehouse, repository: str, now: datetime) -> None:
    """Raise GuardRefused when a plan from the future stored a memory or due objects: a clock is or was wrong.

    Later plans would use this plan as the newest one. They would remove the data that they store themselves, and
    objects that they did not find due would count as due in every plan.
    """
    latest = made_at_name(now + MARGIN)
    found = [(table, name) for table in (MEMORY, DUE_OBJECTS.name) for name in warehouse.directories(repository, table)]
    ahead = [warehouse.location(repository, *parts) for parts in found if parts[1][: len(latest)] > latest]
    memories = [name for table, name in found if table == MEMORY]
    newest = (warehouse.read_document(repository, MEMORY, NEWEST_MEMORY, shape=NewestMemory) or {}).get("name", "")
    also = f" and {warehouse.location(repository, MEMORY, NEWEST_MEMORY)}" if newest[: len(latest)] > latest else ""
    remedy = (
        f"If a clock was wrong at that time, remove what that plan stored{also}. Later plans then use the memory of "
        "the plan before, and the settling time of all objects begins again."
    )
    if memories and min(memories)[: len(latest)] > latest:  # without them, the reflog would be lost
        until = time_in_name(max(memories)[: len(latest)])
        remedy = (
            f"If a clock was wrong at that time, wait until {until:%Y-%m-%d %H:%M} UTC, and plan again. Do not remove "
            "what that plan stored: no memory of an earlier plan is left, so the heads of deleted branches would be "
            "forgotten."
        )
    if ahead:
        raise GuardRefused(
            f"{repository}: a plan whose time is later than now, {now:%Y-%m-%d %H:%M} UTC, has stored "
            f"{' and '.join(ahead)}. No plan was made. Nothing was deleted. If this machine's clock is wrong, set it. "
            f"{remedy}"
        )


def due_objects(spark: "SparkSession", warehouse: Warehouse, repository: str) -> EarlierDue:
    """Return the objects that the plan of the newest state found due, also those that still wait.

    An object is left out if another plan that ran at the same time found it live: its settling time begins again.

    No objects are returned if there is no plan, or if the due objects of that plan were lost. The due objects of an
    earlier plan are not used instead: an object that was live in the meantime would count as due for the whole time.
    """
    from retention_assets.spark.frames import from_arrow

    stored, name = _stored(warehouse, repository)
    if name not in stored:
        return EarlierDue(from_arrow(spark, DUE_OBJECTS.schema.empty_table()), tuple(stored))
    due = _due_in_all(spark, warehouse, repository, stored, name, _not_included(stored, name))
    return EarlierDue(due, tuple(stored))


def included_by(warehouse: Warehouse, plan: Plan) -> tuple[str, ...] | None:
    """Return the names of the plans that `due_objects` reads now, if the result is what `plan` found due; else None.

    None if the two differ, because another plan saw a newer state or ran at the same time, or if rows are missing.
    """
    stored, name = _stored(warehouse, plan.repository)
    if name != made_name(plan) or name not in stored or _not_included(stored, name):
        return None
    try:
        _require_due(warehouse, plan.repository, name, stored[name].get("rows", 0))
    except TableContractError:  # the plan that computes all objects again names the damage and its remedy
        return None
    return tuple(stored)


def _due_in_all(
    spark: "SparkSession",
    warehouse: Warehouse,
    repository: str,
    documents: Mapping[str, Mapping[str, Any]],
    name: str,
    others: Collection[str],
) -> "DataFrame":
    """Return the due objects of the plan `name`, compared with those of the plans `others`: see `_due_in_both`."""
    due = _read(spark, warehouse, repository, name)
    for other in others:
        due = _due_in_both(due, _read(spark, warehouse, repository, other), _seen(documents, other, "seen_until"))
    return due


def _due_in_both(due: "DataFrame", others: "DataFrame", seen_until: str) -> "DataFrame":
    """Return `due` without the objects that were due before `seen_until` and that the other plan found live.

    The later `found_at` of the two plans counts: the other plan may have read a plan that found the object live before.
    `others`: the objects that the other plan found due. `seen_until`: when the other plan had read the repository. The
    time of its oldest table would be too early: an object may have become live while that plan read.
    """
    from pyspark.sql import functions as F

    named = others.select(*SAME_OBJECT, F.col("found_at").alias("found_by_other"))
    is_due = F.col("found_by_other").isNotNull() | (F.col("found_at") >= F.lit(time_in_name(seen_until)))
    both = due.join(named, on=list(SAME_OBJECT), how="left").where(is_due)
    return both.withColumn("found_at", F.greatest("found_at", "found_by_other")).select(*due.columns)


def named_since(spark: "SparkSession", warehouse: Warehouse, plan: Plan) -> "DataFrame | None":
    """Return (address, size, last_modified) of the objects that other plans allow a sweep of `plan` to delete.

    These are the candidates of the plan that saw the newest state, of any day. An object is left out if another plan,
    which ran at the same time as `plan` or later, found it live. None: these are all candidates of `plan`. A plan
    that was withdrawn meanwhile counts too.

    Errors: GuardRefused when candidates are no longer stored; TableContractError when due objects are incomplete.
    """
    name, (stored, newest) = made_name(plan), _stored(warehouse, plan.repository)
    newest = newest or name
    named = _candidates_of(newest, spark, warehouse, plan)
    read = name if name in stored else newest  # the due objects of an old plan are no longer stored
    others = [one for one in _not_included(stored, read) if one != newest] if read in stored else []
    if not others:
        return named
    due = _due_in_all(spark, warehouse, plan.repository, stored, read, others)
    if named is None:
        named = planned_objects(spark, warehouse, plan).select(*SAME_OBJECT)
    return named.join(due.select(*SAME_OBJECT), on=list(SAME_OBJECT), how="left_semi")


def _candidates_of(name: str, spark: "SparkSession", warehouse: Warehouse, plan: Plan) -> "DataFrame | None":
    """Return (address, size, last_modified) of the candidates of the plan `name`.

    None if this is `plan` itself or a plan with the same hash. Errors: GuardRefused when the candidates are no longer
    stored.
    """
    digits = name.rpartition("-")[2]  # the first digits of the hash
    if plan.plan_hash.startswith(digits):
        return None
    found = [one for one in warehouse.directories(plan.repository, PLANNED_OBJECTS) if one.startswith(digits)]
    if len(found) != 1 or not warehouse.is_complete(plan.repository, PLANNED_OBJECTS, found[0]):
        raise GuardRefused(
            f"{plan.repository} {plan.day}: the objects of the newest plan ({PLANNED_OBJECTS}/{digits}…) are not "
            f"stored. It is unknown whether that plan keeps objects of this plan. Nothing more was deleted. Plan "
            f"again: `retention plan {plan.repository}`."
        )
    return warehouse.frame(spark, plan.repository, PLANNED_OBJECTS, found[0]).select(*SAME_OBJECT)


def _stored(warehouse: Warehouse, repository: str) -> tuple[dict[str, dict[str, Any]], str | None]:
    """Return the documents of `_documents`, and the directory of the plan that saw the newest state.

    If the due objects of that plan were lost, the directory does not exist any more. None: no plan has stored due
    objects.
    """
    known = _read_newest_due(warehouse, repository)  # first: another plan may store a newer state meanwhile
    documents = _documents(warehouse, repository)
    seen = {name: _seen(documents, name) for name in documents}
    if known:
        seen[known["name"]] = known["seen_at"]
    return documents, max(seen, key=lambda name: (seen[name], name), default=None)


def _documents(warehouse: Warehouse, repository: str) -> dict[str, dict[str, Any]]:
    """Return the document `_ROWS` of each complete set of due objects, by the name of its plan.

    Earlier versions wrote it without some of its values, or not at all. If an earlier set has a document, a set without
    one is not complete: its plan was interrupted, or has not written the document yet.
    """
    parts, documents = (repository, DUE_OBJECTS.name), dict[str, dict[str, Any]]()
    for name in warehouse.directories(*parts):
        if warehouse.is_complete(*parts, name):
            document = _rows_of(warehouse, *parts, name)
            if document is not None or not any(documents.values()):
                documents[name] = document or {}
    return documents


def _rows_of(warehouse: Warehouse, *parts: str) -> dict[str, Any] | None:
    return warehouse.read_document(*parts, _ROWS, shape=_Rows, remedy=_WITHOUT_DUE)


def _read_newest_due(warehouse: Warehouse, repository: str) -> dict[str, Any] | None:
    return warehouse.read_document(repository, _NEWEST_DUE, shape=_NewestDue, remedy=_WITHOUT_DUE)


def _seen(documents: Mapping[str, Mapping[str, Any]], name: str, key: str = "seen_at") -> str:
    return str(documents[name].get(key, name.partition("-")[0]))  # earlier versions: when the plan was made


def _not_included(documents: Mapping[str, Mapping[str, Any]], name: str) -> list[str]:
    """Return the plans whose due objects the plan `name` did not read: they ran at the same time or later."""
    earlier = [one for one in documents if one < name]
    known = {name, *documents[name].get("includes", earlier)}  # earlier versions did not write `includes`
    return [one for one in documents if one not in known]


def due_objects_of(spark: "SparkSession", warehouse: Warehouse, plan: Plan) -> "DataFrame":
    """Return the objects that a plan found due. Errors: TableContractError when they are no longer stored."""
    return _read(spark, warehouse, plan.repository, _due_of(warehouse, plan))


def due_objects_location(warehouse: Warehouse, plan: Plan) -> str:
    """Return the directory of the objects that a plan found due. Errors: as `due_objects_of`."""
    return warehouse.location(plan.repository, DUE_OBJECTS.name, _due_of(warehouse, plan))


def _due_of(warehouse: Warehouse, plan: Plan) -> str:
    name = made_name(plan)
    if not warehouse.is_complete(plan.repository, DUE_OBJECTS.name, name):
        raise TableContractError(
            f"{plan.repository}: {DUE_OBJECTS.name} of the plan of {plan.day} is missing: only the newest plans have "
            f"it. Nothing was changed. {plan.again}"
        )
    return name


def _read(spark: "SparkSession", warehouse: Warehouse, repository: str, name: str) -> "DataFrame":
    from pyspark.sql.pandas.types import from_arrow_schema

    from retention_assets.spark.frames import opened_files

    written = _rows_of(warehouse, repository, DUE_OBJECTS.name, name)
    if written is not None:  # earlier versions did not write this document
        _require_due(warehouse, repository, name, written["rows"])
    directory = warehouse.location(repository, DUE_OBJECTS.name, name)
    return opened_files(spark).schema(from_arrow_schema(DUE_OBJECTS.schema)).parquet(directory)


def _require_due(warehouse: Warehouse, repository: str, name: str, written: int) -> None:
    remedy = (
        "Copy this directory from a backup of the warehouse, or remove it. If you remove it, the settling time of all "
        "objects begins again."
    )
    warehouse.require_row_count(written, repository, DUE_OBJECTS.name, name, remedy=remedy)


def keep_due(
    warehouse: Warehouse,
    plan: Plan,
    due: "DataFrame | Plan",
    read_at: Collection[datetime],
    includes: Collection[str],
) -> None:
    """Store the objects that a plan found due, and remove those of plans that are no longer read.

    `due`: rows of `DUE_OBJECTS`, or the plan that found the same objects due. `read_at`: the read times of the tables
    that determine the due objects. The oldest is the time of the state: later plans do not read the due objects of a
    plan of an older state, because an object that was live in the meantime would count as due for the whole time.
    `includes`: the names of the plans whose due objects the plan read (see `EarlierDue`).

    Errors: TableContractError when not all rows can be read back.
    """
    from retention_assets.warehouse.table_writer import write_counted

    parts, seen_at = (plan.repository, DUE_OBJECTS.name, made_name(plan)), made_at_name(min(read_at))
    if _rows_of(warehouse, *parts) is None:
        if isinstance(due, Plan):
            written = _copy_due(warehouse, due, parts)
        else:
            written = write_counted(due.select(*DUE_OBJECTS.schema.names), warehouse, *parts).rows
        seen_until = made_at_name(min(max(read_at) + _LONGEST_READ, plan.made_at))
        document = {"rows": written, "seen_at": seen_at, "seen_until": seen_until, "includes": sorted(includes)}
        warehouse.write_document(document, *parts, _ROWS)
        _require_due(warehouse, plan.repository, parts[-1], written)
    _keep_newest(warehouse, plan, seen_at)
    stored = _documents(warehouse, plan.repository)
    by_state = sorted(stored, key=lambda name: (_seen(stored, name), name))
    # The next plan reads the due objects of the newest state, and of the plans that these do not include.
    read = {*by_state[-PLANS_STORED:], *_not_included(stored, by_state[-1])}
    for old in warehouse.directories(*parts[:-1]):
        is_interrupted = old not in stored and old < made_at_name(plan.made_at - LONGEST_WRITE)
        is_read = old in read or old not in includes  # others ran at the same time as this plan
        if is_interrupted or (old in stored and not is_read):
            warehouse.remove_directory(*parts[:-1], old)


def _copy_due(warehouse: Warehouse, known: Plan, target: Sequence[str]) -> int:
    """Copy the due objects of the plan `known`, and return how many objects these are. Errors: as `due_objects_of`."""
    source = known.repository, DUE_OBJECTS.name, _due_of(warehouse, known)
    warehouse.copy_table(source, target)
    return int((_rows_of(warehouse, *source) or {}).get("rows", 0))


def _keep_newest(warehouse: Warehouse, plan: Plan, seen_at: str) -> None:
    """Store the name of the plan, unless the stored plan saw a newer state. A plan from the future does not count."""
    known = _read_newest_due(warehouse, plan.repository)
    if known is None or not seen_at < known["seen_at"] <= made_at_name(plan.made_at + MARGIN):
        document = {"name": made_name(plan), "seen_at": seen_at}
        warehouse.write_document(document, plan.repository, _NEWEST_DUE)
