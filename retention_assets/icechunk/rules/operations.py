"""The operations of users on a repository: branches and tags in both formats, and the status in format 2.

`creation`, `reset` and `deletion` return the change that a user asks for, if the current references allow it. In
format 2, `with_change` and `set_status` return the edited repo object, which the caller writes with a conditional
write. An operation that is not allowed raises GuardRefused.
Where icechunk differs from its own design documents, the edits follow icechunk. Source: docs/icechunk.md, "Where it
differs from icechunk"; docs/icechunk-formats.md, "Branches and tags".
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import NoReturn, Protocol

from retention_assets.errors import GuardRefused
from retention_assets.icechunk.formats.ids import encode_id
from retention_assets.icechunk.formats.model import MAIN, Availability, Repo, RepoStatus, Update, UpdateKind
from retention_assets.icechunk.rules.snapshots import ReferenceChange, micros_of
from retention_assets.icechunk.rules.updates import (
    CREATE_TAG,
    DELETE_TAG,
    Stamp,
    is_enabled,
    require_online,
    with_update,
)
from retention_assets.policy.rules import RefKind

CORRECT_THE_ID = "Correct the id: `retention show REPO expired_snapshots` lists the ids as of the newest plan."


class NamedSnapshots(Protocol):
    """The references of a repository, from the repo object of format 2 or from the files of format 1."""

    @property
    def branches(self) -> Mapping[str, bytes]:
        """The snapshot that each branch names."""
        ...

    @property
    def tags(self) -> Mapping[str, bytes]:
        """The snapshot that each live tag names."""
        ...

    @property
    def deleted_tags(self) -> Collection[str]:
        """The names of deleted tags, which can never be used again."""
        ...


def creation(references: NamedSnapshots, kind: RefKind, name: str, snapshot_id: bytes) -> ReferenceChange:
    """Return the creation of a branch or tag.

    Errors: GuardRefused for a name that is in use, that was the name of a deleted tag, or that is not UTF-8.
    """
    _require_utf_8(name, "name")
    tips = _tips(references, kind)
    if name in tips:
        _refuse(f"there is a {kind} {name!r} already, on {encode_id(tips[name])}", "Choose another name.")
    if kind == "tag" and name in references.deleted_tags:
        _refuse(f"the tag {name!r} was deleted, and its name can never be used again", "Choose another name.")
    return ReferenceChange(kind, name, None, snapshot_id)


def reset(references: NamedSnapshots, name: str, snapshot_id: bytes, expected: bytes | None = None) -> ReferenceChange:
    """Return the move of a branch to another snapshot. The snapshots that it leaves stay until a garbage collection.

    Errors: GuardRefused for an unknown branch, and when `expected` is given and is not the branch's tip.
    """
    tip = _tip(references, "branch", name)
    if expected is not None and tip != expected:
        found = encode_id(tip)
        _refuse(
            f"the branch {name!r} is on {found}, not on {encode_id(expected)}",
            f"If you still want to move the branch: `--from {found}`.",
        )
    return ReferenceChange("branch", name, tip, snapshot_id)


def deletion(references: NamedSnapshots, kind: RefKind, name: str) -> ReferenceChange:
    """Return the deletion of a branch or tag; its snapshots stay until a garbage collection.

    Errors: GuardRefused for `main`, and for an unknown branch or tag.
    """
    if (kind, name) == ("branch", MAIN):
        _refuse(f"the branch {MAIN!r} cannot be deleted", "Every repository has this branch.")
    return ReferenceChange(kind, name, _tip(references, kind, name), None)


def with_change(repo: Repo, change: ReferenceChange, stamp: Stamp) -> Repo:
    """Return `repo` with the change. The name of a tag that is deleted joins the deleted tags.

    Errors: GuardRefused when the repository is not online, when the new snapshot is unknown, and when the change needs
    the flag create_tag or delete_tag and the flag is off.
    """
    require_online(repo)
    if change.after is not None and change.after not in repo.snapshots:
        _refuse(f"there is no snapshot {encode_id(change.after)}", CORRECT_THE_ID)
    tips = dict(_tips(repo, change.kind))
    change.make_in(tips)
    if change.kind == "branch":
        after = replace(repo, branches=tips)
    elif change.after is not None:
        _require_flag(repo, CREATE_TAG, "create_tag")
        after = replace(repo, tags=tips)
    else:
        _require_flag(repo, DELETE_TAG, "delete_tag")
        after = replace(repo, tags=tips, deleted_tags=repo.deleted_tags | {change.name})
    return with_update(after, Update(_kind(change), 0, name=change.name, previous_snapshot_id=change.before), stamp)


def _kind(change: ReferenceChange) -> UpdateKind:
    if change.before is None:
        return UpdateKind.BRANCH_CREATED if change.kind == "branch" else UpdateKind.TAG_CREATED
    if change.after is None:
        return UpdateKind.BRANCH_DELETED if change.kind == "branch" else UpdateKind.TAG_DELETED
    return UpdateKind.BRANCH_RESET  # tags are never moved


def set_status(repo: Repo, availability: Availability, reason: str | None, stamp: Stamp) -> Repo:
    """Return `repo` online or read-only from `stamp.at` on. The repository need not be online now.

    Errors: GuardRefused for a reason that is not UTF-8, and for offline. Icechunk treats this status as online, so it
    would protect nothing.
    """
    _require_utf_8(reason or "", "reason")
    if availability is Availability.OFFLINE:
        _refuse("icechunk 2 reads the status offline as online", "Set read-only instead.")
    status = RepoStatus(availability, micros_of(stamp.at), reason)
    return with_update(replace(repo, status=status), Update(UpdateKind.REPO_STATUS_CHANGED, 0, status=status), stamp)


def _tips(references: NamedSnapshots, kind: RefKind) -> Mapping[str, bytes]:
    return references.branches if kind == "branch" else references.tags


def _tip(references: NamedSnapshots, kind: RefKind, name: str) -> bytes:
    tips = _tips(references, kind)
    if name not in tips:
        _refuse(f"there is no {kind} {name!r}", "Correct the name: `retention icechunk REPO status` lists the names.")
    return tips[name]


def _require_flag(repo: Repo, flag: int, name: str) -> None:
    if not is_enabled(repo, flag):
        remedy = "Its owner can turn it on with icechunk (`Repository.set_feature_flag`)."
        _refuse(f"the repository's feature flag {name} is off", remedy)


def _require_utf_8(text: str, what: str) -> None:
    """Refuse a text that the repo object cannot hold. A terminal can pass any bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        _refuse(f"{text!r} is not UTF-8", f"Choose another {what}.")


def _refuse(what: str, remedy: str) -> NoReturn:
    raise GuardRefused(f"{what}. Nothing was changed or deleted. {remedy}")
