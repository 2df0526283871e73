"""Damage in every region of a table, and crafted tables with correct checksums and wrong contents."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_assets.decoding import kernels
from retention_assets.decoding.columns import MAX_COLUMN, Pieces, binary_column
from retention_assets.errors import CorruptFile
from retention_assets.lakefs.formats import sstable
from tests.lakefs.formats.tables import SSTable, assembled, data_block, one_record, raw_block, read_table, real, record
from tests.lakefs_tables import (
    TRAILER,
    TableFile,
    footer,
    graveler_value,
    sealed,
    uvarint,
    write_table,
)

VALUE = graveler_value(b"id", b"data")


def two_level_table() -> tuple[str, bytes]:
    """A table of 30 blocks whose index is in two levels, since its keys are long."""
    records = [
        (b"%06d/" % n + bytes(range(65, 90)) * 14, b"%032d" % n, b"payload %d " % n * (n % 40)) for n in range(600)
    ]
    return write_table(records, "ranges")


TWO_LEVEL_ID, TWO_LEVEL = two_level_table()
SMALL = real("range.sst")


def rows(table: SSTable) -> tuple[object, ...]:
    return table.keys, table.identities, table.values


SMALL_ROWS = rows(read_table(SMALL, "small"))
TWO_LEVEL_ROWS = rows(read_table(TWO_LEVEL, TWO_LEVEL_ID))


def same_rows_or_refused(content: bytes, expected: tuple[object, ...], name: str = "a.sst") -> None:
    try:
        table = read_table(content, name)
    except CorruptFile as error:
        assert str(error).startswith(f"{name}: ")
    else:
        assert rows(table) == expected


def test_the_table_that_these_tests_damage_has_a_two_level_index() -> None:
    properties = read_table(TWO_LEVEL, TWO_LEVEL_ID).properties
    assert properties["rocksdb.block.based.table.index.type"] == b"\x02\0\0\0"


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF], ids=hex)
def test_a_changed_byte_anywhere_in_a_real_table_never_changes_its_rows(mask: int) -> None:
    for position in range(len(SMALL)):
        damaged = bytearray(SMALL)
        damaged[position] ^= mask
        same_rows_or_refused(bytes(damaged), SMALL_ROWS)


def test_a_real_table_that_is_truncated_anywhere_is_refused() -> None:
    for length in range(len(SMALL)):
        with pytest.raises(CorruptFile):
            read_table(SMALL[:length], "cut.sst")
        same_rows_or_refused(SMALL[length:], SMALL_ROWS)


ANYWHERE = st.integers(0, len(TWO_LEVEL) - 1) | st.integers(len(TWO_LEVEL) - 12_000, len(TWO_LEVEL) - 1)


@given(st.lists(st.tuples(ANYWHERE, st.integers(1, 255)), min_size=1, max_size=4))
def test_changed_bytes_in_data_index_partitions_or_footer_never_change_the_rows(damage: list[tuple[int, int]]) -> None:
    damaged = bytearray(TWO_LEVEL)
    for position, mask in damage:
        damaged[position] ^= mask
    same_rows_or_refused(bytes(damaged), TWO_LEVEL_ROWS)


@given(ANYWHERE, ANYWHERE, st.binary(max_size=20))
def test_a_removed_repeated_or_replaced_piece_never_changes_the_rows(start: int, end: int, between: bytes) -> None:
    same_rows_or_refused(TWO_LEVEL[:start] + between + TWO_LEVEL[end:], TWO_LEVEL_ROWS)


@given(st.data())
def test_damage_with_correct_checksums_is_detected_by_the_content_id(data: st.DataObject) -> None:
    records = [(b"key-%02d" % n, VALUE) for n in range(20)]
    payload = bytearray(data_block(records))
    intact = read_table(assembled([bytes(payload)], count=20), "x")
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    same_rows_or_refused(assembled([bytes(payload)], count=20), rows(intact), intact.content_id)


@given(st.binary(max_size=60), st.integers(0, 5))
def test_a_block_of_random_bytes_is_read_or_refused(payload: bytes, count: int) -> None:
    try:
        table = read_table(assembled([payload], count=count), "x")
    except CorruptFile:
        return
    keys = table.keys.to_pylist()
    assert len(keys) == count
    assert keys == sorted(set(keys))


def with_index(change: Callable[[TableFile, bytes], list[bytes]]) -> bytes:
    """Return a table of one block whose index has the locations that `change` returns."""
    file = TableFile()
    location = file.append(data_block([(b"key", VALUE)]))
    file.index = [(b"%d" % n + TRAILER, place) for n, place in enumerate(change(file, location))]
    return file.finish({"type": b"ranges", "count": b"1"})


def place(offset: int, length: int) -> bytes:
    return uvarint(offset) + uvarint(length)


def test_the_tables_that_these_tests_make_are_read_without_their_fault() -> None:
    assert rows(read_table(with_index(lambda _, location: [location]), "x")) == rows(read_table(one_record(VALUE), "x"))


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(with_index(lambda _, location: [location, location]), id="one_block_named_twice"),
        pytest.param(with_index(lambda file, _: [place(0, file.size)]), id="a_block_with_its_own_trailer"),
        pytest.param(with_index(lambda file, _: [place(file.size, 20)]), id="the_index_itself_as_data"),
        pytest.param(with_index(lambda *_: [place(1 << 40, 4)]), id="outside_the_file"),
        pytest.param(with_index(lambda *_: [place(0, (1 << 63) - 1)]), id="giant_length"),
        pytest.param(with_index(lambda *_: [place((1 << 64) - 1, 5)]), id="negative_offset"),
        pytest.param(with_index(lambda *_: [place(5, (1 << 64) - 5)]), id="negative_length"),
        pytest.param(with_index(lambda *_: [b"\xff" * 11]), id="overlong_number"),
        pytest.param(with_index(lambda *_: [b"\x00"]), id="half_a_location"),
        pytest.param(with_index(lambda *_: [b""]), id="no_location"),
        pytest.param(with_index(lambda _, location: [location + b"\0"]), id="more_than_a_location"),
    ],
)
def test_an_index_with_wrong_locations_is_refused(content: bytes) -> None:
    with pytest.raises(CorruptFile):
        read_table(content, "x")


def with_partition(change: Callable[[int, bytes], list[bytes]], count: int = 1) -> bytes:
    """Return a two-level table of one block. Its index partition has the locations that `change` returns."""
    file = TableFile()
    location = file.append(data_block([(b"key", VALUE)]))
    named = change(file.size, location)
    partition = file.append(data_block((b"%d" % n, place) for n, place in enumerate(named)), compress=False)
    index = file.append(data_block([(b"z", partition)]), compress=False)
    kinds = {"count": b"%d" % count, "rocksdb.block.based.table.index.type": b"\x02\0\0\0", "type": b"ranges"}
    stored = file.append(data_block(((name.encode(), value) for name, value in kinds.items()), b""), compress=False)
    metaindex = file.append(data_block([(b"rocksdb.properties", stored)], b""), compress=False)
    return bytes(file.content) + footer(metaindex, index)


def test_a_partition_that_names_its_block_is_read() -> None:
    assert len(read_table(with_partition(lambda _, location: [location]), "x").keys) == 1


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(with_partition(lambda offset, _: [place(offset, 22)]), id="itself"),
        pytest.param(with_partition(lambda offset, _: [place(offset + 27, 22)]), id="the_index_above_it"),
        pytest.param(with_partition(lambda _, location: [location] * 2, count=2), id="a_block_twice"),
    ],
)
def test_an_index_partition_that_loops_is_refused(content: bytes) -> None:
    with pytest.raises(CorruptFile, match="two blocks share bytes"):
        read_table(content, "x")


def with_metaindex(name: bytes, stored: dict[bytes, bytes], location: bytes = b"") -> bytes:
    """Return a table of one block. Its metaindex has `name` for the block of properties `stored`, or for `location`."""
    file = TableFile()
    block = file.append(data_block([(b"key", VALUE)]))
    index = file.append(data_block([(b"z", block)]), compress=False)
    properties = file.append(data_block(sorted(stored.items()), b""), compress=False)
    metaindex = file.append(data_block([(name, location or properties)], b""), compress=False)
    return bytes(file.content) + footer(metaindex, index)


NAMED, STORED = b"rocksdb.properties", {b"count": b"1", b"type": b"ranges"}
INDEX_TYPE = b"rocksdb.block.based.table.index.type"


def test_a_metaindex_that_names_the_properties_is_read() -> None:
    assert len(read_table(with_metaindex(NAMED, STORED), "x").keys) == 1


@pytest.mark.parametrize(
    ("content", "what"),
    [
        pytest.param(with_metaindex(b"other", STORED), "has no properties block", id="no_properties"),
        pytest.param(
            with_metaindex(NAMED, STORED, b"\xff" * 11), "location is truncated or too long", id="no_location"
        ),
        pytest.param(with_metaindex(NAMED, {b"\xff": b""}), "name is not text .*0xff", id="no_text"),
        pytest.param(
            with_metaindex(NAMED, {**STORED, INDEX_TYPE: b"\1\0\0\0"}), "index type 01000000", id="an_unknown_index"
        ),
    ],
)
def test_unreadable_properties_are_refused_with_the_value_seen(content: bytes, what: str) -> None:
    undone = r"The file was not used\. Nothing was deleted\. Run the same command again"
    with pytest.raises(CorruptFile, match=f"^x: .*{what}.*{undone}"):
        read_table(content, "x")


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(bytes([0]) + b"x" * 3, id="short"),
        pytest.param(raw_block(b"", restarts=0xFFFFFFFF), id="more_restarts_than_bytes"),
        pytest.param(raw_block(record(1, b"a" + TRAILER, VALUE)), id="a_first_key_that_shares"),
        pytest.param(raw_block(record(0, b"a" + TRAILER, VALUE, size=99)), id="a_value_past_the_end"),
        pytest.param(raw_block(record(0, b"a" + TRAILER, VALUE, unshared=(1 << 63) - 1)), id="a_giant_key"),
        pytest.param(raw_block(record(0, b"a" + TRAILER, VALUE, unshared=1 << 63)), id="a_negative_key"),
        pytest.param(raw_block(record(0, b"a" + TRAILER, VALUE, size=(1 << 64) - 1)), id="a_negative_value"),
        pytest.param(raw_block(b"\xff" * 10 + b"\x01" * 10), id="an_overlong_number"),
        pytest.param(raw_block(record(0, b"a" + TRAILER[:-1], VALUE)), id="half_a_trailer"),
        pytest.param(raw_block(record(0, b"", VALUE)), id="no_key_at_all"),
        pytest.param(data_block([(b"a", VALUE)], b"\0" + bytes(7)), id="a_deletion"),
        pytest.param(data_block([(b"a", VALUE)], b"\x01\x01" + bytes(6)), id="a_sequence_number"),
        pytest.param(data_block([(b"a", VALUE), (b"b", VALUE)]), id="more_records_than_counted"),
        pytest.param(data_block([]), id="fewer_records_than_counted"),
    ],
)
def test_a_block_with_wrong_lengths_is_refused(content: bytes) -> None:
    with pytest.raises(CorruptFile):
        read_table(assembled([content], count=1), "x")


def test_a_block_with_a_negative_number_of_records_is_refused() -> None:
    with pytest.raises(CorruptFile, match="data block 0 is malformed"):
        read_table(assembled([raw_block(b"", restarts=9)], count=0), "x")


def test_a_table_larger_than_any_real_one_is_refused_before_it_takes_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sstable, "MAX_DECODED", 20_000)
    with pytest.raises(CorruptFile, match="decoded size"):
        read_table(TWO_LEVEL, TWO_LEVEL_ID)


@pytest.mark.parametrize(
    "keys",
    [[b"b", b"a"], [b"a", b"a"], [b"ab", b"a"], [b"", b""], [b"a\xff", b"a\x00"], [b"a", b"b", b"aa"]],
    ids=["descending", "twice", "shorter", "empty_twice", "unsigned", "third"],
)
@pytest.mark.parametrize("split", [False, True], ids=["one_block", "a_block_each"])
def test_keys_out_of_order_are_refused(keys: list[bytes], split: bool) -> None:
    groups = [[key] for key in keys] if split else [keys]
    content = assembled([data_block((key, VALUE) for key in group) for group in groups], count=len(keys))
    with pytest.raises(CorruptFile, match="out of order"):
        read_table(content, "x")


@given(st.sets(st.text(alphabet="\x00\x01ab", max_size=12).map(str.encode), max_size=40))
def test_keys_that_look_like_trailers_are_read_as_they_were_written(keys: set[bytes]) -> None:
    ordered = sorted(keys)
    content_id, content = write_table([(key, b"", key) for key in ordered], "ranges")
    table = read_table(content, content_id)
    assert table.keys.to_pylist() == table.values.to_pylist() == ordered


def test_a_small_block_that_decodes_to_too_many_key_bytes_is_refused() -> None:
    size = 1 << 20
    first = record(0, b"a" * size + TRAILER, VALUE)
    more = b"".join(record(size, b"%05d" % n + TRAILER, VALUE) for n in range(2_000))
    with pytest.raises(CorruptFile, match="its keys cannot have"):
        read_table(assembled([raw_block(first + more)], count=2_001), "x")


def test_keys_shorter_than_a_trailer_leave_no_room_for_a_longer_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum of all key lengths is small: each empty key takes 8 bytes off it."""
    guarded: list[np.ndarray] = []

    def with_a_guard_behind(size: int) -> np.ndarray:
        guarded.append(np.zeros(size + 8_192, np.uint8))
        return guarded[-1][:size]

    monkeypatch.setattr(sstable, "bytes_array", with_a_guard_behind)
    first = record(0, b"A" * 1_920 + TRAILER, VALUE)
    payload = raw_block(first + record(0, b"", b"") * 240)
    with pytest.raises(CorruptFile, match="the key of record 0"):
        read_table(assembled([payload], count=241), "x")
    assert not guarded[0][-8_192:].any()


def test_a_key_is_copied_only_if_it_fits() -> None:
    blocks_of_one = np.frombuffer(b"A" * 100, np.uint8)
    places = np.array([[0], [0], [100], [0], [0]], np.int64)
    memory = np.zeros(200, np.uint8)
    assert kernels.compose_keys(blocks_of_one, places, memory[:50], np.zeros(2, np.int32)) == 0
    assert not memory.any()


@pytest.mark.parametrize(
    ("start", "length"), [(0, 51), (0, -1), (-1, 2), (90, 11), (1 << 62, 1)], ids=lambda number: str(number)
)
def test_a_piece_is_copied_only_if_it_is_inside_the_source_and_fits(start: int, length: int) -> None:
    memory = np.zeros(200, np.uint8)
    starts, lengths = np.array([start], np.int64), np.array([length], np.int64)
    source = np.frombuffer(b"A" * 100, np.uint8)
    assert kernels.gather(source, starts, lengths, np.zeros(2, np.int32), memory[:50]) == 0
    assert not memory.any()


@pytest.mark.parametrize(
    ("start", "length", "what"),
    [
        pytest.param(0, MAX_COLUMN + 1, "a column of 2,147,483,648 bytes", id="too_large"),
        pytest.param(90, 11, "the bytes of row 0 are outside", id="outside"),
    ],
)
def test_a_column_with_impossible_pieces_is_refused(start: int, length: int, what: str) -> None:
    pieces = Pieces(np.zeros(100, np.uint8), np.array([start], np.int64), np.array([length], np.int64))
    with pytest.raises(CorruptFile, match=rf"^x: {what}.*Nothing was deleted\. Run the same command again"):
        binary_column(pieces, "x")


@pytest.mark.parametrize(
    ("payload", "kind", "what"),
    [
        pytest.param(uvarint(1 << 62) + b"\x00a", 1, "decoded size", id="a_giant_promise"),
        pytest.param(uvarint(1 << 63) + b"\x00a", 1, "decoded size", id="a_negative_promise"),
        pytest.param(b"\xff" * 11, 1, "decoded size", id="an_overlong_promise"),
        pytest.param(b"", 1, "decoded size", id="no_bytes"),
        pytest.param(uvarint(9) + b"\x00a", 1, "does not decompress", id="fewer_bytes_than_promised"),
        pytest.param(uvarint(1) + b"\x08abc", 1, "does not decompress", id="more_bytes_than_promised"),
        pytest.param(uvarint(8) + b"\x01\x05\x00", 1, "does not decompress", id="a_copy_from_before_the_start"),
        pytest.param(data_block([(b"a", VALUE)]), 7, "lakeFS never writes", id="zstd"),
    ],
)
def test_a_block_that_cannot_be_decompressed_is_refused(payload: bytes, kind: int, what: str) -> None:
    file = TableFile()
    file.content += sealed(payload, kind)
    file.index = [(TRAILER, place(0, len(payload)))]
    with pytest.raises(CorruptFile, match=what):
        read_table(file.finish({"type": b"ranges", "count": b"1"}), "x")


@pytest.mark.parametrize("count", [b"", b"2", b"-1", b"1 ", b"1_0", b"9" * 15, b"9" * 30, b"\xff"], ids=repr)
def test_a_count_that_the_records_do_not_confirm_is_refused(count: bytes) -> None:
    content = assembled([data_block([(b"a", VALUE)])], count=1, properties={"count": count})
    with pytest.raises(CorruptFile, match=r"count|records were expected"):
        read_table(content, "x")


@pytest.mark.parametrize(
    ("position", "value", "what"),
    [
        pytest.param(-53, 4, "checksum type 4", id="xxhash"),
        pytest.param(-12, 5, "table version", id="another_version"),
        pytest.param(-1, 0x57, "another format", id="another_magic"),
        pytest.param(-13, 1, "padded", id="padding"),
    ],
)
def test_a_footer_of_another_format_is_refused(position: int, value: int, what: str) -> None:
    content = bytearray(SMALL)
    content[position] = value
    with pytest.raises(CorruptFile, match=what):
        read_table(bytes(content), "x")


@given(st.binary(min_size=41, max_size=41))
def test_a_footer_with_any_locations_is_refused(locations: bytes) -> None:
    with pytest.raises(CorruptFile):
        read_table(SMALL[:-53] + b"\x01" + locations[1:] + SMALL[-12:], "x")
