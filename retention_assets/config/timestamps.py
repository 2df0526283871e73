"""This machine's clocks, which are the defaults for functions with a `clock` parameter, and the days of plans."""

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime

from retention_assets.errors import ConfigurationError

FIRST_DAY = date(2020, 1, 1)  # of a plan. It is before lakeFS's first release
Clock = Callable[[], datetime]  # aware, UTC
# The clock that continues while the machine sleeps: on Linux CLOCK_BOOTTIME, on macOS CLOCK_MONOTONIC.
_CONTINUES_IN_SLEEP: int | None = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


def utc_now() -> datetime:
    """Return this machine's time as an aware datetime (UTC)."""
    return datetime.now(UTC)


def elapsed_seconds() -> float:
    """Return the seconds since some time in the past, by a clock that never goes back.

    The clock continues while the machine sleeps. `time.monotonic` stops, so after hours of sleep, a check from just
    before the sleep would seem to be a second old.
    """
    return time.monotonic() if _CONTINUES_IN_SLEEP is None else time.clock_gettime(_CONTINUES_IN_SLEEP)


def start_of_day(day: date) -> datetime:
    """Return 00:00 UTC of the day. A plan of the day applies its policy as of this time."""
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def require_day(day: str, given_as: str) -> date:
    """Return the day of a plan. `given_as`: the name of the option or partition, for the message.

    Errors: ConfigurationError if the text is not a day, or the day is before 2020 or in the future.

    A policy that is applied as of a future day expires versions too early.
    """
    with suppress(ValueError):
        found = date.fromisoformat(day)
        if found.isoformat() == day and FIRST_DAY <= found <= utc_now().date():
            return found
    raise ConfigurationError(
        f"{given_as} {day}: only these days can be planned: from {FIRST_DAY} to today (UTC). Nothing was changed or "
        "deleted. Choose one of these days."
    )
