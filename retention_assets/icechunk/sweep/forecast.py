"""Computes the first day on which an Icechunk repository no longer needs a file, if nobody writes to the repository.

The forecast of each day uses `retained_set_of`, as plans do.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta

from retention_assets.config.timestamps import start_of_day
from retention_assets.icechunk.formats.ids import decode_id
from retention_assets.icechunk.formats.paths import SNAPSHOTS, TRANSACTIONS
from retention_assets.icechunk.source.repository import IcechunkState
from retention_assets.icechunk.sweep.retained_set import RetainedSet, retained_set_of
from retention_assets.policy.snapshots import SnapshotPolicy

_BRANCH = re.compile(r"refs/branch\.([^/]+)/ref\.json")
_LONGEST = 366 * 1000  # days: a file that is needed for a thousand years counts as needed for ever

Needs = Callable[[RetainedSet], bool]


@dataclass(frozen=True, slots=True)
class Forecast:
    """The retained sets of a repository on the days from `today`, if nobody writes to it.

    `cutoff`: the age cutoff of the plan of `today`.
    """

    state: IcechunkState
    policy: SnapshotPolicy
    today: date
    cutoff: datetime
    _retained_sets: dict[int, RetainedSet] = field(default_factory=dict)

    def retained(self, days: int = 0) -> RetainedSet:
        """Return the retained set as a plan finds it `days` after today."""
        if days not in self._retained_sets:
            later = timedelta(days=days)
            as_of = start_of_day(self.today + later)
            self._retained_sets[days] = retained_set_of(self.state, self.policy, as_of, self.cutoff + later)
        return self._retained_sets[days]

    def released_on(self, needs: Needs) -> date | None:
        """Return the first day on which `needs` is false for the retained set; None: `needs` is true for ever."""
        if not needs(self.retained()):
            return self.today
        last, first = 0, 1  # needed after `last` days; not needed after `first` days
        while needs(self.retained(first)):
            last, first = first, first * 2
            if first > _LONGEST:
                return None
        while first - last > 1:
            between = (last + first) // 2
            last, first = (between, first) if needs(self.retained(between)) else (last, between)
        return self.today + timedelta(days=first)


def needs_reference(address: str) -> Needs:
    """Return a function that returns whether a retained set of format 1 needs this file below `refs/`.

    When a branch is deleted, its file is deleted. When a tag is deleted, its file stays, and the tag gets a tombstone,
    which stays too.
    """
    branch = _BRANCH.fullmatch(address)

    def needed(retained: RetainedSet) -> bool:
        deletions = retained.expiration.deletions if retained.expiration else ()
        return branch is None or all((one.kind, one.name) != ("branch", branch[1]) for one in deletions)

    return needed


def needs_file(address: str, snapshots: Collection[bytes]) -> Needs:
    """Return a function that returns whether a retained set needs the file.

    `snapshots`: for a manifest or chunk, the snapshots that reference this file.
    """
    if address.startswith(SNAPSHOTS):
        snapshot_id = decode_id(address.removeprefix(SNAPSHOTS))
        return lambda retained: snapshot_id in retained.snapshots
    if address.startswith(TRANSACTIONS):
        log_id = decode_id(address.removeprefix(TRANSACTIONS))
        return lambda retained: log_id in retained.transaction_logs
    ids = frozenset(snapshots)
    return lambda retained: not ids.isdisjoint(retained.snapshots)
