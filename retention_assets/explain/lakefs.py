"""Explains objects, paths and commits of a lakeFS repository from the tables of a plan."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.config.configuration import Repository
from retention_assets.config.timestamps import start_of_day
from retention_assets.core.keepers import Keeper, old_enough_at, plan_day, released_at
from retention_assets.core.states import CANDIDATE, FOREIGN, HELD, KEPT, MAY_BE_STAGED, UNREFERENCED
from retention_assets.explain.explainer import Explainer, kept_for_ever
from retention_assets.explain.explanations import ABSENT, OUTSIDE, CommitState, EntryState, ObjectExplanation
from retention_assets.explain.plans import PlanTables, Row, policy_of_plan
from retention_assets.lakefs.names.generated import (
    canonical_name,
    is_absolute,
    is_generated_name,
    issued,
    legacy_kind,
    listed_name,
    namespace_urls,
    not_certainly_inside,
)
from retention_assets.lakefs.rules.keepers import Entry, KeptCommits, keepers_of, kept_commits, lifecycle_end
from retention_assets.lakefs.rules.tables import REFERENCES, references_of
from retention_assets.lakefs.sweep.memory import read_memory
from retention_assets.policy.rules import Policy
from retention_assets.tables import (
    ADDRESSES,
    CACHED_METARANGES,
    CACHED_RANGES,
    COMMIT_GRAPH,
    STORAGE_INVENTORY,
    UNCOMMITTED_OBJECTS,
)
from retention_assets.warehouse.reading import one_of

_SHOWN = 10  # commits of an entry in an explanation
_AFTER_SLASH = chr(ord("/") + 1)  # the paths below FOLDER sort before FOLDER with this character
_PAIR = ("address", "key", "size", "added_at", "branches", "left_branches")
_RANGE_COLUMNS = pa.schema(
    [("range_id", pa.string()), ("key", pa.string()), ("address", pa.string()), ("address_type", pa.int8())]
)
_METARANGE_COLUMNS = pa.schema([("metarange_id", pa.string()), ("range_id", pa.string())])


@dataclass(frozen=True)
class LakeFSExplainer(Explainer[Policy]):
    """Explains objects of one lakeFS repository."""

    may_be_held = (MAY_BE_STAGED, CANDIDATE)

    def addresses_at(self, path: str) -> list[str]:
        """Return the sorted addresses of the objects that any commit has at the path.

        A name that lakeFS generates for objects is an address, so it is not looked up as a path.
        """
        if is_generated_name(path):
            return []
        rows = self.tables.rows(ADDRESSES.name, pc.field("key") == path, ["address"])
        return sorted({listed_name(row["address"]) for row in rows})

    def paths_below(self, folder: str, most: int) -> list[str]:
        """Return the sorted paths of all commits below a folder. If there are more than `most`, some may be missing."""
        name, paths = folder.rstrip("/"), set[str]()
        below = (pc.field("key") >= f"{name}/") & (pc.field("key") < f"{name}{_AFTER_SLASH}")
        for batch in self.tables.batches(ADDRESSES.name, ["key"], below):
            paths.update(batch.column(0).to_pylist())
            if len(paths) > most:
                break
        return sorted(paths)

    def commit(self, commit_id: str) -> CommitState | None:
        """Return the state of a commit in the plan; None: the plan has no commit with this id."""
        return self._commit(commit_id) if commit_id in self._kept.references.commits else None

    def objects(self, addresses: Collection[str]) -> list[ObjectExplanation]:
        """See `Explainer`."""
        asked = sorted(set(addresses))
        staged: defaultdict[str, set[str]] = defaultdict(set)  # the addresses that name each object
        for row in self.tables.rows(UNCOMMITTED_OBJECTS.name, _may_name(asked)):
            for name in (row["address"], listed_name(row["address"])):
                staged[name].add(row["address"])
        entries = self._entries(asked)
        unlisted = [self._unlisted(one, entries.get(one, []), staged.get(one, set())) for one in asked]
        return self._explained(unlisted, lambda one: self._classified(one, entries.get(one.address, [])))

    def _is_due_under_every_policy(self, due: Row) -> bool:
        return due["reason"] == UNREFERENCED  # a policy decides only about committed objects

    @cached_property
    def _kept(self) -> KeptCommits:
        repository = self.tables.repository
        policy = self.policy or policy_of(self.tables)
        graph = self.tables.table(COMMIT_GRAPH.name, columns=REFERENCES)
        references = references_of(graph, self.tables.metadata(COMMIT_GRAPH.name).taken_at)
        tags = self.tables.plan.terms.get("tags", repository.lakefs.tags)
        memory = read_memory(self.tables.warehouse, repository.name, repository.lakefs)
        as_of = start_of_day(self.tables.plan.day)
        return kept_commits(policy, references, tags_protect=tags == "protect", as_of=as_of, memory=memory)

    @cached_property
    def _commits_by_metarange(self) -> Mapping[str, Sequence[str]]:
        found: defaultdict[str, list[str]] = defaultdict(list)
        for commit in self._kept.references.commits.values():
            found[commit.metarange_id].append(commit.commit_id)
        return found

    @cached_property
    def _oldest_input(self) -> datetime:
        names = [STORAGE_INVENTORY.name, COMMIT_GRAPH.name, *([UNCOMMITTED_OBJECTS.name] if self._staged_known else [])]
        return min(self.tables.metadata(name).taken_at for name in names)

    @cached_property
    def _staged_known(self) -> bool:
        return self.tables.metadata(UNCOMMITTED_OBJECTS.name).details.known is True

    def _entries(self, addresses: Sequence[str]) -> dict[str, list[Entry]]:
        """Return the entries of each address, with the commits that contain them."""
        asked = set(addresses)
        pairs: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)  # several rows: see `lifecycle.united`
        for row in self.tables.rows(ADDRESSES.name, _may_name(asked), _PAIR):
            if listed_name(row["address"]) in asked:
                pairs[row["key"], row["address"]].append(row)
        commits = self._commits_of(pairs.keys())
        found: defaultdict[str, list[Entry]] = defaultdict(list)
        for (path, address), rows in sorted(pairs.items()):
            found[listed_name(address)].append(
                Entry(
                    path=path,
                    address=address,
                    size=max(row["size"] for row in rows),
                    added_at=min(row["added_at"] for row in rows),
                    branches=_names(row["branches"] for row in rows),
                    left_branches=_names(row["left_branches"] for row in rows),
                    commits=commits.get((path, address), ()),
                )
            )
        return found

    def _commits_of(self, pairs: Collection[tuple[str, str]]) -> dict[tuple[str, str], tuple[str, ...]]:
        """Return the commits that contain each (path, address) pair, sorted, from the cached ranges and metaranges."""
        if not pairs:
            return {}
        urls = namespace_urls(self.tables.repository.namespace, self.tables.repository.storage)
        ranges: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        for row in self.tables.cached(CACHED_RANGES, _RANGE_COLUMNS, one_of("key", {key for key, _ in pairs})):
            pair = row["key"], canonical_name(row["address"], row["address_type"], urls)
            if pair in pairs:
                ranges[row["range_id"]].add(pair)
        found: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for row in self.tables.cached(CACHED_METARANGES, _METARANGE_COLUMNS, one_of("range_id", ranges)):
            for pair in ranges[row["range_id"]]:
                found[pair].add(row["metarange_id"])
        return {pair: self._commits_with(frozenset(metaranges_of)) for pair, metaranges_of in found.items()}

    def _commits_with(self, metarange_ids: frozenset[str]) -> tuple[str, ...]:
        """Return the commits of these metaranges, sorted. Pairs with equal metaranges share one result."""
        if metarange_ids not in self._shared_commits:
            found = (one for name in metarange_ids for one in self._commits_by_metarange.get(name, ()))
            self._shared_commits[metarange_ids] = tuple(sorted(found))
        return self._shared_commits[metarange_ids]

    @cached_property
    def _shared_commits(self) -> dict[frozenset[str], tuple[str, ...]]:
        return {}

    def _unlisted(self, address: str, entries: Sequence[Entry], staged: Collection[str]) -> ObjectExplanation:
        keepers = tuple(keeper for entry in entries for keeper in keepers_of(entry, self._kept))
        if staged:
            keepers += (Keeper("staged", address, "it is staged on a branch and not committed yet", None),)
        shown = tuple(self._entry(one) for one in entries)
        names = {*staged, *(entry.address for entry in entries)}
        state = OUTSIDE if names and (address not in names or is_absolute(address)) else ABSENT
        return ObjectExplanation(address, state, listed=False, kept_by=keepers, entries=shown)

    def _classified(self, explained: ObjectExplanation, entries: Sequence[Entry]) -> ObjectExplanation:
        """Return the explanation of a listed object that is not due: see `_explained`."""
        if self._is_foreign(explained.address):
            detail = "lakeFS does not generate such names, so the object is not the repository's own"
            if is_generated_name(explained.address):
                detail = (
                    "only old lakeFS versions generated such names, and no entry of this repository has one from "
                    "lakeFS (see `legacy_names`)"
                )
            return kept_for_ever(explained, FOREIGN, "foreign", detail)
        if not explained.kept_by and not entries and not self._staged_known:
            keeper = Keeper("staged", explained.address, "no staged list is known, so it may be staged", None)
            explained = replace(explained, kept_by=(keeper,))
        grace = self._duration("grace") if entries else max(self._duration("grace"), self._duration("token_life"))
        old_enough = old_enough_at((explained.last_modified, issued(explained.address)), grace)
        settles = not entries or self.tables.plan.terms.get("settle_expired", "true") == "true"
        settle = self._settle if settles else timedelta(0)
        today, keepers = self.tables.plan.day, explained.kept_by
        if keepers:
            of_commits = any(self._is_active(entry) for entry in entries)
            unknown = not entries and not self._staged_known
            end = released_at(keepers)
            goes_on = None if end is None else plan_day(end, old_enough, settle, today)
            return replace(explained, state=KEPT if of_commits or unknown else HELD, goes_on=goes_on)
        if old_enough >= self._oldest_input:
            detail = "it is too young: an upload may still be linked or committed"
            if entries:
                detail = "it is younger than the grace period"
            return self._young(explained, detail, old_enough, settle)
        if self.policy and entries:
            return replace(explained, state=CANDIDATE, goes_on=today)
        if legacy_kind(explained.address) and self._hides_old_objects:
            detail = "old lakeFS versions generated such names, and a dump does not show what they staged"
            return kept_for_ever(explained, MAY_BE_STAGED, "old_name", detail)
        detail = "the head of a branch may have the same content, so it may be staged although no list shows this"
        return kept_for_ever(explained, MAY_BE_STAGED, "same_content", detail)

    @cached_property
    def _hides_old_objects(self) -> bool:
        of_dump = self.tables.repository.lakefs.source.dump is not None
        return self._kept.references.hides_old_objects(of_dump=of_dump)

    def _is_active(self, entry: Entry) -> bool:
        """Return whether an active commit has the entry and no lifecycle rule releases it. See `commits_by_address`."""
        ends, _ = lifecycle_end(entry, self._kept.policy.lifecycle)
        is_due = ends is not None and ends <= self._kept.as_of
        return not is_due and any(self._kept.activity[one].active for one in entry.commits)

    def _is_foreign(self, address: str) -> bool:
        if not is_generated_name(address):
            return True
        kind = legacy_kind(address)
        if kind is None or self.tables.plan.terms.get("legacy_names") == "true":
            return False
        return kind not in (self.tables.metadata(ADDRESSES.name).details.legacy_kinds or ())

    def _entry(self, entry: Entry) -> EntryState:
        ends, rule = lifecycle_end(entry, self._kept.policy.lifecycle)
        commits = self._kept.references.commits
        newest = sorted(entry.commits, key=lambda one: commits[one].created_at, reverse=True)
        return EntryState(
            path=entry.path,
            branches=entry.branches,
            added_at=entry.added_at,
            commits=len(newest),
            active_commits=sum(self._kept.activity[one].active for one in newest),
            shown=tuple(self._commit(one) for one in newest[:_SHOWN]),
            lifecycle_rule=rule,
            lifecycle_due=ends,
        )

    def _commit(self, commit_id: str) -> CommitState:
        activity = self._kept.activity[commit_id]
        return CommitState(
            commit_id,
            self._kept.references.commits[commit_id].created_at,
            activity.active,
            activity.due_since,
            activity.rule_id,
            self._kept.heads.get(commit_id, ()),
            tuple(keeper.detail for keeper in self._kept.protected.get(commit_id, ())),
        )


def _names(lists: Iterable[Sequence[str] | None]) -> tuple[str, ...]:
    return tuple(sorted({name for names in lists for name in names or ()}))


def _may_name(addresses: Collection[str]) -> pc.Expression:
    """Return the filter of rows whose address is one of `addresses`, or may be another spelling of one."""
    return one_of("address", addresses) | not_certainly_inside()


def policy_of(tables: PlanTables) -> Policy:
    """Return the policy of a plan. Errors: as `policy_of_plan`."""
    return policy_of_plan(tables, Policy, _policy_of_files)


def _policy_of_files(repository: Repository) -> Policy:
    from retention_assets.lakefs.source.opening import policy_of_files  # this import takes half a second

    return policy_of_files(repository)
