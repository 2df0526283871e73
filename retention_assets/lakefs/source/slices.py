"""When lakeFS began a slice of `data/`, by its name. Source: lakeFS facts 1.1.

A slice's name is an xid whose time runs backwards, so that the newest slice is listed first.
"""

from datetime import UTC, datetime, timedelta

_DIGITS = "0123456789abcdefghijklmnopqrstuv"  # base 32 as xids write it
_LENGTH = 20
_TIME_DIGITS = 7  # 35 bits: 32 of time, 3 of what follows
_BACKWARDS_FROM = 3_931_046_656  # 4000-01-01 in unix seconds, modulo 2**32

# An address is issued within the hour that a slice lives, and may be written for as long as its token lives; a day more
# for clocks that differ and for uploads in many parts.
_SLICE_LIFE = timedelta(hours=1)
_TOKEN_LIFE = timedelta(hours=24)  # lakeFS's own: a shorter one in the settings closes no slice earlier
_ALLOWANCE = timedelta(hours=24)


def slice_began(name: str) -> datetime | None:
    """Return the instant (UTC) at which the slice `name` began, None when it is no slice's name."""
    if len(name) != _LENGTH or any(digit not in _DIGITS for digit in name):
        return None
    bits = 0
    for digit in name[:_TIME_DIGITS]:
        bits = bits * len(_DIGITS) + _DIGITS.index(digit)
    return datetime.fromtimestamp(_BACKWARDS_FROM - (bits >> 3), UTC)


def is_closed(name: str, at: datetime, token_life: timedelta) -> bool:
    """Return whether nothing can have been written to the slice since `at`; what is no slice is never closed."""
    began = slice_began(name)
    return began is not None and began + _SLICE_LIFE + max(token_life, _TOKEN_LIFE) + _ALLOWANCE < at
