"""Finds objects that may be staged although the server's staged list does not have them.

lakeFS treats two entries as equal if size, checksum, metadata and content type are equal, even if their addresses
differ. If someone uploads an object with the same content as the branch's head, the new object is staged and the branch
reads it, but neither the diff nor the staged list shows it. So an object that no commit holds is kept while any head
has an entry with the same content. Source: docs/uncommitted.md.

A client that links an object chooses the size and the checksum of the entry, and a copy has the checksum of its source.
So a checksum identifies the content only if it matches the object of the entry: it is the MD5 of the object's content,
or the ETag that the store has for the object. If the checksum of a head's entry does not match, any unreferenced object
of the entry's size may be staged.
"""

from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from retention_assets.core.states import CANDIDATE, MAY_BE_STAGED, UNREFERENCED
from retention_assets.lakefs.names.columns import is_outside, stored_name

_MD5 = r"^[0-9a-f]{32}\z"
_OF_PARTS = r"^([0-9a-f]{32})-[0-9]+\z"  # lakeFS uses the part before the dash as the checksum
_OF_STORES = r"^([0-9a-f]{32}(-[0-9]+)?|0x[0-9A-F]+)\z"  # ETags of S3 (also of multipart uploads) and of Azure


def head_contents(pairs: DataFrame, objects: DataFrame) -> DataFrame:
    """Return the contents of all heads that an unreferenced candidate may have, by `size` and `head_checksum`.

    An entry counts with the size that it names, and with the size of its object in the listing. `head_address`,
    `head_etag` and `head_size` are from one listed object that has the content. If no such object is listed,
    `head_address` is an address inside the namespace whose object may have been committed after the listing, so the
    object may be readable. `head_address` is null if all addresses are outside the namespace.

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
        .select(F.when(~is_outside(name), name).alias("head_address"), "size", F.col("etag").alias("head_checksum"))
        .join(listed, on="head_address", how="left")
        .select("head_address", "head_checksum", each_size)
        .join(sizes, on="size", how="left_semi")
    )
    found = of_heads.select(
        F.col("address").alias("head_address"), F.col("etag").alias("head_etag"), F.col("size").alias("head_size")
    )
    of_one = F.struct(F.col("head_size").isNull().alias("is_unlisted"), "head_address", "head_etag", "head_size")
    readable = F.when(F.col("head_address").isNotNull(), of_one)  # a listed object is less than an unlisted one
    contents = heads.join(found, on="head_address", how="left").groupBy("size", "head_checksum")
    return contents.agg(F.min(readable).alias("one")).select("size", "head_checksum", "one.*").drop("is_unlisted")


def unreferenced(objects: DataFrame) -> DataFrame:
    """Return the unreferenced candidates."""
    return objects.where((F.col("state") == CANDIDATE) & (F.col("reason") == UNREFERENCED))


def at_risk(objects: DataFrame, contents: DataFrame) -> DataFrame:
    """Return the unreferenced candidates that have the size of an entry of a head.

    `objects`: see `candidates.classified`. `contents`: see `head_contents`.
    """
    return unreferenced(objects).join(contents.select("size").distinct(), on="size", how="left_semi")


def etag_differs() -> Column:
    """Return whether the ETag of a committed object looks like an MD5 but differs from its entry's checksum.

    This happens in stores that encrypt objects. The ETags of such a store are not checksums of the content.
    """
    return is_md5(F.col("etag")) & F.coalesce(F.xxhash64("etag") != F.col("entry_md5"), F.lit(False))


def unknown_contents(risky: DataFrame, contents: DataFrame, *, etags_are_checksums: bool) -> DataFrame:
    """Return the objects (address, size, etag) whose content shows whether an object at risk may be staged.

    These are the objects at risk and, for each content of a head with their size, one object that has this content.
    Nothing needs to be read for sizes that are `_kept_by_size`. `etag` is null unless it may be the MD5 of the content.
    """
    of_heads = contents.select(
        "size",
        F.col("head_address").alias("address"),
        F.coalesce("head_size", "size").alias("bytes"),
        F.col("head_etag").alias("etag"),
    )
    wanted = risky.select("size", "address", F.col("size").alias("bytes"), "etag").unionByName(of_heads)
    by_size = contents.where(_kept_by_size()).select("size").distinct()
    etag = F.when(is_md5(F.col("etag")) & F.lit(etags_are_checksums), F.col("etag")).alias("etag")
    unknown = wanted.join(by_size, on="size", how="left_anti")
    return unknown.select("address", F.col("bytes").alias("size"), etag).distinct()


def of_same_content(risky: DataFrame, contents: DataFrame, digests: DataFrame) -> DataFrame:
    """Return the addresses of the objects at risk that may have the same content as an entry of a head.

    `digests`: (address, md5) of `unknown_contents`. The MD5 is null if the content could not be read; then objects of
    the same size count as equal.
    """
    named = risky.select("address", "size", "etag").join(digests, on="address", how="left")
    of_heads = digests.select(F.col("address").alias("head_address"), F.col("md5").alias("head_md5"))
    heads = contents.join(of_heads, on="head_address", how="left")
    checksum, etag, md5 = F.col("head_checksum"), F.col("head_etag"), F.col("head_md5")
    matches = [checksum == one for one in (etag, _of_parts(etag), md5, _md5_of_md5(md5))]
    is_by_size = _kept_by_size() | md5.isNull() | ~_any(*matches)
    by_size = heads.where(is_by_size).select("size").distinct().withColumn("by_size", F.lit(True))
    known = heads.select("size", F.explode(F.array(checksum, md5)).alias("value")).distinct()
    etag, md5 = F.col("etag"), F.col("md5")
    values = F.explode(F.array(etag, _of_parts(etag), md5, _md5_of_md5(md5))).alias("value")
    equal = named.select("address", "size", values).join(known, on=["size", "value"], how="left_semi")
    unread = named.join(by_size, on="size", how="left").where(md5.isNull() | F.col("by_size"))
    return unread.select("address").unionByName(equal.select("address")).distinct()


def keep_same_content(objects: DataFrame, hidden: DataFrame) -> DataFrame:
    """Return the objects, with the state `may_be_staged` for those whose address is in `hidden`."""
    marked = objects.join(hidden.withColumn("is_hidden", F.lit(True)), on="address", how="left")
    state = F.when(F.col("is_hidden").isNotNull(), F.lit(MAY_BE_STAGED)).otherwise(F.col("state"))
    return marked.withColumn("state", state).drop("is_hidden")


def is_md5(etag: Column) -> Column:
    """Return whether an ETag or a checksum looks like an MD5."""
    return _matches(etag, _MD5)


def _kept_by_size() -> Column:
    """Return whether a content's checksum matches no object: no store makes it, or no object of it is readable."""
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
