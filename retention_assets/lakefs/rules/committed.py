"""Computes which commits of a lakeFS repository are active, since when the others are due, and which are protected."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from retention_assets.config.durations import later
from retention_assets.config.timestamps import start_of_day
from retention_assets.core.keepers import Keeper
from retention_assets.errors import GuardRefused
from retention_assets.lakefs.rules.references import (
    Commit,
    References,
    all_ancestry,
    children_first,
    main_ancestry,
    require_complete,
)
from retention_assets.lakefs.rules.reflog import SeenHead, held_until
from retention_assets.policy.rules import CommittedRetention, Hold, Kept, Policy


@dataclass(frozen=True, slots=True)
class CommitNode:
    """A commit with the branches and tags that reach or name it. Names are sorted."""

    commit: Commit
    branches: tuple[str, ...]  # branches whose head reaches the commit by any parent
    head_of: tuple[str, ...]
    tags: tuple[str, ...]
    dangling: bool  # not on the main ancestry of any branch


@dataclass(frozen=True, slots=True)
class Activity:
    """Whether a commit is active, and why.

    `due_since` is the time (UTC) when the retention of the commit ends for all branches. For an active commit it is in
    the future, or `None` for never. `rule_id` is the rule whose retention ends last. A branch HEAD has no rule, because
    a HEAD is always active.
    """

    active: bool
    due_since: datetime | None
    rule_id: str | None


class _Due(NamedTuple):
    since: datetime | None  # `None`: never
    rule_id: str | None

    def after(self, other: "_Due") -> bool:
        """Return whether this is later than `other`.

        For equal times, the lower rule id counts as later, so that all runs agree.
        """
        if self.since == other.since:
            return (self.rule_id or "") < (other.rule_id or "")
        return other.since is not None and (self.since is None or self.since > other.since)


def commit_graph(references: References) -> tuple[CommitNode, ...]:
    """Return all commits in order of their ids, with the branches and tags that reach or name them.

    A commit is `dangling` if no branch HEAD reaches it by main parents. So the tip of a feature branch that was merged
    and deleted is dangling, although a branch still reaches it by a second parent. Retention is counted only from
    dangling *leaves*, which are fewer (see `activity`). Source: docs/retention.md, "Rule".

    Errors: SourceError when the commit of a parent, branch or tag is missing, and for a cycle.
    """
    reaching = reaching_branches(references, references.branches.items())
    heads, tags = names_by_commit(references.branches), names_by_commit(references.tags)
    on_main = main_ancestry(references.commits, references.branches.values())
    return tuple(
        CommitNode(
            commit=commit,
            branches=reaching[commit_id],
            head_of=heads.get(commit_id, ()),
            tags=tags.get(commit_id, ()),
            dangling=commit_id not in on_main,
        )
        for commit_id, commit in sorted(references.commits.items())
    )


def activity(
    references: References,
    retention: CommittedRetention | None,
    as_of: datetime,
    gone: Collection[SeenHead] = (),
) -> Mapping[str, Activity]:
    """Return for every commit whether it is active at `as_of` (UTC), since when it is due, and by which rule.

    A commit was a head until its main child was created (the commit that has it as its main parent). So a commit is due
    at the creation of its main child plus a retention period. If several main children exist, the latest time counts.

    Every start from which main parents lead to the main child has a retention period. The longest of these periods
    counts. There are three kinds of starts:

    - A branch HEAD has the period of its branch. A HEAD itself is always active.
    - A dangling leaf has the default period. A dangling leaf is neither a HEAD nor the main parent of any commit. The
      leaf itself is due at its own creation plus the default period.
    - A head in `gone` has the period of its branch. It is due no earlier than the time it was last seen plus that
      period. `gone` are heads that earlier plans found and that no branch has now.

        a <- b <- c (HEAD)        a: due at created(b) + period, or at created(x) + default, whichever is later
          <- x <- y (leaf)        x: due at created(y) + default        y: due at created(y) + default

    A commit that is due exactly at `as_of` is not active. Without rules all commits are active. Tags do not keep
    commits active.

    Source: docs/retention.md, "Rule" and "The reflog". Errors: as `commit_graph`.
    """
    ordered = children_first(references)
    if retention is None:
        return {commit.commit_id: Activity(active=True, due_since=None, rule_id=None) for commit in ordered}
    heads = set(references.branches.values())
    earlier = [
        (head.commit_id, head.last_seen, retention.duration_for(head.name)) for head in gone if head.kind == "branch"
    ]
    due = _due_by_commit(ordered, _kept_by_head(references, retention), retention.default_kept, earlier)
    return {
        commit.commit_id: _activity(commit.commit_id in heads, due.get(commit.commit_id), as_of) for commit in ordered
    }


def protected_commits(
    references: References,
    policy: Policy,
    gone: Collection[SeenHead] = (),
    *,
    tags_protect: bool,
    as_of: datetime,
) -> Mapping[str, tuple[Keeper, ...]]:
    """Return the commits that are kept regardless of the rules, each with what keeps it.

    These are the commits of tags (if `tags_protect`), the commits that a hold in force names by tag or id, and all
    commits that the head of a held branch reaches by any parent. Holds on prefixes concern paths and are ignored here.

    `gone`: heads that earlier plans found. Their branch or tag was deleted, moved, or created again since. They still
    count: tags among them protect, and a hold on the name covers them too.

    Errors: GuardRefused when a hold in force names a branch, tag or commit that does not exist, because a typing error
    must not delete objects. SourceError as `commit_graph`.
    """
    require_complete(references)
    in_force = [hold for hold in policy.holds if hold.in_force(as_of.astimezone(UTC).date())]
    _require_held_exist(references, in_force)
    keepers: defaultdict[str, list[Keeper]] = defaultdict(list)
    if tags_protect:
        for tag, commit_id in sorted(references.tags.items()):
            keepers[commit_id].append(Keeper("tag", tag, f"the tag {tag} is on commit {commit_id}", None))
        for head in gone:
            if head.kind == "tag":
                detail = f"the tag {head.name} was on commit {head.commit_id}, last seen {head.last_seen:%Y-%m-%d}"
                keepers[head.commit_id].append(Keeper("reflog", head.name, detail, held_until(head, policy)))
    for hold in sorted(in_force, key=lambda hold: hold.hold_id):
        keeper = keeper_of(hold)
        held = set(_held_commits(references, hold))
        for commit_id in held:
            keepers[commit_id].append(keeper)
        for head in (head for head in gone if (head.kind, head.name) == (hold.kind, hold.value)):
            ends = [end for end in (keeper.until, held_until(head, policy)) if end is not None]
            was_on = f"{keeper.detail}, which was on commit {head.commit_id}, last seen {head.last_seen:%Y-%m-%d}"
            of_head = replace(keeper, detail=was_on, until=min(ends, default=None))
            for commit_id in {*_reached(references, hold, head.commit_id)} - held:
                keepers[commit_id].append(of_head)
    return {commit_id: tuple(found) for commit_id, found in keepers.items()}


def keeper_of(hold: Hold) -> Keeper:
    """Return the hold as a keeper. It ends with its last day."""
    until = None if hold.until is None else later(start_of_day(hold.until), timedelta(days=1))
    return Keeper("hold", hold.hold_id, f"the hold {hold.hold_id} on {hold.kind} {hold.value} ({hold.reason})", until)


def names_by_commit(names: Mapping[str, str]) -> Mapping[str, tuple[str, ...]]:
    """Return the sorted names of the branches (or tags) of each commit. `names`: the commit of each branch (or tag)."""
    by_commit: defaultdict[str, list[str]] = defaultdict(list)
    for name, commit_id in sorted(names.items()):
        by_commit[commit_id].append(name)
    return {commit_id: tuple(found) for commit_id, found in by_commit.items()}


def reaching_branches(references: References, heads: Iterable[tuple[str, str]]) -> Mapping[str, tuple[str, ...]]:
    """Return the names of the branches that reach each commit.

    `heads`: (name, commit). A name can have several commits.

    A set of branches is an integer with one bit per branch. So 1,000 branches and 100,000 commits need only about
    100,000 or-operations. Commits with equal sets share one tuple.
    """
    ordered = children_first(references)
    named = sorted(heads)
    names = sorted({name for name, _ in named})
    position = {name: number for number, name in enumerate(names)}
    masks = dict.fromkeys(references.commits, 0)
    for name, commit_id in named:
        masks[commit_id] |= 1 << position[name]
    for commit in ordered:
        for parent in commit.parents:
            masks[parent] |= masks[commit.commit_id]
    decoded = {mask: tuple(_names_in(mask, names)) for mask in set(masks.values())}
    return {commit_id: decoded[mask] for commit_id, mask in masks.items()}


def _names_in(mask: int, names: list[str]) -> Iterator[str]:
    while mask:
        lowest = mask & -mask
        yield names[lowest.bit_length() - 1]
        mask ^= lowest


def _kept_by_head(references: References, retention: CommittedRetention) -> dict[str, Kept]:
    """Return the retention of each HEAD commit: the longest one of the branches that have this HEAD."""
    kept: dict[str, Kept] = {}
    for branch, head in references.branches.items():
        one = retention.duration_for(branch)
        if head not in kept or one.outlasts(kept[head]):
            kept[head] = one
    return kept


def _due_by_commit(
    ordered: list[Commit], kept: dict[str, Kept], default: Kept, gone: Iterable[tuple[str, datetime, Kept]]
) -> Mapping[str, _Due]:
    """Return when each commit is due. HEADs without main children are omitted.

    `kept` has the HEADs at first. The loop extends it to the longest retention of all starts at or above each commit.
    `ordered` has children first, so the value of a commit is complete when the loop reaches the commit. A commit that
    has no value by then is a dangling leaf.

    `gone`: (commit that was a head, when it was last seen, retention of its branch).
    """
    due: dict[str, _Due] = {}
    earlier: defaultdict[str, list[tuple[datetime, Kept]]] = defaultdict(list)
    for commit_id, at, one in gone:
        earlier[commit_id].append((at, one))
    for commit in ordered:
        if commit.commit_id not in kept:
            kept[commit.commit_id] = default
            due[commit.commit_id] = _Due(later(commit.created_at, default.duration), default.rule_id)
        for at, one in earlier.get(commit.commit_id, ()):
            _postpone(due, commit.commit_id, _Due(later(at, one.duration), one.rule_id))
            if one.outlasts(kept[commit.commit_id]):
                kept[commit.commit_id] = one
        parent = commit.main_parent
        if parent is None:
            continue
        longest = kept[commit.commit_id]
        if parent not in kept or longest.outlasts(kept[parent]):
            kept[parent] = longest
        _postpone(due, parent, _Due(later(commit.created_at, longest.duration), longest.rule_id))
    return due


def _postpone(due: dict[str, _Due], commit_id: str, one: _Due) -> None:
    if commit_id not in due or one.after(due[commit_id]):
        due[commit_id] = one


def _activity(is_head: bool, due: _Due | None, as_of: datetime) -> Activity:
    if is_head or due is None:  # only HEADs have no entry
        return Activity(active=True, due_since=None, rule_id=None)
    return Activity(due.since is None or due.since > as_of, due.since, due.rule_id)


def _require_held_exist(references: References, in_force: Collection[Hold]) -> None:
    known: Mapping[str, Mapping[str, object]] = {
        "branch": references.branches,
        "tag": references.tags,
        "commit": references.commits,
    }
    unknown = [hold for hold in in_force if hold.kind in known and hold.value not in known[hold.kind]]
    if unknown:
        named = "; ".join(
            f"hold {hold.hold_id!r} names the {hold.kind} {hold.value!r}, which does not exist" for hold in unknown
        )
        raise GuardRefused(
            f"{named}. Nothing was deleted. Correct the name (for a commit, the full id), or end the hold with `until`."
        )


def _held_commits(references: References, hold: Hold) -> Iterator[str]:
    if hold.kind == "commit":
        yield hold.value
    elif hold.kind in ("branch", "tag"):
        names = references.branches if hold.kind == "branch" else references.tags
        yield from _reached(references, hold, names[hold.value])


def _reached(references: References, hold: Hold, head: str) -> Iterable[str]:
    """Return the commits that a hold on a branch or tag covers if its head is `head`."""
    return all_ancestry(references.commits, head) if hold.kind == "branch" else (head,)
