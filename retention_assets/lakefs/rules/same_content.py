"""Finds objects that may be staged although the server's staged list does not have them.

lakeFS treats two entries as equal if size, checksum, metadata and content type are equal, even if their addresses
differ. If someone uploads an object with the same content as the branch's head, the new object is staged and the branch
reads it, but neither the diff nor the staged list shows it. So an object that is in no commit is kept while any head
has an entry with the same content. Source: docs/uncommitted.md.

A client that links an object chooses the size and the checksum of the entry, and a copy has the checksum of its source.
So a checksum identifies the content only if it matches the object of the entry: it is the MD5 of the object's content,
or the ETag that the store has for the object. If the checksum of a head's entry does not match, any unreferenced object
of the entry's size may be staged.
"""

from functools import reduce
from operator import or_

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from retention_assets.core.states import CANDIDATE, MAY_BE_STAGED, UNREFERENCED
from retention_assets.lakefs.names.columns import is_inside, stored_name

MD5_DIGITS = "[0-9a-f]{32}"
_MD5 = rf"^{MD5_DIGITS}\z"
_OF_PARTS = r"^([0-9a-f]{32})-[0-9]+\z"  # lakeFS uses the part before the dash as the checksum
_OF_STORES = r"^([0-9a-f]{32}(-[0-9]+)?|0x[0-9A-F]+)\z"  # ETags of S3 (also of multipart uploads) and of Azure
_CONTROL = r"[\x00-\x1f\x7f]"  # obstore cannot name such an object
_ANY, _UNKNOWN = "*", "?"  # marks that no store uses as a checksum: see `of_same_content`

COMPARED = pa.schema(
    [
        ("is_head", pa.bool_()),
        ("of_size", pa.int64()),  # the size that is compared
        ("checksum", pa.string()),  # of the entry of the head; null for an object at risk
        ("etag", pa.string()),
        ("address", pa.string()),
        ("size", pa.int64()),  # of the object
    ]
)


def head_contents(pairs: DataFrame, objects: DataFrame) -> DataFrame:
    """Return the contents of all heads that an unreferenced candidate may have, by `size` and `head_checksum`.

    An entry counts with the size that it names, and with the size of its object in the listing. `head_address`,
    `head_etag` and `head_size` are from one listed object that has the content. If none is listed, `head_address` is
    an address inside the namespace. Its object may have been committed after the listing, and can then be read.
    `head_address` is null if no address is certainly the path of an object in the namespace.

    `pairs`: rows of `addresses`. `objects`: see `candidates.classified`.
    """
    sizes = unreferenced(objects).select("size").distinct()
    of_heads = objects.where(F.col("least_head_size").isNotNull())
    differing = of_heads.where(
        ~((F.col("size") == F.col("least_head_size")) & (F.col("size") == F.col("most_head_size")))
    )
    listed = differing.join(sizes, on="size", how="left_semi").select(
        F.col("address").alias("head_address"), F.col("size").alias("listed_size")
    )
    name = stored_name(F.col("address"))
    each_size = F.explode(F.array_compact(F.array_distinct(F.array("size", "listed_size")))).alias("size")
    heads = (
        pairs.where("at_head")
        .select(F.when(_can_be_read(name), name).alias("head_address"), "size", F.col("etag").alias("head_checksum"))
        .join(listed, on="head_address", how="left")
        .select("head_address", "head_checksum", each_size)
        .join(sizes, on="size", how="left_semi")
    )
    found = of_heads.select(
        F.col("address").alias("head_address"), F.col("etag").alias("head_etag"), F.col("size").alias("head_size")
    )
    of_one = F.struct(F.col("head_size").isNull().alias("is_unlisted"), "head_address", "head_etag", "head_size")
    readable = F.when(F.col("head_address").isNotNull(), of_one)  # `min` prefers a listed object
    contents = heads.join(found, on="head_address", how="left").groupBy("size", "head_checksum")
    return contents.agg(F.min(readable).alias("one")).select("size", "head_checksum", "one.*").drop("is_unlisted")


def unreferenced(objects: DataFrame) -> DataFrame:
    """Return the unreferenced candidates."""
    return objects.where((F.col("state") == CANDIDATE) & (F.col("reason") == UNREFERENCED))


def at_risk(objects: DataFrame, contents: DataFrame) -> DataFrame:
    """Return the unreferenced candidates (address, size, etag, keeps_all) that have the size of an entry of a head.

    `keeps_all`: whether every object of this size may be staged, because the checksum of an entry of this size cannot
    be compared. Then no object of this size needs to be read.

    `objects`: see `candidates.classified`. `contents`: see `head_contents`.
    """
    sizes = contents.groupBy("size").agg(F.bool_or(_is_incomparable()).alias("keeps_all"))
    return unreferenced(objects).select("address", "size", "etag").join(sizes, on="size")


def etag_differs() -> Column:
    """Return whether the ETag of a committed object looks like an MD5 but differs from its entry's checksum.

    This happens in stores that encrypt objects. The ETags of such a store are not checksums of the content.
    """
    return is_md5(F.col("etag")) & F.coalesce(F.xxhash64("etag") != F.col("entry_md5"), F.lit(False))


def to_compare(risky: DataFrame, contents: DataFrame) -> DataFrame:
    """Return the objects whose MD5 shows whether an object at risk may be staged, as rows of `COMPARED`.

    These are the objects at risk and, for each content of a head with their size, one object that has this content.
    """
    read = risky.where(~F.col("keeps_all"))
    of_heads = contents.join(read.select("size").distinct(), on="size", how="left_semi").select(
        F.lit(True).alias("is_head"),
        F.col("size").alias("of_size"),
        F.col("head_checksum").alias("checksum"),
        F.col("head_etag").alias("etag"),
        F.col("head_address").alias("address"),
        F.coalesce("head_size", "size").alias("size"),
    )
    of_objects = read.select(
        F.lit(False).alias("is_head"),
        F.col("size").alias("of_size"),
        F.lit(None).cast("string").alias("checksum"),
        "etag",
        "address",
        "size",
    )
    return of_objects.unionByName(of_heads)


def of_same_content(risky: DataFrame, compared: DataFrame) -> DataFrame:
    """Return the addresses of the objects at risk that may have the same content as an entry of a head.

    Objects and heads are joined by size and by every value that shows that they may be equal: a checksum, or one of two
    marks. All objects have the mark `_ANY`; a head has it if its checksum does not match its object, or if the object
    could not be read. All heads have the mark `_UNKNOWN`; an object has it if its content could not be read.

    `risky`: see `at_risk`. `compared`: the rows of `to_compare` with `md5`, which is null if the content could not be
    read.
    """
    checksum, etag, md5 = F.col("checksum"), F.col("etag"), F.col("md5")
    own = [etag, _of_parts(etag), md5, _md5_of_md5(md5)]
    is_explained = md5.isNotNull() & _any(*(checksum == one for one in own))
    of_head = F.array(checksum, md5, F.when(~is_explained, F.lit(_ANY)), F.lit(_UNKNOWN))
    of_object = F.array(*own, F.lit(_ANY), F.when(md5.isNull(), F.lit(_UNKNOWN)))
    heads = compared.where("is_head").select("of_size", F.explode(of_head).alias("value"))
    objects = compared.where(~F.col("is_head")).select("address", "of_size", F.explode(of_object).alias("value"))
    equal = objects.join(heads, on=["of_size", "value"], how="left_semi").select("address")
    return risky.where("keeps_all").select("address").unionByName(equal).distinct()


def keep_same_content(objects: DataFrame, hidden: DataFrame) -> DataFrame:
    """Return the objects, with the state `may_be_staged` for those whose address is in `hidden`."""
    marked = objects.join(hidden.withColumn("is_hidden", F.lit(True)), on="address", how="left")
    state = F.when(F.col("is_hidden").isNotNull(), F.lit(MAY_BE_STAGED)).otherwise(F.col("state"))
    return marked.withColumn("state", state).drop("is_hidden")


def is_md5(etag: Column) -> Column:
    """Return whether an ETag or a checksum looks like an MD5."""
    return _matches(etag, _MD5)


def _can_be_read(name: Column) -> Column:
    """Return whether the object can be read: it is certainly inside the namespace, and obstore can name it."""
    return is_inside(name) & ~name.rlike(_CONTROL)


def _is_incomparable() -> Column:
    """Return whether the checksum cannot be compared: no store makes such a checksum, or no object can be read."""
    return F.col("head_address").isNull() | ~_matches(F.col("head_checksum"), _OF_STORES)


def _of_parts(etag: Column) -> Column:
    """Return the checksum that lakeFS gives to an upload in parts with this ETag; null for other ETags."""
    return F.when(_matches(etag, _OF_PARTS), F.regexp_extract(etag, _OF_PARTS, 1))


def _md5_of_md5(md5: Column) -> Column:
    """Return the checksum that lakeFS gives to an upload in a single part whose content has this MD5."""
    return F.md5(F.unhex(md5))


def _any(*conditions: Column) -> Column:
    """Return whether any condition is true. Null counts as false."""
    return reduce(or_, (F.coalesce(condition, F.lit(False)) for condition in conditions))


def _matches(text: Column, pattern: str) -> Column:
    return F.coalesce(text.rlike(pattern), F.lit(False))
