"""Computes the creation time of a slice of `data/` from the slice's name. Source: lakeFS facts 1.1.

The name of a slice is an xid with an inverted time, so that the newest slice is listed first.
"""

from datetime import UTC, datetime, timedelta

_DIGITS = "0123456789abcdefghijklmnopqrstuv"  # the base-32 alphabet of xids
_LENGTH = 20
_TIME_DIGITS = 7  # 35 bits: 32 bits of time, and 3 bits of the next field
_BACKWARDS_FROM = 3_931_046_656  # 4000-01-01 in unix seconds, modulo 2**32

# The server issues addresses in a slice for one hour. An address can be written until its token expires. One more day
# is added for clocks that differ and for multipart uploads.
_SLICE_LIFE = timedelta(hours=1)
_TOKEN_LIFE = timedelta(hours=24)  # the default of lakeFS; a shorter `token_life` in the settings is not used
_ALLOWANCE = timedelta(hours=24)


def slice_began(name: str) -> datetime | None:
    """Return the time (UTC) when the slice was created; None if `name` is not the name of a slice."""
    if len(name) != _LENGTH or any(digit not in _DIGITS for digit in name):
        return None
    bits = 0
    for digit in name[:_TIME_DIGITS]:
        bits = bits * len(_DIGITS) + _DIGITS.index(digit)
    return datetime.fromtimestamp(_BACKWARDS_FROM - (bits >> 3), UTC)


def is_closed(name: str, at: datetime, token_life: timedelta) -> bool:
    """Return whether nothing can have been written to the slice since `at`. False if `name` is not a slice."""
    began = slice_began(name)
    return began is not None and began + _SLICE_LIFE + max(token_life, _TOKEN_LIFE) + _ALLOWANCE < at
