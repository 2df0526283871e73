"""The places that together hold every object of an Icechunk repository."""

from pyspark.sql import Column
from pyspark.sql import functions as F

from retention_assets.icechunk.formats.ids import CHARACTERS
from retention_assets.icechunk.formats.paths import CHUNKS
from retention_assets.objectstore.listing import Prefixes
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.objectstore.spans import spans


def icechunk_prefixes(reader: ObjectReader) -> Prefixes:
    """Return the places that together hold every object of an Icechunk repository; its chunks in parts."""
    top = [name for name in reader.prefixes("") if name != CHUNKS]
    return Prefixes(tuple(top), ("",), spans(CHUNKS, CHARACTERS))


def top_of(address: Column) -> Column:
    """Return the place, as `icechunk_prefixes` names it, that lists `address`."""
    return F.concat(F.substring_index(address, "/", 1), F.lit("/"))
