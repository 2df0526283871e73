from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from retention_assets.errors import CorruptFile
from retention_assets.lakefs.formats.lakefs_pb2 import Entry as EntryRecord
from retention_assets.lakefs.formats.ranges import (
    ENTRY_SCHEMA,
    FIRST_SECOND,
    LAST_SECOND,
    METARANGE_SCHEMA,
    read_metarange,
    read_range,
)
from tests.lakefs.formats.tables import BENCH_ID, one_message, real
from tests.lakefs_tables import (
    Entry,
    Range,
    uvarint,
    write_metarange,
    write_range,
    write_table,
)

ETAG = "664c688b4ea9c56730daacfc3d70aeed"


def test_a_real_import_range_has_the_expected_rows_and_total_size() -> None:
    entries = read_range(real("56569996.sst"), BENCH_ID)
    assert entries.schema == ENTRY_SCHEMA
    assert entries.num_rows == 13_868
    assert pc.sum(entries["size"]).as_py() == 574_110_639_227
    assert sorted(pc.value_counts(entries["address_type"]).to_pylist(), key=str) == [
        {"values": 1, "counts": 1},
        {"values": 2, "counts": 13_867},
    ]
    assert pc.sum(pc.equal(entries["size"], 0)).as_py() == 46  # those without a size field


def test_all_fields_of_a_small_real_range_are_read() -> None:
    first = read_range(real("range.sst"), "range.sst").to_pylist()[0]
    assert first == {
        "key": "a/b/c/no",
        "address": "b0c968736d8f42a2b1c6284835f08226",
        "address_type": 1,
        "size": 11,
        "last_modified": datetime(2021, 8, 5, 11, 39, 44, 471124, UTC),
        "etag": ETAG,
    }


def test_an_old_range_with_a_wrong_min_key_and_no_address_types_is_read() -> None:
    entries = read_range(real("ok1.sst"), "ok1.sst")
    assert entries.num_rows == 105
    assert (entries["key"][0].as_py(), entries["key"][-1].as_py()) == ("first", "xyzzy")
    assert set(entries["address_type"].to_pylist()) == {0}


def test_the_metarange_of_the_small_range_names_it() -> None:
    ranges = read_metarange(real("metarange.sst"), "metarange.sst")
    assert ranges.schema == METARANGE_SCHEMA
    assert ranges.to_pylist() == [
        {
            "range_id": "a83af763ba098c15369d9d6d723731eb9ce18b8dfac4f88c6f1287e772393d0e",
            "min_key": b"a/b/c/no",
            "max_key": b"a/b/c/yes",
            "count": 2,
        }
    ]


ENTRIES = st.builds(
    EntryRecord,
    address=st.text(),
    last_modified=st.none()
    | st.builds(dict, seconds=st.integers(-62_135_596_800, 253_402_300_799), nanos=st.integers(0, 999_999_999))
    | st.builds(dict, seconds=st.integers(-(2**63), 2**63 - 1), nanos=st.integers(-(2**31), 2**31 - 1)),
    size=st.integers(-(2**63), 2**63 - 1),
    e_tag=st.text(),
    metadata=st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
    address_type=st.sampled_from([0, 1, 2]),
    content_type=st.text(),
)


def columns_of(message: EntryRecord) -> dict[str, object]:
    """Return the expected columns of an entry, by the protobuf library. An impossible time is unknown."""
    stamp = message.last_modified
    is_possible = FIRST_SECOND <= stamp.seconds <= LAST_SECOND and 0 <= stamp.nanos < 1_000_000_000
    is_known = message.HasField("last_modified") and is_possible
    micros = stamp.seconds * 1_000_000 + stamp.nanos // 1_000 if is_known else None
    return {
        "address": message.address,
        "address_type": message.address_type,
        "size": message.size,
        "last_modified": micros,
        "etag": message.e_tag,
    }


def only_row(batch: pa.RecordBatch) -> dict[str, object]:
    numbers = batch.set_column(4, "last_modified", batch["last_modified"].view(pa.int64()))
    (row,) = numbers.drop_columns(["key"]).to_pylist()
    return row


@given(ENTRIES)
def test_an_entry_is_read_as_by_the_protobuf_library(message: EntryRecord) -> None:
    assert only_row(read_range(one_message(message.SerializeToString()), "x")) == columns_of(message)


@given(ENTRIES, ENTRIES)
def test_the_last_of_two_values_of_a_field_is_used_and_nested_messages_are_merged(
    first: EntryRecord, second: EntryRecord
) -> None:
    both = first.SerializeToString() + second.SerializeToString()
    assert only_row(read_range(one_message(both), "x")) == columns_of(EntryRecord.FromString(both))


UNKNOWN_FIELDS = st.lists(
    st.sampled_from(
        [
            uvarint(100 << 3) + uvarint(2**64 - 1),
            uvarint(8 << 3 | 1) + bytes(8),
            uvarint(9 << 3 | 2) + uvarint(5) + b"hello",
            uvarint(10 << 3 | 5) + bytes(4),
            uvarint(11 << 3 | 3) + uvarint(1 << 3 | 3) + b"\x0a\x02hi" + uvarint(1 << 3 | 4) + uvarint(11 << 3 | 4),
            uvarint(((1 << 29) - 1) << 3) + b"\x00",
            uvarint(1 << 3) + b"\x07",  # address as a number
            uvarint(3 << 3 | 2) + b"\x02hi",  # size as text
            uvarint(2 << 3 | 5) + bytes(4),  # last_modified as fixed32
        ]
    )
)


@given(ENTRIES, UNKNOWN_FIELDS, UNKNOWN_FIELDS)
def test_fields_that_are_unknown_or_of_another_type_are_skipped(
    message: EntryRecord, before: list[bytes], after: list[bytes]
) -> None:
    content = b"".join([*before, message.SerializeToString(), *after])
    assert only_row(read_range(one_message(content), "x")) == columns_of(message)


@given(st.binary(max_size=40))
def test_random_bytes_are_refused_or_read_as_by_the_protobuf_library(content: bytes) -> None:
    try:
        row = only_row(read_range(one_message(content), "x"))
    except CorruptFile:
        return
    try:
        expected = columns_of(EntryRecord.FromString(content))
    except DecodeError:  # metadata that is not text, which is no column
        return
    assert row == expected


@pytest.mark.parametrize(
    ("message", "what"),
    [
        pytest.param("0a0561", "malformed", id="text_longer_than_its_message"),
        pytest.param("18" + "ff" * 10 + "01", "malformed", id="overlong_number"),
        pytest.param("18", "malformed", id="field_without_value"),
        pytest.param("1205088080", "malformed", id="message_inside_is_cut"),
        pytest.param("120208808001", "malformed", id="number_that_crosses_the_end_of_the_message_inside"),
        pytest.param("0001", "malformed", id="field_number_zero"),
        pytest.param("5b", "malformed", id="group_without_end"),
        pytest.param("5c", "malformed", id="end_without_group"),
        pytest.param("5e", "malformed", id="wire_type_6"),
        pytest.param("5d0000", "malformed", id="fixed_number_is_cut"),
        pytest.param("0affffffffffffffff7f", "malformed", id="giant_length"),
        pytest.param("0affffffffffffffffff01", "malformed", id="negative_length"),
        pytest.param("0a02c328", "not UTF-8", id="address_is_not_text"),
        pytest.param("2202c328", "not UTF-8", id="etag_is_not_text"),
        pytest.param("3003", "address type", id="unknown_address_type"),
        pytest.param("30ffffffffffffffffff01", "address type", id="negative_address_type"),
    ],
)
def test_a_malformed_entry_is_refused(message: str, what: str) -> None:
    with pytest.raises(CorruptFile, match=f"^x: .*{what}"):
        read_range(one_message(bytes.fromhex(message)), "x")


@pytest.mark.parametrize("message", ["120708ffffffffff7f", "12061080a8d6b907", "120b08ff91b8c398feffffff01"])
def test_an_impossible_time_is_unknown(message: str) -> None:
    """After the year 9999, more nanoseconds than a second has, before the year 1."""
    assert read_range(one_message(bytes.fromhex(message)), "x")["last_modified"].to_pylist() == [None]


@pytest.mark.parametrize(
    ("key", "path"),
    [
        pytest.param(b"\xc3\x28", "\ufffdc3(", id="a_letter_that_does_not_end"),
        pytest.param(b"raw/caf\xe9", "raw/caf\ufffde9", id="latin_1"),
        pytest.param(b"\xff\xfe", "\ufffdff\ufffdfe", id="no_letter_at_all"),
        pytest.param("é\\xff/\ufffd".encode(), "é\\xff/\ufffd", id="valid"),
    ],
)
def test_the_bytes_of_a_key_that_are_not_text_are_marked(key: bytes, path: str) -> None:
    records = [(b"before/\xc3\xa9", b"", b"\x0a\x01a"), (key, b"", b"\x0a\x01b")]
    rows = read_range(write_table(sorted(records), "ranges")[1], "x")
    assert dict(zip(rows["address"].to_pylist(), rows["key"].to_pylist(), strict=True)) == {"a": "before/é", "b": path}


def test_a_character_that_is_split_between_two_rows_is_refused() -> None:
    halves = [(b"a", b"", b"\x0a\x01\xc3"), (b"b", b"", b"\x0a\x01\xa9")]  # together they would be an e with accent
    with pytest.raises(CorruptFile, match="an address is not UTF-8"):
        read_range(write_table(halves, "ranges")[1], "x")


@pytest.mark.parametrize("address_type", [0, 1, 2])
def test_every_address_type_is_kept(address_type: int) -> None:
    content_id, content = write_range([Entry("é key", "s3://b/ü", address_type=address_type)])
    entries = read_range(content, content_id)
    assert entries["address_type"].to_pylist() == [address_type]
    assert (entries["key"][0].as_py(), entries["address"][0].as_py()) == ("é key", "s3://b/ü")


def test_an_entry_without_any_field_has_the_defaults() -> None:
    assert only_row(read_range(one_message(b""), "x")) == columns_of(EntryRecord())


def test_an_empty_range_and_an_empty_metarange_have_no_rows() -> None:
    assert read_range(write_range([])[1], "x").num_rows == 0
    assert read_metarange(write_metarange([])[1], "x").num_rows == 0


def test_a_metarange_is_no_range_and_a_range_no_metarange() -> None:
    with pytest.raises(CorruptFile, match="metaranges"):
        read_range(real("metarange.sst"), "x")
    with pytest.raises(CorruptFile, match="not a metarange"):
        read_metarange(real("range.sst"), "x")


def test_a_range_of_a_dump_is_no_range_of_objects() -> None:
    _, content = write_table([], "ranges", {"entity": b"commit"})
    with pytest.raises(CorruptFile, match="entity b'commit'"):
        read_range(content, "x")


ID = "0" * 64


@pytest.mark.parametrize(
    ("ranges", "what"),
    [
        pytest.param([Range(ID, b"b", b"a", 1)], "overlap", id="a_range_that_ends_before_it_begins"),
        pytest.param([Range(ID, b"a", b"c", 1), Range(ID, b"b", b"d", 1)], "overlap", id="ranges_that_overlap"),
        pytest.param([Range(ID, b"a", b"c", 1), Range(ID, b"c", b"d", 1)], "overlap", id="ranges_that_share_a_key"),
        pytest.param([Range("x" * 64, b"a", b"b", 1)], "not a content id", id="an_invalid_id"),
        pytest.param([Range(ID + "\n", b"a", b"b", 1)], "not a content id", id="an_id_with_a_line_after_it"),
        pytest.param([Range(ID, b"a", b"b", -1)], "negative", id="a_negative_count"),
    ],
)
def test_an_impossible_metarange_is_refused(ranges: list[Range], what: str) -> None:
    with pytest.raises(CorruptFile, match=what):
        read_metarange(write_metarange(ranges)[1], "x")


def test_a_metarange_with_a_key_other_than_its_ranges_last_is_refused() -> None:
    message = b"\x0a\x01a\x12\x01b"
    with pytest.raises(CorruptFile, match="do not match their keys"):
        read_metarange(write_table([(b"c", ID.encode(), message)], "metaranges")[1], "x")
