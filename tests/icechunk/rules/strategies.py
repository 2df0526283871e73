"""Hypothesis strategies for Icechunk histories: trees of snapshots, references, and times between and at snapshots."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from hypothesis import strategies as st

from retention_assets.icechunk.rules.snapshots import History, Snapshot
from tests.icechunk.rules.icechunk_files import BEGINNING
from tests.icechunk_repositories import INITIAL_SNAPSHOT

BRANCHES = ("dev", "exp-1", "exp-2", "qa")
TAGS = ("v1", "v2", "v3")


@dataclass(frozen=True)
class World:
    history: History
    instants: tuple[datetime, ...]  # before all, between all, and exactly on every snapshot


def at(hours: float) -> datetime:
    return BEGINNING + timedelta(hours=hours)


@st.composite
def worlds(draw: st.DrawFn, *, most: int = 12, skewed: bool = False, more_roots: bool = False) -> World:
    """Histories with one root and a snapshot every hour. `skewed`: the writers' clocks disagree.

    The parent of a snapshot is any earlier one, mostly the last. References are anywhere. `more_roots`: a few snapshots
    have no parent.
    """
    ids = [INITIAL_SNAPSHOT, *draw(st.lists(snapshot_ids, max_size=most, unique=True))]
    hours = draw(st.permutations(range(len(ids)))) if skewed else range(len(ids))
    snapshots = {ids[0]: Snapshot(ids[0], None, at(hours[0]))}
    for place in range(1, len(ids)):
        parent = ids[draw(st.one_of(st.just(place - 1), st.integers(0, place - 1)))]
        is_root = more_roots and draw(st.integers(0, 3)) == 0
        snapshots[ids[place]] = Snapshot(ids[place], None if is_root else parent, at(hours[place]))
    anywhere = st.sampled_from(ids)
    branches = {"main": draw(anywhere), **draw(st.dictionaries(st.sampled_from(BRANCHES), anywhere))}
    tags = draw(st.dictionaries(st.sampled_from(TAGS), anywhere))
    instants = tuple(at(hour / 2) for hour in range(-1, 2 * len(ids) + 1))
    return World(History(snapshots, branches, tags), instants)


snapshot_ids = st.binary(min_size=12, max_size=12).filter(lambda one: one != INITIAL_SNAPSHOT)
