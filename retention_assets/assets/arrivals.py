"""Decides which days to plan when inventories arrive. The inputs are names and a cursor, no store and no clock."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

WINDOW = timedelta(days=31)  # an inventory that is older than the newest by more than this starts nothing
_AT_ONCE = 5  # at most so many days start in one tick
_DAY = slice(0, 10)  # deliveries are named YYYY-MM-DDTHH-MMZ


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The days to start, each with a unique run key, and the cursor for the next tick."""

    days: tuple[tuple[date, str], ...]
    cursor: str


def arrivals(complete: Sequence[Sequence[str]], cursor: str | None) -> Arrivals:
    """Return the days for which every inventory has a complete delivery that was not started yet.

    `complete` has, for each inventory, the names of its complete deliveries. The cursor has the names of the started
    deliveries of the last `WINDOW`. So a delivery that arrives late, or after a newer one, starts its day too, and no
    delivery starts a day twice. Without a cursor only the newest day starts: years of old inventories are not planned.
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
    """Return the names within `WINDOW` of the newest one. Older deliveries start nothing and are not read."""
    if not names:
        return []
    floor = (date.fromisoformat(max(names)[_DAY]) - WINDOW).isoformat()
    return [name for name in names if name[_DAY] >= floor]


def _since(floor: str, keys: Iterable[str]) -> set[str]:
    return {key for key in keys if key[_DAY] >= floor}


def _cursor(started: set[str]) -> str:
    return json.dumps({"started": sorted(started)})
