"""The prefixes to list in order to find every object of a lakeFS namespace. Source: lakeFS facts 1.1."""

from pyspark.sql import Column
from pyspark.sql import functions as F

from retention_assets.objectstore.listing import Prefixes
from retention_assets.objectstore.objects import ObjectReader

_DATA = "data/"


_INTERNAL = "_lakefs/"


def prefixes(reader: ObjectReader) -> Prefixes:
    """Return the prefixes that together contain every object of the namespace except `_lakefs/` (invariant 9)."""
    top = [name for name in reader.prefixes("") if name != _INTERNAL]
    slices = reader.prefixes(_DATA) if _DATA in top else ()
    flat = ("", _DATA) if _DATA in top else ("",)
    return Prefixes((*(name for name in top if name != _DATA), *slices), flat)


def place_of(address: Column) -> Column:
    """Return the prefix of `prefixes` that contains `address`."""
    top = F.substring_index(address, "/", 1)
    within = F.when(F.concat(top, F.lit("/")) == _DATA, F.substring_index(address, "/", 2)).otherwise(top)
    return F.concat(within, F.lit("/"))
