"""Recognizes names that lakeFS generates, reads the time inside them, and makes addresses canonical.

`generated` has the same rules for Python strings. Source: promise 7 of docs/safety.md;
docs/uncommitted.md, "One object, many spellings"; docs/lakefs-formats.md, "Object names" and "Addresses".
"""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F

from retention_assets.core.paths import END
from retention_assets.lakefs.names.generated import (
    ABSOLUTE,
    GENERATED_NAME,
    GENERATED_TAIL,
    OBJECT_XID,
    RELATIVE,
    SLASHES,
    UNRESOLVED,
    XID_SECONDS_DIGITS,
)

GENERATED = f"^{GENERATED_NAME}{END}"

_ABSOLUTE = f"^{ABSOLUTE}"
_TAIL = f"{GENERATED_TAIL}{END}"
_OBJECT_XID = f"^{OBJECT_XID}{END}"


def is_generated(address: Column) -> Column:
    """Return whether `address` is a name that lakeFS generates. Objects with other names are never deleted."""
    return address.rlike(GENERATED)


def is_outside(address: Column) -> Column:
    """Return whether `address` is an absolute URI. Canonical addresses inside the namespace are relative."""
    return address.rlike(_ABSOLUTE)


def canonical_address(address: Column, address_type: Column, namespace_urls: Sequence[str]) -> Column:
    """Return the canonical address of an entry: relative if it is inside the namespace, else an absolute URI.

    `namespace_urls`: see `generated.namespace_urls`.
    """
    spelled = F.regexp_replace(address, "^s3[an]://", "s3://")
    relative = reduce(
        lambda otherwise, location: F.when(
            spelled.startswith(f"{location}/"), F.substring(spelled, len(location) + 2, 2**31 - 1)
        ).otherwise(otherwise),
        reversed(namespace_urls),
        spelled,
    )
    return F.when((address_type != F.lit(RELATIVE)) & is_outside(address), relative).otherwise(address)


def stored_name(address: Column) -> Column:
    """Return the name under which the store lists the object of a canonical address.

    If an absolute address ends in a generated name, that name is returned, whatever precedes it. Generated names are
    globally unique, and the URL of a namespace has more spellings than can be listed. The same applies to a relative
    address with an empty, `.` or `..` part: some stores resolve these parts. Source: docs/uncommitted.md, "One object,
    many spellings".
    """
    escaped = F.regexp_replace(address, "%(?![0-9A-Fa-f]{2})", "%25")  # else one malformed escape ends the decoding
    decoded = F.coalesce(F.try_url_decode(escaped), address)
    texts = [F.regexp_replace(F.concat(F.lit("/"), text), SLASHES, "/") for text in (address, decoded)]
    tails = [F.regexp_extract(text, _TAIL, 1) for text in texts]
    tail = F.coalesce(*(F.when(found != "", found) for found in tails), address)
    return F.when(is_outside(address) | address.rlike(UNRESOLVED), tail).otherwise(address)


def issued_at(address: Column) -> Column:
    """Return the time at which the server issued the address, from its xid. Null: the name has no xid.

    The first four bytes of an xid are unix seconds. Source: docs/lakefs-formats.md, "Object names".
    """
    xid = F.regexp_extract(address, _OBJECT_XID, 1)
    seconds = F.shiftright(F.conv(F.substring(xid, 1, XID_SECONDS_DIGITS), 32, 10).cast("long"), 3)
    return F.when(xid != "", F.timestamp_seconds(seconds))
