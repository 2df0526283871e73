"""Names that lakeFS generates, the instants inside them, and the one spelling of an address.

Source: lakeFS facts 1.1, 2.3 and 5.5; DESIGN.md, invariants 6, 7 and 10.
"""

from collections.abc import Sequence
from functools import reduce
from urllib.parse import quote, unquote

from pyspark.sql import Column
from pyspark.sql import functions as F

from retention_assets.core.paths import END

_XID = "[0-9a-v]{20}"
_SIGNATURE = "(,[A-Za-z0-9_-]{43})?"  # a link address keeps its HMAC-SHA256 as part of the name
_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_SLICED = f"data/(![0-9a-z]{{2}}/[0-9a-z]/)?{_XID}/{_XID}{_SIGNATURE}"
LINKED_OF_OLD = f"data/[A-Za-z0-9_.-]+:{_UUID}/[A-Za-z0-9_-]{{20,21}}"
ROOT_OF_OLD = "[0-9a-f]{32}"
GENERATED = f"^({_SLICED}|{LINKED_OF_OLD}|{ROOT_OF_OLD}){END}"

_ABSOLUTE = "^[a-zA-Z][a-zA-Z0-9+.-]*://"
_RELATIVE = 1  # as lakeFS numbers address types. 0: absolute when it reads as a URI, else relative. 2: absolute
_TAIL = f"/({_SLICED}|{LINKED_OF_OLD}|{ROOT_OF_OLD})(?:[?#].*)?{END}"

_OBJECT_XID = f"^data/(?:![0-9a-z]{{2}}/[0-9a-z]/)?{_XID}/({_XID}){_SIGNATURE}{END}"
_XID_SECONDS_DIGITS = 7  # 7 digits of base 32 hold 35 bits: 32 of seconds, 3 of what follows


def is_generated(address: Column) -> Column:
    """Return whether lakeFS itself makes such names; anything else is foreign and stays."""
    return address.rlike(GENERATED)


def is_outside(address: Column) -> Column:
    """Return whether `address` is an absolute URI: outside the namespace, since those inside are made relative."""
    return address.rlike(_ABSOLUTE)


def spellings(namespace: str, storage: str) -> tuple[str, ...]:
    """Return every way in which an absolute address may spell that it lies in the namespace, longest first.

    Go's URL parser decodes a namespace, and a local server prints `local://` and the absolute path of the file.
    Both arguments are canonical: no trailing slash, `s3a://` and `s3n://` written as `s3://`.
    """
    places = {namespace, storage}
    if storage.startswith("file://"):
        places.add("local://" + storage.removeprefix("file://"))
    decoded = {unquote(place) for place in places}
    encoded = {quote(place, safe=":/!$&'()*+,;=@~") for place in decoded}
    return tuple(sorted(places | decoded | encoded, key=lambda place: (-len(place), place)))


def canonical_address(address: Column, address_type: Column, inside: Sequence[str]) -> Column:
    """Return an entry's address relative to the namespace where it lies inside, else as an absolute URI.

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
    """Return the name under which this store would list the object of a canonical address.

    An absolute address that ends in a generated name means the object of that name, whatever stands before it: such
    names are globally unique, and a place has more spellings than anyone can list. Source: DESIGN.md, invariant 6.
    """
    decoded = F.coalesce(F.try_url_decode(address), address)
    tails = [F.regexp_extract(text, _TAIL, 1) for text in (address, decoded)]
    tail = F.coalesce(*(F.when(found != "", found) for found in tails), address)
    return F.when(is_outside(address), tail).otherwise(address)


def issued_at(address: Column) -> Column:
    """Return when the server issued the address, by the xid inside; null for names without one.

    An xid's first four bytes are unix seconds. Source: lakeFS facts 1.1.
    """
    xid = F.regexp_extract(address, _OBJECT_XID, 1)
    seconds = F.shiftright(F.conv(F.substring(xid, 1, _XID_SECONDS_DIGITS), 32, 10).cast("long"), 3)
    return F.when(xid != "", F.timestamp_seconds(seconds))
