"""Objects and bytes of a plan by reason, rule, prefix, branch and age. Only the groups are in memory.

An object counts for each of its branches and rules. The groups by reason, prefix and branch are the same as in the
terminal (`core.totals`).
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.config.timestamps import start_of_day
from retention_assets.core.amounts import NO_BRANCH, NO_PATH, Amount
from retention_assets.errors import TableContractError
from retention_assets.explain.lakefs import policy_of
from retention_assets.explain.plans import PlanTables, Row
from retention_assets.lakefs.names.generated import ABSOLUTE, is_absolute, listed_name
from retention_assets.lakefs.rules.keepers import Entry, lifecycle_end
from retention_assets.policy.matching import UNREADABLE, canonical_prefix
from retention_assets.policy.rules import Hold, LifecycleRule
from retention_assets.state.plan import PLANNED_OBJECTS, made_name
from retention_assets.tables import ADDRESSES, DELETION_CANDIDATES, DUE_OBJECTS, STORAGE_INVENTORY
from retention_assets.warehouse.reading import scan_directory

LIVE_PAIR = ("address", "key", "size", "branches", "left_branches", "added_at", "active", "protected")
_REMEMBERED = 100_000  # combinations of properties

# The properties of a pair that decide whether it is due: rules that cover it, time, branches, left branches.
_Properties = tuple[tuple[bool, ...], datetime, tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class LivePairs:
    """The rules that decide which (path, address) pairs are live, as in `candidates.live_addresses`.

    A pair is live if an active commit has it and it is not due under a rule, or if a tag or hold protects it.
    Objects outside the namespace are not listed, so their pairs are left out.
    """

    rules: Sequence[LifecycleRule]
    holds: Sequence[Hold]
    as_of: datetime
    _is_released: dict[_Properties, bool] = field(default_factory=dict)

    @classmethod
    def of_plan(cls, tables: PlanTables) -> "LivePairs":
        """Return the rules of a plan. Errors: TableContractError if its policy is no longer known."""
        policy, day = policy_of(tables), tables.plan.day
        holds = [hold for hold in policy.holds if hold.kind == "prefix" and hold.in_force(day)]
        rules = [rule for rule in policy.lifecycle if rule.enabled]
        return cls(rules, holds, start_of_day(day))

    def in_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the live pairs of a batch with the columns `LIVE_PAIR`."""
        active, protected = (batch[name].to_numpy(zero_copy_only=False) for name in ("active", "protected"))
        if self.rules and active.any():
            active = active & ~self._due(batch)
        if self.holds:
            covered = [any(hold.covers(key) for hold in self.holds) for key in batch["key"].to_pylist()]
            protected = protected | np.array(covered, dtype=bool)
        return batch.filter(pa.array((active | protected) & _inside(batch["address"])))

    def _due(self, batch: pa.RecordBatch) -> np.ndarray:
        """Return whether each pair is due under a lifecycle rule. Pairs with equal properties are decided once."""
        covered = [_covered(rule, batch["key"]) for rule in self.rules]
        branches = (_joined(batch[name]) for name in ("branches", "left_branches"))
        classes = np.zeros(batch.num_rows, dtype=np.int64)  # a number for each combination of properties
        for part in (*covered, _codes(batch["added_at"]), *map(_codes, branches)):
            classes = np.unique(classes * (int(part.max()) + 1) + part, return_inverse=True)[1]
        firsts = np.unique(classes, return_index=True)[1]
        rows = batch.select(["key", "added_at", "branches", "left_branches"]).take(pa.array(firsts)).to_pylist()
        return np.array([self._is_due(row) for row in rows], dtype=bool)[classes]

    def _is_due(self, row: Row) -> bool:
        branches, left = tuple(row["branches"]), tuple(row["left_branches"] or ())
        properties = tuple(rule.covers(row["key"]) for rule in self.rules), row["added_at"], branches, left
        if properties not in self._is_released:
            if len(self._is_released) >= _REMEMBERED:
                self._is_released.clear()
            ends, _ = lifecycle_end(Entry(row["key"], "", 0, row["added_at"], branches, left, ()), self.rules)
            self._is_released[properties] = ends is not None and ends <= self.as_of
        return self._is_released[properties]


def _covered(rule: LifecycleRule, paths: pa.Array) -> np.ndarray:
    """Return `rule.covers` of each path, as 0 or 1. Arrow compares prefixes, which is ten times as fast as Python."""
    if rule.glob is not None:
        return np.fromiter((rule.covers(path) for path in paths.to_pylist()), dtype=np.int64, count=len(paths))
    directory = canonical_prefix(rule.prefix)
    below = pc.starts_with(paths, f"{directory}/") if directory else pc.is_valid(paths)
    covered = pc.and_not(pc.or_(below, pc.equal(paths, directory)), pc.match_substring(paths, UNREADABLE))
    return covered.to_numpy(zero_copy_only=False).astype(np.int64)


def _joined(texts: pa.Array) -> pa.Array:
    """Return each list as one text; an empty text for null."""
    return pc.fill_null(pc.binary_join(texts.cast(pa.list_(pa.string())), "\n"), "")


def _codes(values: pa.Array) -> np.ndarray:
    """Return a number for each value: equal values have equal numbers."""
    return pc.dictionary_encode(values).indices.to_numpy().astype(np.int64)


def _inside(addresses: pa.Array) -> np.ndarray:
    """Return whether each address names an object of the namespace, which the store lists."""
    inside = ~pc.match_substring_regex(addresses, f"^{ABSOLUTE}").to_numpy(zero_copy_only=False)
    for index in np.flatnonzero(~inside):  # few addresses are absolute: those of imported and linked objects
        inside[index] = not is_absolute(listed_name(addresses[int(index)].as_py()))
    return inside


NO_RULE, OTHERS = "(no rule)", "(others)"
AGES = {1: "up to 1 day", 7: "1 to 7 days", 30: "7 to 30 days", 90: "30 to 90 days", 365: "90 days to 1 year"}
OLDEST = "over 1 year"
_ALL_AGES = (*AGES.values(), OLDEST)
_KINDS = ("reason", "rule", "prefix", "folder", "branch", "age")
_DAY = timedelta(days=1) // timedelta(microseconds=1)
_MOST = 10_000  # groups of a kind in memory: a repository may have a million files outside all directories
_TOP, _FOLDER = r"(?s)^([^/]*/).*", r"(?s)^([^/]*/[^/]*/|[^/]*/).*"  # the first directory, the first two
_DUE = ("address", "size", "last_modified", "reason", "rule_ids", "paths", "branches")

Parts = Iterator[tuple[str, pa.Array, pa.Array]]  # kind of groups, name of the group and size of each object


@dataclass(frozen=True, slots=True)
class Group:
    """A group of objects: those that stay (None: unknown for this kind of group), those that wait, and candidates."""

    name: str
    stays: Amount | None
    waiting: Amount
    candidate: Amount

    @property
    def bytes(self) -> int:
        """All bytes of the group."""
        return (self.stays.bytes if self.stays else 0) + self.waiting.bytes + self.candidate.bytes


@dataclass(frozen=True, slots=True)
class PlanGroups:
    """The groups of each kind: the group with the most candidate bytes first; ages in their order.

    `prefix` and `folder` (two levels) group paths in lakeFS, and files in Icechunk. In lakeFS, an object that stays
    counts in these groups and in `branch` once for each path and branch that references it. In Icechunk, it counts once
    for its file, and not by branch.
    """

    reason: Sequence[Group]
    rule: Sequence[Group]
    prefix: Sequence[Group]
    folder: Sequence[Group]
    branch: Sequence[Group]
    age: Sequence[Group]

    def by_kind(self) -> dict[str, Sequence[Group]]:
        """Return the groups by kind."""
        return {one.name: getattr(self, one.name) for one in fields(self)}


@dataclass(slots=True)
class _Sums:
    """Objects and bytes of each group: by kind of group, name of group, and the scan that found them."""

    found: dict[str, dict[str, dict[str, Amount]]] = field(default_factory=dict)
    scanned: set[tuple[str, str]] = field(default_factory=set)  # (kind, scan): the scan has groups of this kind
    full: set[str] = field(default_factory=set)  # kinds with too many groups: objects of new groups are added to OTHERS

    def add(self, scans: Sequence[str], parts: Parts) -> None:
        for kind, names, sizes in parts:
            self.scanned.update((kind, scan) for scan in scans)
            groups = self.found.setdefault(kind, {})
            table = pa.table({"name": names, "size": sizes}).group_by("name")
            for row in table.aggregate([("size", "count"), ("size", "sum")]).to_pylist():
                name = OTHERS if kind in self.full and row["name"] not in groups else row["name"]
                for scan in scans:
                    _add(groups.setdefault(name, {}), scan, Amount(row["size_count"], row["size_sum"]))
            if len(groups) > 2 * _MOST and kind not in self.full:
                self.full.add(kind)
                self.found[kind] = _largest(groups)


CANDIDATES, DUE, LISTED, LIVE = "candidates", "due", "listed", "live"  # due: candidates and waiting objects


def groups_of(tables: PlanTables) -> PlanGroups:
    """Return the groups of a plan. Ages are as of the plan. Errors: TableContractError if a table is missing."""
    plan, is_icechunk, sums = tables.plan, tables.repository.is_icechunk, _due_sums(tables)
    for batch in tables.batches(STORAGE_INVENTORY.name, ("address", "size", "last_modified")):
        sums.add([LISTED], _of_listed(batch, plan.made_at, is_icechunk))
    if not is_icechunk:
        pairs = LivePairs.of_plan(tables)
        for batch in tables.batches(ADDRESSES.name, LIVE_PAIR):
            sums.add([LIVE], _of_live(pairs.in_batch(batch)))
    return PlanGroups(**{kind: _groups(kind, sums) for kind in _KINDS})


def due_groups(tables: PlanTables) -> dict[str, list[Group]]:
    """Return the groups of candidates and waiting objects by kind. Objects that stay are not read.

    Errors: TableContractError if the plan's objects are no longer stored.
    """
    sums = _due_sums(tables)
    return {kind: _groups(kind, sums) for kind in _KINDS}


def _due_sums(tables: PlanTables) -> _Sums:
    """Return the sums of the candidates, and those of all due objects: candidates and waiting objects."""
    plan, warehouse, is_icechunk = tables.plan, tables.warehouse, tables.repository.is_icechunk
    sums = _Sums()
    planned = plan.repository, PLANNED_OBJECTS, plan.plan_hash
    if not warehouse.is_complete(*planned):
        raise TableContractError(
            f"{plan.repository}: the objects of the plan of {plan.day} are no longer stored, so they cannot be "
            f"summarized. Nothing was deleted. {plan.again}"
        )
    due_objects = plan.repository, DUE_OBJECTS.name, made_name(plan)
    # Without the table, no object waits, or the waiting objects are no longer stored.
    has_waiting = plan.first_wait_ends and warehouse.is_complete(*due_objects)
    for batch in scan_directory(warehouse, *planned, schema=DELETION_CANDIDATES.schema, columns=_DUE):
        sums.add([CANDIDATES] if has_waiting else [CANDIDATES, DUE], _of_due(batch, plan.made_at, is_icechunk))
    if has_waiting:
        for batch in scan_directory(warehouse, *due_objects, schema=DUE_OBJECTS.schema, columns=_DUE):
            sums.add([DUE], _of_due(batch, plan.made_at, is_icechunk))
    return sums


def _groups(kind: str, sums: _Sums) -> list[Group]:
    """Return the groups of a kind.

    The objects that stay are the live pairs, or, for kinds without pairs, the listed objects that are not due.
    """
    found = []
    for name, amounts in sums.found.get(kind, {}).items():
        candidate, due, listed, live = (amounts.get(scan, Amount()) for scan in (CANDIDATES, DUE, LISTED, LIVE))
        stays = _minus(listed, due) if (kind, LISTED) in sums.scanned else None
        if (kind, LIVE) in sums.scanned:
            stays = live
        found.append(Group(name, stays, _minus(due, candidate), candidate))
    if kind == "age":
        return sorted(found, key=lambda one: _ALL_AGES.index(one.name))
    return sorted(found, key=lambda one: (-one.candidate.bytes, -one.waiting.bytes, -one.bytes, one.name))


def _of_due(batch: pa.RecordBatch, at: datetime, is_icechunk: bool) -> Parts:
    sizes, paths = batch["size"], batch["address"] if is_icechunk else _first(batch["paths"])
    yield "reason", batch["reason"], sizes
    yield from _of_paths(paths, sizes)
    yield "branch", *_exploded(batch["branches"], sizes, NO_BRANCH)
    yield "rule", *_exploded(batch["rule_ids"], sizes, NO_RULE)
    yield "age", _ages(batch["last_modified"], at), sizes


def _of_listed(batch: pa.RecordBatch, at: datetime, is_icechunk: bool) -> Parts:
    yield "age", _ages(batch["last_modified"], at), batch["size"]
    if is_icechunk:
        yield from _of_paths(batch["address"], batch["size"])


def _of_live(batch: pa.RecordBatch) -> Parts:
    yield from _of_paths(batch["key"], batch["size"])
    yield "branch", *_exploded(batch["branches"], batch["size"], NO_BRANCH)


def _of_paths(paths: pa.Array, sizes: pa.Array) -> Parts:
    for kind, pattern in (("prefix", _TOP), ("folder", _FOLDER)):
        yield kind, pc.fill_null(pc.replace_substring_regex(paths, pattern, r"\1"), NO_PATH), sizes


def _first(texts: pa.Array) -> pa.Array:
    """Return the first text of each list; null for an empty list."""
    return pc.list_element(_filled(texts, None), 0)


def _exploded(texts: pa.Array, sizes: pa.Array, nothing: str) -> tuple[pa.Array, pa.Array]:
    """Return each text of each list with the size of its row; `nothing` stands for an empty list."""
    filled = _filled(texts, nothing)
    return pc.list_flatten(filled), sizes.take(pc.list_parent_indices(filled))


def _filled(texts: pa.Array, nothing: str | None) -> pa.Array:
    """Return the lists, with `nothing` as the only element of each empty list."""
    return pc.if_else(pc.equal(pc.list_value_length(texts), 0), pa.scalar([nothing], texts.type), texts)


def _ages(times: pa.Array, at: datetime) -> pa.Array:
    """Return the name of each object's group by age at the time `at`."""
    days = (int(at.timestamp() * 1e6) - times.cast(pa.int64()).to_numpy(zero_copy_only=False)) / _DAY
    return pa.array(np.array(_ALL_AGES, dtype=object)[np.searchsorted(list(AGES), days)], pa.string())


def _add(amounts: dict[str, Amount], scan: str, more: Amount) -> None:
    before = amounts.get(scan, Amount())
    amounts[scan] = Amount(before.objects + more.objects, before.bytes + more.bytes)


def _minus(one: Amount, other: Amount) -> Amount:
    return Amount(one.objects - other.objects, one.bytes - other.bytes)


def _largest(groups: Mapping[str, Mapping[str, Amount]]) -> dict[str, dict[str, Amount]]:
    """Return the largest groups, with the sums of all smaller ones as one group.

    A group is in the result with the amounts of all scans or of none, so that amounts of two scans can be subtracted.
    """
    largest = heapq.nlargest(_MOST, groups, key=lambda name: max(amount.bytes for amount in groups[name].values()))
    kept = {name: dict(groups[name]) for name in largest}
    others = kept.setdefault(OTHERS, {})
    for name in groups.keys() - kept.keys():
        for scan, amount in groups[name].items():
            _add(others, scan, amount)
    return kept
