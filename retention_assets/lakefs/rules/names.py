"""Recognizes names that lakeFS generates, reads the time inside them, and makes addresses canonical.

Source: lakeFS facts 1.1, 2.3 and 5.5; DESIGN.md, invariants 6, 7 and 10.
"""

from collections.abc import Sequence
from functools import reduce
from urllib.parse import quote, unquote

from pyspark.sql import Column
from pyspark.sql import functions as F

from retention_assets.core.paths import END

_XID = "[0-9a-v]{20}"
_SIGNATURE = "(,[A-Za-z0-9_-]{43})?"  # a link address ends with its HMAC-SHA256
_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_SLICED = f"data/(![0-9a-z]{{2}}/[0-9a-z]/)?{_XID}/{_XID}{_SIGNATURE}"
LINKED_OF_OLD = f"data/[A-Za-z0-9_.-]+:{_UUID}/[A-Za-z0-9_-]{{20,21}}"
ROOT_OF_OLD = "[0-9a-f]{32}"
GENERATED = f"^({_SLICED}|{LINKED_OF_OLD}|{ROOT_OF_OLD}){END}"

_ABSOLUTE = "^[a-zA-Z][a-zA-Z0-9+.-]*://"
_RELATIVE = 1  # an address type of lakeFS. 0: absolute if it is a URI, else relative. 2: absolute
_TAIL = f"/({_SLICED}|{LINKED_OF_OLD}|{ROOT_OF_OLD})(?:[?#].*)?{END}"

_OBJECT_XID = f"^data/(?:![0-9a-z]{{2}}/[0-9a-z]/)?{_XID}/({_XID}){_SIGNATURE}{END}"
_XID_SECONDS_DIGITS = 7  # 7 base-32 digits are 35 bits: 32 bits of seconds, and 3 bits of the next field


def is_generated(address: Column) -> Column:
    """Return whether lakeFS generates such names. Objects with other names are foreign and are never deleted."""
    return address.rlike(GENERATED)


def is_outside(address: Column) -> Column:
    """Return whether `address` is an absolute URI. Canonical addresses inside the namespace are relative."""
    return address.rlike(_ABSOLUTE)


def spellings(namespace: str, storage: str) -> tuple[str, ...]:
    """Return all URLs with which an absolute address inside the namespace can begin, longest first.

    Several spellings exist, because Go's URL parser decodes a namespace, and a server with local storage prints
    `local://` and the absolute path of the file.

    Both arguments must be canonical: no trailing slash, and `s3://` instead of `s3a://` or `s3n://`.
    """
    places = {namespace, storage}
    if storage.startswith("file://"):
        places.add("local://" + storage.removeprefix("file://"))
    decoded = {unquote(place) for place in places}
    encoded = {quote(place, safe=":/!$&'()*+,;=@~") for place in decoded}
    return tuple(sorted(places | decoded | encoded, key=lambda place: (-len(place), place)))


def canonical_address(address: Column, address_type: Column, inside: Sequence[str]) -> Column:
    """Return the canonical address of an entry: relative if it is inside the namespace, else an absolute URI.

    `inside`: the `spellings` of the namespace.
    """
    spelled = F.regexp_replace(address, "^s3[an]://", "s3://")
    relative = reduce(
        lambda otherwise, place: F.when(
            spelled.startswith(f"{place}/"), F.substring(spelled, len(place) + 2, 2**31 - 1)
        ).otherwise(otherwise),
        reversed(inside),
        spelled,
    )
    return F.when((address_type != F.lit(_RELATIVE)) & is_outside(address), relative).otherwise(address)


def stored_name(address: Column) -> Column:
    """Return the name under which the store lists the object of a canonical address.

    If an absolute address ends in a generated name, that name is returned, whatever precedes it. Generated names are
    globally unique, and the URL of a namespace has more spellings than can be listed. Source: DESIGN.md, invariant 6.
    """
    decoded = F.coalesce(F.try_url_decode(address), address)
    tails = [F.regexp_extract(text, _TAIL, 1) for text in (address, decoded)]
    tail = F.coalesce(*(F.when(found != "", found) for found in tails), address)
    return F.when(is_outside(address), tail).otherwise(address)


def issued_at(address: Column) -> Column:
    """Return the time in the xid of the address, when the server issued it. Null: the name has no xid.

    The first four bytes of an xid are unix seconds. Source: lakeFS facts 1.1.
    """
    xid = F.regexp_extract(address, _OBJECT_XID, 1)
    seconds = F.shiftright(F.conv(F.substring(xid, 1, _XID_SECONDS_DIGITS), 32, 10).cast("long"), 3)
    return F.when(xid != "", F.timestamp_seconds(seconds))
