"""Finds the tables and documents that the warehouse no longer needs, and removes them, without Spark.

This module removes only tables of old days, the objects, heads and edits of old plans that nobody swept, and batches of
caches that are no longer read. If `warehouse_keep.plans` is set, it also removes the documents and approvals of such
plans. Everything else stays: ledgers, records, policies, and the data that plans store for later plans.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from retention_assets.config.configuration import Repository
from retention_assets.config.durations import format_duration
from retention_assets.config.limits import KeepSettings
from retention_assets.config.settings import IcechunkSettings
from retention_assets.config.timestamps import Clock, start_of_day
from retention_assets.core.age import CLOCK_MARGIN
from retention_assets.core.amounts import counted
from retention_assets.errors import GuardRefused, StoreError
from retention_assets.icechunk.edits.stored import PLANNED_EDITS, PUBLICATIONS
from retention_assets.objectstore.access import open_store
from retention_assets.state.approval import APPROVALS, LAST_DECISION
from retention_assets.state.binding import is_bound_elsewhere
from retention_assets.state.clocks import require_clock
from retention_assets.state.lease import MARGIN, held_lease, lease_written_at, renew_lease
from retention_assets.state.ledger import LEDGERS, SURPLUS_LEDGERS, fence_of
from retention_assets.state.plan import CURRENT, PLANNED_HEADS, PLANNED_OBJECTS, PLANS, made_at_name
from retention_assets.state.records import newest_first, quarantined_in
from retention_assets.tables import (
    ADDRESSES,
    CACHED_MANIFESTS,
    CACHED_METARANGES,
    CACHED_RANGES,
    CACHED_SNAPSHOTS,
    POLICY_TABLE,
    REACHABLE_CHUNKS,
    REPOSITORY_HISTORY,
    STORAGE_INVENTORY,
    TABLES,
)
from retention_assets.warehouse.cache_batches import (
    cache_batches,
    complete_and_replaced,
    ids_of,
    merge_batches,
    need_merge,
)
from retention_assets.warehouse.warehouse import METADATA, REPLACED, SUCCESS, StoredFile, Warehouse

_CACHES = (CACHED_METARANGES, CACHED_RANGES, CACHED_SNAPSHOTS, CACHED_MANIFESTS)
_OLD_CACHES = ("range_entries", "manifest_chunks")  # of earlier versions
_DAILY = TABLES.keys() - {POLICY_TABLE.name}  # the rules in force follow from the policy tables of all days
_NEWEST_IS_READ = {STORAGE_INVENTORY.name, ADDRESSES.name, REACHABLE_CHUNKS.name}  # runs read the newest data
_LEDGER_DEPTH = 4  # ledger/<day>/<hash>/<sweep>/<file>
# Each run writes files of these names.
_NOT_UNIQUE = (f"/{SUCCESS}", f"/.{SUCCESS}.crc", f"/{METADATA}", f"/{REPLACED}")
_REPLACED_FOR = timedelta(days=1)  # a run that began before batches were merged may still read them


@dataclass(frozen=True, slots=True)
class Leftover:
    """A directory or document of the warehouse that is no longer needed."""

    path: str  # below the directory of the repository
    reason: str
    files: int
    bytes: int
    written_at: datetime  # of its newest file (UTC)


@dataclass(frozen=True, slots=True)
class _Tables:
    """All files of a repository in the warehouse. An entry is a directory or document in the directory of a table."""

    warehouse: Warehouse
    repository: Repository
    files: Mapping[str, StoredFile]  # by path below the directory of the repository
    entries: Mapping[tuple[str, str], Mapping[str, StoredFile]]  # by table and name

    @classmethod
    def of(cls, warehouse: Warehouse, repository: Repository) -> "_Tables":
        """List the files of a repository."""
        files = {path.partition("/")[2]: file for path, file in warehouse.tree(repository.name).items()}
        entries: dict[tuple[str, str], dict[str, StoredFile]] = {}
        for path, file in files.items():
            table, _, rest = path.partition("/")
            entries.setdefault((table, rest.partition("/")[0]), {})[path] = file
        return cls(warehouse, repository, files, entries)

    def of_table(self, *tables: str) -> list[str]:
        """Return the names of the entries of these tables, each once, sorted."""
        return sorted({name for table, name in self.entries if table in tables})

    def written_at(self, table: str, name: str) -> datetime:
        """Return when the newest file of an entry was written."""
        return max(file.written_at for file in self.entries[table, name].values())

    def leftover(self, path: str, reason: str) -> Leftover:
        """Return the leftover of an entry, or of one file below it."""
        table, name, *rest = path.split("/")
        files = [self.files[path]] if rest else list(self.entries[table, name].values())
        size = sum(file.size for file in files)
        return Leftover(path, reason, len(files), size, max(file.written_at for file in files))


@dataclass(frozen=True, slots=True)
class _Plans:
    """The plans of a repository, found by the names of their documents, by their ledgers and by their audit records."""

    documents: Mapping[str, StoredFile]  # by path; without `current.json` of each day
    swept: tuple[str, ...]  # hashes of plans that a sweep has started on
    open_days: frozenset[str]  # days of plans that have objects in quarantine, or whose last sweep has no record

    def documents_of(self, plan: str) -> list[str]:
        """Return the paths of the documents whose names have the first digits of this plan's hash."""
        return [path for path in self.documents if plan.startswith(_digits(path))]

    def is_swept(self, document: str) -> bool:
        """Return whether a document may belong to a plan that a sweep has started on."""
        return any(plan.startswith(_digits(document)) for plan in self.swept)


def _digits(document: str) -> str:
    """Return the first digits of a plan's hash, from the name of its document."""
    return document.removesuffix(".json").rpartition("-")[2]


def _day(document: str) -> str:
    """Return the day of a plan, from the path of its document."""
    return document.split("/")[1]


def leftovers(warehouse: Warehouse, repository: Repository, keep: KeepSettings, now: datetime) -> list[Leftover]:
    """Return the tables and documents of a repository that are no longer needed, sorted by path. Changes nothing.

    Errors: GuardRefused when the tables belong to another location than the configuration names.
    """
    if is_bound_elsewhere(warehouse, repository):
        raise GuardRefused(
            f"{repository.name}: its tables in the warehouse belong to another location than {repository.file} names. "
            f"Nothing was removed. Plan it: `retention plan {repository.name}`. If the plan is refused, give this "
            "repository another name in that file."
        )
    tables = _Tables.of(warehouse, repository)
    plans = _plans(tables)
    needed = _needed_days(tables, plans, now, keep)
    found = [
        *_old_partitions(tables, needed, keep, now),
        *_objects_of_plans(tables, plans, needed, keep, now),
        *_documents_of_plans(tables, plans, needed, keep, now),
        *_unread_batches(tables, keep, now),
    ]
    return [tables.leftover(path, reason) for path, reason in sorted(found)]


def _plans(tables: _Tables) -> _Plans:
    newest: dict[tuple[str, str], Mapping] = {}
    for _, record in newest_first(tables.warehouse, tables.repository.name):
        if record["plan_hash"]:
            newest.setdefault((record["day"], record["plan_hash"]), record)
    fences: dict[tuple[str, str], int] = {}
    for path in tables.files:
        if path.startswith((f"{LEDGERS}/", f"{SURPLUS_LEDGERS}/")) and path.count("/") == _LEDGER_DEPTH:
            _, day, plan, sweep, _ = path.split("/")
            fences[day, plan] = max(fences.get((day, plan), 0), fence_of(sweep) or 0)
    quarantined = [plan for plan, record in newest.items() if quarantined_in(record).objects]
    unfinished = [plan for plan, fence in fences.items() if plan not in newest or newest[plan]["fence"] < fence]
    swept = {plan for _, plan in [*newest, *fences]} | set(tables.of_table(PUBLICATIONS))
    documents = {
        path: file
        for path, file in tables.files.items()
        if path.startswith(f"{PLANS}/") and path.endswith(".json") and not path.endswith(f"/{CURRENT}")
    }
    return _Plans(documents, tuple(sorted(swept)), frozenset(day for day, _ in [*quarantined, *unfinished]))


def _needed_days(tables: _Tables, plans: _Plans, now: datetime, keep: KeepSettings) -> set[str]:
    """Return the days whose tables all stay, however old they are.

    A plan may be swept as long as an approval lasts (`approval.life`). An Icechunk plan reads the heads that plans
    found within `grace`, and those of the last plan before: see `heads_since`.
    """
    settings = tables.repository.settings
    life = max(keep.tables, settings.approval.life, settings.grace)
    needed = {*plans.open_days, *_newest_days(tables, now)}
    if isinstance(settings, IcechunkSettings):
        needed |= set(_days_compared(tables, now - settings.grace - settings.approval.life - CLOCK_MARGIN))
    needed |= {_day(path) for path, file in plans.documents.items() if file.written_at >= now - life}
    current = [_day(path) for path in tables.files if path.startswith(f"{PLANS}/") and path.endswith(f"/{CURRENT}")]
    made = {path.rpartition("/")[2]: _day(path) for path in plans.documents}
    # Two days stay for each of three groups (all plans, plans made up to now, and for Icechunk plans made before the
    # grace period): the day of the plan that was made last, and the newest day. They differ if an older day was planned
    # last.
    times = [now + MARGIN, *([now - settings.grace] if isinstance(settings, IcechunkSettings) else [])]
    groups = made, *([name for name in made if name <= made_at_name(at)] for at in times)
    newest = {day for names in groups if names for day in (made[max(names)], max(made[name] for name in names))}
    return needed | {*sorted(current)[-1:], *newest}


def _days_compared(tables: _Tables, since: datetime) -> Iterator[str]:
    """Yield the days whose `repository_history` was written after `since`, and the newest day before.

    Plans and sweeps compare the ops log with these histories, see `EarlierPlans`. Some of these days have no plan,
    because a guard refused it.
    """
    written = {
        path.split("/")[1]: file.written_at
        for path, file in tables.files.items()
        if path.startswith(f"{REPOSITORY_HISTORY.name}/") and path.endswith((f"/{METADATA}", f"/{REPLACED}"))
    }
    earlier = [day for day, at in written.items() if at < since]
    yield from written.keys() - set(earlier)
    yield from sorted(earlier, key=written.__getitem__)[-1:]


def _newest_days(tables: _Tables, now: datetime) -> Iterator[str]:
    """Yield the newest complete day of each table, and the days of the tables whose newest data runs read."""
    complete: dict[str, list[str]] = {}
    for table, day in tables.entries:
        location = f"{table}/{day}"
        if (
            table in _DAILY
            and _is_day(day)
            and {f"{location}/{METADATA}", f"{location}/{SUCCESS}"} <= tables.files.keys()
        ):
            complete.setdefault(table, []).append(day)
    for table, days in complete.items():
        yield max(days)
        if table in _NEWEST_IS_READ:
            name = tables.repository.name
            metadata = {day: tables.warehouse.metadata(name, table, date.fromisoformat(day)) for day in days}
            usable = sorted((metadata[day].taken_at, day) for day in days if metadata[day].details.refused is None)
            yield from (day for _, day in usable[-1:])
            yield from [day for taken_at, day in usable if taken_at <= now + MARGIN][-1:]


def _old_partitions(tables: _Tables, needed: set[str], keep: KeepSettings, now: datetime) -> Iterator[tuple[str, str]]:
    for table, day in tables.entries:
        if table in _DAILY and _is_day(day) and day not in needed:
            ended = start_of_day(date.fromisoformat(day)) + timedelta(days=1)
            if max(ended, tables.written_at(table, day)) < now - keep.tables:
                yield f"{table}/{day}", f"older than {format_duration(keep.tables)}"


def _objects_of_plans(
    tables: _Tables, plans: _Plans, needed: set[str], keep: KeepSettings, now: datetime
) -> Iterator[tuple[str, str]]:
    for folder in (PLANNED_OBJECTS, PLANNED_HEADS, PLANNED_EDITS):
        for name in tables.of_table(folder):
            plan = name.removesuffix(".json")
            documents = plans.documents_of(plan)
            newest = max([tables.written_at(folder, name), *(plans.documents[path].written_at for path in documents)])
            is_needed = plan in plans.swept or needed & {_day(path) for path in documents}
            if not is_needed and newest < now - keep.tables:
                yield f"{folder}/{name}", f"of a plan that nobody swept, older than {format_duration(keep.tables)}"


def _documents_of_plans(
    tables: _Tables, plans: _Plans, needed: set[str], keep: KeepSettings, now: datetime
) -> Iterator[tuple[str, str]]:
    if keep.plans is None:
        return
    reason = f"of a plan that nobody swept, older than {format_duration(keep.plans)}"
    gone = [
        path
        for path, file in plans.documents.items()
        if file.written_at < now - keep.plans and _day(path) not in needed and not plans.is_swept(path)
    ]
    stay = {_day(path) for path in plans.documents.keys() - set(gone)}
    for day in {_day(path) for path in gone} - stay:  # the other files of these days belong to these plans
        gone += [path for path in tables.entries[PLANS, day] if path not in plans.documents]
    yield from ((path, reason) for path in gone)
    for name in tables.of_table(APPROVALS):
        plan = name.partition(".")[0]
        is_old = tables.written_at(APPROVALS, name) < now - keep.plans
        if name == LAST_DECISION or not is_old or plan in plans.swept or not set(plans.documents_of(plan)) <= set(gone):
            continue
        document = tables.warehouse.read_document(tables.repository.name, APPROVALS, name)
        if "withdrawn_by" not in (document or {}):  # a budget could approve the same plan again later
            yield f"{APPROVALS}/{name}", reason


def _unread_batches(tables: _Tables, keep: KeepSettings, now: datetime) -> Iterator[tuple[str, str]]:
    for kind in _CACHES:
        cache = tables.warehouse, tables.repository.name, kind
        complete, replaced = complete_and_replaced(*cache)
        read = {batch.name for batch in complete} - replaced.keys()
        for table, batch in tables.entries:
            if table not in (kind, ids_of(kind)) or batch in read:
                continue
            if batch in replaced and replaced[batch] < now - _REPLACED_FOR:
                yield f"{table}/{batch}", "merged into another batch"
            elif batch not in replaced and tables.written_at(table, batch) < now - keep.tables:
                yield f"{table}/{batch}", "not complete"
    old = {name for kind in _OLD_CACHES for name in (kind, ids_of(kind))}
    for table, batch in tables.entries:
        if table in old and tables.written_at(table, batch) < now - keep.tables:
            yield f"{table}/{batch}", "of an earlier version"


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def remove_leftovers(
    warehouse: Warehouse,
    repository: Repository,
    keep: KeepSettings,
    run_id: str,
    log: Callable[[str], None],
    clock: Clock,
    removed: list[Leftover],
) -> None:
    """Merge small batches of the caches, remove the leftovers, and append each removed leftover to `removed`.

    The function holds the lease of the repository, so no sweep, restore or purge runs at the same time. A plan may run:
    files that are newer than the listing are not removed. The next call continues an interrupted removal.

    Errors: GuardRefused while another run holds the lease, or when the clock of this machine differs from the clock of
    the repository's store or of the warehouse's store; StoreError when something cannot be removed.
    """
    name = repository.name
    many = [kind for kind in _CACHES if need_merge(cache_batches(warehouse, name, kind))]
    if not many and not leftovers(warehouse, repository, keep, clock()):
        return
    # A clock that is ahead would take the lease of a running sweep.
    require_clock(repository, open_store(repository), clock, "was removed")
    with held_lease(warehouse, name, f"housekeeping {run_id}", clock, repository.settings.sweep.lease) as lease:
        _require_warehouse_clock(name, lease_written_at(warehouse, lease), clock())
        for kind in many:
            merge_batches(warehouse, name, kind, run_id)
        for leftover in leftovers(warehouse, repository, keep, clock()):
            lease = renew_lease(warehouse, lease, clock())
            if _remove(warehouse, name, leftover):
                removed.append(leftover)
            else:
                log(f"{name}/{leftover.path} was not removed: it is a link, or a run wrote to it after the listing.")


def _require_warehouse_clock(name: str, written: datetime, now: datetime) -> None:
    """Raise GuardRefused if this machine's clock differs from the clock of the warehouse's store.

    `written`: when the store wrote the new lease, by the store's clock.
    """
    if abs(now - written) > MARGIN:
        raise GuardRefused(
            f"{name}: this machine's clock says {now:%Y-%m-%d %H:%M:%S} UTC, and the store of the warehouse "
            f"says {written:%Y-%m-%d %H:%M:%S} UTC. Nothing was removed. Set the clock, then run the same "
            "command again."
        )


def _remove(warehouse: Warehouse, name: str, leftover: Leftover) -> bool:
    """Remove a leftover. Return False if it is a link or was written after it was listed. Then the newer files stay.

    A plan may write the leftover again at any time, also while this process is suspended. So only files with unique
    names are removed by name. The time of each other file is read just before the file is removed.
    """
    parts, until = (name, *leftover.path.split("/")), leftover.written_at
    if warehouse.is_link(*parts):
        return False
    files = warehouse.tree(*parts)
    if any(file.written_at > until for file in files.values()):
        return False
    if not files:  # a document has nothing below it
        return warehouse.remove_document(*parts, written_until=until)
    if not warehouse.remove_document(*parts, SUCCESS, written_until=until):
        return False  # without this file, no run takes the rest for a complete table
    unique = {path for path in files if not path.endswith(_NOT_UNIQUE)}
    warehouse.remove_files(unique, *parts)
    left = warehouse.tree(*parts)
    if unique & left.keys():
        raise StoreError(
            f"{warehouse.location(*parts)}: {counted(len(left), 'file')} could not be removed, {min(left)} first. "
            "The other files were removed. Let the credentials of the warehouse delete objects, then run the same "
            "command again."
        )
    if any(file.written_at > until for file in left.values()):
        return False
    warehouse.remove_files(left, *parts)
    return True


def unconfigured(warehouse: Warehouse, names: Sequence[str]) -> list[str]:
    """Return the directories of the warehouse that belong to no configured repository. They are not removed."""
    return sorted(set(warehouse.directories()) - set(names))
