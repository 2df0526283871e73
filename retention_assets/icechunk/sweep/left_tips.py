"""Finds the snapshots that branches and tags have left, and the branches and tags that were made or moved.

Sessions may be open on these snapshots, and on these branches and tags. A branch leaves its tip when it is reset or
deleted, or when the tip is amended. A tag leaves its snapshot when it is deleted. In format 2, the ops log has these
changes, but not the deletions by an expiration. Format 1 has no record of the changes, and the ops log that an upgrade
reconstructs has no resets. So each plan also compares the references with those that earlier plans found. If a commit
moved a branch, sessions began on the old tip until its child was written, and `in_use` uses the age of the child. In
format 2, if the child has been removed from the history since then, the ops log has the time of the commit. A branch or
tag that was made or moved since the cutoff is not deleted: a session may have begun on it, although its tip is old.
Source: docs/icechunk.md, "What is deleted".
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from retention_assets.errors import SourceError
from retention_assets.icechunk.formats.ids import decode_id
from retention_assets.icechunk.formats.model import UpdateKind
from retention_assets.icechunk.rules.snapshots import lineage
from retention_assets.icechunk.source.ops_log import former_parents, references_moved, tips_left, updates_since
from retention_assets.icechunk.source.repository import IcechunkState, references_written_since
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.state.plan import Heads, heads_since
from retention_assets.warehouse.warehouse import Warehouse


def with_left_tips(
    state: IcechunkState, reader: ObjectReader, warehouse: Warehouse, repository: str, cutoff: datetime
) -> IcechunkState:
    """Return `state` with the snapshots that references have left since `cutoff`, as far as this is known.

    Each snapshot has the latest time at which a reference may have named it. The ops log has the exact time. If only
    plans show the change, the time is that of the first plan that no longer found the reference on the snapshot, or the
    time at which `state` was read. The state also gets the references that were made or moved since `cutoff`.
    Errors: as `updates_since` and `former_parents`; SourceError when a tag of format 1 was lost.
    """
    updates = list(updates_since(reader, state.repo, cutoff)) if state.repo else []
    # an upgrade is the first entry that was written when it happened; the entries before it are reconstructed
    has_each_reset = state.repo is not None and all(one.kind is not UpdateKind.REPO_MIGRATED for one in updates)
    left: dict[bytes, datetime] = {}
    for made_at, next_at, heads in heads_since(warehouse, repository, cutoff):
        _require_no_lost_tag(state, heads, made_at, repository)
        tips = _left(state, heads, made_at, has_each_reset=has_each_reset)
        left |= dict.fromkeys(tips, next_at or state.taken_at)
    parents = former_parents(reader, state.repo, updates) if state.repo else {}
    for tip, at in tips_left(updates, parents=parents).items():
        left[tip] = max(left.get(tip, at), at)
    moved = references_moved(updates, state.history) if state.repo else references_written_since(reader, cutoff)
    of_state = {one: moved[one.kind, one.name] for one in state.history.references() if (one.kind, one.name) in moved}
    return replace(state, left=left, moved=of_state)


def _require_no_lost_tag(state: IcechunkState, heads: Heads, made_at: datetime, repository: str) -> None:
    """Refuse a repository of format 1 without the files of a tag of an earlier plan: a deleted tag keeps its file.

    If the snapshot of the tag is gone too, the repository may have been created again. Errors: SourceError.
    """
    names = sorted(heads.tags.keys() - state.history.tags.keys() - state.deleted_tags) if state.repo is None else []
    if lost := [name for name in names if decode_id(heads.tags[name]) in state.stored]:
        raise SourceError(
            f"{repository}: the plan of {made_at:%Y-%m-%d %H:%M:%S} UTC found the tag {lost[0]!r} on the snapshot "
            f"{heads.tags[lost[0]]}, and now the tag has no file. A deleted tag keeps its file, so this file was lost. "
            "Nothing was changed or deleted. Create the tag again: "
            f"`retention icechunk {repository} tag create {lost[0]} {heads.tags[lost[0]]}`. If nobody needs the "
            "tag, delete it afterwards."
        )


def _left(state: IcechunkState, heads: Heads, made_at: datetime, *, has_each_reset: bool) -> Iterator[bytes]:
    """Yield the snapshots in `heads` that their branch or tag has left since the plan.

    If the ops log has each reset within `grace`, a tip that its branch left by a commit is not yielded. Without such a
    log (in format 1, and within `grace` after an upgrade), this tip is yielded, too. There, a child that is younger
    than the plan does not show that a commit moved the branch: a reset may have moved it, long after the child was
    written.
    """
    history = state.history
    for named, now in ((heads.branches, history.branches), (heads.tags, history.tags)):
        for name, text in named.items():
            tip = decode_id(text)
            has_moved_on = has_each_reset and _has_moved_on(state, now.get(name), tip, made_at)
            if now.get(name) != tip and not has_moved_on:
                yield tip


def _has_moved_on(state: IcechunkState, tip: bytes | None, earlier_tip: bytes, made_at: datetime) -> bool:
    """Return whether the history of `tip` has a child of `earlier_tip` that was written after the plan.

    Then no session has begun on `earlier_tip` since this child was written, and `in_use` uses the age of the child.
    """
    line = [] if tip is None else lineage(state.history, tip, {earlier_tip})
    if not line or state.history.snapshots[line[-1]].parent_id != earlier_tip:
        return False
    written_at = state.stored.get(line[-1])
    return written_at is None or written_at >= made_at
