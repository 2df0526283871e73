from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_assets.lakefs.formats.ranges import read_metarange, read_range
from tests.lakefs.formats.tables import read_table, real
from tests.lakefs_tables import (
    Entry,
    Range,
    shared_length,
    write_metarange,
    write_range,
    write_table,
)


@pytest.mark.parametrize(
    ("file", "kind"), [("range.sst", "ranges"), ("metarange.sst", "metaranges"), ("56569996.sst", "ranges")]
)
def test_a_real_table_that_is_written_again_has_the_same_id(file: str, kind: str) -> None:
    table = read_table(real(file), file)
    columns = (table.keys, table.identities, table.values)
    records = zip(*(column.to_pylist() for column in columns), strict=True)
    content_id, content = write_table(records, kind)  # type: ignore[arg-type]
    assert content_id == table.content_id
    again = read_table(content, content_id)
    assert (again.keys, again.identities, again.values) == columns
    for name in ("type", "count", "min_key", "max_key", "rocksdb.block.based.table.index.type"):
        assert again.properties[name] == table.properties[name]


RECORDS = st.dictionaries(st.binary(max_size=20), st.tuples(st.binary(max_size=40), st.binary(max_size=200)))


@given(RECORDS, st.dictionaries(st.sampled_from(["entity", "schema_name"]), st.binary(max_size=9)))
def test_a_written_value_is_read_back_unchanged(
    records: dict[bytes, tuple[bytes, bytes]], properties: dict[str, bytes]
) -> None:
    ordered = [(key, *records[key]) for key in sorted(records)]
    content_id, content = write_table(ordered, "ranges", properties)
    table = read_table(content, content_id)
    columns = (table.keys, table.identities, table.values)
    assert list(zip(*(column.to_pylist() for column in columns), strict=True)) == ordered
    assert properties.items() <= table.properties.items()


def test_properties_of_a_dump_are_part_of_the_id() -> None:
    plain, dump = write_table([], "ranges"), write_table([], "ranges", {"entity": b"tag"})
    assert plain[0] != dump[0]


def test_entries_and_ranges_are_read_back() -> None:
    moment = datetime(1969, 12, 31, 23, 59, 59, 250_000, UTC)
    entries = [
        Entry("a", "data/x", size=2**40, last_modified=moment, etag="e", content_type="text/csv", metadata={"k": "v"}),
        Entry("b", "s3://other/é", address_type=2),
    ]
    range_id, content = write_range(entries)
    assert read_range(content, range_id).to_pylist() == [
        {
            "key": entry.key,
            "address": entry.address,
            "address_type": entry.address_type,
            "size": entry.size,
            "last_modified": entry.last_modified,
            "etag": entry.etag,
        }
        for entry in entries
    ]
    metarange_id, content = write_metarange([Range(range_id, b"a", b"b", 2, 500)])
    assert read_metarange(content, metarange_id).to_pylist() == [
        {"range_id": range_id, "min_key": b"a", "max_key": b"b", "count": 2}
    ]


@pytest.mark.parametrize("keys", [[b"b", b"a"], [b"a", b"a"]], ids=["descending", "twice"])
def test_keys_out_of_order_are_not_written(keys: list[bytes]) -> None:
    with pytest.raises(ValueError, match="strictly ascending"):
        write_table([(key, b"", b"") for key in keys], "ranges")


@given(st.binary(max_size=9), st.binary(max_size=9), st.binary(max_size=9))
def test_shared_length_is_the_length_of_the_common_prefix(common: bytes, first: bytes, second: bytes) -> None:
    length = shared_length(common + first, common + second)
    assert length >= len(common)
    assert (common + first)[:length] == (common + second)[:length]
    assert (common + first)[length : length + 1] != (common + second)[length : length + 1] or common + first == (
        common + second
    )
