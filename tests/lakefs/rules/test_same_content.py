"""An unreferenced object stays while a head has its content, since it may be staged without being in a staged list."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import md5
from operator import itemgetter

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from retention_assets.core.age import AgeCutoff
from retention_assets.lakefs.names.columns import issued_at
from retention_assets.lakefs.rules.candidates import classified, commits_by_address
from retention_assets.lakefs.rules.same_content import (
    COMPARED,
    at_risk,
    etag_differs,
    head_contents,
    keep_same_content,
    of_same_content,
    to_compare,
)
from tests import frames
from tests.frames import DAY, NOW, Listed, Pair, address

MD5, OTHER, THIRD, PARTS = "a" * 32, "b" * 32, "c" * 32, f"{'a' * 32}-5"
ONE_PART = md5(bytes.fromhex(OTHER), usedforsecurity=False).hexdigest()  # the checksum of OTHER as a single part
HORIZON = AgeCutoff(NOW, DAY, DAY, issued=issued_at)
UNREFERENCED, AT_HEAD = address(1), address(2)


def objects(spark: SparkSession, listed: Sequence[Listed], pairs: Sequence[Pair]) -> tuple[DataFrame, DataFrame]:
    rows = frames.pairs(spark, *pairs)
    made = classified(
        frames.inventory(spark, *listed), commits_by_address(rows, ()), frames.staged(spark), HORIZON, staged_known=True
    ).localCheckpoint()  # computed once, as a plan caches the classified objects
    return made, head_contents(rows, made)


def states(
    spark: SparkSession, listed: Sequence[Listed], pairs: Sequence[Pair], md5s: dict[str, str | None]
) -> dict[str, str]:
    """Return the state of each object by address. `md5s`: the MD5 of contents by address; None: cannot be read."""
    made, contents = objects(spark, listed, pairs)
    risky = at_risk(made, contents)
    known = F.create_map(*(F.lit(each) for pair in md5s.items() for each in pair))
    compared = to_compare(risky, contents).withColumn("md5", known[F.col("address")])
    kept = keep_same_content(made, of_same_content(risky, compared))
    return {row["address"]: row["state"] for row in kept.select("address", "state").collect()}


@dataclass(frozen=True)
class Stored:
    """An object: the store's ETag, the MD5 of its content, the checksum and the size of its entry."""

    etag: str | None
    md5: str | None = None  # None: it cannot be read
    checksum: str = ""
    size: int = 10
    entry_size: int | None = None  # None: the size of the object


# An unreferenced object, the object of a head, and whether the first one stays
CONTENTS = {
    "same_size_and_checksum": (Stored(MD5, MD5), Stored(MD5, MD5, MD5), True),
    "same_size_and_another_checksum": (Stored(OTHER, OTHER), Stored(MD5, MD5, MD5), False),
    "another_size": (Stored(MD5, MD5, size=11), Stored(MD5, MD5, MD5), False),
    "no_etag_and_the_content_is_the_same": (Stored(None, OTHER), Stored(None, OTHER, OTHER), True),
    "no_etag_and_the_content_is_another": (Stored(None, OTHER), Stored(None, MD5, MD5), False),
    "linked_with_the_etag_of_an_upload_in_parts": (Stored(PARTS, OTHER), Stored(PARTS, MD5, PARTS), True),
    "uploaded_in_parts_through_lakefs": (Stored(PARTS, OTHER), Stored(PARTS, MD5, MD5), True),
    "in_one_part_and_no_etags": (Stored(None, OTHER), Stored(None, OTHER, ONE_PART), True),
    "in_one_part_and_another_content": (Stored(None, THIRD), Stored(None, OTHER, ONE_PART), False),
    "in_parts_and_the_head_is_not": (Stored(PARTS, OTHER), Stored(OTHER, OTHER, OTHER), True),
    "in_parts_and_another_content": (Stored(PARTS, OTHER), Stored(THIRD, THIRD, THIRD), False),
    "a_copy_of_an_upload_in_parts": (Stored(OTHER, OTHER), Stored(PARTS, OTHER, MD5), True),
    "the_head_is_of_parts_and_another_content": (Stored(OTHER, OTHER), Stored(PARTS, THIRD, MD5), False),
    "the_head_cannot_be_read": (Stored(OTHER, OTHER), Stored(PARTS, None, MD5), True),
    "it_cannot_be_read": (Stored(None), Stored(MD5, MD5, MD5), True),
    # an encrypted object has an ETag that looks like an MD5
    "encrypted_and_the_same_content": (Stored(THIRD, OTHER), Stored(OTHER, OTHER, OTHER), True),
    "encrypted_and_another_content": (Stored(THIRD, MD5), Stored(OTHER, OTHER, OTHER), False),
    "a_copy_of_an_encrypted_head_that_was_linked": (Stored(THIRD, OTHER), Stored(MD5, OTHER, MD5), True),
    "an_encrypted_head_that_was_linked_and_another_content": (Stored(THIRD, THIRD), Stored(MD5, OTHER, MD5), False),
    # nothing explains the checksum of the head, so content does not matter
    "the_head_is_a_copy_of_an_upload_in_parts": (Stored(THIRD, THIRD), Stored(OTHER, OTHER, MD5), True),
    "the_head_is_of_parts_and_the_store_has_no_etags": (Stored(None, THIRD), Stored(None, OTHER, MD5), True),
    "a_client_made_the_checksum_up": (Stored(OTHER, OTHER), Stored(MD5, MD5, "made-up"), True),
    "a_client_made_up_a_checksum_like_an_md5": (Stored(OTHER, OTHER), Stored(MD5, MD5, THIRD), True),
    "the_entry_has_no_checksum": (Stored(OTHER, OTHER), Stored(MD5, MD5), True),
    # a client chooses the size of an entry
    "the_entry_names_another_size_and_the_content_is_the_same": (
        Stored(MD5, MD5), Stored(MD5, MD5, MD5, entry_size=0), True
    ),
    "the_entry_names_another_size_and_the_content_is_another": (
        Stored(OTHER, OTHER), Stored(MD5, MD5, MD5, entry_size=0), False
    ),
}  # fmt: skip


@pytest.mark.long
def test_an_unreferenced_object_with_the_content_of_a_head_is_kept(spark: SparkSession) -> None:
    """Each case has addresses and sizes of its own, so that no case has the content of another."""
    listed, entries = list[Listed](), list[Pair]()
    digests, expected = dict[str, str | None](), dict[str, tuple[str, str]]()
    for number, (case, (found, head, stays)) in enumerate(CONTENTS.items()):
        unreferenced, at_head, more = address(2 * number), address(2 * number + 1), 100 * (number + 1)
        listed += [Listed(unreferenced, found.size + more, etag=found.etag)]
        listed += [Listed(at_head, head.size + more, etag=head.etag)]
        size = head.size + more if head.entry_size is None else head.entry_size
        entries += [Pair(at_head, size=size, active=True, at_head=True, etag=head.checksum)]
        digests |= {unreferenced: found.md5, at_head: head.md5}
        expected |= {unreferenced: (case, "may_be_staged" if stays else "candidate"), at_head: (case, "kept")}
    found_states = states(spark, listed, entries, digests)
    assert {name: (expected[name][0], state) for name, state in found_states.items()} == expected


# The objects of a head's entries with the checksum MD5, the MD5 of an unreferenced object, and whether it stays
OUTSIDE, LISTED, UNLISTED, LOST, LOST_TOO = "outside", "listed", "unlisted", "lost", "lost, with the greatest address"
UNREADABLE = {"resolved": "export//{}", "above": "data/../{}", "relative": "./{}", "control": "export/\x01{}"}
HEADS = {
    "outside_the_namespace": ((OUTSIDE,), OTHER, True),
    **{f"a_path_that_no_store_has_as_it_is, {kind}": ((kind,), OTHER, True) for kind in UNREADABLE},
    "lost_and_acknowledged_as_lost": ((LOST,), OTHER, True),
    "written_after_the_listing_and_the_content_is_another": ((UNLISTED,), OTHER, False),
    "written_after_the_listing_and_the_content_is_the_same": ((UNLISTED,), MD5, True),
    "one_inside_and_one_outside": ((OUTSIDE, LISTED), OTHER, False),
    "one_in_the_store_and_one_with_a_lesser_address_lost": ((LOST, LISTED), OTHER, False),
    "one_in_the_store_and_one_with_a_greater_address_lost": ((LOST_TOO, LISTED), OTHER, False),
}


@pytest.mark.long
def test_content_is_compared_with_an_object_of_the_head_that_can_be_read_and_without_one_the_object_stays(
    spark: SparkSession,
) -> None:
    """Each case has addresses and a size of its own."""
    listed, entries, digests, expected = list[Listed](), list[Pair](), dict[str, str | None](), dict[str, str]()
    for size, (case, (heads, content, stays)) in enumerate(HEADS.items(), start=100):
        lost, unreferenced, at_head, lost_too = (address(10 * size + number) for number in range(4))
        inside = {LISTED: at_head, UNLISTED: at_head, LOST: lost, LOST_TOO: lost_too}
        listed += [Listed(unreferenced, size, etag=content)]
        listed += [Listed(at_head, size, etag=MD5) for head in heads if head == LISTED]
        names = [inside.get(head, UNREADABLE.get(head, "s3://elsewhere/{}").format(size)) for head in heads]
        entries += [Pair(name, size=size, active=True, at_head=True, etag=MD5) for name in names]
        digests |= {unreferenced: content, **({at_head: MD5} if {LISTED, UNLISTED} & set(heads) else {})}
        expected |= {unreferenced: f"{case}: {'may_be_staged' if stays else 'candidate'}"}
    found = states(spark, listed, entries, digests)
    assert {one: f"{case}: {found[one]}" for one, case in zip(expected, HEADS, strict=True)} == expected


def test_only_contents_that_decide_are_read(spark: SparkSession) -> None:
    entry = Pair(AT_HEAD, active=True, at_head=True, etag=MD5)
    listed = [Listed(UNREFERENCED, etag=OTHER), Listed(address(3), etag=PARTS), Listed(AT_HEAD, etag=MD5)]
    made, contents = objects(spark, listed, [entry])
    risky = at_risk(made, contents)
    compared = to_compare(risky, contents)
    assert compared.columns == COMPARED.names
    assert sorted((tuple(row) for row in compared.collect()), key=itemgetter(0, 4)) == [
        (False, 10, None, OTHER, UNREFERENCED, 10),
        (False, 10, None, PARTS, address(3), 10),
        (True, 10, MD5, MD5, AT_HEAD, 10),
    ]


def test_nothing_is_read_when_the_size_decides(spark: SparkSession) -> None:
    entries = [Pair(AT_HEAD, active=True, at_head=True, etag=MD5), Pair("s3://elsewhere/x", active=True, at_head=True)]
    made, contents = objects(spark, [Listed(UNREFERENCED, etag=OTHER), Listed(AT_HEAD, etag=MD5)], entries)
    assert to_compare(at_risk(made, contents), contents).isEmpty()


def test_content_that_no_head_has_any_more_keeps_nothing(spark: SparkSession) -> None:
    before = Pair(AT_HEAD, active=True, at_head=False, etag=MD5)
    made, contents = objects(spark, [Listed(UNREFERENCED, etag=MD5)], [before])
    assert at_risk(made, contents).isEmpty()


def test_committed_objects_show_that_etags_are_not_checksums(spark: SparkSession) -> None:
    etags = {
        "equal": MD5,
        "an_encrypted_store": OTHER,
        "an_upload_in_parts_says_nothing": PARTS,
        "no_etag_says_nothing": None,
    }
    listed = [Listed(case, etag=etag) for case, etag in etags.items()]
    made, _ = objects(spark, listed, [Pair(case, active=True, etag=MD5) for case in etags])
    assert [row["address"] for row in made.where(etag_differs()).collect()] == ["an_encrypted_store"]
