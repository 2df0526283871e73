"""Objects that may be staged although the server's list of staged objects does not name them.

lakeFS takes two entries for equal when size, checksum, metadata and content type are equal; the address does not count.
So an object that was uploaded again with the content of the branch's head is staged, reads of the branch go to it, and
neither the diff nor the staged list shows it. An object that no commit holds is therefore kept while any head has an
entry of its content. Source: lakeFS facts, H20; DESIGN.md, invariant 1.
"""

import hashlib

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from retention_assets.core.states import CANDIDATE, MAY_BE_STAGED, UNREFERENCED
from retention_assets.lakefs.rules.names import is_outside, stored_name

_MD5 = r"^[0-9a-f]{32}\z"
_OF_PARTS = r"^([0-9a-f]{32})-[0-9]+\z"  # lakeFS takes what stands before the dash as the checksum
_SMALL, _FEW = 2**20, 20  # bytes, objects
_OF_STORES = r"^([0-9a-f]{32}(-[0-9]+)?|0x[0-9A-F]+)\z"  # S3's, in parts or not; Azure's


def head_contents(pairs: DataFrame) -> DataFrame:
    """Return the contents of all heads, each once: `size`, `head_checksum`, and `head_address` of one such object.

    `pairs`: `addresses`. An address outside the namespace is null: its object cannot be read.
    """
    name = stored_name(F.col("address"))
    here = F.min(F.when(~is_outside(name), name)).alias("head_address")
    return pairs.where("at_head").groupBy("size", F.col("etag").alias("head_checksum")).agg(here)


def unreferenced(objects: DataFrame) -> DataFrame:
    """Return the unreferenced candidates."""
    return objects.where((F.col("state") == CANDIDATE) & (F.col("reason") == UNREFERENCED))


def at_risk(objects: DataFrame, contents: DataFrame) -> DataFrame:
    """Return the unreferenced candidates of a size that some head has. `objects`: see `candidates.judged`."""
    return unreferenced(objects).join(contents.select("size").distinct(), on="size", how="left_semi")


def etags_differ(objects: DataFrame) -> bool:
    """Return whether any committed object's ETag is an MD5 and yet another one than its entry's checksum.

    So it is in a store that encrypts: its ETags say nothing of contents.
    """
    both = _matches(F.col("etag"), _MD5) & _matches(F.col("entry_etag"), _MD5)
    return not objects.where(both & (F.col("etag") != F.col("entry_etag"))).isEmpty()


def unknown_content(risky: DataFrame, *, etags_are_checksums: bool) -> DataFrame:
    """Return those objects at risk (address, size) whose ETag does not tell the MD5 of their content."""
    unknown = risky.where(~_matches(F.col("etag"), _MD5)) if etags_are_checksums else risky
    return unknown.select("address", "size")


def unproven_heads(
    objects: DataFrame, risky: DataFrame, contents: DataFrame, *, etags_are_checksums: bool
) -> DataFrame:
    """Return the objects of heads (address, size), of a size at risk, whose checksum may not be the MD5 of the content.

    That of an upload in parts is not, and a copy takes its source's checksum along.
    """
    of_stores = contents.where(_matches(F.col("head_checksum"), _OF_STORES))
    heads = of_stores.join(risky.select("size").distinct(), on="size", how="left_semi").join(
        objects.select(F.col("address").alias("head_address"), "etag"), on="head_address", how="inner"
    )
    etag = F.col("etag")
    is_proven = _matches(etag, _MD5) & (etag == F.col("head_checksum")) & F.lit(etags_are_checksums)
    return heads.where(~is_proven).select(F.col("head_address").alias("address"), "size").distinct()


def smallest_committed(objects: DataFrame) -> DataFrame:
    """Return a few small committed objects (address, size, entry_etag) whose checksum looks like an MD5."""
    size = F.col("size")
    small = objects.where(_matches(F.col("entry_etag"), _MD5) & (size > 0) & (size < _SMALL))
    return small.orderBy("size", "address").limit(_FEW).select("address", "size", "entry_etag")


def is_checksum_of(md5: str | None, checksum: str) -> bool:
    """Return whether lakeFS gives content of this MD5 the checksum when it is uploaded whole, or in one part."""
    return md5 is not None and checksum in (md5, hashlib.md5(bytes.fromhex(md5), usedforsecurity=False).hexdigest())


def of_same_content(risky: DataFrame, digests: DataFrame, contents: DataFrame) -> DataFrame:
    """Return the addresses of the objects at risk whose content a head may have.

    The checksum of a staged entry is the store's ETag, the MD5 of the content, what a client made up, or that of the
    object which it was copied from. `digests`: (address, md5) of `unknown_content`; null where the content could not be
    read: then the size decides.
    """
    asked = digests.withColumn("is_asked", F.lit(True))
    named = risky.select("address", "size", "etag").join(asked, on="address", how="left")
    of_heads = asked.select(
        F.col("address").alias("head_address"), F.col("md5").alias("head_md5"), F.col("is_asked").alias("head_is_asked")
    )
    heads = contents.join(of_heads, on="head_address", how="left")
    head, etag = F.col("head_checksum"), F.col("etag")
    md5 = F.when(F.col("is_asked"), F.col("md5")).when(_matches(etag, _MD5), etag)
    same = [etag == head, F.regexp_extract(etag, _OF_PARTS, 1) == head, md5 == head, md5 == F.col("head_md5")]
    unread = [F.col("is_asked") & F.col("md5").isNull(), F.col("head_is_asked") & F.col("head_md5").isNull()]
    kept = ~_matches(head, _OF_STORES)
    for reason in (*same, *unread):
        kept = kept | F.coalesce(reason, F.lit(False))
    return named.join(heads, on="size", how="inner").where(kept).select("address").distinct()


def keep_same_content(objects: DataFrame, hidden: DataFrame) -> DataFrame:
    """Return the objects with the state `may_be_staged` for those that `hidden` (addresses) names."""
    marked = objects.join(hidden.withColumn("is_hidden", F.lit(True)), on="address", how="left")
    state = F.when(F.col("is_hidden").isNotNull(), F.lit(MAY_BE_STAGED)).otherwise(F.col("state"))
    return marked.withColumn("state", state).drop("is_hidden")


def _matches(text: Column, pattern: str) -> Column:
    return F.coalesce(text.rlike(pattern), F.lit(False))
