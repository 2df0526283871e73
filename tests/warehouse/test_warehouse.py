"""Documents of the warehouse that only one of several writers may create, and tables that have lost rows."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from retention_assets.errors import ConfigurationError, StoreError, TableContractError
from retention_assets.lakefs.rules.tables import commit_graph_rows, potential_commits_rows
from retention_assets.objectstore.conditional import Conditional
from retention_assets.objectstore.failures import unreachable
from retention_assets.tables import NAMES, POTENTIAL_COMMITS
from retention_assets.warehouse import warehouse as module
from retention_assets.warehouse.metadata import PartitionMetadata
from retention_assets.warehouse.reading import one_of, read_directory, read_files, scan_directory
from retention_assets.warehouse.table_writer import write_rows
from retention_assets.warehouse.warehouse import METADATA, Warehouse
from tests.objectstore.s3 import Bucket

PLACE = ("orchard", "leases", "00000001.json")


@pytest.fixture(params=["local", "url"])
def warehouse(request: pytest.FixtureRequest, tmp_path: Path, bucket: Bucket) -> Iterator[Warehouse]:
    """A warehouse in a directory, and one behind a URL, for which the environment has the options."""
    if request.param == "local":
        yield Warehouse(str(tmp_path))
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT", bucket.endpoint)
        yield Warehouse(f"s3a://{bucket.name}/tables")


def test_an_existing_document_is_not_created_again(warehouse: Warehouse) -> None:
    assert warehouse.create_document({"holder": "a"}, *PLACE) is True
    assert warehouse.create_document({"holder": "b"}, *PLACE) is False
    assert warehouse.create_document({"holder": "a"}, *PLACE) is False
    assert warehouse.read_document(*PLACE) == {"holder": "a"}


def test_exactly_one_of_several_concurrent_writers_creates_a_document(warehouse: Warehouse) -> None:
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda number: warehouse.create_document({"holder": number}, *PLACE), range(8)))
    assert done.count(True) == 1
    assert warehouse.read_document(*PLACE) == {"holder": done.index(True)}


def test_a_document_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    warehouse = Warehouse(str(tmp_path))
    (tmp_path / "orchard").write_text("no directory")
    with pytest.raises(StoreError, match=r"cannot write 'orchard/leases/00000001\.json'"):
        warehouse.create_document({"holder": "a"}, *PLACE)


Use = Callable[[Warehouse], object]
_SCHEMA = pa.schema([("a", pa.string())])
_WRITES: dict[str, Use] = {
    "document": lambda warehouse: warehouse.write_document({}, *PLACE),
    "text": lambda warehouse: warehouse.write_text("", *PLACE),
    "file": lambda warehouse: warehouse.write_file(Path(__file__), *PLACE),
    "mark": lambda warehouse: warehouse.mark_complete(*PLACE),
    "table": lambda warehouse: warehouse.write_table(pa.table({"a": [1]}), *PLACE),
    "copy": lambda warehouse: warehouse.copy_table(("other",), PLACE),
    "new document": lambda warehouse: warehouse.create_document({}, *PLACE),
    "new rows": lambda warehouse: warehouse.append_rows(pa.table({"a": [1]}), *PLACE),
}
_READS: dict[str, Use] = {
    "document": lambda warehouse: warehouse.read_document(*PLACE),
    "rows": lambda warehouse: warehouse.read_rows(*PLACE),
    "names": lambda warehouse: warehouse.files("orchard"),
    "directories": lambda warehouse: warehouse.directories("orchard"),
    "tree": lambda warehouse: warehouse.tree("orchard"),
    "later": lambda warehouse: warehouse.has_document_after(*PLACE),
    "count": lambda warehouse: warehouse.require_row_count(1, "orchard", remedy=""),
    "table": lambda warehouse: read_directory(warehouse, "orchard", schema=_SCHEMA),
    "batches": lambda warehouse: list(scan_directory(warehouse, "orchard", schema=_SCHEMA, columns=["a"])),
    "tables": lambda warehouse: read_files(warehouse, ["orchard/a.parquet"], _SCHEMA, one_of("a", ["x"])),
}


@pytest.mark.parametrize("write", _WRITES.values(), ids=_WRITES)
def test_every_write_that_fails_names_the_file_and_the_remedy(tmp_path: Path, write: Use) -> None:
    warehouse = Warehouse(str(tmp_path))
    warehouse.write_table(pa.table({"a": [1]}), "other")
    (tmp_path / "orchard").write_text("no directory")
    with pytest.raises(
        StoreError,
        match=rf"^{re.escape(str(tmp_path))}: cannot write 'orchard/leases/00000001\.json.*check `warehouse`",
    ):
        write(warehouse)


@pytest.mark.parametrize("kind", ["new document", "new rows"])
def test_the_error_of_a_write_without_a_clear_response_does_not_say_that_nothing_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(Conditional, "create", lambda *_: unreachable())
    with pytest.raises(StoreError, match=r"the store cannot be reached\. Whether it was written is unknown\. Check"):
        _WRITES[kind](Warehouse(str(tmp_path)))


@pytest.mark.parametrize(
    "use", [*_WRITES.values(), *_READS.values()], ids=[*_WRITES, *(f"read {name}" for name in _READS)]
)
def test_a_bucket_that_is_gone_is_named(bucket: Bucket, monkeypatch: pytest.MonkeyPatch, use: Use) -> None:
    monkeypatch.setenv("AWS_ENDPOINT", bucket.endpoint)
    warehouse = Warehouse(f"s3a://{bucket.name}/tables")
    warehouse.remove_directory("orchard")
    bucket.client().delete_bucket(Bucket=bucket.name)
    with pytest.raises(StoreError, match=rf"^s3a://{bucket.name}/tables: cannot .*`warehouse`") as refused:
        use(warehouse)
    assert "storage" not in str(refused.value)


@pytest.mark.parametrize("name", ["table", "batches", "tables"])
def test_a_damaged_table_is_named(tmp_path: Path, name: str) -> None:
    warehouse = Warehouse(str(tmp_path))
    warehouse.write_text("no Parquet file", "orchard", "a.parquet")
    with pytest.raises(
        TableContractError,
        match=rf"^{tmp_path}/orchard/a\.parquet: is incomplete or damaged.* Nothing was deleted\. .*from a backup",
    ):
        _READS[name](warehouse)


def test_files_with_other_columns_are_named(tmp_path: Path) -> None:
    warehouse = Warehouse(str(tmp_path))
    warehouse.append_rows(pa.table({"a": ["text"]}), "orchard", "a.parquet")
    with pytest.raises(
        TableContractError, match=rf"^{tmp_path}/orchard: the files have other columns.* Nothing was deleted\. .*backup"
    ):
        read_directory(warehouse, "orchard", schema=pa.schema([("a", pa.int64())]))


def test_a_warehouse_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=rf"^{tmp_path}/file/tables: cannot write its objects: .*check `warehouse`"):
        Warehouse(f"{tmp_path}/file/tables")


# ---- Spark's own client of a store


@pytest.mark.parametrize(
    ("scheme", "problem", "remedy"),
    [
        pytest.param("s3a", r"Class org.apache.hadoop.fs.s3a.S3AFileSystem not found", "example\\.$", id="no_jars"),
        pytest.param("s3", 'No FileSystem for scheme "s3"', "write the URL with `s3a://`", id="unknown_scheme"),
    ],
)
def test_a_store_that_spark_has_no_jars_for_is_named_with_the_setting(
    spark: SparkSession, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, scheme: str, problem: str, remedy: str
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT", bucket.endpoint)
    warehouse = Warehouse(f"{scheme}://{bucket.name}/tables")
    uses: list[Use] = [
        lambda one: one.require_used_by_spark(spark),
        lambda one: one.write_frame(spark.range(1), "rows"),
    ]
    for use in uses:
        with pytest.raises(ConfigurationError, match=rf"(?s){problem}.*Nothing was deleted.*jars\.packages.*{remedy}"):
            use(warehouse)


def test_a_store_that_spark_cannot_read_is_named_with_the_error_of_spark(
    spark: SparkSession, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT", bucket.endpoint)
    warehouse = Warehouse(f"s3a://{bucket.name}/tables")
    spark.conf.set("fs.s3a.impl", "org.apache.hadoop.fs.RawLocalFileSystem")  # which reads no such URL
    try:
        with pytest.raises(StoreError, match=r"cannot read 'warehouse\.json'.*Spark: .*Wrong FS.*It was not read"):
            warehouse.require_used_by_spark(spark)
    finally:
        spark.conf.unset("fs.s3a.impl")


@pytest.mark.parametrize("after", [1, 99, 150, 151])
def test_whether_a_document_with_a_greater_name_exists_is_known(warehouse: Warehouse, after: int) -> None:
    for number in (1, 99, 150):
        warehouse.create_document({"holder": number}, "orchard", "leases", f"{number:08d}.json")
    warehouse.create_document({"holder": 0}, "orchard", "leasing", "00000001.json")
    warehouse.write_text("no document", "orchard", "leases", "99999999.txt")
    assert warehouse.has_document_after("orchard", "leases", f"{after:08d}.json") is (after < 150)


def test_no_document_exists_in_a_directory_that_does_not_exist(warehouse: Warehouse) -> None:
    assert not warehouse.has_document_after(*PLACE)


# A reading that leaves Python objects to Arrow's threads aborts one such process in five.
_ENDS_RIGHT_AFTER_READING = """
import os, sys
import pyarrow.dataset  # once, not in each child
from retention_assets.warehouse.warehouse import Warehouse
for _ in range(40):  # each child would print the unflushed output again
    child = os.fork()
    if not child:
        Warehouse(sys.argv[1]).read_rows(*sys.argv[2:])
        sys.exit(3)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.mark.slow
def test_a_process_that_ends_right_after_it_read_rows_has_its_own_exit_status(tmp_path: Path) -> None:
    rows = pa.table({name: ["x"] * 10 for name in ("address", "size", "outcome", "detail", "at", "fence")})
    Warehouse(str(tmp_path)).append_rows(rows, "orchard", "ledgers", "part.parquet")
    script = [sys.executable, "-c", _ENDS_RIGHT_AFTER_READING, str(tmp_path), "orchard", "ledgers", "part.parquet"]
    done = subprocess.run(script, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["3"] * 40, done.stderr


# ---- rows


DAY = date(2026, 11, 1)
TABLE = ("orchard", "addresses", DAY.isoformat())


def write_parts(warehouse: Warehouse, *sizes: int) -> None:
    for number, size in enumerate(sizes):
        rows = pa.table({"address": [f"data/{row}" for row in range(size)]})
        warehouse.append_rows(rows, *TABLE, f"part-{number:05d}.snappy.parquet")
    warehouse.append_rows(pa.table({"address": ["hidden"]}), *TABLE, "_part.parquet")


def test_the_rows_of_a_table_are_counted_over_all_its_files(warehouse: Warehouse) -> None:
    warehouse.require_rows("orchard", "addresses", DAY, 0)
    write_parts(warehouse, 3, 0, 40)
    warehouse.require_rows("orchard", "addresses", DAY, 43)


def test_a_footer_that_is_longer_than_the_first_read_is_read_completely(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_FOOTER", 16)
    write_parts(warehouse, 3, 40)
    warehouse.require_rows("orchard", "addresses", DAY, 43)


@pytest.mark.parametrize("written", [42, 44, 0])
def test_a_table_with_other_rows_than_were_written_is_refused(warehouse: Warehouse, written: int) -> None:
    write_parts(warehouse, 3, 40)
    with pytest.raises(TableContractError) as refused:
        warehouse.require_rows("orchard", "addresses", DAY, written)
    message = str(refused.value)
    assert f"{warehouse.root}/orchard/addresses/2026-11-01: has 43 rows, " in message
    assert f"and {written} were written. Nothing was deleted" in message
    assert "`retention plan orchard --as-of 2026-11-01`" in message


def test_a_truncated_file_is_reported_with_its_name(tmp_path: Path) -> None:
    warehouse = Warehouse(str(tmp_path))
    write_parts(warehouse, 40)
    file = tmp_path.joinpath(*TABLE, "part-00000.snappy.parquet")
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(TableContractError, match=r"part-00000\.snappy\.parquet: is damaged, or not a Parquet file"):
        warehouse.require_rows("orchard", "addresses", DAY, 40)


@pytest.mark.parametrize("kept", [0, 10, None], ids=["empty", "cut_off", "missing"])
def test_missing_or_truncated_appended_rows_are_reported_with_their_name(tmp_path: Path, kept: int | None) -> None:
    warehouse = Warehouse(str(tmp_path))
    warehouse.append_rows(pa.table({"address": ["a"]}), "orchard", "memory", "plan", "commits.parquet")
    file = tmp_path / "orchard" / "memory" / "plan" / "commits.parquet"
    content = file.read_bytes()
    file.unlink() if kept is None else file.write_bytes(content[:kept])
    with pytest.raises(TableContractError) as refused:
        warehouse.read_rows("orchard", "memory", "plan", "commits.parquet")
    problem = "the file is missing. Nothing" if kept is None else "is incomplete or damaged: "
    assert f"orchard/memory/plan/commits.parquet: {problem}" in str(refused.value)
    assert "Nothing was deleted. Copy " in str(refused.value)
    assert str(refused.value).endswith("from a backup of the warehouse.")


DAMAGED = {  # a file of the warehouse and the remedy if it is damaged
    ("addresses", "2026-11-01"): "Make the table again: `retention plan orchard --as-of 2026-11-01`.",
    ("deletion_proof", "2026-11-01"): "Make the table again: `retention verify orchard --as-of 2026-11-01`.",
    ("ledger", "2026-11-01", "a" * 64, "00000001-run"): "move the file out of the ledger: its results then count as",
    ("due_objects", "20261101T000000000000-aaaaaaaaaaaa"): "the settling time of all objects then begins again.",
    ("planned_objects", "a" * 64): "or plan the day of this plan again.",
    ("ranges", "00000001-run"): "Remove the directory of this file, which is only a cache, and run the same command",
    ("memory", "20261101T000000000000-aaaaaaaaaaaa"): "Copy the file from a backup of the warehouse.",
}


@pytest.mark.parametrize(("folder", "remedy"), [pytest.param(*one, id=one[0][0]) for one in DAMAGED.items()])
@pytest.mark.parametrize("way", ["directory", "batches", "file", "files"])
def test_a_file_with_a_damaged_page_is_reported_with_its_name_and_remedy(
    tmp_path: Path, folder: tuple[str, ...], remedy: str, way: str
) -> None:
    """The footer is not damaged."""
    warehouse, parts, schema = Warehouse(str(tmp_path)), ("orchard", *folder), pa.schema([("a", pa.string())])
    for name in ("part-0.parquet", "part-1.parquet"):
        warehouse.append_rows(pa.table({"a": [f"{number:06}" for number in range(2000)]}), *parts, name)
    flip_page(Path(tmp_path, *parts, "part-1.parquet"))
    warehouse.require_row_count(4000, *parts, remedy="")  # the footers are good
    reads: dict[str, Use] = {
        "directory": lambda warehouse: read_directory(warehouse, *parts, schema=schema),
        "batches": lambda warehouse: list(scan_directory(warehouse, *parts, schema=schema, columns=["a"])),
        "file": lambda warehouse: warehouse.read_rows(*parts, "part-1.parquet"),
        "files": lambda warehouse: read_files(warehouse, ["/".join((*parts, "part-1.parquet"))], schema),
    }
    with pytest.raises(TableContractError) as refused:
        reads[way](warehouse)
    assert "/".join((*parts, "part-1.parquet: is incomplete or damaged: ")) in str(refused.value)
    assert "Nothing was deleted. " in str(refused.value)
    assert remedy in str(refused.value)


def flip_page(file: Path) -> None:
    """Change the header of the first page of a Parquet file. Spark's file with checksums is removed."""
    content = bytearray(file.read_bytes())
    content[4:20] = bytes(byte ^ 0xFF for byte in content[4:20])
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    file.write_bytes(content)


@pytest.mark.parametrize(
    "content", [b"", b'{"holder": ', b"[]", b"\xff"], ids=["empty", "cut_off", "a_list", "no_text"]
)
def test_a_document_that_is_not_a_json_object_is_reported_with_its_name(tmp_path: Path, content: bytes) -> None:
    warehouse = Warehouse(str(tmp_path))
    warehouse.write_document({"holder": "a"}, *PLACE)
    tmp_path.joinpath(*PLACE).write_bytes(content)
    with pytest.raises(TableContractError) as refused:
        warehouse.read_document(*PLACE)
    assert "orchard/leases/00000001.json: is not a JSON object. Nothing was deleted" in str(refused.value)
    assert "Copy it from a backup of the warehouse. If that copy of a plan or approval may be older" in str(
        refused.value
    )


def test_a_table_with_missing_columns_is_refused_with_the_command_that_makes_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    """An earlier version wrote the table. Spark would only report that a column cannot be resolved."""
    warehouse = Warehouse(str(tmp_path))
    write_parts(warehouse, 3, 40)
    tmp_path.joinpath(*TABLE, "_SUCCESS").touch()
    warehouse.write_metadata("orchard", "addresses", DAY, PartitionMetadata(datetime.now(UTC), 43, "a-run"))
    with pytest.raises(TableContractError) as refused:
        warehouse.rows(spark, "orchard", "addresses", DAY)
    message = str(refused.value)
    assert (
        "orchard: addresses of 2026-11-01 is missing the columns active, added_at, at_head, branches, due_since,"
        in message
    )
    assert "another version made it. Nothing was deleted" in message
    assert "`retention plan orchard --as-of 2026-11-01`" in message
    assert warehouse.rows(spark, "orchard", "addresses", DAY, ["address"]).frame.count() == 43


@pytest.fixture
def planned(tmp_path: Path) -> Warehouse:
    """A warehouse with a complete table of two files."""
    warehouse = Warehouse(str(tmp_path))
    write_parts(warehouse, 3, 40)
    warehouse.mark_complete(*TABLE)
    warehouse.write_metadata("orchard", "addresses", DAY, PartitionMetadata(datetime.now(UTC), 43, "a-run"))
    return warehouse


def remove_one_part(warehouse: Warehouse) -> None:
    """Remove one file, as housekeeping does before it removes the others."""
    warehouse.remove_document(*TABLE, "part-00001.snappy.parquet")


def write_again(warehouse: Warehouse) -> None:
    """Write the table again, as another run for the same day does: other rows, and as many of them."""
    warehouse.write_table(pa.table({"address": [f"other/{row}" for row in range(43)]}), *TABLE)
    warehouse.write_metadata("orchard", "addresses", DAY, PartitionMetadata(datetime.now(UTC), 43, "another-run"))


@pytest.mark.parametrize("meanwhile", [remove_one_part, write_again])
@pytest.mark.parametrize("reader", ["spark", "the_driver"])
def test_a_table_that_another_run_removes_or_replaces_is_not_read(
    spark: SparkSession,
    planned: Warehouse,
    monkeypatch: pytest.MonkeyPatch,
    meanwhile: Callable[[Warehouse], None],
    reader: str,
) -> None:
    """Live addresses would be missing, or the rows would be of another run than the metadata."""
    open_frame = Warehouse._frame

    def frame(warehouse: Warehouse, *given: Any) -> Any:
        meanwhile(warehouse)  # after the rows were counted, and before Spark lists the directory
        return open_frame(warehouse, *given)

    def use() -> None:
        if reader == "spark":
            monkeypatch.setattr(Warehouse, "_frame", frame)
        rows = planned.rows(spark, "orchard", "addresses", DAY, ["address"])
        meanwhile(planned)
        rows.columns("address")

    with pytest.raises(TableContractError, match="addresses of 2026-11-01 was written or removed by another run"):
        use()


def test_spark_does_not_read_a_table_that_replaced_the_opened_table(spark: SparkSession, tmp_path: Path) -> None:
    """The driver wrote both tables, and their files have equal sizes. Spark reads files later than it opens them."""
    warehouse = Warehouse(str(tmp_path))
    for run, rows in (("a-run", ["data/1"]), ("another-run", ["data/2"])):
        warehouse.write_table(pa.table({"address": rows}), *TABLE)
        warehouse.write_metadata("orchard", "addresses", DAY, PartitionMetadata(datetime.now(UTC), 1, run))
        if run == "a-run":
            opened = warehouse.rows(spark, "orchard", "addresses", DAY, ["address"])
    with pytest.raises(Exception, match="FILE_NOT_EXIST"):
        opened.frame.collect()


def test_the_digest_of_a_write_is_not_of_files_that_another_run_writes_meanwhile(
    spark: SparkSession, tmp_path: Path
) -> None:
    warehouse = Warehouse(str(tmp_path))
    assert warehouse.write_frame(spark.range(3), *TABLE) == warehouse.files_digest(*TABLE)
    others = warehouse.files(*TABLE)
    digest = warehouse.write_frame(spark.range(3), *TABLE, mode="append")
    assert digest != warehouse.files_digest(*TABLE)
    for name in others:
        warehouse.remove_document(*TABLE, name)
    assert digest == warehouse.files_digest(*TABLE)


def test_a_write_whose_files_another_run_replaced_is_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other rows may be as many. Without the digest of the files, they would be taken as those of this run."""
    warehouse, listed = Warehouse(str(tmp_path)), Warehouse._table_files

    def replaced(self: Warehouse, *parts: str) -> Any:
        monkeypatch.setattr(Warehouse, "_table_files", listed)
        self.write_frame(spark.range(3), *parts)
        return listed(self, *parts)

    monkeypatch.setattr(Warehouse, "_table_files", replaced)
    with pytest.raises(TableContractError, match="another run replaced these files while they were written"):
        warehouse.write_frame(spark.range(3), *TABLE)


def test_rows_are_unchanged_if_only_their_files_were_touched_or_other_files_were_added(
    spark: SparkSession, planned: Warehouse
) -> None:
    """Network file systems change times and inodes, and add files. So do backups and file managers."""
    rows = planned.rows(spark, "orchard", "addresses", DAY, ["address"])
    directory = Path(planned.location(*TABLE))
    for file in directory.glob("*.parquet"):
        content = file.read_bytes()
        file.unlink()
        file.write_bytes(content)
    for name in (".nfs0001", ".DS_Store", "_SUCCESS", METADATA):
        (directory / name).write_bytes(b"{}")
    rows.require_unchanged()


@pytest.mark.parametrize("meanwhile", [remove_one_part, write_again])
def test_opened_rows_that_another_run_replaced_are_not_those_of_their_metadata(
    spark: SparkSession, planned: Warehouse, meanwhile: Callable[[Warehouse], None]
) -> None:
    """Spark Connect lists the files when it computes a frame, which may be long after the partition was opened."""
    rows = planned.rows(spark, "orchard", "addresses", DAY, ["address"])
    rows.require_unchanged()
    meanwhile(planned)
    with pytest.raises(TableContractError, match="addresses of 2026-11-01 was written or removed by another run"):
        rows.require_unchanged()


def test_the_files_of_a_write_are_not_known_if_the_cluster_names_them_itself(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the rows are read as before, but no later run reuses them."""
    monkeypatch.setattr("retention_assets.warehouse.warehouse._BASE_NAME", "an.option.that.spark.ignores")
    assert Warehouse(str(tmp_path)).write_frame(spark.range(3), *TABLE) is None


def test_copies_have_the_digest_of_their_files(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(str(tmp_path))
    warehouse.write_frame(spark.range(3).repartition(3), *TABLE)
    digest = warehouse.copy_table(TABLE, PLACE)
    assert digest == warehouse.files_digest(*PLACE) != warehouse.files_digest(*TABLE)


@pytest.mark.parametrize("name", ["lake[12]", "lake{1,2}", "lake?", "lake*"])
def test_the_directory_of_a_warehouse_is_not_read_as_a_pattern(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Spark would take it as one: it would find no files, or those of the warehouse in the directory beside it."""
    for directory, rows in ((name, 43), ("lake1", 7)):
        Warehouse(str(tmp_path / directory)).write_frame(spark.range(rows), *TABLE)
    assert Warehouse(str(tmp_path / name)).frame(spark, *TABLE).count() == 43


@pytest.mark.parametrize("name", ["a%20b", "a%23b", "a%b", "a#b", "a?b=c"])
def test_the_url_of_a_warehouse_names_the_directory_that_spark_writes_to(bucket: Bucket, name: str) -> None:
    """Spark takes a URL literally, so all other files must be at the literal name, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT", bucket.endpoint)
        Warehouse(f"s3a://{bucket.name}/{name}").write_document({"holder": "a"}, *PLACE)
    listed = bucket.client().list_objects_v2(Bucket=bucket.name)["Contents"]
    assert [one["Key"] for one in listed] == [f"{name}/{'/'.join(PLACE)}"]


@pytest.mark.parametrize("name", ["a b", "a%20b", "a%23b", "a#b", "a?b", "ü"])
def test_arrow_reads_the_directory_that_the_url_of_a_warehouse_names(tmp_path: Path, name: str) -> None:
    Warehouse(str(tmp_path / name)).write_table(pa.table({"address": ["data/a"]}), *TABLE)
    warehouse = Warehouse(f"file://{tmp_path}/{name}")
    schema = pa.schema([("address", pa.string())])
    assert read_directory(warehouse, *TABLE, schema=schema)["address"].to_pylist() == ["data/a"]


def test_the_files_of_lists_that_have_each_name_once_have_the_schema_of_the_table(tmp_path: Path) -> None:
    rows = potential_commits_rows(commit_graph_rows([]), {}, {}, frozenset())
    assert rows.schema.field("branches").type == NAMES
    write_rows(rows, Warehouse(str(tmp_path)), "orchard", "potential_commits", DAY, shared=True)
    stored = pq.read_schema(next(tmp_path.rglob("*.parquet")))
    expected = POTENTIAL_COMMITS.stored
    assert [stored.field(name).type.value_field.nullable for name in ("branches", "left_branches")] == [True, True]
    assert stored.names == expected.names


def test_a_file_is_no_warehouse(tmp_path: Path) -> None:
    file = tmp_path / "tables"
    file.touch()
    with pytest.raises(ConfigurationError, match=r"tables: the warehouse is a file, and must be a directory\. Nothing"):
        Warehouse(str(file))


def test_a_directory_that_does_not_exist_is_read_as_an_empty_warehouse_and_created_by_a_write(tmp_path: Path) -> None:
    root = tmp_path / "new" / "tables"
    reading, writing = Warehouse(str(root)), Warehouse(str(root))
    assert (reading.directories(), reading.tree("orchard"), reading.file("a.json")) == ([], {}, None)
    assert reading.read_document("a.json") is None
    assert not root.parent.exists()
    assert writing.create_document({"a": 1}, "a.json")
    assert reading.read_document("a.json") == {"a": 1}
    writing.write_document({"b": 2}, "b.json")
    assert reading.documents() == ["a.json", "b.json"]


def test_a_directory_that_cannot_be_created_is_not_read_as_an_empty_warehouse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may not be mounted: the place of a mount often belongs to another user."""
    monkeypatch.setattr(os, "access", lambda *_: False)  # the superuser may write everywhere
    assert not Warehouse(str(tmp_path / "tables"))._is_absent()


def test_the_root_of_the_file_system_is_no_warehouse() -> None:
    with pytest.raises(StoreError, match="check `warehouse`"):
        Warehouse("/", any_layout=True)


@pytest.mark.parametrize("root", ["link", "link/tables", "link/below/tables"])
def test_a_link_to_a_missing_directory_is_not_read_as_an_empty_warehouse(tmp_path: Path, root: str) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "not_mounted")
    with pytest.raises(StoreError, match=f"{tmp_path}/{root}: cannot write its objects"):
        Warehouse(str(tmp_path / root))
