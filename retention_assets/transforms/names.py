"""Names that lakeFS generates, and the instants inside them. Source: lakeFS facts 1.1; DESIGN.md, invariant 10."""

from pyspark.sql import Column
from pyspark.sql import functions as F

_XID = "[0-9a-v]{20}"
_SIGNATURE = "(,[A-Za-z0-9_-]{43})?"  # a link address keeps its HMAC-SHA256 as part of the name
_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_SLICED = f"data/(![0-9a-z]{{2}}/[0-9a-z]/)?{_XID}/{_XID}{_SIGNATURE}"
LINKED_OF_OLD = f"data/[A-Za-z0-9_.-]+:{_UUID}/[A-Za-z0-9_-]{{20,21}}"
ROOT_OF_OLD = "[0-9a-f]{32}"
END = r"\z"  # not `$`, which in Java also stands before a line end: a foreign name may have one
GENERATED = f"^({_SLICED}|{LINKED_OF_OLD}|{ROOT_OF_OLD}){END}"

_OBJECT_XID = f"^data/(?:![0-9a-z]{{2}}/[0-9a-z]/)?{_XID}/({_XID}){_SIGNATURE}{END}"
_XID_SECONDS_DIGITS = 7  # 7 digits of base 32 hold 35 bits: 32 of seconds, 3 of what follows


def is_generated(address: Column) -> Column:
    """Return whether lakeFS itself makes such names; anything else is foreign and stays."""
    return address.rlike(GENERATED)


def is_outside(address: Column) -> Column:
    """Return whether `address` is an absolute URI: outside the namespace, since those inside are made relative."""
    return address.rlike("^[a-zA-Z][a-zA-Z0-9+.-]*://")


def issued_at(address: Column) -> Column:
    """Return when the server issued the address, by the xid inside; null for names without one.

    An xid's first four bytes are unix seconds. Source: lakeFS facts 1.1.
    """
    xid = F.regexp_extract(address, _OBJECT_XID, 1)
    seconds = F.shiftright(F.conv(F.substring(xid, 1, _XID_SECONDS_DIGITS), 32, 10).cast("long"), 3)
    return F.when(xid != "", F.timestamp_seconds(seconds))
