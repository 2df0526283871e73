"""Explains files and snapshots of an Icechunk repository from the tables of its newest plan."""

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.config.configuration import Configuration
from retention_assets.core.keepers import Keeper, old_enough_at, plan_day
from retention_assets.core.states import CANDIDATE, FOREIGN, HELD, KEPT, WAITING, YOUNG
from retention_assets.explain.explanations import ABSENT, MISSING, ObjectExplanation
from retention_assets.explain.plans import PlanTables, Row, policy_of_plan, referring_repositories
from retention_assets.icechunk.formats.ids import CANONICAL, decode_id
from retention_assets.icechunk.formats.paths import (
    CHUNKS,
    CONFIG,
    MANIFESTS,
    OVERWRITTEN,
    REFERENCES,
    REPO,
    SNAPSHOTS,
    TRANSACTIONS,
    backup_named,
)
from retention_assets.icechunk.source.history import state_of
from retention_assets.icechunk.source.opening import snapshot_policy
from retention_assets.icechunk.sweep.forecast import Forecast, needs_file, needs_reference
from retention_assets.policy.snapshots import SnapshotPolicy
from retention_assets.tables import (
    CACHED_MANIFESTS,
    CACHED_SNAPSHOTS,
    EXPIRED_SNAPSHOTS,
    REACHABLE_CHUNKS,
    REACHABLE_MANIFESTS,
    REPOSITORY_HISTORY,
    STORAGE_INVENTORY,
)
from retention_assets.warehouse.metadata import needed
from retention_assets.warehouse.reading import one_of, read_batches, read_directory

_FILE = re.compile(f"(?:{SNAPSHOTS}|{TRANSACTIONS}|{MANIFESTS}|{CHUNKS}){CANONICAL}")
_LISTED = ("address", "size", "last_modified")
_SHOWN = 10  # snapshots that are listed as keepers of a file
_OF_SNAPSHOTS = pa.schema([("snapshot_id", pa.string()), ("manifest_id", pa.string())])
_OF_MANIFESTS = pa.schema([("manifest_id", pa.string()), ("chunk_id", pa.string()), ("location", pa.string())])


@dataclass(frozen=True)
class IcechunkExplainer:
    """Explains files of one Icechunk repository."""

    tables: PlanTables
    configuration: Configuration
    policy: SnapshotPolicy | None = None  # the policy to apply; None: the policy of the plan
    settles: bool = True  # True: `goes_on` includes the settling time; False: it is the day when a file comes due

    def snapshot(self, snapshot_id: str) -> Mapping[str, Any] | None:
        """Return the decision on a snapshot, as a row of `expired_snapshots`; None: the plan has no such snapshot."""
        return self._decisions.get(snapshot_id)

    def objects(self, addresses: Collection[str]) -> list[ObjectExplanation]:
        """Return the explanation of each file: its state in the plan, what keeps it, and when it will go."""
        asked = sorted(set(addresses))
        where = one_of("address", asked)
        listed = {row["address"]: row for row in self.tables.rows(STORAGE_INVENTORY.name, where, _LISTED)}
        due, live, snapshot_ids = self.tables.due(asked), self._live(asked), self._snapshots_with(asked)
        if self.policy:  # another policy decides on all files except backups; `live` is from the plan's policy
            due = {address: row for address, row in due.items() if address.startswith(OVERWRITTEN)}
            live = {address for address in live if address not in snapshot_ids}
        found = [self._object(one, listed.get(one), due.get(one), live, snapshot_ids.get(one, set())) for one in asked]
        of_others = [one.address for one in found if one.state in (HELD, CANDIDATE) and one.address not in due]
        others = referring_repositories(self.configuration, self.tables.repository.name, of_others)
        return [_held_by_others(one, others[one.address]) if one.address in others else one for one in found]

    @cached_property
    def _history(self) -> pa.Table:
        parts = self.tables.repository.name, REPOSITORY_HISTORY.name, self.tables.plan.day.isoformat()
        return read_directory(self.tables.warehouse, *parts, schema=REPOSITORY_HISTORY.schema)

    @cached_property
    def _forecast(self) -> Forecast:
        metadata = self.tables.metadata(REPOSITORY_HISTORY.name)
        policy = self.policy or policy_of_plan(self.tables, SnapshotPolicy, snapshot_policy)
        state = state_of(self._history, metadata.details, metadata.taken_at)
        return Forecast(state, policy, self.tables.plan.day, self._cutoff)

    @cached_property
    def _cutoff(self) -> datetime:
        return needed(self.tables.metadata(REPOSITORY_HISTORY.name).details.cutoff, "cutoff")

    @cached_property
    def _decisions(self) -> Mapping[str, Row]:
        return {row["snapshot_id"]: row for row in self.tables.rows(EXPIRED_SNAPSHOTS.name)}

    def _live(self, addresses: Sequence[str]) -> set[str]:
        """Return the manifests and chunks in `addresses` that a retained snapshot references."""
        where = one_of("address", addresses) & pc.field("live")
        found = [self.tables.rows(table.name, where, ["address"]) for table in (REACHABLE_MANIFESTS, REACHABLE_CHUNKS)]
        return {row["address"] for rows in found for row in rows}

    def _snapshots_with(self, addresses: Sequence[str]) -> dict[str, set[str]]:
        """Return the snapshots that reference each manifest and chunk, from the cached files."""
        by_manifest: defaultdict[str, set[str]] = defaultdict(set)
        for address in addresses:
            if address.startswith(MANIFESTS):
                by_manifest[address.removeprefix(MANIFESTS)].add(address)
        for manifest_id, address in self._manifests_of([one for one in addresses if one.startswith(CHUNKS)]):
            by_manifest[manifest_id].add(address)
        if not by_manifest:
            return {}
        where = one_of("manifest_id", by_manifest)
        rows = self._cached(CACHED_SNAPSHOTS, _OF_SNAPSHOTS, where)
        found: defaultdict[str, set[str]] = defaultdict(set)
        for row in rows:
            for address in by_manifest[row["manifest_id"]]:
                found[address].add(row["snapshot_id"])
        return found

    def _manifests_of(self, chunks: Sequence[str]) -> list[tuple[str, str]]:
        """Return (manifest, address of the chunk) of all manifests that reference a chunk of `chunks`, by id or URL."""
        if not chunks:
            return []
        ids = {address.removeprefix(CHUNKS): address for address in chunks}
        where = one_of("chunk_id", ids) | pc.field("location").is_valid()
        found = []
        for row in self._cached(CACHED_MANIFESTS, _OF_MANIFESTS, where):
            chunk_id = row["chunk_id"] or row["location"].split("?")[0].split("#")[0].rpartition("/")[2]
            if chunk_id in ids:
                found.append((row["manifest_id"], ids[chunk_id]))
        return found

    def _cached(self, kind: str, schema: pa.Schema, where: pc.Expression) -> list[Row]:
        name = self.tables.repository.name
        rows: list[Row] = read_batches(self.tables.warehouse, name, kind, schema, where, schema.names).to_pylist()
        return rows

    def _object(
        self, address: str, listed: Row | None, due: Row | None, live: set[str], snapshot_ids: set[str]
    ) -> ObjectExplanation:
        keepers = self._keepers(address, live, snapshot_ids)
        explained = ObjectExplanation(address, MISSING if keepers else ABSENT, listed is not None, kept_by=keepers)
        if listed is None:
            return explained
        explained = replace(explained, size=listed["size"], last_modified=listed["last_modified"])
        if due is not None:
            return self._due(explained, due)
        if address.startswith(REFERENCES):
            return self._reference(explained)
        if address in (REPO, CONFIG):
            return _kept_for_ever(
                explained, KEPT, "repository", "it is one of the repository's own files, which always stay"
            )
        if address.startswith(OVERWRITTEN):
            return self._backup(explained)
        if not _FILE.fullmatch(address):
            detail = "Icechunk does not generate such names, so the object is not the repository's own"
            return _kept_for_ever(explained, FOREIGN, "foreign", detail)
        return self._file(explained, snapshot_ids)

    def _reference(self, explained: ObjectExplanation) -> ObjectExplanation:
        """Return the explanation of a file below `refs/`, which has a branch or tag of format 1."""
        if self._forecast.state.format == 2 or not explained.address.startswith(f"{REFERENCES}branch."):
            detail = "it is a tag, or an upgrade from format 1 left it; no sweep deletes it"
            return _kept_for_ever(explained, KEPT, "reference", detail)
        detail = "it is a branch; a sweep deletes it only with its expired history"
        released = self._forecast.released_on(needs_reference(explained.address))
        return replace(_kept_for_ever(explained, KEPT, "reference", detail), goes_on=released)

    def _due(self, explained: ObjectExplanation, due: Row) -> ObjectExplanation:
        waits = due.get("waits_until")
        ends = waits if waits is not None and waits > self._forecast.state.taken_at else None
        return replace(
            explained,
            state=WAITING if ends else CANDIDATE,
            goes_on=ends.date() if ends else self.tables.plan.day,
            reason=due["reason"],
            rule_ids=tuple(due["rule_ids"]),
            due_since=due["due_since"],
            waits_until=waits,
        )

    def _keepers(self, address: str, live: set[str], snapshot_ids: set[str]) -> tuple[Keeper, ...]:
        """Return the retained snapshots that need the file, the newest first."""
        if not _FILE.fullmatch(address):
            return ()
        retained = self._forecast.retained()
        if not (needs_file(address, {decode_id(one) for one in snapshot_ids})(retained) or address in live):
            return ()
        own = address.removeprefix(SNAPSHOTS).removeprefix(TRANSACTIONS)
        kept = [one for one in (snapshot_ids or {own}) if decode_id(one) in retained.snapshots]
        rows = sorted((self._decisions[one] for one in kept if one in self._decisions), key=self._flushed, reverse=True)
        found = [
            Keeper("snapshot", row["snapshot_id"], f"snapshot {row['snapshot_id']}: {row['reason']}", row["due_since"])
            for row in rows[:_SHOWN]
        ]
        if len(rows) > _SHOWN:
            found.append(Keeper("snapshot", "", f"{len(rows) - _SHOWN:,} more snapshots", None))
        if not found:
            detail = "the history lists it as the transaction log of a removed ancestor, or references it by a URL"
            found = [Keeper("history", own, detail, None)]
        return tuple(found)

    def _flushed(self, row: Row) -> datetime:
        return self._times.get(row["snapshot_id"]) or datetime.min.replace(tzinfo=UTC)

    @cached_property
    def _times(self) -> Mapping[str, datetime]:
        names, times = (self._history[name].to_pylist() for name in ("snapshot_id", "flushed_at"))
        return dict(zip(names, times, strict=True))

    def _file(self, explained: ObjectExplanation, snapshot_ids: set[str]) -> ObjectExplanation:
        assert explained.last_modified is not None
        duration = self.tables.duration
        old_enough = old_enough_at((explained.last_modified,), duration("grace") or timedelta(0))
        waits, today = self._waits, self.tables.plan.day
        if explained.kept_by:
            if any(keeper.kind == "history" for keeper in explained.kept_by) and not explained.address.startswith(
                TRANSACTIONS
            ):
                return replace(explained, state=KEPT)
            released = self._forecast.released_on(
                needs_file(explained.address, {decode_id(one) for one in snapshot_ids})
            )
            end = None if released is None else datetime(released.year, released.month, released.day, tzinfo=UTC)
            return replace(explained, state=KEPT, goes_on=end and plan_day(end, old_enough, waits, today))
        if old_enough_at((explained.last_modified,), timedelta(0)) >= self._cutoff:
            keeper = Keeper("age", explained.address, "it is too young: a commit may still reference it", old_enough)
            return replace(explained, state=YOUNG, kept_by=(keeper,), goes_on=plan_day(None, old_enough, waits, today))
        if self.policy and not (self._has_unread and explained.address.startswith((MANIFESTS, CHUNKS))):
            return replace(explained, state=CANDIDATE, goes_on=today)
        return _kept_for_ever(explained, HELD, "lost_files", "a lost snapshot or manifest may reference it")

    @property
    def _waits(self) -> timedelta:
        return (self.tables.duration("settle") if self.settles else None) or timedelta(0)

    @cached_property
    def _has_unread(self) -> bool:
        """Whether a snapshot or manifest was lost before any run read it. Then no manifest or chunk may be deleted."""
        names = REACHABLE_MANIFESTS.name, REACHABLE_CHUNKS.name
        return any(self.tables.metadata(name).details.unread for name in names)

    def _backup(self, explained: ObjectExplanation) -> ObjectExplanation:
        """Return the explanation for a backup below `overwritten/`, which is kept by its age alone."""
        assert explained.last_modified is not None
        backup = backup_named(explained.address.removeprefix(OVERWRITTEN))
        if backup is None:
            return _kept_for_ever(explained, FOREIGN, "foreign", "Icechunk does not generate such names")
        keeps, duration = self.tables.duration("collect_overwritten"), self.tables.duration
        if keeps is None:
            return _kept_for_ever(explained, KEPT, "backup", "backups stay, because `collect_overwritten` is not set")
        made = datetime.fromtimestamp(backup.written_at / 1000, UTC)
        grace = keeps + (duration("grace") or timedelta(0))
        old_enough = old_enough_at((explained.last_modified, made), grace)
        if old_enough < self._cutoff + (duration("grace") or timedelta(0)):
            return _kept_for_ever(explained, HELD, "lost_files", "the plan did not list it, although it is old enough")
        keeper = Keeper(
            "backup", explained.address, "it is a backup that is younger than `collect_overwritten`", old_enough
        )
        goes_on = plan_day(None, old_enough, self._waits, self.tables.plan.day)
        return replace(explained, state=KEPT, kept_by=(keeper,), goes_on=goes_on)


def _kept_for_ever(explained: ObjectExplanation, state: str, kind: str, detail: str) -> ObjectExplanation:
    return replace(explained, state=state, kept_by=(Keeper(kind, explained.address, detail, None),))


def _held_by_others(explained: ObjectExplanation, names: Sequence[str]) -> ObjectExplanation:
    detail = f"the repository {', '.join(names)} refers to an object of this name"
    return _kept_for_ever(explained, HELD, "other_repository", detail)
