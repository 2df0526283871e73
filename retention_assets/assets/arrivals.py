"""Which days to plan since inventories arrived: decided from names and a cursor, without a store or a clock."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

WINDOW = timedelta(days=31)  # how late an inventory may come and still start its day
_AT_ONCE = 5  # days started by one tick
_DAY = slice(0, 10)  # deliveries are named YYYY-MM-DDTHH-MMZ


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The days to start, each with a key of its own, and the cursor of the next tick."""

    days: tuple[tuple[date, str], ...]
    cursor: str


def arrivals(complete: Sequence[Sequence[str]], cursor: str | None) -> Arrivals:
    """Return the days for which every inventory has a complete delivery that was not started yet.

    `complete` has the names of the complete deliveries of each inventory. What is started is remembered by name for
    `WINDOW`, so that a delivery that comes late, or after a younger one, starts its day too, and none starts twice.
    Without a cursor only the newest day starts: years of old inventories are not planned.
    """
    newest_of_day = [{name[_DAY]: name for name in sorted(names)} for names in complete]
    common = sorted(set.intersection(*(set(by_day) for by_day in newest_of_day))) if newest_of_day else []
    started = set(json.loads(cursor)["started"]) if cursor else None
    if not common:
        return Arrivals((), _cursor(started or set()) if cursor else "")
    keys = {day: "+".join(by_day[day] for by_day in newest_of_day) for day in common}
    floor = (date.fromisoformat(common[-1]) - WINDOW).isoformat()
    if started is None:
        return Arrivals(((date.fromisoformat(common[-1]), keys[common[-1]]),), _cursor(_since(floor, keys.values())))
    fresh = [day for day in common if day >= floor and keys[day] not in started][:_AT_ONCE]
    remembered = _since(floor, {*started, *(keys[day] for day in fresh)})
    return Arrivals(tuple((date.fromisoformat(day), keys[day]) for day in fresh), _cursor(remembered))


def recent(names: Sequence[str]) -> list[str]:
    """Return the names within `WINDOW` of the newest one: older ones start nothing and need no look."""
    if not names:
        return []
    floor = (date.fromisoformat(max(names)[_DAY]) - WINDOW).isoformat()
    return [name for name in names if name[_DAY] >= floor]


def _since(floor: str, keys: Iterable[str]) -> set[str]:
    return {key for key in keys if key[_DAY] >= floor}


def _cursor(started: set[str]) -> str:
    return json.dumps({"started": sorted(started)})
