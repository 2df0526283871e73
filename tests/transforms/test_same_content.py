"""An unreferenced object stays while a head has its content: it may be staged though no list names it."""

from collections.abc import Sequence

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from retention_assets.core.age import Horizon
from retention_assets.lakefs.rules.candidates import holders, judged
from retention_assets.lakefs.rules.names import issued_at
from retention_assets.lakefs.rules.same_content import (
    at_risk,
    etags_differ,
    head_contents,
    keep_same_content,
    of_same_content,
    unknown_content,
)
from tests.transforms import frames
from tests.transforms.frames import DAY, NOW, Listed, Pair, address

MD5, OTHER, MULTIPART = "a" * 32, "b" * 32, f"{'a' * 32}-5"
HORIZON = Horizon(NOW, DAY, DAY, issued=issued_at)
UNREFERENCED = address(1)


def objects(spark: SparkSession, listed: Sequence[Listed], pairs: Sequence[Pair]) -> tuple[DataFrame, DataFrame]:
    rows = frames.pairs(spark, *pairs)
    made = judged(frames.inventory(spark, *listed), holders(rows, ()), frames.staged(spark), HORIZON, staged_known=True)
    return made, head_contents(rows)


@pytest.mark.parametrize(
    ("size", "checksum", "head_size", "head_checksum", "stays"),
    [
        pytest.param(10, MD5, 10, MD5, True, id="same_size_and_checksum"),
        pytest.param(10, OTHER, 10, MD5, False, id="same_size_and_another_checksum"),
        pytest.param(11, MD5, 10, MD5, False, id="another_size"),
        pytest.param(10, None, 10, OTHER, True, id="no_etag_and_the_content_is_the_same"),
        pytest.param(10, None, 10, MD5, False, id="no_etag_and_the_content_is_another"),
        pytest.param(10, MULTIPART, 10, MULTIPART, True, id="uploaded_in_the_same_parts"),
        pytest.param(10, MULTIPART, 10, OTHER, True, id="uploaded_in_parts_with_the_same_content"),
        pytest.param(10, MULTIPART, 10, MD5, False, id="uploaded_in_parts_with_another_content"),
        pytest.param(10, OTHER, 10, "made-up", True, id="a_client_made_the_checksum_up"),
        pytest.param(10, OTHER, 10, "", True, id="the_entry_has_no_checksum"),
    ],
)
def test_content_of_a_head_keeps_an_unreferenced_object(
    spark: SparkSession, size: int, checksum: str | None, head_size: int, head_checksum: str, stays: bool
) -> None:
    head = Pair(address(2), size=head_size, active=True, at_head=True, etag=head_checksum)
    made, contents = objects(spark, [Listed(UNREFERENCED, size, etag=checksum), Listed(address(2), head_size)], [head])
    risky = at_risk(made, contents)
    digests = unknown_content(risky, etags_are_checksums=True).select("address", F.lit(OTHER).alias("md5"))
    kept = keep_same_content(made, of_same_content(risky, digests, contents))
    states = {row["address"]: row["state"] for row in kept.select("address", "state").collect()}
    assert states == {UNREFERENCED: "may_be_staged" if stays else "candidate", address(2): "kept"}


def test_content_that_no_head_has_any_more_keeps_nothing(spark: SparkSession) -> None:
    before = Pair(address(2), active=True, at_head=False, etag=MD5)
    made, contents = objects(spark, [Listed(UNREFERENCED, etag=MD5)], [before])
    assert at_risk(made, contents).isEmpty()


@pytest.mark.parametrize(
    ("etag", "entry", "differ"),
    [
        pytest.param(MD5, MD5, False, id="equal"),
        pytest.param(OTHER, MD5, True, id="an_encrypted_store"),
        pytest.param(MULTIPART, MD5, False, id="an_upload_in_parts_says_nothing"),
        pytest.param(None, MD5, False, id="no_etag_says_nothing"),
    ],
)
def test_etags_that_are_no_checksums_are_noticed_at_committed_objects(
    spark: SparkSession, etag: str | None, entry: str, differ: bool
) -> None:
    made, _ = objects(spark, [Listed(address(2), etag=etag)], [Pair(address(2), active=True, etag=entry)])
    assert etags_differ(made) is differ


def test_the_size_decides_where_the_content_cannot_be_read(spark: SparkSession) -> None:
    head = Pair(address(2), active=True, at_head=True, etag=MD5)
    made, contents = objects(spark, [Listed(UNREFERENCED)], [head])
    risky = at_risk(made, contents)
    digests = risky.select("address", F.lit(None).cast("string").alias("md5"))
    assert [row["address"] for row in of_same_content(risky, digests, contents).collect()] == [UNREFERENCED]
