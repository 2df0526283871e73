"""Objects that may be staged although the server's list of staged objects does not name them.

lakeFS takes two entries for equal when size, checksum, metadata and content type are equal; the address does not count.
So an object that was uploaded again with the content of the branch's head is staged, reads of the branch go to it, and
neither the diff nor the staged list shows it. An object that no commit holds is therefore kept while any head has an
entry of its content. Source: lakeFS facts, H20; DESIGN.md, invariant 1.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from retention_assets.core.states import CANDIDATE, MAY_BE_STAGED, UNREFERENCED

_MD5 = r"^[0-9a-f]{32}\z"
_OF_STORES = r"^([0-9a-f]{32}(-[0-9]+)?|0x[0-9A-F]+)\z"  # S3's, in parts or not; Azure's


def head_contents(pairs: DataFrame) -> DataFrame:
    """Return the contents of all heads, each once: `size` and `head_checksum`. `pairs`: `addresses`."""
    return pairs.where("at_head").select("size", F.col("etag").alias("head_checksum")).distinct()


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
    """Return those objects at risk whose ETag does not tell the MD5 of their content."""
    return risky.where(~_matches(F.col("etag"), _MD5)) if etags_are_checksums else risky


def of_same_content(risky: DataFrame, digests: DataFrame, contents: DataFrame) -> DataFrame:
    """Return the addresses of the objects at risk whose content a head may have.

    The checksum of a staged entry is the store's ETag, the MD5 of the content, or what a client made up.
    `digests`: (address, md5) of `unknown_content`; null where the content could not be read: then the size decides.
    """
    named = risky.select("address", "size", "etag").join(
        digests.withColumn("is_asked", F.lit(True)), on="address", how="left"
    )
    head = F.col("head_checksum")
    same = (F.col("etag") == head) | (F.col("md5") == head)
    unknown = F.col("is_asked").isNotNull() & F.col("md5").isNull()
    made_up = ~_matches(head, _OF_STORES)
    kept = F.coalesce(same, F.lit(False)) | unknown | made_up
    return named.join(contents, on="size", how="inner").where(kept).select("address").distinct()


def keep_same_content(objects: DataFrame, hidden: DataFrame) -> DataFrame:
    """Return the objects with the state `may_be_staged` for those that `hidden` (addresses) names."""
    marked = objects.join(hidden.withColumn("is_hidden", F.lit(True)), on="address", how="left")
    state = F.when(F.col("is_hidden").isNotNull(), F.lit(MAY_BE_STAGED)).otherwise(F.col("state"))
    return marked.withColumn("state", state).drop("is_hidden")


def _matches(text: Column, pattern: str) -> Column:
    return F.coalesce(text.rlike(pattern), F.lit(False))
