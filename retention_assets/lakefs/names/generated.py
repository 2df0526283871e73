"""The patterns of names that lakeFS generates, and the rules of `columns` for Python and Arrow, without Spark.

Source: promise 7 of docs/safety.md; docs/uncommitted.md, "One object, many spellings"; docs/lakefs-formats.md,
"Object names" and "Addresses".
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from urllib.parse import quote, unquote

import pyarrow.compute as pc

# Servers before April 2021 staged addresses without a type. Their staged objects are in no staged list, and in no dump.
# The date is later, in case a server was upgraded late.
TYPED_ADDRESSES = datetime(2022, 1, 1, tzinfo=UTC)
# lakeFS generates no names of `LEGACY_KINDS` since 0.87 (December 2022). This date is later for the same reason.
NEW_NAMES = datetime(2024, 1, 1, tzinfo=UTC)

DATA = "data/"  # the folder of generated names below a namespace

XID = "[0-9a-v]{20}"
_SIGNATURE = "(,[A-Za-z0-9_-]{43})?"  # a link address ends with its HMAC-SHA256
_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_SLICED = f"data/(![0-9a-z]{{2}}/[0-9a-z]/)?{XID}/{XID}{_SIGNATURE}"
LEGACY_LINKED = f"data/[A-Za-z0-9_.-]+:{_UUID}/[A-Za-z0-9_-]{{20,21}}"
LEGACY_ROOT = "[0-9a-f]{32}"
LEGACY_KINDS = {"root": LEGACY_ROOT, "linked": LEGACY_LINKED}  # of names that old versions generated
GENERATED_NAME = f"({_SLICED}|{LEGACY_LINKED}|{LEGACY_ROOT})"

ABSOLUTE = "[a-zA-Z][a-zA-Z0-9+.-]*://"  # the beginning of a URI
RELATIVE, FULL = 1, 2  # address types of lakeFS. 2: absolute. 0: absolute if it is a URI, else relative
QUERY = r"[?#][\s\S]*"  # the end of a URI
UNRESOLVED = r"(^|/)\.{0,2}(/|$)"  # as `paths.is_unresolved`, for Arrow

OBJECT_XID = f"data/(?:![0-9a-z]{{2}}/[0-9a-z]/)?{XID}/({XID}){_SIGNATURE}"
_UNESCAPED = "/:$&+,;=@"  # besides letters, digits and `-._~`: what Go's URL parser does not escape in a path
XID_SECONDS_DIGITS = 7  # 7 base-32 digits are 35 bits: 32 bits of seconds, and 3 bits of the next field


def is_generated_name(address: str) -> bool:
    """Return whether `address` is a name that lakeFS generates."""
    return re.fullmatch(GENERATED_NAME, address) is not None


def legacy_kind(address: str) -> str | None:
    """Return the kind of old names to which the address belongs; None if old versions generated no such names."""
    return next((kind for kind, pattern in LEGACY_KINDS.items() if re.fullmatch(pattern, address)), None)


def is_absolute(address: str) -> bool:
    """Return whether `address` is a URI. Canonical addresses inside the namespace are relative."""
    return re.match(ABSOLUTE, address) is not None


def not_certainly_inside() -> pc.Expression:
    """Return the filter of rows (column `address`) that `columns.is_inside` excludes: URIs, and unresolved paths."""
    return pc.match_substring_regex(pc.field("address"), UNRESOLVED)


def issued(address: str) -> datetime | None:
    """Return the time (UTC) at which the server issued the address, from its xid. None: the name has no xid."""
    found = re.fullmatch(OBJECT_XID, address)
    return datetime.fromtimestamp(xid_seconds(found[1]), UTC) if found else None


def xid_seconds(xid: str) -> int:
    """Return the number in the first four bytes of an xid: unix seconds, modulo 2**32."""
    return int(xid[:XID_SECONDS_DIGITS], 32) >> 3


def namespace_urls(namespace: str, storage: str) -> tuple[str, ...]:
    """Return all URLs with which an absolute address inside the namespace can begin, longest first.

    Several URLs exist, because Go's URL parser decodes a namespace, and a server with local storage prints
    `local://` and the absolute path of the file.

    Both arguments must be canonical: no trailing slash, and `s3://` instead of `s3a://` or `s3n://`.
    """
    locations = {namespace, storage}
    if storage.startswith("file://"):
        locations.add("local://" + storage.removeprefix("file://"))
    decoded = {unquote(location) for location in locations}
    encoded = {quote(location, safe=":/!$&'()*+,;=@~") for location in decoded}
    return tuple(sorted(locations | decoded | encoded, key=lambda location: (-len(location), location)))


def has_other_spellings(namespace: str) -> bool:
    """Return whether an address inside the namespace can begin with another spelling of it than the server's.

    A server with local storage prints `local://` and the absolute path of the file. A server with Azure storage prints
    `https://` for `http://`. Elsewhere, a path has an escaped and a decoded spelling if it has percent-escapes, or
    characters that Go's URL parser escapes. The user in `user@bucket` can be left out. Empty, `.` and `..` segments can
    be resolved.
    """
    if namespace.startswith(("local://", "http://")) or quote(namespace, safe=_UNESCAPED) != namespace:
        return True
    location = namespace.partition("://")[2].removesuffix("/")
    return "@" in location.partition("/")[0] or resolved_path(location) != location


def canonical_name(address: str, address_type: int, urls: Sequence[str]) -> str:
    """Return the canonical address of an entry: relative if it is inside the namespace, else an absolute URI.

    `urls`: the `namespace_urls` of the namespace.
    """
    if address_type == RELATIVE or not is_absolute(address):
        return address
    spelled = re.sub("^s3[an]://", "s3://", address)
    for location in urls:
        if spelled.startswith(f"{location}/"):
            return spelled[len(location) + 1 :]
    return spelled


def listed_name(address: str) -> str:
    """Return the name under which the store lists the object of a canonical address. See `columns.stored_name`."""
    if not is_absolute(address) and resolved_path(address) == address:
        return address
    path = re.sub(f"^{ABSOLUTE}|{QUERY}", "", address)
    for text in (resolved_path(unquote(path)), address):
        if named := re.search(rf"/({GENERATED_NAME})({QUERY})?(?![\s\S])", f"/{text}"):
            return named[1]
    return address


def resolved_path(path: str) -> str:
    """Return a relative path as a file system resolves it. See `paths.resolved`."""
    kept: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del kept[-1:]
        elif part not in ("", "."):
            kept.append(part)
    return "/".join(kept)
