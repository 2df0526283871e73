"""Small histories written by hand, with snapshots named by a word or a number."""

from collections.abc import Mapping
from datetime import timedelta

from retention_assets.icechunk.rules.snapshots import History, ReferenceChange, Snapshot, lineage
from tests.icechunk.rules.icechunk_files import BEGINNING


def snapshot_id(name: str | int) -> bytes:
    return str(name).encode().rjust(12, b"-")


def names(ids) -> set[str]:
    return {one.decode().strip("-") for one in ids}


def at(hours: float):
    return BEGINNING + timedelta(hours=hours)


def history(
    line_of: Mapping[str | int, tuple[str | int | None, float]],
    branches: Mapping[str, str | int],
    tags: Mapping[str, str | int] | None = None,
) -> History:
    """Return a history. `{"a": (None, 0), "b": ("a", 1)}`: b has the parent a and was flushed an hour after a."""
    snapshots = {
        snapshot_id(name): Snapshot(snapshot_id(name), None if parent is None else snapshot_id(parent), at(hours))
        for name, (parent, hours) in line_of.items()
    }
    return History(
        snapshots,
        {name: snapshot_id(tip) for name, tip in branches.items()},
        {name: snapshot_id(tip) for name, tip in (tags or {}).items()},
    )


def deletion(of: History, reference: str) -> ReferenceChange:
    """Return the deletion of a reference such as `tag v1`."""
    return next(one.deletion for one in of.references() if str(one) == reference)


def line(of: History, tip: bytes) -> list[str]:
    """Return the ancestry of `tip`, newest first."""
    return [one.decode().strip("-") for one in lineage(of, tip, ())]


def branch_line(of: History, branch: str = "main") -> list[str]:
    return line(of, of.branches[branch])


# The history of the design document, with a branch `old` on 4 beside it; the number is the hour as well.
SEED = history(
    {
        0: (None, 0),
        1: (0, 1),
        2: (1, 2),
        3: (2, 3),
        4: (2, 4),
        5: (4, 5),
        6: (3, 6),
        7: (6, 7),
        8: (7, 8),
        9: (7, 9),
        10: (6, 10),
        11: (10, 11),
        12: (5, 12),
        13: (12, 13),
        14: (13, 14),
    },
    {"main": 14, "develop": 11, "test": 9, "qa": 8, "old": 4},
    {"tag1": 3, "tag2": 5},
)
SEED_THRESHOLD = at(7.5)
