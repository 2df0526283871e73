"""The reasons that keep one object, the times at which they end, and the first day whose plan can delete the object.

Plans use the same rules as Spark columns: `age` has the age rule, and `settle` has the settling time.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from retention_assets.config.timestamps import start_of_day

_SECOND = timedelta(seconds=1)
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Keeper:
    """One reason why an object stays."""

    kind: str  # such as branch, commit, tag, hold, reflog, snapshot, staged or age
    name: str
    detail: str  # a sentence without its full stop
    until: datetime | None  # the time at which the reason ends (UTC); None: time alone does not end it
    path: str | None = None  # the path in the repository under which the branch, tag or commit has the object


def released_at(keepers: Iterable[Keeper]) -> datetime | None:
    """Return when the last of `keepers` (at least one) ends; None if one of them does not end."""
    ends = [keeper.until for keeper in keepers]
    return None if None in ends else max(end for end in ends if end is not None)


def first_day_from(timestamp: datetime) -> date:
    """Return the first day (UTC) that begins at `timestamp` or later."""
    day = timestamp.astimezone(UTC).date()
    return day if start_of_day(day) == timestamp else _days_after(day, 1)


def old_enough_at(times: Iterable[datetime | None], grace: timedelta) -> datetime:
    """Return the time at which an object is old enough to be deleted, as in `AgeCutoff`.

    The object is old enough for a plan whose inputs were all read after this time. `times`: the object's time in the
    store, and the time in its address. A time of whole seconds may have been rounded down, so it counts as the end of
    its second.
    """
    return max(at if at.microsecond else at + _SECOND for at in times if at is not None) + grace


def plan_day(released: datetime | None, old_enough: datetime, waits: timedelta, today: date) -> date:
    """Return the first day, `today` or later, whose plan can make the object a candidate, if nothing changes.

    Args:
        released: when the last keeper ends (UTC); None: nothing keeps the object now.
        old_enough: see `old_enough_at`.
        waits: the settling time, which begins with the first plan that finds the object due.
        today: the day of the plan from whose tables the object is explained.
    """
    due = max(today, old_enough.date(), first_day_from(released) if released else today)
    return _days_after(due, -(-waits // _DAY))


def _days_after(day: date, days: int) -> date:
    """Return the day that is `days` later, at the latest the last day of the year 9999."""
    return day + timedelta(days=min(days, (date.max - day).days))
