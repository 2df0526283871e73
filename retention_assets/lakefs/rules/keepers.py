"""Computes what keeps the commits and the (path, address) pairs of a lakeFS repository, and until when.

All functions are pure. The rules are those of `committed`, `reflog` and `lifecycle`.
Source: promises 1 and 11 of docs/safety.md.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property

from retention_assets.core.amounts import counted
from retention_assets.core.keepers import Keeper
from retention_assets.lakefs.rules.committed import (
    Activity,
    activity,
    keeper_of,
    names_by_commit,
    protected_commits,
    reaching_branches,
)
from retention_assets.lakefs.rules.references import References
from retention_assets.lakefs.rules.reflog import Memory, SeenHead, counting_heads, with_true_ages
from retention_assets.policy.rules import RETENTION_IDS, LifecycleRule, Policy, due_since


@dataclass(frozen=True, slots=True)
class Entry:
    """A (path, address) pair, and the commits that contain it."""

    path: str
    address: str
    size: int
    added_at: datetime  # UTC: creation of the oldest commit that contains it
    branches: tuple[str, ...]  # branches that reach one of the commits
    left_branches: tuple[str, ...]  # branches that reached one of the commits only from an earlier head
    commits: tuple[str, ...]


@dataclass(frozen=True)
class KeptCommits:
    """What keeps each commit of a repository, under one policy and at one time."""

    policy: Policy
    as_of: datetime
    references: References  # with the times of `with_true_ages`
    gone: tuple[SeenHead, ...]  # heads of earlier plans that are gone and still keep commits
    activity: Mapping[str, Activity]
    protected: Mapping[str, tuple[Keeper, ...]]  # by a tag, a hold or the reflog

    @cached_property
    def heads(self) -> Mapping[str, tuple[str, ...]]:
        """The branches whose head a commit is."""
        return names_by_commit(self.references.branches)

    @cached_property
    def by_reflog(self) -> Mapping[str, str]:
        """For each commit that the reflog keeps longer: the names of the deleted or reset branches that reached it."""
        branches = self.gone_branches()
        if not branches:
            return {}
        reached = reaching_branches(self.references, branches)
        otherwise = activity(self.references, self.policy.retention, self.as_of)
        return {
            commit_id: ", ".join(names)
            for commit_id, names in reached.items()
            if names and self.activity[commit_id].due_since != otherwise[commit_id].due_since
        }

    def gone_branches(self) -> list[tuple[str, str]]:
        """Return (name, commit) of the branch heads in `gone`."""
        return [(head.name, head.commit_id) for head in self.gone if head.kind == "branch"]


def kept_commits(
    policy: Policy, references: References, *, tags_protect: bool, as_of: datetime, memory: Memory
) -> KeptCommits:
    """Return what keeps each commit at `as_of` (UTC). Plans, sweeps and `explain` all use this function.

    `memory`: empty if the reflog is switched off. Errors: as `activity` and `protected_commits`.
    """
    references = with_true_ages(references, memory)
    gone = counting_heads(references, memory, policy, as_of)
    return KeptCommits(
        policy,
        as_of,
        references,
        gone,
        activity(references, policy.retention, as_of, gone),
        protected_commits(references, policy, gone, tags_protect=tags_protect, as_of=as_of),
    )


def keepers_of(entry: Entry, kept: KeptCommits) -> list[Keeper]:
    """Return what keeps the pair at `kept.as_of`, and until when; empty if the pair has expired.

    One keeper of the kind `commit` stands for all active commits that are not heads: the commit that expires last.
    """
    ends, rule = lifecycle_end(entry, kept.policy.lifecycle)
    return [one for one in _keepers(entry, kept, ends, rule) if one.until is None or one.until > kept.as_of]


def lifecycle_end(entry: Entry, rules: Iterable[LifecycleRule]) -> tuple[datetime | None, str | None]:
    """Return when the first lifecycle rule makes the pair due (None: never), and the id of this rule."""
    found = [(end, rule.rule_id) for rule in rules if (end := _due_under(rule, entry)) is not None]
    return min(found, default=(None, None))


def _due_under(rule: LifecycleRule, entry: Entry) -> datetime | None:
    if not rule.covers(entry.path):
        return None
    due = [due_since(rule, entry.added_at, entry.branches)]
    if entry.left_branches:
        due.append(due_since(rule, entry.added_at, entry.left_branches))
    return None if None in due else max(at for at in due if at is not None)


def _keepers(entry: Entry, kept: KeptCommits, ends: datetime | None, rule: str | None) -> Iterator[Keeper]:
    limit = f"; then the lifecycle rule {rule} releases it" if rule else ""
    for commit_id in entry.commits:
        for branch in kept.heads.get(commit_id, ()):
            yield Keeper("branch", branch, f"the head of branch {branch} has it{limit}", ends, entry.path)
    others = [one for one in entry.commits if one not in kept.heads and kept.activity[one].active]
    if others:
        yield _of_commits(others, entry, kept, ends, rule)
    for commit_id in entry.commits:
        for keeper in kept.protected.get(commit_id, ()):
            yield replace(keeper, path=entry.path)
    for hold in kept.policy.holds:
        if hold.covers(entry.path) and hold.in_force(kept.as_of.date()):
            yield replace(keeper_of(hold), path=entry.path)


def _of_commits(
    commits: Sequence[str], entry: Entry, kept: KeptCommits, ends: datetime | None, rule: str | None
) -> Keeper:
    """Return the keeper that stands for active commits that are not heads: the commit that expires last."""
    last = max(commits, key=lambda one: (_order(kept.activity[one].due_since), one))
    until, by = kept.activity[last].due_since, kept.activity[last].rule_id
    count = counted(len(commits), "active commit has", "active commits have")
    under = f" under the rule {RETENTION_IDS}{by}" if by else ""
    expires = "expires last" if len(commits) > 1 else "expires"
    why = f"{last} never expires{under}" if until is None else f"{last} {expires}{under}"
    if ends is not None and (until is None or ends < until):
        until, why = ends, f"the lifecycle rule {rule} releases it earlier than {last} expires"
    detail = f"{count} it; {why}"
    if gone := kept.by_reflog.get(last):
        detail = f"{detail}; only the reflog has the branch that reached it: {gone}"
        return Keeper("reflog", gone, detail, until, entry.path)
    return Keeper("commit", last, detail, until, entry.path)


def _order(until: datetime | None) -> tuple[bool, datetime]:
    return until is None, until or datetime.min.replace(tzinfo=UTC)
