"""Names the prefixes and key ranges to list in order to see every object of an Icechunk repository."""

from pyspark.sql import Column
from pyspark.sql import functions as F

from retention_assets.icechunk.formats.ids import CHARACTERS
from retention_assets.icechunk.formats.paths import CHUNKS
from retention_assets.objectstore.listing import Prefixes
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.objectstore.spans import spans


def icechunk_prefixes(reader: ObjectReader) -> Prefixes:
    """Return the prefixes that together contain every object of a repository; `chunks/` is split into key ranges."""
    top = [name for name in reader.prefixes("") if name != CHUNKS]
    return Prefixes(tuple(top), ("",), spans(CHUNKS, CHARACTERS))


def top_of(address: Column) -> Column:
    """Return the top-level prefix of `address`, with its trailing slash, as in `icechunk_prefixes`."""
    return F.concat(F.substring_index(address, "/", 1), F.lit("/"))
