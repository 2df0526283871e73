import hashlib
import re

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from retention_assets.errors import CorruptFile
from tests.lakefs.formats.tables import BENCH_ID, one_record, read_table, real
from tests.lakefs_tables import graveler_value, write_table

RANGE_ID = "a83af763ba098c15369d9d6d723731eb9ce18b8dfac4f88c6f1287e772393d0e"
METARANGE_ID = "732d4016245c5547113e0cd0f1a588fc55e36c21f460ac670cca4396922f5c11"


@pytest.mark.parametrize(
    ("file", "content_id", "count"),
    [("range.sst", RANGE_ID, 2), ("metarange.sst", METARANGE_ID, 1), ("56569996.sst", BENCH_ID, 13_868)],
)
def test_a_real_table_has_the_id_that_lakefs_gave_it(file: str, content_id: str, count: int) -> None:
    table = read_table(real(file), f"s3://lake/repo/_lakefs/{content_id}")
    assert table.content_id == content_id
    assert {len(table.keys), len(table.identities), len(table.values), int(table.properties["count"])} == {count}


def test_the_keys_of_a_large_real_range_are_those_that_were_imported() -> None:
    keys = read_table(real("56569996.sst"), "56569996.sst").keys
    joined = b"\n".join(keys.to_pylist())
    assert hashlib.sha256(joined).hexdigest() == "c66b31e093c1397d7d498861bdd6a44c9536a1ec2f00d10742c4febefa8bcc03"
    assert keys[0].as_py() == b"common-crawl-hive-analysis/CC-MAIN-2014-23/part-m-01364.gz"
    assert keys[-1].as_py() == b"phishing-domains/domains.csv"


def test_identities_of_a_range_are_hashes_and_those_of_a_metarange_are_range_ids() -> None:
    assert set(pc.binary_length(read_table(real("56569996.sst"), "x").identities).to_pylist()) == {32}
    assert read_table(real("metarange.sst"), "x").identities.to_pylist() == [RANGE_ID.encode()]


def test_a_table_named_by_another_id_is_refused_and_the_message_names_both() -> None:
    renamed = f"repo/_lakefs/{METARANGE_ID}"
    with pytest.raises(CorruptFile, match=f"{re.escape(renamed)}: .*{RANGE_ID}.*The file was not used"):
        read_table(real("range.sst"), renamed)


@pytest.mark.parametrize(
    "content",
    [b"", b"this is dummy data - created by lakeFS to check accessibility", bytes(53), b"PAR1" * 100],
    ids=["empty", "probe", "zeros", "parquet"],
)
def test_a_file_that_is_not_a_table_is_refused(content: bytes) -> None:
    with pytest.raises(CorruptFile, match="do not end like a table"):
        read_table(content, "_lakefs/dummy")


@pytest.mark.parametrize(
    ("value", "identity", "data"),
    [
        pytest.param("0000", b"", b"", id="empty"),
        pytest.param("06666f6f00", b"foo", b"", id="identity_only"),
        pytest.param("0026" + b"the quick brown fox".hex(), b"", b"the quick brown fox", id="data_only"),
        pytest.param("06666f6f26" + b"the quick brown fox".hex(), b"foo", b"the quick brown fox", id="both"),
        pytest.param("06666f6f00" + "ffff", b"foo", b"", id="leftovers_are_ignored"),
        pytest.param("80000000", b"", b"", id="a_padded_zero"),
    ],
)
def test_a_value_is_split_as_lakefs_splits_it(value: str, identity: bytes, data: bytes) -> None:
    table = read_table(one_record(bytes.fromhex(value)), "x")
    assert (table.identities.to_pylist(), table.values.to_pylist()) == ([identity], [data])


@pytest.mark.parametrize("size", [0, 63, 64, 8191, 8192, 1 << 20], ids=str)
def test_lengths_of_any_number_of_bytes_are_read(size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    table = read_table(one_record(graveler_value(b"", data[:size])), "x")
    assert table.values[0].as_py() == data[:size]


@pytest.mark.parametrize(
    "value",
    ["03666f6f", "04666f6f00", "10666f6f", "06666f6f", "06666f6f01", "", "00", "feffffffffffffffff01", "01" * 12,
     "80" * 9 + "0200", "ff" * 10 + "00", "8080808080808080808000", "feffffff0f", "0080808028"],
)  # fmt: skip
def test_a_malformed_value_is_refused(value: str) -> None:
    with pytest.raises(CorruptFile, match="value of record 0 is malformed"):
        read_table(one_record(bytes.fromhex(value)), "x")


@pytest.mark.parametrize(("excess", "is_read"), [(0, True), (1, False)], ids=["largest", "too_large"])
def test_a_part_is_at_most_as_long_as_lakefs_allows(excess: int, is_read: bool) -> None:
    content = write_table([(b"key", b"", bytes(41_943_040 + excess))], "ranges")[1]
    if is_read:
        assert len(read_table(content, "x").values[0].as_py()) == 41_943_040
        return
    with pytest.raises(CorruptFile, match="value of record 0 is malformed"):
        read_table(content, "x")


def test_columns_are_plain_arrow_bytes() -> None:
    table = read_table(real("range.sst"), "x")
    assert {table.keys.type, table.identities.type, table.values.type} == {pa.binary()}
    for column in (table.keys, table.identities, table.values):
        column.validate(full=True)
