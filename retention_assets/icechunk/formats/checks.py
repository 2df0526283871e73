"""Checks that every reader makes on an id or a timestamp before it uses the value."""

from pathlib import PurePosixPath

from retention_assets.core.corruption import corrupt
from retention_assets.icechunk.formats.ids import encode_id, is_canonical

LAST_INSTANT = 253_402_300_799_999_999  # microseconds since 1970: the end of the year 9999, the last datetime


def require_named(its_id: bytes, name: str) -> bytes:
    """Return `its_id`, the id stored in the file `name`; CorruptFile when the file is named by another id."""
    stem = PurePosixPath(name).name
    if is_canonical(stem) and encode_id(its_id) != stem:
        raise corrupt(name, f"its content has the id {encode_id(its_id)}, not the one it is named by")
    return its_id


def require_instant(micros: int, name: str, what: str) -> int:
    """Return `micros`, microseconds since 1970; CorruptFile when a datetime cannot hold them or they are negative."""
    if not 0 <= micros <= LAST_INSTANT:
        raise corrupt(name, f"{what} is at a time that cannot be")
    return micros
