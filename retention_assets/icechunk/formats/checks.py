"""What every reader asks of an id or an instant before it believes it."""

from pathlib import PurePosixPath

from retention_assets.core.corruption import corrupt
from retention_assets.icechunk.formats.ids import encode_id, is_canonical

LAST_INSTANT = 253_402_300_799_999_999  # microseconds; the end of the year 9999, the last that a datetime holds


def require_named(its_id: bytes, name: str) -> bytes:
    """Return the id that a file gives itself; refuse a file that lies under the name of another."""
    stem = PurePosixPath(name).name
    if is_canonical(stem) and encode_id(its_id) != stem:
        raise corrupt(name, f"its content has the id {encode_id(its_id)}, not the one it is named by")
    return its_id


def require_instant(micros: int, name: str, what: str) -> int:
    """Return microseconds since 1970 that a datetime can hold; refuse others."""
    if not 0 <= micros <= LAST_INSTANT:
        raise corrupt(name, f"{what} is at a time that cannot be")
    return micros
