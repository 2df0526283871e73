"""Remembers the heads and commits that earlier plans found.

A branch that is deleted or reset leaves no trace in the repository, and a committer can set the date of a commit. In
both cases commits would expire earlier than the policy says. So each plan remembers the heads and the commits that it
found. Source: docs/retention.md, "The reflog".
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from retention_assets.config.durations import later
from retention_assets.core.amounts import counted
from retention_assets.lakefs.rules.references import References
from retention_assets.policy.rules import Policy, RefKind

TAG_DURATION = timedelta(days=30)  # how long a deleted tag counts if the policy has no retention; as in git's reflog
# A head that is gone is remembered for at least this time. Otherwise a plan whose period is too short by mistake would
# forget it at once, also for later plans.
_REMEMBERED = timedelta(days=30)
_JUST_BEFORE = timedelta(microseconds=1)  # so that a lost head was last seen before the plan that does not find it


@dataclass(frozen=True, slots=True)
class SeenHead:
    """A branch or tag with its commit, as a plan found it."""

    kind: RefKind
    name: str
    commit_id: str
    last_seen: datetime  # UTC: when the newest plan that found it read its references


@dataclass(frozen=True, slots=True)
class Memory:
    """The heads and commits that earlier plans found. The first plan has an empty memory.

    `not_before`: for each commit that a plan found, the time of the last plan that did not find it. None: the first
    plan found it.
    """

    heads: tuple[SeenHead, ...] = ()
    not_before: Mapping[str, datetime | None] = field(default_factory=dict)
    seen_at: datetime | None = None  # UTC: when the last plan read its references; None: there was none

    def branch_names(self, now: Iterable[str]) -> list[str]:
        """Return the sorted names of the branches `now` and of the remembered branches."""
        return sorted({*now, *(head.name for head in self.heads if head.kind == "branch")})

    def earliest(self, commit_id: str) -> datetime | None:
        """Return a time at which the commit did not exist yet; None if no such time is known."""
        return self.not_before.get(commit_id, self.seen_at)


def with_true_ages(references: References, memory: Memory) -> References:
    """Return the references with corrected commit times: no commit is older than the last plan that did not find it."""
    if memory.seen_at is None:
        return references
    commits = dict(references.commits)
    for commit_id, commit in references.commits.items():
        earliest = memory.earliest(commit_id)
        if earliest is not None and earliest > commit.created_at:
            commits[commit_id] = replace(commit, created_at=earliest)
    return replace(references, commits=commits)


def gone_heads(references: References, memory: Memory) -> tuple[SeenHead, ...]:
    """Return the remembered heads that their branch or tag no longer has, and whose commit still exists."""
    now = {"branch": references.branches, "tag": references.tags}
    return tuple(
        head
        for head in memory.heads
        if head.commit_id in references.commits and now[head.kind].get(head.name) != head.commit_id
    )


def memory_digest(references: References, memory: Memory, policy: Policy) -> str:
    """Return a digest of what the memory adds to the references: heads that are gone, and corrected commit times.

    Heads that `remember` forgets do not count. So the digest stays the same when another plan from these references is
    stored meanwhile.
    """
    aged = with_true_ages(references, memory)
    heads = sorted(repr(head) for head in _gone_heads_to_remember(aged, memory, policy))
    times = sorted(
        f"{commit_id} {aged.commits[commit_id].created_at.isoformat()}"
        for commit_id, commit in references.commits.items()
        if aged.commits[commit_id].created_at != commit.created_at
    )
    return hashlib.sha256("\n".join([*heads, *times]).encode()).hexdigest()


def counting_heads(references: References, memory: Memory, policy: Policy, as_of: datetime) -> tuple[SeenHead, ...]:
    """Return the remembered heads that are gone and still keep commits at `as_of` (UTC)."""
    ends = [(head, held_until(head, policy)) for head in gone_heads(references, memory)]
    return tuple(head for head, until in ends if until is None or until > as_of)


def reported_heads(references: References, memory: Memory, policy: Policy, as_of: datetime) -> tuple[SeenHead, ...]:
    """Return the `counting_heads` that were deleted or reset, without branches that only moved on to later commits."""
    aged = with_true_ages(references, memory)
    return tuple(head for head in counting_heads(aged, memory, policy, as_of) if not _moved_on(head, aged))


def lost_heads(references: References, memory: Memory, policy: Policy) -> tuple[SeenHead, ...]:
    """Return the remembered heads whose commit does not exist any more, although the references are newer.

    lakeFS never removes commits. So the repository was restored to an older state, or was created again. A head that
    the last plan found counts however long ago that plan was.
    """
    if memory.seen_at is None or references.taken_at < memory.seen_at:
        return ()
    lost = (head for head in memory.heads if head.commit_id not in references.commits)
    return tuple(
        head for head in lost if _was_found_last(head, memory) or _is_remembered(head, policy, references.taken_at)
    )


def _was_found_last(head: SeenHead, memory: Memory) -> bool:
    """Return whether the last plan found this head."""
    return memory.seen_at is not None and head.last_seen >= memory.seen_at


def lost_commits(repository: str, references: References, memory: Memory, policy: Policy) -> str | None:
    """Return why these references must not be trusted, if commits that earlier plans found are lost; else None."""
    lost = lost_heads(references, memory, policy)
    if not lost:
        return None
    return (
        f"{counted(len(lost), 'commit')} that branches or tags had in earlier plans cannot be found any more: "
        f"{lost[0].kind} {lost[0].name} had {lost[0].commit_id}. lakeFS never removes commits, so the repository was "
        "restored to an older state, or was created again. The objects of lost commits count as unreferenced, but a "
        f"newer dump may bring the commits back. If they are lost for good, first create the deleted branches that you "
        f"still need (`retention lint {repository}` lists them). Then remove the directory "
        f"<warehouse>/{repository}/memory, and plan once with `reflog: false`: nothing keeps the commits of the other "
        "deleted branches any more."
    )


def held_until(head: SeenHead, policy: Policy) -> datetime | None:
    """Return the time until which a head that is gone still keeps commits; None: for ever.

    A branch counts for the longest period that any rule of committed retention or lifecycle gives to its name. A tag
    counts for the default period of committed retention, or for `TAG_DURATION` without committed retention.
    """
    retention = policy.retention
    if head.kind == "tag":
        return later(head.last_seen, retention.default_kept.duration if retention else TAG_DURATION)
    durations = [retention.duration_for(head.name).duration] if retention else []
    durations += [rule.duration_for(head.name) for rule in policy.lifecycle if rule.enabled]
    ends = [later(head.last_seen, duration) for duration in durations]
    return None if None in ends else max((end for end in ends if end is not None), default=head.last_seen)


def remember(references: References, memory: Memory, policy: Policy) -> Memory:
    """Return the memory after a plan with these references.

    A head is forgotten when its branch has moved on, because the commits after it determine its retention. A head that
    is gone or lost is remembered as long as it counts (`held_until`), and at least for `_REMEMBERED`. A lost head
    counts as last seen just before the first plan that does not find it.

    `references`: with the commit times of `with_true_ages`.
    """
    at = references.taken_at
    seen = [SeenHead("branch", name, commit_id, at) for name, commit_id in references.branches.items()]
    seen += [SeenHead("tag", name, commit_id, at) for name, commit_id in references.tags.items()]
    gone = _gone_heads_to_remember(references, memory, policy)
    gone += [
        replace(head, last_seen=at - _JUST_BEFORE) if _was_found_last(head, memory) else head
        for head in lost_heads(references, memory, policy)
    ]
    heads = sorted([*seen, *gone], key=lambda head: (head.kind, head.name, head.commit_id))
    known = {commit_id: memory.earliest(commit_id) for commit_id in references.commits}
    return Memory(tuple(heads), known, at if memory.seen_at is None else max(at, memory.seen_at))


def _gone_heads_to_remember(references: References, memory: Memory, policy: Policy) -> list[SeenHead]:
    return [
        head
        for head in gone_heads(references, memory)
        if not _moved_on(head, references) and _is_remembered(head, policy, references.taken_at)
    ]


def merged(one: Memory, other: Memory) -> Memory:
    """Return the memory of two plans that ran at the same time. Neither memory includes what the other plan found."""
    heads: dict[tuple[str, str, str], SeenHead] = {}
    for head in sorted((*one.heads, *other.heads), key=lambda head: head.last_seen):
        heads[head.kind, head.name, head.commit_id] = head
    known = dict(one.not_before)
    for commit_id, at in other.not_before.items():
        known[commit_id] = max((time for time in (known.get(commit_id), at) if time), default=None)
    seen_at = max((time for time in (one.seen_at, other.seen_at) if time), default=None)
    return Memory(tuple(heads[key] for key in sorted(heads)), known, seen_at)


def with_older_heads(references: References, memory: Memory, policy: Policy) -> Memory:
    """Return `memory` with those heads of the older `references` that are not in `memory`.

    Such a branch or tag was deleted, reset or moved after these references were read, and before other plans read
    theirs. If the branch has only moved on, the next plan forgets the head.
    """
    found = remember(references, Memory(), policy).heads
    known = {(head.kind, head.name, head.commit_id) for head in memory.heads}
    at = memory.seen_at or references.taken_at
    missing = (one for one in found if (one.kind, one.name, one.commit_id) not in known)
    return merged(memory, Memory(tuple(one for one in missing if _is_remembered(one, policy, at))))


def _is_remembered(head: SeenHead, policy: Policy, at: datetime) -> bool:
    until = held_until(head, policy)
    return until is None or max(until, head.last_seen + _REMEMBERED) > at


def _moved_on(head: SeenHead, references: References) -> bool:
    """Return whether the branch has a child of this commit that was created after the head was last seen.

    An older child does not show this: the branch may have been reset to `head` and then forward again.
    """
    child, commit_id = None, references.branches.get(head.name) if head.kind == "branch" else None
    while commit_id is not None and commit_id != head.commit_id:
        child = references.commits[commit_id]
        commit_id = child.main_parent
    return commit_id is not None and child is not None and child.created_at >= head.last_seen
