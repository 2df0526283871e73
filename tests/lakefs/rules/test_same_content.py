"""An unreferenced object stays while a head has its content: it may be staged though no list names it."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import md5

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from retention_assets.core.age import AgeCutoff
from retention_assets.lakefs.names.columns import issued_at
from retention_assets.lakefs.rules.candidates import classified, commits_by_address
from retention_assets.lakefs.rules.same_content import (
    at_risk,
    etag_differs,
    head_contents,
    heads_of_sizes,
    is_checksum_of,
    keep_same_content,
    of_same_content,
    smallest_committed,
    unknown_content,
    unproven_heads,
    unreferenced,
)
from tests import frames
from tests.frames import DAY, NOW, Listed, Pair, address

MD5, OTHER, THIRD, PARTS = "a" * 32, "b" * 32, "c" * 32, f"{'a' * 32}-5"
HORIZON = AgeCutoff(NOW, DAY, DAY, issued=issued_at)
UNREFERENCED = address(1)


def objects(spark: SparkSession, listed: Sequence[Listed], pairs: Sequence[Pair]) -> tuple[DataFrame, DataFrame]:
    rows = frames.pairs(spark, *pairs)
    made = classified(
        frames.inventory(spark, *listed), commits_by_address(rows, ()), frames.staged(spark), HORIZON, staged_known=True
    )
    return made, head_contents(rows, unreferenced(made))


@dataclass(frozen=True)
class Stored:
    """An object: the store's ETag, the MD5 of its content, the checksum of its entry."""

    etag: str | None
    md5: str | None = None  # None: it cannot be read, or need not be
    checksum: str = ""
    size: int = 10


# An unreferenced object, the object of a head, and whether the first one stays
CONTENTS = {
    "same_size_and_checksum": (Stored(MD5), Stored(MD5, checksum=MD5), True),
    "same_size_and_another_checksum": (Stored(OTHER), Stored(MD5, checksum=MD5), False),
    "another_size": (Stored(MD5, size=11), Stored(MD5, checksum=MD5), False),
    "no_etag_and_the_content_is_the_same": (Stored(None, OTHER), Stored(None, OTHER, OTHER), True),
    "no_etag_and_the_content_is_another": (Stored(None, OTHER), Stored(None, MD5, MD5), False),
    "linked_with_the_etag_of_an_upload_in_parts": (Stored(PARTS, OTHER), Stored(PARTS, MD5, PARTS), True),
    "uploaded_in_parts_through_lakefs": (Stored(PARTS, OTHER), Stored(PARTS, MD5, MD5), True),
    "in_parts_and_the_head_is_not": (Stored(PARTS, OTHER), Stored(OTHER, checksum=OTHER), True),
    "in_parts_and_another_content": (Stored(PARTS, OTHER), Stored(THIRD, checksum=THIRD), False),
    "a_copy_of_an_upload_in_parts": (Stored(OTHER), Stored(PARTS, OTHER, MD5), True),
    "a_copy_of_such_a_copy": (Stored(OTHER), Stored(OTHER, OTHER, MD5), True),
    "no_etag_and_the_head_is_of_parts": (Stored(None, OTHER), Stored(None, OTHER, MD5), True),
    "the_head_is_of_parts_and_another_content": (Stored(OTHER), Stored(PARTS, THIRD, MD5), False),
    "the_head_cannot_be_read": (Stored(OTHER), Stored(PARTS, None, MD5), True),
    "it_cannot_be_read": (Stored(None), Stored(MD5, checksum=MD5), True),
    "a_client_made_the_checksum_up": (Stored(OTHER), Stored(MD5, checksum="made-up"), True),
    "the_entry_has_no_checksum": (Stored(OTHER), Stored(MD5), True),
}


def test_content_of_a_head_keeps_an_unreferenced_object(spark: SparkSession) -> None:
    """Each case has addresses and sizes of its own, so that no case has the content of another."""
    listed, entries = list[Listed](), list[Pair]()
    digests, expected = dict[str, str | None](), dict[str, tuple[str, str]]()
    for number, (case, (found, head, stays)) in enumerate(CONTENTS.items()):
        unreferenced, at_head, more = address(2 * number), address(2 * number + 1), 100 * number
        listed += [Listed(unreferenced, found.size + more, etag=found.etag)]
        listed += [Listed(at_head, head.size + more, etag=head.etag)]
        entries += [Pair(at_head, size=head.size + more, active=True, at_head=True, etag=head.checksum)]
        digests |= {unreferenced: found.md5, at_head: head.md5}
        expected |= {unreferenced: (case, "may_be_staged" if stays else "candidate"), at_head: (case, "kept")}
    made, contents = objects(spark, listed, entries)
    risky = at_risk(made, contents)
    unread = unknown_content(risky, etags_are_checksums=True)
    heads = unproven_heads(heads_of_sizes(made, risky, contents), etags_are_checksums=True)
    md5s = F.create_map(*(F.lit(each) for pair in digests.items() for each in pair))
    read = unread.unionByName(heads).select("address", md5s[F.col("address")].alias("md5"))
    kept = keep_same_content(made, of_same_content(risky, read, contents))
    states = {row["address"]: row["state"] for row in kept.select("address", "state").collect()}
    assert {name: (expected[name][0], state) for name, state in states.items()} == expected


def test_of_uploads_in_one_piece_nothing_is_read(spark: SparkSession) -> None:
    entry = Pair(address(2), active=True, at_head=True, etag=MD5)
    made, contents = objects(spark, [Listed(UNREFERENCED, etag=OTHER), Listed(address(2), etag=MD5)], [entry])
    risky = at_risk(made, contents)
    for believed in (True, False):
        unread = unknown_content(risky, etags_are_checksums=believed)
        heads = unproven_heads(heads_of_sizes(made, risky, contents), etags_are_checksums=believed)
        asked = {row["address"] for row in unread.unionByName(heads).collect()}
        assert asked == (set() if believed else {UNREFERENCED, address(2)})


def test_a_checksum_is_of_content_that_was_uploaded_whole_or_in_one_part() -> None:
    whole = md5(b"content", usedforsecurity=False)
    in_one_part = md5(whole.digest(), usedforsecurity=False).hexdigest()
    assert is_checksum_of(whole.hexdigest(), whole.hexdigest())
    assert is_checksum_of(whole.hexdigest(), in_one_part)
    assert not is_checksum_of(whole.hexdigest(), MD5)
    assert not is_checksum_of(None, MD5)


def test_small_committed_objects_tell_whether_contents_give_checksums(spark: SparkSession) -> None:
    sizes = {address(number): size for number, size in enumerate([0, 5, 2**20, 7, 9], start=1)}
    pairs = [Pair(name, size=size, active=True, etag=MD5) for name, size in sizes.items()]
    pairs[4] = Pair(address(5), size=9, active=True, etag="made-up")
    made, _ = objects(spark, [Listed(name, size) for name, size in sizes.items()], pairs)
    found = smallest_committed(made, frames.pairs(spark, *pairs)).orderBy("size").collect()
    assert [(row["address"], row["entry_etag"]) for row in found] == [(address(2), MD5), (address(4), MD5)]


def test_content_that_no_head_has_any_more_keeps_nothing(spark: SparkSession) -> None:
    before = Pair(address(2), active=True, at_head=False, etag=MD5)
    made, contents = objects(spark, [Listed(UNREFERENCED, etag=MD5)], [before])
    assert at_risk(made, contents).isEmpty()


def test_etags_that_are_no_checksums_are_noticed_at_committed_objects(spark: SparkSession) -> None:
    etags = {
        "equal": MD5,
        "an_encrypted_store": OTHER,
        "an_upload_in_parts_says_nothing": PARTS,
        "no_etag_says_nothing": None,
    }
    listed = [Listed(case, etag=etag) for case, etag in etags.items()]
    made, _ = objects(spark, listed, [Pair(case, active=True, etag=MD5) for case in etags])
    assert [row["address"] for row in made.where(etag_differs()).collect()] == ["an_encrypted_store"]
