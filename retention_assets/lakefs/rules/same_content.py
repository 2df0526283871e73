"""Finds objects that may be staged although the server's staged list does not have them.

lakeFS treats two entries as equal if size, checksum, metadata and content type are equal, even if their addresses
differ. If someone uploads an object with the same content as the branch's head, the new object is staged and the branch
reads it, but neither the diff nor the staged list shows it. So an object that no commit holds is kept while any head
has an entry with the same content. Source: lakeFS facts, H20; DESIGN.md, invariant 1.
"""

import hashlib

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from retention_assets.core.states import CANDIDATE, MAY_BE_STAGED, UNREFERENCED
from retention_assets.lakefs.names.columns import is_outside, stored_name

_MD5 = r"^[0-9a-f]{32}\z"
_OF_PARTS = r"^([0-9a-f]{32})-[0-9]+\z"  # lakeFS uses the part before the dash as the checksum
_SMALL, _FEW = 2**20, 20  # bytes, objects
_OF_STORES = r"^([0-9a-f]{32}(-[0-9]+)?|0x[0-9A-F]+)\z"  # ETags of S3 (also of multipart uploads) and of Azure


def head_contents(pairs: DataFrame, risky: DataFrame) -> DataFrame:
    """Return the distinct contents of all heads: `size`, `head_checksum`, and `head_address` of one object.

    `head_address` is null if all addresses are outside the namespace, because such objects cannot be read.

    `pairs`: rows of `addresses`. `risky`: unreferenced candidates; only contents of their sizes are returned.
    """
    name = stored_name(F.col("address"))
    here = F.min(F.when(~is_outside(name), name)).alias("head_address")
    heads = pairs.where("at_head").join(risky.select("size").distinct(), on="size", how="left_semi")
    return heads.groupBy("size", F.col("etag").alias("head_checksum")).agg(here)


def unreferenced(objects: DataFrame) -> DataFrame:
    """Return the unreferenced candidates."""
    return objects.where((F.col("state") == CANDIDATE) & (F.col("reason") == UNREFERENCED))


def at_risk(objects: DataFrame, contents: DataFrame) -> DataFrame:
    """Return the unreferenced candidates that have the size of an entry of a head.

    `objects`: see `candidates.classified`.
    """
    return unreferenced(objects).join(contents.select("size").distinct(), on="size", how="left_semi")


def etag_differs() -> Column:
    """Return whether the ETag of a committed object looks like an MD5 but differs from its entry's checksum.

    This happens in stores that encrypt objects. The ETags of such a store are not checksums of the content.
    """
    return is_md5(F.col("etag")) & F.coalesce(F.xxhash64("etag") != F.col("entry_md5"), F.lit(False))


def unknown_content(risky: DataFrame, *, etags_are_checksums: bool) -> DataFrame:
    """Return the objects at risk (address, size) whose ETag is not the MD5 of their content."""
    unknown = risky.where(~is_md5(F.col("etag"))) if etags_are_checksums else risky
    return unknown.select("address", "size")


def heads_of_sizes(objects: DataFrame, risky: DataFrame, contents: DataFrame) -> DataFrame:
    """Return the objects of heads (address, size) that have the size of an object at risk and a checksum of a store.

    `is_proven`: the ETag looks like an MD5 and equals the checksum of the entry. Such a checksum is the MD5 of the
    content if the store's ETags are checksums. Other checksums may differ from the MD5 of the content: the checksum of
    a multipart upload does, and a copy keeps the checksum of its source.
    """
    of_stores = contents.where(_matches(F.col("head_checksum"), _OF_STORES))
    heads = of_stores.join(risky.select("size").distinct(), on="size", how="left_semi").join(
        objects.select(F.col("address").alias("head_address"), "etag"), on="head_address", how="inner"
    )
    is_proven = is_md5(F.col("etag")) & (F.col("etag") == F.col("head_checksum"))
    return heads.select(F.col("head_address").alias("address"), "size", is_proven.alias("is_proven"))


def unproven_heads(heads: DataFrame, *, etags_are_checksums: bool) -> DataFrame:
    """Return the objects of heads (address, size) whose checksum may differ from the MD5 of their content.

    `heads`: see `heads_of_sizes`.
    """
    return heads.where(~(F.col("is_proven") & F.lit(etags_are_checksums))).select("address", "size").distinct()


def smallest_committed(objects: DataFrame, pairs: DataFrame) -> DataFrame:
    """Return a few small committed objects (address, size, entry_etag) whose checksum looks like an MD5."""
    size, etag = F.col("size"), F.col("etag")
    small = objects.where(F.col("entry_md5").isNotNull() & (size > 0) & (size < _SMALL))
    few = small.orderBy("size", "address").limit(_FEW).select("address", "size")
    entries = pairs.where(is_md5(etag)).groupBy(stored_name(F.col("address")).alias("address"))
    return few.join(entries.agg(F.max(etag).alias("entry_etag")), on="address", how="inner")


def is_checksum_of(md5: str | None, checksum: str) -> bool:
    """Return whether content with this MD5 has `checksum` if it is uploaded in one request or as a single part."""
    return md5 is not None and checksum in (md5, hashlib.md5(bytes.fromhex(md5), usedforsecurity=False).hexdigest())


def of_same_content(risky: DataFrame, digests: DataFrame, contents: DataFrame) -> DataFrame:
    """Return the addresses of the objects at risk that may have the same content as an entry of a head.

    The checksum of a staged entry can be the ETag of the store, the MD5 of the content, a value that a client chose, or
    the checksum of the object from which it was copied.

    `digests`: (address, md5) of `unknown_content`. The MD5 is null if the content could not be read; then objects of
    the same size count as equal.
    """
    asked = digests.withColumn("is_asked", F.lit(True))
    named = risky.select("address", "size", "etag").join(asked, on="address", how="left")
    of_heads = asked.select(
        F.col("address").alias("head_address"), F.col("md5").alias("head_md5"), F.col("is_asked").alias("head_is_asked")
    )
    heads = contents.join(of_heads, on="head_address", how="left")
    head, etag = F.col("head_checksum"), F.col("etag")
    md5 = F.when(F.col("is_asked"), F.col("md5")).when(is_md5(etag), etag)
    same = [etag == head, F.regexp_extract(etag, _OF_PARTS, 1) == head, md5 == head, md5 == F.col("head_md5")]
    unread = [F.col("is_asked") & F.col("md5").isNull(), F.col("head_is_asked") & F.col("head_md5").isNull()]
    kept = ~_matches(head, _OF_STORES)
    for reason in (*same, *unread):
        kept = kept | F.coalesce(reason, F.lit(False))
    return named.join(heads, on="size", how="inner").where(kept).select("address").distinct()


def keep_same_content(objects: DataFrame, hidden: DataFrame) -> DataFrame:
    """Return the objects, with the state `may_be_staged` for those whose address is in `hidden`."""
    marked = objects.join(hidden.withColumn("is_hidden", F.lit(True)), on="address", how="left")
    state = F.when(F.col("is_hidden").isNotNull(), F.lit(MAY_BE_STAGED)).otherwise(F.col("state"))
    return marked.withColumn("state", state).drop("is_hidden")


def is_md5(etag: Column) -> Column:
    """Return whether an ETag or a checksum looks like an MD5."""
    return _matches(etag, _MD5)


def _matches(text: Column, pattern: str) -> Column:
    return F.coalesce(text.rlike(pattern), F.lit(False))
