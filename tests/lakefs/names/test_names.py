"""Names that lakeFS generates, and their times. Source of the cases: docs/lakefs-formats.md, "Object names"."""

import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from retention_assets.lakefs.names.columns import (
    canonical_address,
    is_generated,
    is_inside,
    is_outside,
    issued_at,
    stored_name,
)
from retention_assets.lakefs.names.generated import has_other_spellings, is_generated_name, listed_name, namespace_urls
from retention_assets.lakefs.source.staged_objects import count_outside
from tests.frames import OLD, address, of
from tests.saved_repositories import REPOSITORIES, listing

SLICE, XID = "gqv3epl4fd2o8m3men70", "ce8co454fd2o8m3menag"
SIGNATURE = "3JtKavWuNJClLKEIALkPkYfJIaveOO9xr9YzQYURGzs"
UUID, NANOID = "0fd0f0a4-7b6d-4b0e-9a3e-1f2d3c4b5a69", "mHdWMWSOf6mkzFvmPvO_X"
ISSUED = datetime(2022, 12, 7, 17, 23, 28, tzinfo=UTC)

GENERATED = {
    "in_a_slice": f"data/{SLICE}/{XID}",
    "with_its_signature": f"data/{SLICE}/{XID},{SIGNATURE}",
    "sharded": f"data/!ab/c/{SLICE}/{XID}",
    "sharded_with_digits_and_a_signature": f"data/!0z/9/{SLICE}/{XID},{SIGNATURE}",
    "32_hex_in_the_root": "0123456789abcdef0123456789abcdef",
    "of_the_link_era": f"data/orchard-main:{UUID}/{NANOID}",
    "of_the_link_era_with_a_branch_of_many_marks": f"data/a.b_c-9:{UUID}/{'a' * 20}",
}
FOREIGN = {
    "a_users_file_in_the_root": "README.md",
    "the_probe_of_old_versions": "dummy",
    "a_users_file_in_data": "data/report.csv",
    "a_users_folder_in_data": "data/2026/report.csv",
    "a_users_file_in_a_slice": f"data/{SLICE}/report.csv",
    "another_repository_below_data": f"data/other/data/{SLICE}/{XID}",
    "another_repository_beside_data": f"other/data/{SLICE}/{XID}",
    "a_range": f"_lakefs/{'0123456789abcdef' * 4}",
    "a_report": f"_lakefs/retention/gc/uncommitted/{SLICE}/uncommitted/{XID}",
    "one_level_deeper": f"data/{SLICE}/{XID}/{XID}",
    "one_level_higher": f"data/{XID}",
    "no_slice": f"data//{XID}",
    "uppercase_object": f"data/{SLICE}/{XID.upper()}",
    "uppercase_slice": f"data/{SLICE.upper()}/{XID}",
    "uppercase_data": f"DATA/{SLICE}/{XID}",
    "object_one_short": f"data/{SLICE}/{XID[:-1]}",
    "object_one_long": f"data/{SLICE}/{XID}0",
    "slice_one_short": f"data/{SLICE[:-1]}/{XID}",
    "a_letter_that_xids_lack": f"data/{SLICE}/{XID[:-1]}w",
    "an_empty_signature": f"data/{SLICE}/{XID},",
    "signature_one_short": f"data/{SLICE}/{XID},{SIGNATURE[:-1]}",
    "signature_one_long": f"data/{SLICE}/{XID},{SIGNATURE}A",
    "signature_with_padding": f"data/{SLICE}/{XID},{SIGNATURE}=",
    "an_extension": f"data/{SLICE}/{XID}.parquet",
    "a_line_end_after_it": f"data/{SLICE}/{XID}\n",
    "another_line_end_after_it": f"data/{SLICE}/{XID}\u2028",
    "a_line_before_it": f"x\ndata/{SLICE}/{XID}",
    "31_hex": "0123456789abcdef0123456789abcde",
    "33_hex": "0123456789abcdef0123456789abcdef0",
    "uppercase_hex": "0123456789ABCDEF0123456789ABCDEF",
    "hex_in_a_folder": "folder/0123456789abcdef0123456789abcdef",
    "a_part_of_an_upload": "0123456789abcdef0123456789abcdef-00001",
    "shard_of_three": f"data/!abc/d/{SLICE}/{XID}",
    "shard_without_its_second_level": f"data/!ab/{SLICE}/{XID}",
    "shard_without_its_mark": f"data/ab/c/{SLICE}/{XID}",
    "link_era_without_its_colon": f"data/orchard-main/{NANOID}",
    "link_era_with_a_short_name": f"data/orchard-main:{UUID}/{'a' * 19}",
    "legacy_file_below_data": "data/0123456789abcdef0123456789abcdef",
    "an_absolute_uri": f"s3://lake/orchard/data/{SLICE}/{XID}",
    "nothing": "",
}


@pytest.fixture(scope="module")
def generated(spark: SparkSession) -> dict[str, bool]:
    cases = {**GENERATED, **FOREIGN}
    return dict(zip(cases, of(spark, list(cases.values()), pa.string(), is_generated), strict=True))


@pytest.mark.parametrize("case", GENERATED)
def test_names_that_lakefs_generates_are_recognized(generated: dict[str, bool], case: str) -> None:
    assert generated[case] is True


@pytest.mark.parametrize("case", FOREIGN)
def test_any_other_name_is_not_recognized(generated: dict[str, bool], case: str) -> None:
    assert generated[case] is False


@pytest.mark.parametrize("case", [*GENERATED, *FOREIGN])
def test_python_and_spark_recognize_the_same_generated_names(case: str) -> None:
    assert is_generated_name({**GENERATED, **FOREIGN}[case]) is (case in GENERATED)


@pytest.mark.parametrize("repository", REPOSITORIES)
def test_all_names_that_the_server_wrote_below_data_are_recognized(spark: SparkSession, repository: str) -> None:
    names = [entry.address for entry in listing(repository) if entry.address.startswith("data/")]
    assert len(names) > 100
    assert all(of(spark, names, pa.string(), is_generated))


ISSUED_AT = {
    "a_known_xid": (GENERATED["in_a_slice"], ISSUED),
    "a_signature_does_not_matter": (GENERATED["with_its_signature"], ISSUED),
    "nor_do_shards": (GENERATED["sharded"], ISSUED),
    "the_slice_does_not_count": (f"data/{XID}/{SLICE}", datetime(2041, 8, 20, 12, 2, 46, tzinfo=UTC)),
    "an_xid_made_for_tests": (address(7, OLD), OLD),
    "the_smallest_xid": (f"data/{SLICE}/{'0' * 20}", datetime(1970, 1, 1, tzinfo=UTC)),
    "the_largest_xid": (f"data/{SLICE}/{'v' * 20}", datetime(2106, 2, 7, 6, 28, 15, tzinfo=UTC)),
    "hex_holds_no_time": (GENERATED["32_hex_in_the_root"], None),
    "a_nanoid_holds_no_time": (GENERATED["of_the_link_era"], None),
    "foreign": (FOREIGN["a_users_file_in_a_slice"], None),
    "foreign_by_a_line_end": (FOREIGN["a_line_end_after_it"], None),
}


def made_of(spark: SparkSession, cases: dict[str, tuple[str, Any]], then: Callable[[Column], Column]) -> dict[str, Any]:
    """Return the result of `then` for the text of each case."""
    texts = [text for text, _ in cases.values()]
    return dict(zip(cases, of(spark, texts, pa.string(), then), strict=True))


def expected(cases: dict[str, tuple[str, Any]]) -> dict[str, Any]:
    return {case: wanted for case, (_, wanted) in cases.items()}


def test_the_xid_of_an_object_has_the_time_at_which_its_address_was_issued(spark: SparkSession) -> None:
    assert made_of(spark, ISSUED_AT, issued_at) == expected(ISSUED_AT)


def test_addresses_of_real_objects_were_issued_before_they_were_written(spark: SparkSession) -> None:
    entries = [entry for entry in listing("orchard") if entry.address.startswith("data/")]
    issued = of(spark, [entry.address for entry in entries], pa.string(), issued_at)
    for entry, instant in zip(entries, issued, strict=True):
        assert 0 <= (entry.last_modified - instant).total_seconds() < 24 * 3600, entry.address


OUTSIDE = {
    "s3": ("s3://lake/other/a", True),
    "azure": ("https://account.blob.core.windows.net/container/a", True),
    "a_local_server": ("local:///srv/lake/a", True),
    "relative": (f"data/{SLICE}/{XID}", False),
    "a_path_that_looks_like_a_uri": ("data/a://b", False),
    "no_scheme": ("://", False),
}


def test_an_absolute_uri_is_outside_the_namespace(spark: SparkSession) -> None:
    assert made_of(spark, OUTSIDE, is_outside) == expected(OUTSIDE)


SIGNED = f"data/{SLICE}/{XID},{SIGNATURE}"
INSIDE = namespace_urls("s3://lake/my%20orchard", "s3://lake/my%20orchard")
LOCAL = namespace_urls("local://orchard", "file:///var/lake/orchard")
ADDRESSES = {
    "a_relative_address": (INSIDE, SIGNED, 1, SIGNED),
    "a_deprecated_relative_address": (INSIDE, SIGNED, 0, SIGNED),
    "a_relative_address_that_looks_like_a_uri": (INSIDE, "s3://lake/my%20orchard/x", 1, "s3://lake/my%20orchard/x"),
    "the_namespace_as_configured": (INSIDE, f"s3://lake/my%20orchard/{SIGNED}", 2, SIGNED),
    "the_namespace_as_go_decodes_it": (INSIDE, f"s3://lake/my orchard/{SIGNED}", 2, SIGNED),
    "another_scheme_of_s3": (INSIDE, f"s3a://lake/my orchard/{SIGNED}", 0, SIGNED),
    "a_neighbour_with_a_longer_name": (INSIDE, "s3://lake/my orchards/x", 2, "s3://lake/my orchards/x"),
    "the_address_that_a_local_server_prints": (LOCAL, f"local:///var/lake/orchard/{SIGNED}", 2, SIGNED),
    "a_local_namespace": (LOCAL, f"local://orchard/{SIGNED}", 2, SIGNED),
    "another_place_of_this_machine": (LOCAL, "local:///var/other/x", 2, "local:///var/other/x"),
}


@pytest.mark.parametrize("inside", [INSIDE, LOCAL], ids=["s3", "local"])
def test_an_address_inside_the_namespace_has_one_spelling(spark: SparkSession, inside: tuple[str, ...]) -> None:
    cases = {case: rest for case, (spelt, *rest) in ADDRESSES.items() if spelt is inside}
    texts, kinds, wanted = zip(*cases.values(), strict=True)
    rows = spark.createDataFrame(pa.table({"address": texts, "kind": pa.array(kinds, pa.int8())}))
    made = rows.select(canonical_address(F.col("address"), F.col("kind"), inside)).collect()
    assert dict(zip(cases, (row[0] for row in made), strict=True)) == dict(zip(cases, wanted, strict=True))


@pytest.mark.parametrize(
    ("namespace", "has_others"),
    [
        ("s3://lake/team-a/env=prod/my_repo.v2", False),
        ("s3://lake/a+b&c@d,e:f;g$h~i", False),
        ("https://account.blob.core.windows.net/container/orchard", False),
        ("http://account.blob.core.windows.net/container/orchard", True),
        ("s3://lake/my orchard", True),
        ("s3://lake/my%20orchard", True),
        ("s3://lake/größe", True),
        ("s3://lake/orchard(2)", True),
        ("local://orchard", True),
        ("local:///var/lake/orchard", True),
        ("s3://lake/orchard/", False),
        ("s3://lake/orchard//", True),
        ("s3://lake//orchard", True),
        ("s3:///lake/orchard", True),
        ("s3://lake/./orchard", True),
        ("s3://lake/x/../orchard", True),
        ("s3://user@lake/orchard", True),
        ("https://user@account.blob.core.windows.net/container/orchard", True),
    ],
)
def test_a_namespace_has_other_spellings_if_a_url_escapes_it_or_a_store_resolves_it(
    namespace: str, has_others: bool
) -> None:
    assert has_other_spellings(namespace) is has_others


MEANT = {
    "an_address_inside": ("some/foreign/path", "some/foreign/path"),
    "outside_without_a_generated_name": ("s3://lake/plum/report.csv", "s3://lake/plum/report.csv"),
    "outside_with_a_generated_name": (f"s3://other/plum/{SIGNED}", SIGNED),
    "sharded": (f"s3://other/plum/data/!ab/c/{SLICE}/{XID}", f"data/!ab/c/{SLICE}/{XID}"),
    "encoded": (f"s3://other/plum/{SIGNED.replace(',', '%2C')}", SIGNED),
    "with_a_query": (f"https://other/plum/{SIGNED}?versionId=3", SIGNED),
    "of_the_link_era": (f"s3://other/plum/data/m:{UUID}/{NANOID}", f"data/m:{UUID}/{NANOID}"),
    "32_hex": ("s3://other/plum/0123456789abcdef0123456789abcdef", "0123456789abcdef0123456789abcdef"),
    "not_decodable": ("s3://other/plum/%zz", "s3://other/plum/%zz"),
    "encoded_after_a_malformed_escape": (f"s3://other/50%-plum/{SIGNED.replace(',', '%2C')}", SIGNED),
    "encoded_after_a_plus": (f"s3://other/a+plum/{SIGNED.replace(',', '%2C')}", SIGNED),
    "two_slashes_before_the_name": (f"/{SIGNED}", SIGNED),
    "two_slashes_within_the_name": (SIGNED.replace("data/", "data//"), SIGNED),
    "dots_within_the_name": (SIGNED.replace("data/", "data/././/"), SIGNED),
    "dots_before_the_name": (f"x/.././{SIGNED}", SIGNED),
    "parent_directories_within_the_name": (SIGNED.replace("data/", "data/x/y/../../"), SIGNED),
    "parent_directories_after_the_name": (f"{SIGNED}/x/..", SIGNED),
    "many_parent_directories": (SIGNED.replace("data/", f"data/{'x/' * 4}{'../' * 4}./y/../"), SIGNED),
    "sixteen_parent_directories": (SIGNED.replace("data/", f"data/{'x/' * 16}{'../' * 16}"), SIGNED),
    "more_parent_directories_than_there_are": (f"../../{SIGNED}", SIGNED),
    "an_escaped_parent_directory": (f"/{SIGNED.replace('data/', 'data/x/%2E%2E/')}", SIGNED),
    "a_slash_after_the_name": (f"{SIGNED}/", SIGNED),
    "a_slash_after_the_name_outside": (f"https://other/plum/{SIGNED}/?snapshot=3", SIGNED),
    "a_dot_after_the_name": (f"{SIGNED}/.", SIGNED),
    "dots_and_slashes_in_a_query": (f"s3://other/plum/{SIGNED}?a/../b/", SIGNED),
    "another_name_after_the_name": (f"{SIGNED}/../{XID}", f"data/{SLICE}/{XID}"),
    "two_slashes_within_the_name_outside": (f"s3://other/plum/{SIGNED.replace('data/', 'data//')}", SIGNED),
    "two_slashes_without_a_generated_name": ("some//foreign/path", "some//foreign/path"),
    "a_directory_before_the_name": (f"copies/{SIGNED}", f"copies/{SIGNED}"),
    "an_escaped_escape": (
        f"s3://other/plum/{SIGNED.replace(',', '%252C')}",
        f"s3://other/plum/{SIGNED.replace(',', '%252C')}",
    ),
}


INSIDE_FOR_CERTAIN = {
    "relative": (SIGNED, True),
    "absolute": (f"s3://lake/plum/{SIGNED}", False),
    "two_slashes": (f"/{SIGNED}", False),
    "a_parent_directory": (f"x/../{SIGNED}", False),
    "a_slash_at_the_end": (f"{SIGNED}/", False),
    "dots_in_a_name": ("data/..a/b..", True),
}


def test_only_a_plain_relative_address_is_certainly_inside(spark: SparkSession) -> None:
    assert made_of(spark, INSIDE_FOR_CERTAIN, is_inside) == expected(INSIDE_FOR_CERTAIN)


def test_arrow_counts_the_addresses_that_spark_does_not_find_inside(spark: SparkSession) -> None:
    draw = random.Random(20261129)
    addresses = ["".join(draw.choices(PIECES, k=draw.randint(0, 6))) for _ in range(2_000)]
    outside = [not one for one in of(spark, addresses, pa.string(), is_inside)]
    assert 100 < sum(outside) < len(addresses)
    assert [count_outside(pa.table({"address": [one]})) for one in addresses] == outside
    assert count_outside(pa.table({"address": addresses})) == sum(outside)
    assert count_outside(pa.table({"address": pa.array([], pa.string())})) == 0


def test_an_absolute_or_unresolved_address_means_the_object_of_its_generated_name(spark: SparkSession) -> None:
    assert made_of(spark, MEANT, stored_name) == expected(MEANT)
    assert {case: listed_name(address) for case, (address, _) in MEANT.items()} == expected(MEANT)


PIECES = (
    *("s3://", "http://b", "data", "data/", "/", "/", "//", "/./", "/../", "..", ".", "x", "y/", "x/../", "x/y/../../"),
    *(
        f"{SLICE}/",
        XID,
        f"{XID},{SIGNATURE}",
        f"data/{SLICE}/{XID}",
        f"/data/{SLICE}/{XID}",
        f"/x/../data/{SLICE}/{XID}",
    ),
    *(f"/{'0123456789abcdef' * 2}", "?", "#", "%2F", "%2e", "%", "%zz", "%3F", "+", ":", "\n", "\u2028", "é"),
)


def test_python_and_spark_find_the_same_name_in_any_spelling(spark: SparkSession) -> None:
    draw = random.Random(20261127)
    addresses = ["".join(draw.choices(PIECES, k=draw.randint(0, 9))) for _ in range(3_000)]
    names = [listed_name(address) for address in addresses]
    assert sum(name != address for name, address in zip(names, addresses, strict=True)) > 100
    found = dict(zip(addresses, of(spark, addresses, pa.string(), stored_name), strict=True))
    assert found == dict(zip(addresses, names, strict=True))
