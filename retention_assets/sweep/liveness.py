"""Which addresses are live now: read again from staged list, references and ranges, just before deleting.

Source: DESIGN.md, invariant 5. The walk is the planner's own: the same history, the same transforms, the same cache.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from retention_assets.errors import GuardRefused
from retention_assets.history.lakefs import activity, commit_graph, protected_commits
from retention_assets.history.potential import is_potential, thresholds
from retention_assets.history.references import References
from retention_assets.history.tables import commit_graph_rows, potential_commits_rows
from retention_assets.policy.current import CurrentRule
from retention_assets.policy.rules import Policy
from retention_assets.stores.ranges import TableCache, metaranges, ranges
from retention_assets.stores.repositories import OpenRepository
from retention_assets.stores.staged import staged_objects
from retention_assets.sweep.guards import heads_present, ranges_complete, refusals
from retention_assets.transforms.addresses import addresses
from retention_assets.transforms.candidates import live_addresses
from retention_assets.transforms.lifecycle import with_lifecycle
from retention_assets.transforms.ranges import active_ranges


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a repository: under which policy, as of which day."""

    opened: OpenRepository
    policy: Policy
    day: date

    @property
    def as_of(self) -> datetime:
        """The first instant of the day, UTC. Source: DESIGN.md, Decisions (As of)."""
        return datetime(self.day.year, self.day.month, self.day.day, tzinfo=UTC)


def commits_now(question: Question, references: References, rules: Sequence[CurrentRule]) -> pa.Table:
    """Return `potential_commits` of the references as they are; without lifecycle rules every commit is potential."""
    nodes = commit_graph(references)
    graph = commit_graph_rows(nodes)
    since = thresholds(rules, references.branches)
    potential = frozenset(
        node.commit.commit_id
        for node in nodes
        if not rules or is_potential(node.commit.created_at, node.branches, since)
    )
    tags_protect = question.opened.repository.settings.tags == "protect"
    kept = activity(references, question.policy.retention, question.as_of)
    protected = protected_commits(references, question.policy.holds, tags_protect=tags_protect, as_of=question.as_of)
    return potential_commits_rows(graph, kept, protected, potential)


@dataclass(frozen=True, slots=True)
class Liveness:
    """The addresses that are live, and those that any commit at all holds. One column each: `address`."""

    live: DataFrame
    committed: DataFrame


def live_now(spark: SparkSession, cache: TableCache, question: Question) -> Liveness:
    """Return what is live at this moment. Errors: GuardRefused when it cannot be known."""
    opened = question.opened
    name = opened.repository.name
    staged = opened.source.staged()
    references = opened.source.references()
    if staged is None or staged.taken_at > references.taken_at:
        raise GuardRefused(
            f"{name}: the staged list is unknown, or newer than the references. Nothing was deleted. Give a staged "
            f"list and references that were taken after it, then `retention plan {name} --as-of {question.day}`."
        )
    commits = spark.createDataFrame(commits_now(question, references, rules=()))
    of_commits, _ = cache.rows(commits.where("metarange_id != ''"), metaranges())
    held = active_ranges(commits, of_commits)
    entries, _ = cache.rows(held, ranges(opened.repository.namespace))
    if refused := refusals([heads_present(references), ranges_complete(of_commits, entries, held)]):
        raise GuardRefused(f"{name}: {refused[0].guard}: {refused[0].saw}. Nothing was deleted.")
    prefixes = [hold.value for hold in question.policy.holds if hold.kind == "prefix" and hold.in_force(question.day)]
    uncommitted = staged_objects(spark, opened.access, staged.files, opened.repository.namespace)
    pairs = with_lifecycle(addresses(held, entries), question.policy.lifecycle, references.branches, question.as_of)
    live = live_addresses(pairs, uncommitted, prefixes).select("address")
    return Liveness(live, pairs.select("address").distinct())
