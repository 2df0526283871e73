"""Explains files and snapshots of an Icechunk repository from the tables of a plan."""

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.config.timestamps import start_of_day
from retention_assets.core.amounts import counted
from retention_assets.core.keepers import Keeper, old_enough_at, plan_day
from retention_assets.core.states import CANDIDATE, FOREIGN, HELD, KEPT
from retention_assets.errors import naming
from retention_assets.explain.explainer import Explainer, kept_for_ever
from retention_assets.explain.explanations import ABSENT, ObjectExplanation
from retention_assets.explain.plans import Row, last_parts, policy_of_plan
from retention_assets.icechunk.formats.ids import decode_id, is_canonical
from retention_assets.icechunk.formats.paths import (
    CHUNKS,
    CONFIG,
    FILE,
    MANIFESTS,
    OVERWRITTEN,
    REFERENCES,
    REPO,
    SNAPSHOTS,
    TRANSACTIONS,
    backup_written_at,
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
)
from retention_assets.warehouse.metadata import needed
from retention_assets.warehouse.reading import one_of

_FILE = re.compile(FILE)
_SHOWN = 10  # snapshots that are listed as keepers of a file
_OF_SNAPSHOTS = pa.schema([("snapshot_id", pa.string()), ("manifest_id", pa.string())])
_OF_MANIFESTS = pa.schema([("manifest_id", pa.string()), ("chunk_id", pa.string()), ("location", pa.string())])


@dataclass(frozen=True)
class IcechunkExplainer(Explainer[SnapshotPolicy]):
    """Explains files of one Icechunk repository."""

    may_be_held = (HELD, CANDIDATE)

    def snapshot(self, snapshot_id: str) -> Mapping[str, Any] | None:
        """Return the row of `expired_snapshots` about a snapshot; None: the plan has no such snapshot."""
        return self._decisions.get(snapshot_id)

    def objects(self, addresses: Collection[str]) -> list[ObjectExplanation]:
        """See `Explainer`."""
        asked = sorted(set(addresses))
        live, snapshot_ids = self._live(asked), self._snapshots_with(asked)
        if self.policy:  # `live` is from the plan's policy, not from this one
            live = {address for address in live if address not in snapshot_ids}
        keepers = {one: self._keepers(one, live, snapshot_ids.get(one, set())) for one in asked}
        unlisted = [ObjectExplanation(one, ABSENT, listed=False, kept_by=keepers[one]) for one in asked]
        return self._explained(unlisted, lambda one: self._classified(one, snapshot_ids.get(one.address, set())))

    def _is_due_under_every_policy(self, due: Row) -> bool:
        return due["address"].startswith(OVERWRITTEN)  # a policy decides about all files except backups

    @cached_property
    def _history(self) -> pa.Table:
        return self.tables.table(REPOSITORY_HISTORY.name)

    @cached_property
    def _forecast(self) -> Forecast:
        metadata = self.tables.metadata(REPOSITORY_HISTORY.name)
        policy = self.policy or policy_of_plan(self.tables, SnapshotPolicy, snapshot_policy)
        state = state_of(self._history, metadata.details, metadata.taken_at)
        return Forecast(state, policy, self.tables.plan.day, self._cutoff)

    @cached_property
    def _cutoff(self) -> datetime:
        details = self.tables.metadata(REPOSITORY_HISTORY.name).details
        with naming(self.tables.repository.name, self.tables.plan.day.isoformat()):
            return needed(details.cutoff, REPOSITORY_HISTORY.name, "cutoff")

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
        found: defaultdict[str, set[str]] = defaultdict(set)
        for row in self.tables.cached(CACHED_SNAPSHOTS, _OF_SNAPSHOTS, one_of("manifest_id", by_manifest)):
            for address in by_manifest[row["manifest_id"]]:
                found[address].add(row["snapshot_id"])
        return found

    def _manifests_of(self, chunks: Sequence[str]) -> list[tuple[str, str]]:
        """Return (manifest, address of the chunk) for each reference to a chunk of `chunks`, by its id or by a URL."""
        if not chunks:
            return []
        ids = {address.removeprefix(CHUNKS): address for address in chunks}
        where = one_of("chunk_id", ids) | pc.field("location").is_valid()
        found = []
        for row in self.tables.cached(CACHED_MANIFESTS, _OF_MANIFESTS, where):
            named = {row["chunk_id"]} if row["chunk_id"] else last_parts(row["location"])
            found += [(row["manifest_id"], ids[chunk_id]) for chunk_id in named & ids.keys()]
        return found

    def _classified(self, explained: ObjectExplanation, snapshot_ids: set[str]) -> ObjectExplanation:
        """Return the explanation of a listed file that is not due: see `_explained`."""
        address = explained.address
        if address.startswith(REFERENCES):
            return self._reference(explained)
        if address in (REPO, CONFIG):
            return kept_for_ever(
                explained, KEPT, "repository", "it is the repo object or the configuration, which always stay"
            )
        if address.startswith(OVERWRITTEN):
            return self._backup(explained)
        if not _FILE.fullmatch(address):
            detail = "Icechunk does not generate such names, so the object is not the repository's own"
            return kept_for_ever(explained, FOREIGN, "foreign", detail)
        return self._file(explained, snapshot_ids)

    def _reference(self, explained: ObjectExplanation) -> ObjectExplanation:
        """Return the explanation of a file below `refs/`. In format 1, the file is a branch or a tag."""
        if self._forecast.state.format == 2 or not explained.address.startswith(f"{REFERENCES}branch."):
            detail = "it is a tag, or an upgrade from format 1 left it; no sweep deletes it"
            return kept_for_ever(explained, KEPT, "reference", detail)
        detail = "it is a branch; a sweep deletes it only with its expired history"
        released = self._forecast.released_on(needs_reference(explained.address))
        return replace(kept_for_ever(explained, KEPT, "reference", detail), goes_on=released)

    def _keepers(self, address: str, live: set[str], snapshot_ids: set[str]) -> tuple[Keeper, ...]:
        """Return the retained snapshots that need the file, the newest first; the history if only it needs the file."""
        if not _FILE.fullmatch(address):
            return ()
        retained = self._forecast.retained()
        if not (needs_file(address, {decode_id(one) for one in snapshot_ids})(retained) or address in live):
            return ()
        own = address.removeprefix(SNAPSHOTS).removeprefix(TRANSACTIONS)
        kept = [one for one in (snapshot_ids or {own}) if is_canonical(one) and decode_id(one) in retained.snapshots]
        kept.sort(key=lambda one: self._times.get(one) or datetime.min.replace(tzinfo=UTC), reverse=True)
        rows = [self._decisions[one] for one in kept if one in self._decisions]
        found = []
        for row in rows[:_SHOWN]:
            reason = row["reason"].removeprefix(f"{row['decision']}: ")
            found.append(
                Keeper("snapshot", row["snapshot_id"], f"snapshot {row['snapshot_id']}: {reason}", row["due_since"])
            )
        if len(rows) > _SHOWN:
            more = counted(len(rows) - _SHOWN, "more snapshot needs it", "more snapshots need it")
            found.append(Keeper("snapshot", "", more, None))
        if not found:
            detail = "the history lists it as the transaction log of a removed ancestor, or references it by a URL"
            found = [Keeper("history", own, detail, None)]
        return tuple(found)

    @cached_property
    def _times(self) -> Mapping[str, datetime]:
        names, times = (self._history[name].to_pylist() for name in ("snapshot_id", "flushed_at"))
        return dict(zip(names, times, strict=True))

    def _file(self, explained: ObjectExplanation, snapshot_ids: set[str]) -> ObjectExplanation:
        old_enough, today = old_enough_at((explained.last_modified,), self._duration("grace")), self.tables.plan.day
        if explained.kept_by:
            if any(keeper.kind == "history" for keeper in explained.kept_by) and not explained.address.startswith(
                TRANSACTIONS
            ):
                return replace(explained, state=KEPT)
            released = self._forecast.released_on(
                needs_file(explained.address, {decode_id(one) for one in snapshot_ids})
            )
            goes_on = released and plan_day(start_of_day(released), old_enough, self._settle, today)
            return replace(explained, state=KEPT, goes_on=goes_on)
        if old_enough_at((explained.last_modified,), timedelta(0)) >= self._cutoff:
            detail = "it is too young: a commit may still reference it"
            return self._young(explained, detail, old_enough, self._settle)
        if self.policy and not (self._has_unread and explained.address.startswith((MANIFESTS, CHUNKS))):
            return replace(explained, state=CANDIDATE, goes_on=today)
        return kept_for_ever(explained, HELD, "lost_files", "a lost snapshot or manifest may reference it")

    @cached_property
    def _has_unread(self) -> bool:
        """Whether a snapshot or manifest was lost before any run read it. Then no manifest or chunk may be deleted."""
        names = REACHABLE_MANIFESTS.name, REACHABLE_CHUNKS.name
        return any(self.tables.metadata(name).details.unread for name in names)

    def _backup(self, explained: ObjectExplanation) -> ObjectExplanation:
        """Return the explanation of a backup below `overwritten/`. Only its age keeps a backup."""
        written_at = backup_written_at(explained.address.removeprefix(OVERWRITTEN))
        if written_at is None:
            return kept_for_ever(explained, FOREIGN, "foreign", "Icechunk does not generate such names")
        keeps = self.tables.duration("collect_overwritten")
        if keeps is None:
            return kept_for_ever(explained, KEPT, "backup", "backups stay, because `collect_overwritten` is null")
        made = datetime.fromtimestamp(written_at / 1000, UTC)
        old_enough = old_enough_at((explained.last_modified, made), keeps + self._duration("grace"))
        if old_enough < self._cutoff + self._duration("grace"):
            detail = "it is old enough, but it was not a candidate of the plan"
            return kept_for_ever(explained, HELD, "lost_files", detail)
        detail = "it is a backup that is younger than `collect_overwritten` and `grace` together"
        keeper = Keeper("backup", explained.address, detail, old_enough)
        goes_on = plan_day(None, old_enough, self._settle, self.tables.plan.day)
        return replace(explained, state=KEPT, kept_by=(keeper,), goes_on=goes_on)
