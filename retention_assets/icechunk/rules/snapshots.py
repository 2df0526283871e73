"""The snapshots of an Icechunk repository with their parents and references, the same for formats 1 and 2."""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from retention_assets.errors import SourceError
from retention_assets.icechunk.formats.ids import encode_id
from retention_assets.icechunk.formats.model import MAIN, Repo
from retention_assets.icechunk.formats.paths import reference_address
from retention_assets.policy.rules import RefKind

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
TO_THE_MICROSECOND = "%Y-%m-%d %H:%M:%S.%f"  # how messages show a time of the files
_REMEDY = (
    "Nothing more was changed or deleted. Run again. If the error persists, bring back the file of that snapshot, from "
    "quarantine (`retention restore REPO --address snapshots/ID`) or from a backup. Or delete the branches and tags "
    "that lead to it."
)
_DAMAGED = (
    "Nothing more was changed or deleted. Run again. If the error persists, replace the file of that snapshot by one "
    "from a backup. Or delete the branches and tags that lead to it."
)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot in a history. A snapshot without a parent is a root, whatever its id.

    Source: docs/icechunk-formats.md, "Ids".
    """

    snapshot_id: bytes
    parent_id: bytes | None
    flushed_at: datetime  # aware, UTC; the writer's clock


class Reference(NamedTuple):
    """A branch or a tag, and the snapshot that it names."""

    kind: RefKind
    name: str
    tip: bytes

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    @property
    def address(self) -> str:
        """The address in reports and stored documents, for example `refs/branch.main`."""
        return reference_address(self.kind, self.name)

    @property
    def is_main(self) -> bool:
        """Whether the reference is `main`, the branch that every repository has and that is never deleted."""
        return (self.kind, self.name) == ("branch", MAIN)

    @property
    def deletion(self) -> "ReferenceChange":
        """The change that deletes the reference."""
        return ReferenceChange(self.kind, self.name, self.tip, None)


@dataclass(frozen=True, slots=True)
class ReferenceChange:
    """A branch or tag that is created, moved to another snapshot, or deleted."""

    kind: RefKind
    name: str
    before: bytes | None  # the snapshot that the reference names before the change; None: the reference is created
    after: bytes | None  # the snapshot that the reference names after the change; None: the reference is deleted

    @property
    def address(self) -> str:
        """The address of the reference, see `Reference.address`."""
        return reference_address(self.kind, self.name)

    def make_in(self, tips: dict[str, bytes]) -> None:
        """Make the change in `tips`: the snapshot that each branch, or each tag, names."""
        if self.after is None:
            del tips[self.name]
        else:
            tips[self.name] = self.after


@dataclass(frozen=True, slots=True)
class History:
    """Snapshots by id, and the snapshot that each branch and each live tag names."""

    snapshots: Mapping[bytes, Snapshot]
    branches: Mapping[str, bytes]
    tags: Mapping[str, bytes]

    def references(self) -> Iterator[Reference]:
        """Yield tags, then branches, each sorted by name, as icechunk's expiration does.

        Source: docs/icechunk-formats.md, "Expiration".
        """
        yield from (Reference("tag", name, tip) for name, tip in sorted(self.tags.items()))
        yield from (Reference("branch", name, tip) for name, tip in sorted(self.branches.items()))

    def tips(self) -> set[bytes]:
        """Return the snapshots that references name."""
        return {*self.tags.values(), *self.branches.values()}

    def is_root(self, snapshot_id: bytes) -> bool:
        """Return whether the snapshot has no parent."""
        return self.snapshots[snapshot_id].parent_id is None


def history_of(repo: Repo) -> History:
    """Return the history in a repo object. Errors: SourceError for a time that a datetime cannot hold."""
    snapshots = {
        snapshot_id: Snapshot(snapshot_id, one.parent_id, datetime_of(one.flushed_at, snapshot_id))
        for snapshot_id, one in repo.snapshots.items()
    }
    return History(snapshots, repo.branches, repo.tags)


def datetime_of(micros: int, snapshot_id: bytes) -> datetime:
    """Return microseconds since 1970 as a datetime (UTC). Errors: SourceError with the snapshot when out of range."""
    try:
        return _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        raise SourceError(
            f"snapshot {encode_id(snapshot_id)}: its time, {micros} µs after 1970, is out of range. {_DAMAGED}"
        ) from None


def micros_of(time: datetime) -> int:
    """Return an aware datetime as microseconds since 1970, the unit of the files."""
    return (time - _EPOCH) // _MICROSECOND


def require_complete(history: History) -> None:
    """Raise SourceError when a reachable snapshot is missing, a snapshot is its own ancestor, or `main` does not exist.

    The error names both ends of the broken link. The parent of an unreachable snapshot may be missing: in format 1, a
    collection can leave a young snapshot without its parent.
    """
    if MAIN not in history.branches:
        raise SourceError(
            f"the repository has no branch {MAIN!r}, which every Icechunk repository has. Nothing more was changed or "
            "deleted. Run again. If the error persists, restore this branch from a backup."
        )
    for reference in history.references():
        if reference.tip not in history.snapshots:
            raise SourceError(f"{reference}: its snapshot {encode_id(reference.tip)} is missing. {_REMEDY}")
    for snapshot_id in reachable(history, history.tips()):
        parent = history.snapshots[snapshot_id].parent_id
        if parent is not None and parent not in history.snapshots:
            child = encode_id(snapshot_id)
            raise SourceError(f"snapshot {child}: its parent {encode_id(parent)} is missing. {_REMEDY}")
    children_first(history)


def reachable(history: History, starts: Iterable[bytes]) -> set[bytes]:
    """Return `starts` and their ancestors, as far as `history` has them."""
    reached: set[bytes] = set()
    for start in starts:
        reached.update(lineage(history, start, reached))
    return reached


def lineage(history: History, start: bytes, stop: Container[bytes]) -> list[bytes]:
    """Return `start` and its ancestors, newest first, as far as `history` has them, up to the first one in `stop`.

    The list does not contain that snapshot.
    """
    line: dict[bytes, None] = {}
    at: bytes | None = start
    while at is not None and at in history.snapshots and at not in stop and at not in line:
        line[at] = None
        at = history.snapshots[at].parent_id
    return list(line)


def children_first(history: History) -> list[Snapshot]:
    """Return the snapshots in an order in which each one comes after all its children.

    Errors: SourceError for a snapshot that is its own ancestor.
    """
    snapshots = history.snapshots
    children = dict.fromkeys(snapshots, 0)
    for snapshot in snapshots.values():
        if snapshot.parent_id in children:
            children[snapshot.parent_id] += 1
    ordered = [snapshot for snapshot in snapshots.values() if not children[snapshot.snapshot_id]]
    for snapshot in ordered:  # the loop appends to this list
        parent = snapshot.parent_id
        if parent in children:
            children[parent] -= 1
            if not children[parent]:
                ordered.append(snapshots[parent])
    if len(ordered) < len(snapshots):
        in_cycle = min(snapshot_id for snapshot_id, waiting in children.items() if waiting)
        raise SourceError(f"snapshot {encode_id(in_cycle)} is its own ancestor. {_DAMAGED}")
    return ordered


def descendants(history: History, snapshot_id: bytes) -> set[bytes]:
    """Return every snapshot that has `snapshot_id` as an ancestor."""
    found: set[bytes] = set()
    for snapshot in reversed(children_first(history)):
        if snapshot.parent_id == snapshot_id or snapshot.parent_id in found:
            found.add(snapshot.snapshot_id)
    return found


def anchors(history: History, held: Iterable[bytes] = ()) -> dict[bytes, bytes]:
    """Return for each snapshot the nearest ancestor that is never released: a held snapshot or the root.

    Roots are left out, and so are snapshots without such an ancestor because a snapshot of their history is missing.
    """
    fixed = set(held)
    found: dict[bytes, bytes] = {}
    for snapshot in reversed(children_first(history)):
        parent = snapshot.parent_id
        if parent is None or parent not in history.snapshots:
            continue
        if parent in fixed or history.is_root(parent):
            found[snapshot.snapshot_id] = parent
        elif parent in found:
            found[snapshot.snapshot_id] = found[parent]
    return found
