"""The operations of users on a repository of format 2, such as creating a branch, as edits of its repo object.

Each edit takes the current repo object and returns the edited one. The caller writes it with a conditional write. An
edit that is not allowed raises GuardRefused, and every edit but `set_status` requires a repository that is online.
Source: seed 003. Where the shipped icechunk differs from it, the edits follow icechunk: Icechunk facts 2 (Design doc
011) and 5.
"""

from dataclasses import replace
from typing import NoReturn

from retention_assets.errors import GuardRefused
from retention_assets.icechunk.formats.ids import encode_id
from retention_assets.icechunk.formats.model import (
    MAIN,
    Availability,
    Repo,
    RepoStatus,
    SnapshotInfo,
    Update,
    UpdateKind,
)
from retention_assets.icechunk.rules.snapshots import micros_of
from retention_assets.icechunk.rules.updates import (
    CREATE_TAG,
    DELETE_TAG,
    Stamp,
    is_enabled,
    require_online,
    with_update,
)


def create_branch(repo: Repo, name: str, snapshot_id: bytes, stamp: Stamp) -> Repo:
    """Return `repo` with a new branch. Errors: GuardRefused for a name that is in use, and for an unknown snapshot."""
    require_online(repo)
    _require_snapshot(repo, snapshot_id)
    if name in repo.branches:
        _refuse(f"there is a branch {name!r} already, on {encode_id(repo.branches[name])}", "Choose another name.")
    new = replace(repo, branches={**repo.branches, name: snapshot_id})
    return with_update(new, Update(UpdateKind.BRANCH_CREATED, 0, name=name), stamp)


def delete_branch(repo: Repo, name: str, stamp: Stamp) -> Repo:
    """Return `repo` without the branch; its snapshots stay until a garbage collection.

    Errors: GuardRefused for `main` or an unknown branch.
    """
    require_online(repo)
    if name == MAIN:
        _refuse(f"the branch {MAIN!r} cannot be deleted", "Every repository has this branch.")
    tip = _tip(repo, name)
    new = replace(repo, branches={other: one for other, one in repo.branches.items() if other != name})
    return with_update(new, Update(UpdateKind.BRANCH_DELETED, 0, name=name, previous_snapshot_id=tip), stamp)


def reset_branch(repo: Repo, name: str, snapshot_id: bytes, stamp: Stamp, expected: bytes | None = None) -> Repo:
    """Return `repo` with the branch on another snapshot; the snapshots that it leaves stay until a garbage collection.

    Errors: GuardRefused for an unknown branch or snapshot, and when `expected` is given and is not the branch's tip.
    """
    require_online(repo)
    tip = _tip(repo, name)
    if expected is not None:
        _require_tip(name, tip, expected)
    _require_snapshot(repo, snapshot_id)
    new = replace(repo, branches={**repo.branches, name: snapshot_id})
    return with_update(new, Update(UpdateKind.BRANCH_RESET, 0, name=name, previous_snapshot_id=tip), stamp)


def create_tag(repo: Repo, name: str, snapshot_id: bytes, stamp: Stamp) -> Repo:
    """Return `repo` with a new tag.

    Errors: GuardRefused for a name that is in use or was the name of a deleted tag, for an unknown snapshot, and when
    the flag create_tag is off.
    """
    require_online(repo)
    _require_snapshot(repo, snapshot_id)
    _require_flag(repo, CREATE_TAG, "create_tag")
    if name in repo.tags:
        _refuse(f"there is a tag {name!r} already, on {encode_id(repo.tags[name])}", "Choose another name.")
    if name in repo.deleted_tags:
        _refuse(f"the tag {name!r} was deleted, and its name can never be used again", "Choose another name.")
    new = replace(repo, tags={**repo.tags, name: snapshot_id})
    return with_update(new, Update(UpdateKind.TAG_CREATED, 0, name=name), stamp)


def delete_tag(repo: Repo, name: str, stamp: Stamp) -> Repo:
    """Return `repo` without the tag, and with its name among the deleted tags.

    Errors: GuardRefused for an unknown tag, and when the flag delete_tag is off.
    """
    require_online(repo)
    _require_flag(repo, DELETE_TAG, "delete_tag")
    if name not in repo.tags:
        _refuse(f"there is no tag {name!r}", "Correct the name.")
    update = Update(UpdateKind.TAG_DELETED, 0, name=name, previous_snapshot_id=repo.tags[name])
    tags = {other: one for other, one in repo.tags.items() if other != name}
    return with_update(replace(repo, tags=tags, deleted_tags=repo.deleted_tags | {name}), update, stamp)


def commit(repo: Repo, branch: str, snapshot: SnapshotInfo, stamp: Stamp) -> Repo:
    """Return `repo` with `snapshot` on top of the branch.

    Errors: GuardRefused when the branch is no longer on the snapshot's parent, when the id is in use, and when the
    snapshot was not flushed after its parent.
    """
    require_online(repo)
    tip = _tip(repo, branch)
    _require_tip(branch, tip, snapshot.parent_id)
    _require_new(repo, snapshot, tip)
    update = Update(UpdateKind.NEW_COMMIT, 0, name=branch, new_snapshot_id=snapshot.id)
    return with_update(_with_tip(repo, branch, snapshot), update, stamp)


def amend(repo: Repo, branch: str, snapshot: SnapshotInfo, stamp: Stamp) -> Repo:
    """Return `repo` with `snapshot` in place of the branch's tip; the old tip stays listed until a garbage collection.

    `snapshot.parent_id` names the old tip. In the result, `snapshot` has the parent of the old tip, and the transaction
    logs that the old tip had taken over. Other branches, tags and children stay on the old tip, as in icechunk.
    Errors: GuardRefused as `commit`, and when the old tip is a root.
    """
    require_online(repo)
    tip = _tip(repo, branch)
    _require_tip(branch, tip, snapshot.parent_id)
    _require_new(repo, snapshot, tip)
    old = repo.snapshots[tip]
    if old.parent_id is None:
        _refuse(f"the first snapshot {encode_id(tip)} cannot be amended", "Commit on top of it.")
    new = replace(snapshot, parent_id=old.parent_id, pruned_ancestor_tx_logs=old.pruned_ancestor_tx_logs)
    update = Update(UpdateKind.COMMIT_AMENDED, 0, name=branch, previous_snapshot_id=tip, new_snapshot_id=snapshot.id)
    return with_update(_with_tip(repo, branch, new), update, stamp)


def set_status(repo: Repo, availability: Availability, reason: str | None, stamp: Stamp) -> Repo:
    """Return `repo` online or read-only from `stamp.at` on; every current status is allowed.

    Errors: GuardRefused for offline. Icechunk treats it as online, so the repository would only seem safe.
    """
    if availability is Availability.OFFLINE:
        _refuse("icechunk 2 reads the status offline as online", "Set read-only instead.")
    status = RepoStatus(availability, micros_of(stamp.at), reason)
    return with_update(replace(repo, status=status), Update(UpdateKind.REPO_STATUS_CHANGED, 0, status=status), stamp)


def _with_tip(repo: Repo, branch: str, snapshot: SnapshotInfo) -> Repo:
    snapshots = {**repo.snapshots, snapshot.id: snapshot}
    return replace(repo, snapshots=snapshots, branches={**repo.branches, branch: snapshot.id})


def _require_snapshot(repo: Repo, snapshot_id: bytes) -> None:
    if snapshot_id not in repo.snapshots:
        _refuse(f"there is no snapshot {encode_id(snapshot_id)}", "Correct the id.")


def _tip(repo: Repo, branch: str) -> bytes:
    if branch not in repo.branches:
        _refuse(f"there is no branch {branch!r}", "Correct the name.")
    return repo.branches[branch]


def _require_tip(branch: str, tip: bytes, expected: bytes | None) -> None:
    if tip != expected:
        wanted = "no snapshot" if expected is None else encode_id(expected)
        _refuse(f"the branch {branch!r} is on {encode_id(tip)}, not on {wanted}", "Read the repository again.")


def _require_new(repo: Repo, snapshot: SnapshotInfo, tip: bytes) -> None:
    text = encode_id(snapshot.id)
    if snapshot.id in repo.snapshots:
        _refuse(f"there is a snapshot {text} already", "Make a new id.")
    if snapshot.flushed_at <= repo.snapshots[tip].flushed_at:
        behind = repo.snapshots[tip].flushed_at - snapshot.flushed_at
        _refuse(f"snapshot {text} is dated {behind} µs before {encode_id(tip)}, its parent", "Compare the clocks.")


def _require_flag(repo: Repo, flag: int, name: str) -> None:
    if not is_enabled(repo, flag):
        _refuse(f"the repository's feature flag {name} is off", "Its owner may turn it on.")


def _refuse(what: str, remedy: str) -> NoReturn:
    raise GuardRefused(f"{what}. Nothing was changed or deleted. {remedy}")
