"""Recognizes names that lakeFS generates, reads the time inside them, and makes addresses canonical.

`generated` has the same rules for Python strings. Source: promise 7 of docs/safety.md;
docs/uncommitted.md, "One object, many spellings"; docs/lakefs-formats.md, "Object names" and "Addresses".
"""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F

from retention_assets.core.paths import END, STRAY_PERCENT, is_unresolved, resolved
from retention_assets.lakefs.names.generated import (
    ABSOLUTE,
    GENERATED_NAME,
    OBJECT_XID,
    QUERY,
    RELATIVE,
    XID_SECONDS_DIGITS,
)

GENERATED = f"^{GENERATED_NAME}{END}"

_ABSOLUTE = f"^{ABSOLUTE}"
_BESIDE_PATH = f"{_ABSOLUTE}|{QUERY}"
# An address whose path may differ from its resolved form.
_IRREGULAR = rf"(?s)^(?:{ABSOLUTE})?+(?:.*%|(?:.*/)?\.{{0,2}}(?:[/?#]|{END}))"
_NEXT = "\0"  # between two spellings of an address
# Matches in the spellings that `stored_name` joins: the first generated name at the end of a spelling or before its
# query. If there is none, the address itself, which follows two `_NEXT`.
_NAME_OR_LAST = f"(?s)(?<=/){GENERATED_NAME}(?=([?#][^{_NEXT}]*)?{_NEXT})|(?<={_NEXT}{_NEXT}).*"
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
    address that `is_unresolved`. Source: docs/uncommitted.md, "One object, many spellings".
    """
    slash = F.lit("/")
    named = F.when(address.rlike(_IRREGULAR), F.concat(slash, _resolved_path(address)))
    spelled = F.concat_ws(_NEXT, named, F.concat(slash, address), F.lit(""), address)
    return F.when(is_inside(address), address).otherwise(F.regexp_extract(spelled, _NAME_OR_LAST, 0))


def is_inside(address: Column) -> Column:
    """Return whether a canonical address is certainly the path of an object below the namespace, in every store."""
    return ~is_unresolved(address)  # the `//` of an absolute address is an empty part


def outside_counted() -> list[Column]:
    """Return the aggregate `outside`: the number of rows whose `address` is not certainly inside the namespace."""
    return [F.count_if(~is_inside(F.col("address"))).alias("outside")]


def _resolved_path(address: Column) -> Column:
    """Return the path of an address, decoded and `resolved`, without its scheme and its query."""
    path = F.regexp_replace(address, _BESIDE_PATH, "")
    escaped = F.regexp_replace(path, STRAY_PERCENT, "%25")  # else one malformed escape ends the decoding
    return resolved(F.try_url_decode(escaped))


def issued_at(address: Column) -> Column:
    """Return the time at which the server issued the address, from its xid. Null: the name has no xid.

    The first four bytes of an xid are unix seconds. Source: docs/lakefs-formats.md, "Object names".
    """
    xid = F.regexp_extract(address, _OBJECT_XID, 1)
    seconds = F.shiftright(F.conv(F.substring(xid, 1, XID_SECONDS_DIGITS), 32, 10).cast("long"), 3)
    return F.when(xid != "", F.timestamp_seconds(seconds))
