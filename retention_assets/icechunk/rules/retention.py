"""Decides which snapshots and references have expired under a policy, since when, and by which rule.

Each reference keeps a part of its history: the snapshots that are not older than its rule's duration, or that are among
the newest N. A snapshot has expired when no reference keeps it any more. A snapshot that no reference reaches has
expired when the default does not keep it. A garbage collection removes it in any case when its file is older than the
grace period, see `icechunk.rules.collection`. A snapshot on which sessions may still be open has not expired.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from retention_assets.config.durations import later
from retention_assets.errors import GuardRefused
from retention_assets.icechunk.formats.ids import decode_id, is_canonical
from retention_assets.icechunk.rules.snapshots import (
    History,
    Reference,
    ReferenceChange,
    children_first,
    require_complete,
)
from retention_assets.policy.rules import Hold
from retention_assets.policy.snapshots import (
    NO_RULE,
    NOT_BY_AGE,
    Keep,
    SnapshotPolicy,
    holds_by_name,
    keep_of,
)


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a snapshot has expired, and why.

    `due_since` is the time (UTC) until which a rule keeps the snapshot; None: for ever, or time alone does not decide.
    `rule_id` is the rule or hold that keeps the snapshot longest; None: neither decides. `reference` is the branch or
    tag to whose history that rule applies; None: the decision depends on no reference, for example because no reference
    reaches the snapshot, or because a hold keeps it.
    """

    expired: bool
    due_since: datetime | None
    rule_id: str | None
    reference: str | None
    reason: str  # one line for people


LOST_UNREACHED = (  # a missing file has no age, so only the policy can release such a snapshot
    "In format 2, also give the policy's `default` a `keep_newer`: without it, a lost snapshot that no branch or tag "
    "needs stays for ever. This default is for all branches and tags without a rule of their own, too: give them a "
    "rule first."
)
_NOT_APPROVED = Decision(False, None, None, None, "kept: the approved plan does not name it")
_IN_USE = Decision(
    False,
    None,
    None,
    None,
    "kept: it was a tip within the grace period, or only such a tip reaches it, so sessions may still need it",
)


@dataclass(frozen=True, slots=True)
class Selection:
    """The decision of a policy on every snapshot, the references to delete, and the held snapshots."""

    decisions: Mapping[bytes, Decision]
    expired: frozenset[bytes]  # never roots or held snapshots; a reference may still name one of them
    deleted: tuple[Reference, ...]  # expired references that the policy deletes, in icechunk's order
    held: frozenset[bytes]  # named by a hold, or expired but `Unapproved`, or expired but sessions may be open on them

    @property
    def in_use(self) -> frozenset[bytes]:
        """The snapshots that stay only because sessions may be open on them."""
        return frozenset(snapshot_id for snapshot_id, decision in self.decisions.items() if decision is _IN_USE)


@dataclass(frozen=True, slots=True)
class Unapproved:
    """Snapshots and references that have expired but stay, as if held.

    In a sweep, they are not in the approved plan. In a plan, they are references made or moved in the grace period.
    """

    snapshots: frozenset[bytes] = frozenset()
    deletions: frozenset[ReferenceChange] = frozenset()

    def __len__(self) -> int:
        return len(self.snapshots) + len(self.deletions)

    def with_more(self, other: "Unapproved") -> "Unapproved":
        """Return the union of both."""
        return Unapproved(self.snapshots | other.snapshots, self.deletions | other.deletions)


NOTHING_UNAPPROVED = Unapproved()


class _Reach(NamedTuple):
    """The distance of a snapshot from a reference's tip, and the snapshot that pushed it out of the newest N."""

    distance: int  # 0 for the tip
    pushed_by: bytes | None  # None: it is among the newest N, or the rule has no N
    reference: Reference


class _Due(NamedTuple):
    since: datetime | None  # None: never
    expired: bool
    keep: Keep
    reach: _Reach

    def outlasts(self, other: "_Due") -> bool:
        """Return whether this rule keeps the snapshot longer. Of equal times, the one with the lower rule id counts.

        If the rule ids are equal too, the lower reference counts.
        """
        if self.since == other.since:
            return self._order < other._order
        return other.since is not None and (self.since is None or self.since > other.since)

    @property
    def _order(self) -> tuple[str, str]:
        return self.keep.rule_id or "", str(self.reach.reference)


def select(
    history: History,
    policy: SnapshotPolicy,
    as_of: datetime,
    *,
    on_roots: bool,
    unapproved: Unapproved = NOTHING_UNAPPROVED,
    in_use: Collection[bytes] = (),
) -> Selection:
    """Return the snapshots and references that have expired under `policy` at `as_of` (UTC), except `unapproved` ones.

    `in_use`: the snapshots on which sessions may be open, see `in_use` in `icechunk.rules.collection`. They do not
    expire. Those that would expire are in `Selection.held`.

    With one rule for all references, the same snapshots expire as with icechunk's `expire_snapshots`: those flushed
    before `as_of` minus the rule's duration, and not exactly at that time.
    `on_roots`: whether a reference to a root can expire: true in format 1, false in format 2. Source: docs/icechunk.md.
    Errors: SourceError as `require_complete`; GuardRefused when a hold in force names something that does not exist.
    """
    require_complete(history)
    holds = policy.holds_in_force(as_of.astimezone(UTC).date())
    held = held_snapshots(history, policy, as_of)
    flushed = clock_times(history)
    decisions = dict(_decisions(history, policy, holds, held, flushed, as_of, in_use))
    stays = {one: _IN_USE for one in in_use if one in decisions and decisions[one].expired}
    stays |= dict.fromkeys(unapproved.snapshots & history.snapshots.keys(), _NOT_APPROVED)
    decisions |= stays
    expired = frozenset(snapshot_id for snapshot_id, decision in decisions.items() if decision.expired)
    deleted = tuple(
        reference
        for reference in history.references()
        if (on_roots or not history.is_root(reference.tip))
        and policy.deletes(reference.kind)
        and not reference.is_main
        and reference.name not in holds_by_name(holds, reference.kind)
        and reference.tip not in held
        and reference.deletion not in unapproved.deletions
        and _tip_has_expired(policy, reference, flushed[reference.tip], as_of)
    )
    return Selection(decisions, expired, deleted, frozenset(held) | stays.keys())


def clock_times(history: History) -> Mapping[bytes, datetime]:
    """Return the flush time that counts for each snapshot: the latest time of the snapshot and its ancestors.

    The root's time counts only for the root. So a child is never older than its parent, even if the clocks of their
    writers differ, and a rule always keeps the newest part of a history. If the clocks agree, as icechunk requires of
    every commit, each snapshot has its own flush time.
    """
    times: dict[bytes, datetime] = {}
    for snapshot in reversed(children_first(history)):
        parent = snapshot.parent_id
        before = snapshot.flushed_at
        if parent is not None and parent in times and not history.is_root(parent):
            before = times[parent]
        times[snapshot.snapshot_id] = max(snapshot.flushed_at, before)
    return times


def _decisions(
    history: History,
    policy: SnapshotPolicy,
    holds: Iterable[Hold],
    held: Mapping[bytes, Hold],
    flushed: Mapping[bytes, datetime],
    as_of: datetime,
    in_use: Collection[bytes],
) -> Iterator[tuple[bytes, Decision]]:
    for snapshot_id, reaches in _reaches(history, policy, holds_by_name(list(holds), "branch")):
        if history.is_root(snapshot_id):
            decision = Decision(False, None, None, None, "kept: it is the root of its history")
        elif snapshot_id in held:
            decision = _held(held[snapshot_id])
        elif reaches:
            dues = (_due(keep, reach, snapshot_id, flushed, as_of) for keep, reach in reaches.items())
            decision = _reached(_longest(dues))
        elif snapshot_id in in_use:
            decision = _IN_USE
        else:
            decision = _unreached(policy, flushed[snapshot_id], as_of)
        yield snapshot_id, decision


def _reaches(
    history: History, policy: SnapshotPolicy, held_branches: Mapping[str, Hold]
) -> Iterator[tuple[bytes, dict[Keep, _Reach]]]:
    """Yield each snapshot with the rules that apply to it, and for each rule the reference with the nearest tip.

    Of the references under one rule, the nearest one keeps a snapshot longest. So one reference per rule is enough, and
    one pass is enough for any number of references.
    """
    reaches: dict[bytes, dict[Keep, _Reach]] = {}
    for reference in history.references():
        keeps = policy.keeps_for(reference.kind, reference.name)
        if reference.kind == "branch" and reference.name in held_branches:
            keeps = [keep_of(held_branches[reference.name])]
        for keep in keeps:
            _keep_nearest(reaches.setdefault(reference.tip, {}), keep, _Reach(0, None, reference))
    for snapshot in children_first(history):
        found = reaches.pop(snapshot.snapshot_id, {})
        yield snapshot.snapshot_id, found
        if found and snapshot.parent_id is not None:
            below = reaches.setdefault(snapshot.parent_id, {})
            for keep, reach in found.items():
                _keep_nearest(below, keep, _one_further(history, keep, reach))


def _keep_nearest(reaches: dict[Keep, _Reach], keep: Keep, reach: _Reach) -> None:
    known = reaches.get(keep)
    if known is None or (reach.distance, str(reach.reference)) < (known.distance, str(known.reference)):
        reaches[keep] = reach


def _one_further(history: History, keep: Keep, reach: _Reach) -> _Reach:
    distance, pushed_by, reference = reach
    if distance + 1 == keep.last:
        pushed_by = reference.tip
    elif pushed_by is not None:
        pushed_by = history.snapshots[pushed_by].parent_id
    return _Reach(distance + 1, pushed_by, reference)


def _due(keep: Keep, reach: _Reach, snapshot_id: bytes, flushed: Mapping[bytes, datetime], as_of: datetime) -> _Due:
    """Return when the snapshot expires under `keep`: when it is too old and enough newer snapshots exist."""
    by_age = later(flushed[snapshot_id], keep.newer)
    if by_age is None or reach.distance < keep.last:
        return _Due(None, False, keep, reach)
    by_number = by_age if reach.pushed_by is None else flushed[reach.pushed_by]
    return _Due(max(by_age, by_number), by_age < as_of, keep, reach)


def _longest(dues: Iterable[_Due]) -> _Due:
    """Return the entry that keeps a snapshot longest: one that still keeps it, else the one that expired last."""
    found = list(dues)
    longest, *others = [due for due in found if not due.expired] or found
    for due in others:
        if due.outlasts(longest):
            longest = due
    return longest


def _reached(due: _Due) -> Decision:
    reference = str(due.reach.reference)
    if due.expired:
        reason = f"expired: {reference} kept it longest, until {due.since} (rule {due.keep.rule_id})"
    elif due.keep.rule_id is None:
        reason = f"kept: {reference} has no rule"
    elif due.since is not None:
        reason = f"kept: {reference} keeps it until {due.since} (rule {due.keep.rule_id})"
    elif due.keep.newer is None:
        reason = f"kept: {reference} keeps its history for ever (rule {due.keep.rule_id})"
    else:
        newest = f"one of the {due.keep.last} newest snapshots" if due.keep.last != 1 else "the newest snapshot"
        reason = f"kept: it is {newest} of {reference} (rule {due.keep.rule_id})"
    return Decision(due.expired, due.since, due.keep.rule_id, reference, reason)


def _held(hold: Hold) -> Decision:
    return Decision(False, None, keep_of(hold).rule_id, None, f"kept: held by {hold.hold_id} ({hold.reason})")


def _unreached(policy: SnapshotPolicy, flushed: datetime, as_of: datetime) -> Decision:
    """Return the default's decision on a snapshot that no reference reaches: only its age counts."""
    keep = policy.default or NO_RULE
    since = None if keep.newer == NOT_BY_AGE and keep.last else later(flushed, keep.newer)
    expired = since is not None and since < as_of
    verb = f"expired after {since}" if expired else "kept"
    return Decision(expired, since, keep.rule_id, None, f"{verb}: no branch or tag reaches it, so the default counts")


def _tip_has_expired(policy: SnapshotPolicy, reference: Reference, flushed: datetime, as_of: datetime) -> bool:
    keeps = policy.keeps_for(reference.kind, reference.name)
    due_times = [later(flushed, keep.newer) for keep in keeps if not keep.keeps_tip]
    return len(due_times) == len(keeps) and all(due is not None and due < as_of for due in due_times)


def held_snapshots(history: History, policy: SnapshotPolicy, as_of: datetime) -> Mapping[bytes, Hold]:
    """Return the snapshots that a hold in force at `as_of` names, by id or by tag, each with its hold.

    Held branches are not included, because the hold acts as a rule for the branch. Errors: GuardRefused when a hold
    names something that does not exist, because a typo must not cause a deletion.
    """
    holds = policy.holds_in_force(as_of.astimezone(UTC).date())
    _require_held_exist(history, holds)
    held: dict[bytes, Hold] = {}
    for hold in holds:
        if hold.kind == "snapshot":
            held.setdefault(decode_id(hold.value), hold)
        elif hold.kind == "tag":
            held.setdefault(history.tags[hold.value], hold)
    return held


def _require_held_exist(history: History, holds: Iterable[Hold]) -> None:
    unknown = [hold for hold in holds if not _exists(history, hold)]
    if unknown:
        named = "; ".join(
            f"hold {hold.hold_id!r} names the {hold.kind} {hold.value!r}, which does not exist" for hold in unknown
        )
        raise GuardRefused(
            f"{named}. Nothing was changed or deleted. Correct the name (for a snapshot: its full id), or end the hold "
            f"with `until`."
        )


def _exists(history: History, hold: Hold) -> bool:
    if hold.kind == "snapshot":
        return is_canonical(hold.value) and decode_id(hold.value) in history.snapshots
    return hold.value in {"branch": history.branches, "tag": history.tags}.get(hold.kind, {})
