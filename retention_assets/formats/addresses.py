"""The one spelling of an entry's address. Source: lakeFS facts 2.3 and 5.5 (golden mapping); DESIGN.md, invariant 7."""

import pyarrow as pa
import pyarrow.compute as pc

RELATIVE = 1  # as lakeFS numbers the types; 0 is deprecated: absolute when it reads as a URI, else relative; 2 is full
_ABSOLUTE = r"^[a-zA-Z][a-zA-Z0-9+.-]*://"


def canonical_addresses(addresses: pa.Array, types: pa.Array, namespace: str) -> pa.Array:
    """Return addresses relative to `namespace` where they lie inside it, and absolute URIs where they do not.

    `namespace`: canonical, without a trailing slash. s3a:// and s3n:// are spellings of s3://.
    """
    absolute = pc.and_(pc.not_equal(types, RELATIVE), pc.match_substring_regex(addresses, _ABSOLUTE))
    if not pc.any(absolute).as_py():
        return addresses
    spelled = pc.replace_substring_regex(addresses, r"^s3[an]://", "s3://")
    inside = pc.starts_with(spelled, f"{namespace}/")
    relative = pc.utf8_slice_codeunits(spelled, len(namespace) + 1)
    return pc.if_else(absolute, pc.if_else(inside, relative, spelled), addresses)
