import gzip
import hashlib
import io
from dataclasses import replace
from datetime import UTC, date, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retention_assets.errors import CorruptFile
from retention_assets.inventory.manifest import read_manifest
from retention_assets.inventory.rows import OBJECTS, read_inventory_file
from tests.inventories import FORMATS, MadeInventory, Row, listed_rows, make_inventory, objects_table

SCANNED = datetime(2026, 11, 1, tzinfo=UTC)
every_format = pytest.mark.parametrize("file_format", FORMATS)


def objects(made: MadeInventory) -> pa.Table:
    """Return the rows of all files of a delivery."""
    manifest = read_manifest(made.manifest, made.checksum, "manifest.json")
    batches = [
        batch for file in manifest.files for batch in read_inventory_file(made.objects[file.key], manifest, file)
    ]
    return pa.Table.from_batches(batches, OBJECTS)


def keys(made: MadeInventory) -> list[str]:
    return sorted(objects(made)["key"].to_pylist())


def of(made: MadeInventory, content: bytes) -> MadeInventory:
    """Return the delivery with another content of its only file and a matching manifest."""
    (name,) = made.files
    digests = (hashlib.md5(body).hexdigest().encode() for body in (made.objects[name], content))
    sizes = (b'"size": %d' % len(body) for body in (made.objects[name], content))
    manifest = made.manifest.replace(*digests).replace(*sizes)
    home = f"{made.folder}/{made.delivery}"
    checksum = hashlib.md5(manifest).hexdigest().encode()
    changed = {name: content, f"{home}/manifest.json": manifest, f"{home}/manifest.checksum": checksum}
    return replace(made, objects={**made.objects, **changed})


@every_format
@pytest.mark.parametrize("repository", ["orchard", "thicket"])
def test_an_inventory_agrees_with_the_listing(repository, file_format):
    rows = listed_rows(repository)
    found = objects(make_inventory(rows, "lake", SCANNED, file_format, files=3))
    assert found.sort_by("key") == objects_table(rows, "lake").sort_by("key")


@every_format
def test_keys_with_any_characters_are_read_unchanged(file_format):
    names = [
        "a b",
        "a+b",
        "100%",
        "%41",
        "a%2Bb",
        "crème brûlée",
        "a,b",
        'say "no"',
        "two\nlines",
        "日本/🌲",
        "tab\t\x01",
    ]
    assert keys(make_inventory([Row(name) for name in names], "lake", SCANNED, file_format)) == sorted(names)


@every_format
def test_only_latest_versions_that_are_not_delete_markers_are_objects(file_format):
    rows = [
        Row("kept", version_id="v2"),
        Row("kept", version_id="v1", is_latest=False),
        Row("removed", None, etag=None, version_id="m1", is_delete_marker=True),
        Row("removed", version_id="v1", is_latest=False),
        Row("restored", version_id="v2"),
        Row("restored", None, etag=None, version_id="m1", is_latest=False, is_delete_marker=True),
    ]
    assert keys(make_inventory(rows, "lake", SCANNED, file_format, versions=True)) == ["kept", "restored"]


@every_format
@pytest.mark.parametrize("column", ["is_latest", "is_delete_marker"])
def test_a_row_of_an_inventory_of_versions_without_version_flags_is_refused(column, file_format):
    rows = [Row("a"), replace(Row("b"), **{column: None})]
    with pytest.raises(CorruptFile, match=f"1 row has no {column}"):
        keys(make_inventory(rows, "lake", SCANNED, file_format, versions=True))


def parquet(**changes: pa.Array) -> MadeInventory:
    """Return a Parquet inventory of one object. `changes`: other columns of the file, or one more column."""
    made = make_inventory([Row("a")], "lake", SCANNED, "Parquet", files=1)
    table, target = pq.read_table(pa.BufferReader(made.objects[made.files[0]])), io.BytesIO()
    for name, column in changes.items():
        table = table.append_column(name, column)
        if name != "key":
            table = table.remove_column(table.schema.names.index(name))
    pq.write_table(table, target)
    return of(made, target.getvalue())


@pytest.mark.parametrize(
    ("times", "named"),
    [(pa.array([1767225600000]), "int64"), (pa.array([date(2026, 1, 1)]), r"date32\[day\]")],
    ids=["milliseconds", "a_day"],
)
def test_times_whose_unit_the_file_does_not_name_are_refused(times: pa.Array, named: str):
    """Milliseconds would be read as microseconds, and a day as midnight: young objects would be old."""
    with pytest.raises(CorruptFile, match=f"last_modified_date has the type {named}, which is not a timestamp"):
        keys(parquet(last_modified_date=times))


def test_a_file_with_a_column_twice_is_refused():
    with pytest.raises(CorruptFile, match="has several columns with the name key"):
        keys(parquet(key=pa.array(["b"])))


@every_format
def test_an_inventory_without_etags_has_objects_without_them(file_format):
    found = objects(make_inventory([Row("a")], "lake", SCANNED, file_format, without=["e_tag"]))
    assert found["etag"].to_pylist() == [None]


@every_format
def test_a_file_without_rows_lists_nothing(file_format):
    assert keys(make_inventory([], "lake", SCANNED, file_format)) == []


def test_times_have_milliseconds_in_every_format():
    when = datetime(2026, 3, 29, 1, 30, 0, 123_000, tzinfo=UTC)
    found = [objects(make_inventory([Row("a", 0, when)], "lake", SCANNED, name)) for name in FORMATS]
    assert [rows["last_modified"].to_pylist() for rows in found] == [[when]] * 3


def test_a_compressed_file_of_several_members_is_read_completely():
    made = make_inventory([Row("a"), Row("b")], "lake", SCANNED, "CSV", files=1)
    lines = gzip.decompress(made.objects[made.files[0]]).splitlines(keepends=True)
    assert keys(of(made, b"".join(gzip.compress(line) for line in lines))) == ["a", "b"]


@every_format
def test_a_truncated_file_is_refused(file_format):
    made = make_inventory(listed_rows("meadow"), "lake", SCANNED, file_format, files=1)
    (name,) = made.files
    with pytest.raises(CorruptFile, match=rf"{name} \(of manifest\.json\): has [\d,]+ bytes, but the manifest says"):
        keys(replace(made, objects={**made.objects, name: made.objects[name][:-9]}))


@every_format
def test_an_altered_file_is_refused(file_format):
    made = make_inventory(listed_rows("meadow"), "lake", SCANNED, file_format, files=1)
    (name,) = made.files
    content = bytearray(made.objects[name])
    content[len(content) // 2] ^= 1
    with pytest.raises(CorruptFile, match=rf"{name} .*: its MD5 is"):
        keys(replace(made, objects={**made.objects, name: bytes(content)}))


@every_format
def test_a_truncated_file_is_refused_although_its_manifest_agrees(file_format):
    made = make_inventory(listed_rows("meadow"), "lake", SCANNED, file_format, files=1)
    with pytest.raises(CorruptFile, match=f"is not a valid {file_format} file"):
        keys(of(made, made.objects[made.files[0]][:-9]))


@every_format
def test_rows_of_another_bucket_are_refused(file_format):
    rows = [Row("a"), Row("b", bucket="pond")]
    with pytest.raises(CorruptFile, match="a bucket other than 'lake'"):
        keys(make_inventory(rows, "lake", SCANNED, file_format))


@every_format
@pytest.mark.parametrize("row", [Row("a", None), Row("a", None, is_delete_marker=False)], ids=["plain", "version"])
def test_an_object_without_a_size_is_refused(row, file_format):
    with pytest.raises(CorruptFile, match="1 row has no size"):
        keys(make_inventory([Row("b"), row], "lake", SCANNED, file_format, versions=row.is_delete_marker is False))


@every_format
def test_a_file_without_a_column_of_its_manifest_is_refused(file_format):
    made = make_inventory([Row("a")], "lake", SCANNED, file_format, files=1)
    other = make_inventory([Row("a")], "lake", SCANNED, file_format, files=1, without=["e_tag"])
    with pytest.raises(CorruptFile, match=r"e_tag|Expected 6 columns, got 5"):
        keys(of(made, other.objects[other.files[0]]))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        pytest.param(b'"lake","a","one","2026-10-01T00:00:00.000Z","0","S"', "int64", id="size_in_words"),
        pytest.param(b'"lake","a","-1","2026-10-01T00:00:00.000Z","0","S"', "negative size", id="size_below_zero"),
        pytest.param(b'"lake","a","1","2026-10-01T00:00:00.000","0","S"', "zone offset", id="time_without_zone"),
        pytest.param(b'"lake","a","1","","0","S"', "no last_modified_date", id="no_time"),
        pytest.param(b'"lake","50%","1","2026-10-01T00:00:00.000Z","0","S"', "not URL-encoded", id="plain_key"),
        pytest.param(b'"lake","","1","2026-10-01T00:00:00.000Z","0","S"', "empty key", id="empty_key"),
        pytest.param(b'"lake","\xff","1","2026-10-01T00:00:00.000Z","0","S"', "UTF8", id="not_utf_8"),
    ],
)
def test_a_line_with_impossible_values_is_refused(line, message):
    made = make_inventory([Row("a")], "lake", SCANNED, "CSV", files=1)
    with pytest.raises(CorruptFile, match=message):
        keys(of(made, gzip.compress(line + b"\n")))
