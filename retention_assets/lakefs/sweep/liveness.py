"""Checks which addresses are live just before deleting: reads the staged list, references and ranges again.

The check uses the same retention rules and the same cache as the planner.
Source: docs/safety.md, "Before and during a sweep".

`CommittedContents` has the contents of commits: the ranges of metaranges, and the entries of ranges.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from retention_assets.config.durations import format_duration
from retention_assets.config.timestamps import Clock, start_of_day
from retention_assets.core.guards import CheckResult, refusals
from retention_assets.core.liveness import Liveness
from retention_assets.core.remedies import REMEDIES
from retention_assets.errors import GuardRefused
from retention_assets.lakefs.names.columns import stored_name
from retention_assets.lakefs.rules.candidates import LIVE_COLUMNS, live_addresses
from retention_assets.lakefs.rules.committed import commit_graph, reaching_branches
from retention_assets.lakefs.rules.keepers import kept_commits
from retention_assets.lakefs.rules.lifecycle import split_pairs, united, with_lifecycle
from retention_assets.lakefs.rules.name_sets import NameSets
from retention_assets.lakefs.rules.potential import is_potential, thresholds
from retention_assets.lakefs.rules.ranges import active_ranges, canonical, pairs_of
from retention_assets.lakefs.rules.references import References, references_hash
from retention_assets.lakefs.rules.reflog import Memory, lost_commits
from retention_assets.lakefs.rules.tables import commit_graph_rows, potential_commits_rows
from retention_assets.lakefs.source.opening import OpenRepository
from retention_assets.lakefs.source.ranges import metaranges, ranges
from retention_assets.lakefs.source.repository import StagedList
from retention_assets.lakefs.source.staged_objects import staged_objects
from retention_assets.lakefs.sweep.guards import (
    NEW_LIST,
    USE_SERVER,
    heads_present,
    locations_apart,
    partial_staged_list,
    ranges_complete,
    unusable_staged_list,
)
from retention_assets.policy.rules import Policy
from retention_assets.policy.table import CurrentRule
from retention_assets.spark.frames import as_frame
from retention_assets.state.plan import Heads, Plan
from retention_assets.warehouse.table_cache import TableCache


@dataclass(frozen=True, slots=True)
class CommittedContents:
    """The contents of commits as rows. Using the rows again does not read the files again."""

    metarange_ranges: DataFrame
    stored_entries: DataFrame  # with the address and its type as in the ranges
    entries: DataFrame  # with canonical addresses
    ranges: DataFrame  # `active_ranges` of the commits
    names: NameSets  # the branch and rule names of the commits

    def check_complete(self) -> CheckResult:
        """Run the guard `ranges_complete`, which checks that every range has all its entries."""
        return ranges_complete(self.metarange_ranges, self.entries, self.ranges)

    def pairs(self) -> DataFrame:
        """Return the (path, address) pairs of all commits."""
        return pairs_of(self.ranges, self.entries, self.names)

    def pairs_of(self, commits: DataFrame) -> DataFrame:
        """Return the (path, address) pairs of some of the commits. `commits`: rows of `potential_commits`."""
        return pairs_of(active_ranges(commits, self.metarange_ranges), self.entries)


def committed_contents(cache: TableCache, namespace_urls: Sequence[str], commits: pa.Table) -> CommittedContents:
    """Return the contents of `commits`. Only files that are not in the cache are read from the store.

    `commits`: rows of `potential_commits`. `namespace_urls`: see `generated`.

    Errors: CorruptFile, AccessDenied or StoreError; executors raise them too.
    """
    ids = commits.select(["metarange_id"]).filter(pc.not_equal(commits["metarange_id"], ""))
    of_commits, _ = cache.rows(ids, metaranges())
    names = NameSets.of_commits(commits)
    ranges_of_commits = active_ranges(commits, of_commits, names)
    entries, _ = cache.rows(ranges_of_commits, ranges())
    return CommittedContents(of_commits, entries, canonical(entries, namespace_urls), ranges_of_commits, names)


_HOUR = timedelta(hours=1)
_CREATED_AGAIN = "it was deleted and created again under its name"


@dataclass(frozen=True, slots=True)
class LivenessQuery:
    """The parameters of a liveness check: repository, policy, day of the plan, and the memory of earlier plans."""

    opened: OpenRepository
    policy: Policy
    day: date
    memory: Memory
    last_read_at: datetime | None = None  # the time of the newest references that a plan has read

    @property
    def as_of(self) -> datetime:
        """The time 00:00 UTC of the day. Source: docs/retention.md, "Rule"."""
        return start_of_day(self.day)


def commits_now(query: LivenessQuery, references: References, rules: Sequence[CurrentRule]) -> pa.Table:
    """Return `potential_commits` of `references`. If `rules` is empty, every commit is potential."""
    tags_protect = query.opened.repository.lakefs.tags == "protect"
    return commits_under(
        query.policy,
        references,
        rules,
        tags_protect=tags_protect,
        as_of=query.as_of,
        memory=query.memory,
    )


def commits_under(
    policy: Policy,
    references: References,
    rules: Sequence[CurrentRule],
    *,
    tags_protect: bool,
    as_of: datetime,
    memory: Memory,
) -> pa.Table:
    """Return `potential_commits` under `policy`, which can differ from the repository's own policy."""
    kept = kept_commits(policy, references, tags_protect=tags_protect, as_of=as_of, memory=memory)
    nodes = commit_graph(kept.references)
    since = thresholds(rules, references.branches)
    potential = frozenset(
        node.commit.commit_id
        for node in nodes
        if not rules or is_potential(node.commit.created_at, node.branches, since)
    )
    gone = kept.gone_branches()
    left_branches = reaching_branches(kept.references, gone) if gone and policy.lifecycle else {}
    return potential_commits_rows(commit_graph_rows(nodes), kept.activity, kept.protected, potential, left_branches)


class LakeFSLiveness:
    """Checks which addresses of a repository are live. A later check reads ranges again only if references changed."""

    def __init__(self, spark: SparkSession, cache: TableCache, query: LivenessQuery, clock: Clock) -> None:
        self._spark = spark
        self._cache = cache
        self._query = query
        self._clock = clock
        self._pairs: tuple[str, DataFrame] | None = None  # hash of the references; pairs of all their commits
        self._staged: StagedList | None = None  # of the last check
        self._instance: str | None = None  # of the repository, once `require_same` accepted it
        self._has_checked = False  # whether `now` has returned live addresses, so objects may have been deleted

    def now(self) -> Liveness:
        """Check the repository now, and return the live addresses.

        Errors: GuardRefused when the live addresses cannot be determined; errors of the source and the store.
        """
        checked_at, opened = self._clock(), self._query.opened
        self.close()  # a new check ends the use of the last one
        self._require([locations_apart(opened)])
        self._staged = staged = opened.source.staged()
        references = self._references()
        if self._instance and references.instance and self._instance != references.instance:
            raise self._another(_CREATED_AGAIN)
        query = self._query
        if blocked := lost_commits(opened.repository.name, references, query.memory, query.policy):
            raise GuardRefused(f"{opened.repository.name}: {self._undone} {blocked}")
        if staged is None:
            raise self._without_staged_list("the staged list is unknown.", NEW_LIST)
        of_dump = opened.repository.lakefs.source.dump is not None
        times = staged.taken_at, staged.complete_until, references.taken_at
        if problem := unusable_staged_list(*times, of_dump=of_dump):
            raise self._without_staged_list(problem, NEW_LIST if of_dump else "")
        if problem := partial_staged_list(opened.repository.namespace, of_dump=of_dump):
            raise self._without_staged_list(problem, USE_SERVER)
        pairs = self._pairs_of(references)
        listed = staged_objects(self._spark, opened.access, staged, opened.namespace_urls)
        uncommitted = as_frame(self._spark, listed)
        live = live_addresses(pairs, uncommitted, self._query.policy.held_prefixes(self._query.day)).select("address")
        committed = pairs.select(stored_name(F.col("address")).alias("address")).distinct()
        self._has_checked = True
        return Liveness(live, committed, checked_at)

    def entries(self) -> DataFrame:
        """Return (address, address_type) of all entries of all commits, as in the ranges."""
        return self._contents_of(self._references()).stored_entries.select("address", "address_type")

    def close(self) -> None:
        """Release the staged list of the last check. The rows that the check returned must not be used any more."""
        if self._staged is not None:
            self._query.opened.source.release(self._staged)
            self._staged = None

    def release(self) -> None:
        """Release everything that was read. The rows that any check returned must not be used any more."""
        self.close()
        if self._pairs:
            self._pairs[1].unpersist()
            self._pairs = None

    def require_same(self, plan: Plan, heads: Heads) -> References:
        """Refuse a repository that was created again, or restored to an older state, since the plan was made.

        Return the current references. lakeFS never removes commits from a repository. So the commits that branches and
        tags pointed to at planning must still exist. Errors: GuardRefused.
        """
        references = self._references()
        planned = sorted({*heads.branches.items(), *heads.tags.items()})
        gone = [f"{name} pointed to {commit}" for name, commit in planned if commit not in references.commits]
        other = plan.instance and references.instance and plan.instance != references.instance
        if gone or other:
            raise self._another(f"{gone[0]}, which does not exist any more" if gone else _CREATED_AGAIN)
        self._instance = references.instance
        return references

    def _references(self) -> References:
        """Return the current references.

        Errors: GuardRefused when a dump is older than `source.dump_age` allows, or than the references of a plan.
        """
        references, repository = self._query.opened.source.references(), self._query.opened.repository
        oldest, age = repository.lakefs.source.oldest_dump, self._clock() - references.taken_at
        if oldest is None:
            return references
        which = f"the dump {repository.lakefs.source.dump} was taken on {references.taken_at:%Y-%m-%d %H:%M} UTC"
        new_dump = (
            "Replace it with a new dump (`lakectl refs-dump`), taken after a new staged list, and run the same command "
            "again."
        )
        if age > oldest:
            raise GuardRefused(
                f"{repository.name}: {which}. It does not show which objects are live again by now, so it may be at "
                f"most {format_duration(oldest)} old. {self._undone} {new_dump} If you are sure "
                "that nothing became live since this dump, you can use it: set source.dump_age, or for one sweep add "
                f"`--dump-age {age // _HOUR + 2}h`."
            )
        last = self._query.last_read_at
        if last is not None and references.taken_at < last:
            raise GuardRefused(
                f"{repository.name}: {which}, before the references of the last plan ({last:%Y-%m-%d %H:%M} UTC). "
                f"It does not show which objects are live again since then. {self._undone} {new_dump}"
            )
        return references

    def _another(self, why: str) -> GuardRefused:
        name, day = self._query.opened.repository.name, self._query.day
        return GuardRefused(
            f"{name} {day}: the repository is not the one that the plan was made for: {why}. {self._undone} "
            f"Plan again: `retention plan {name} --as-of {day}`."
        )

    def _without_staged_list(self, problem: str, first: str) -> GuardRefused:
        """Return the refusal. `first`: what is necessary before the next plan; empty: nothing is."""
        name = self._query.opened.repository.name
        remedy = f"{first} Then plan again" if first else "Plan again"
        return GuardRefused(
            f"{name}: {problem} {self._undone} {remedy}: `retention plan {name} --as-of {self._query.day}`."
        )

    @property
    def _undone(self) -> str:
        """What a refusal says about deletions. After the first check, the sweep may have deleted objects."""
        return "Nothing more was deleted." if self._has_checked else "Nothing was deleted."

    def _require(self, check_results: Sequence[CheckResult]) -> None:
        """Raise GuardRefused if a guard refuses."""
        if refused := refusals(check_results):
            name, guard, remedy = self._query.opened.repository.name, refused[0].guard, REMEDIES[refused[0].guard]
            raise GuardRefused(f"{name}: {guard}: {refused[0].detail}. {self._undone} {remedy}")

    def _pairs_of(self, references: References) -> DataFrame:
        """Return the (path, address) pairs of all commits with `LIVE_COLUMNS`, computed once for equal references."""
        known = references_hash(references)
        if self._pairs and self._pairs[0] == known:
            return self._pairs[1]
        query = self._query
        branches, rules = query.memory.branch_names(references.branches), query.policy.lifecycle
        rows = self._contents_of(references).pairs()
        pairs = with_lifecycle(rows, rules, branches, query.as_of).select(*LIVE_COLUMNS).cache()
        if rules and (split := split_pairs(pairs)).num_rows:  # of the cached rows, which have few columns
            pairs.unpersist()
            pairs = with_lifecycle(united(rows, split), rules, branches, query.as_of).select(*LIVE_COLUMNS).cache()
        if self._pairs:
            self._pairs[1].unpersist()
        self._pairs = known, pairs
        return pairs

    def _contents_of(self, references: References) -> CommittedContents:
        """Return the contents of all commits. Errors: GuardRefused when they are incomplete."""
        rows = commits_now(self._query, references, rules=())
        contents = committed_contents(self._cache, self._query.opened.namespace_urls, rows)
        self._require([heads_present(references, rows), contents.check_complete()])
        return contents
