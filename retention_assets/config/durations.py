"""Parses and formats durations such as `10d` and `36h`, and adds them to timestamps without overflow."""

import re
from datetime import MAXYEAR, UTC, datetime, timedelta

from retention_assets.errors import ConfigurationError

FOREVER = "forever"  # the text in a policy; the code uses None

_UNITS = {
    "w": timedelta(weeks=1),
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
}
LONGEST = timedelta(days=timedelta.max.days)  # the longest duration of an option, which does not accept `forever`
_DURATION = re.compile(r"([0-9]+)([wdhms])")
_LATEST_TIMESTAMP = datetime(MAXYEAR, 12, 31, 23, 59, 59, tzinfo=UTC)


def parse_duration(text: object, longest: timedelta | None = None) -> timedelta:
    """Return the duration in `text`: a whole number and one unit (w, d, h, m, s). Zero is allowed.

    `longest`: the longest allowed duration; None: no limit, and the error about a duration that is too long suggests
    `forever`, which policies accept.
    Errors: ConfigurationError that explains the format, also for a number without a unit, which is ambiguous.
    """
    written = str(text)
    found = _DURATION.fullmatch(written)
    if found is None:
        raise ConfigurationError(f"{written!r} is not a duration: {_advice(written)}")
    most = f"{timedelta.max.days}d, or {FOREVER}" if longest is None else format_duration(longest)
    too_long = ConfigurationError(f"{written[:40]!r} is too long: the longest duration is {most}")
    try:
        duration = int(found[1]) * _UNITS[found[2]]
    except (OverflowError, ValueError) as error:  # ValueError: more digits than int() reads
        raise too_long from error
    if longest is not None and duration > longest:
        raise too_long
    return duration


def parse_positive_duration(text: object, longest: timedelta | None = None) -> timedelta:
    """Return a duration that must be longer than zero, such as a retention period. Otherwise as `parse_duration`."""
    duration = parse_duration(text, longest)
    if not duration:
        raise ConfigurationError(f"{str(text)!r} is zero: write a duration longer than zero, such as 1d")
    return duration


def duration_of_days(days: int) -> timedelta:
    """Return the retention period of `days`, for schemas that count in days. Errors: ConfigurationError."""
    if not 0 < days <= timedelta.max.days:
        raise ConfigurationError(f"{days} days: retention is at least 1 day and at most {timedelta.max.days}")
    return timedelta(days=days)


def format_duration(duration: timedelta | None) -> str:
    """Return text such as `36h`, in the largest unit without a remainder (d, h, m, s); None is `forever`.

    `parse_duration` reads this text back, except `forever`. Errors: ConfigurationError for a fraction of a second.
    """
    if duration is None:
        return FOREVER
    for unit in "dhms":
        if not duration % _UNITS[unit]:
            return f"{duration // _UNITS[unit]}{unit}"
    raise ConfigurationError(f"{duration!r} has a fraction of a second: durations are whole seconds")


def later(timestamp: datetime, duration: timedelta | None) -> datetime | None:
    """Return `timestamp` plus `duration`, at the latest the end of the year 9999; None if `duration` is None."""
    if duration is None:
        return None
    try:
        return timestamp + duration
    except OverflowError:
        return _LATEST_TIMESTAMP


def _advice(written: str) -> str:
    if re.fullmatch(r"[0-9]+", written):
        return f"it has no unit, write {written}d for days (units: w, d, h, m, s)"
    if written.startswith("-"):
        return "it is negative; write a whole number and a unit, such as 30d"
    return "write a whole number and one unit, such as 30d, 36h or 2w (units: w, d, h, m, s)"
