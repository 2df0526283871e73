"""An unreadable lakeFS table ends the run; its rows are never left out. Source: promise 3 of docs/safety.md."""

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from retention_assets.config.configuration import INTERNAL
from retention_assets.errors import TableContractError
from retention_assets.lakefs.source.ranges import metaranges, ranges
from retention_assets.objectstore.access import StoreAccess
from retention_assets.spark.failures import explaining
from retention_assets.warehouse import cache_batches, table_cache
from retention_assets.warehouse.table_cache import Kind, TableCache, _checksum_share, read_tables
from retention_assets.warehouse.warehouse import Warehouse, has_rows
from tests.lakefs_tables import Entry, Range, write_metarange, write_range
from tests.warehouse.test_warehouse import flip_page

Damage = Callable[[Path], object]
KIND = ranges()  # of the cache's tests


def laid(place: Path, table: tuple[str, bytes]) -> str:
    """Write a table below a namespace, and return its id."""
    table_id, content = table
    (place / INTERNAL).mkdir(exist_ok=True)
    (place / INTERNAL / table_id).write_bytes(content)
    return table_id


def ranges_of(place: Path) -> list[str]:
    return [
        laid(place, write_range([Entry(f"{name}/{number}", f"data/{name}{number}") for number in range(3)]))
        for name in "abc"
    ]


def metaranges_of(place: Path) -> list[str]:
    return [laid(place, write_metarange([Range(name * 64, b"a", b"b", 3)])) for name in "abc"]


def read(spark: SparkSession, place: Path, kind: Kind, ids: list[str]) -> pa.Table:
    named = spark.createDataFrame(pa.table({kind.id_column: ids}))
    return read_tables(named, kind, StoreAccess(f"file://{place}")).toArrow()


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "tables", "rows"),
    [(ranges(), ranges_of, 9), (metaranges(), metaranges_of, 3)],
    ids=["ranges", "metaranges"],
)
def test_every_row_of_every_file_that_is_named_is_read(
    spark: SparkSession, tmp_path: Path, kind: Kind, tables: Callable[[Path], list[str]], rows: int
) -> None:
    ids = tables(tmp_path)
    found = read(spark, tmp_path, kind, ids)
    assert found.num_rows == rows
    assert set(found[kind.id_column].to_pylist()) == set(ids)
    sizes = {one: (tmp_path / INTERNAL / one).stat().st_size for one in ids}
    assert sum(found["file_bytes"].to_pylist()) == sum(sizes.values())


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def alter(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[3] ^= 1
    file.write_bytes(content)


def exchange(file: Path) -> None:
    """Write another valid table under the name."""
    other = next(one for one in file.parent.iterdir() if one != file)
    file.write_bytes(other.read_bytes())


@pytest.mark.long
@pytest.mark.parametrize(
    ("damage", "error"),
    [
        pytest.param(cut, "CorruptFile", id="cut"),
        pytest.param(alter, "CorruptFile", id="altered"),
        pytest.param(exchange, "CorruptFile", id="another_under_its_name"),
        pytest.param(Path.unlink, "ObjectMissing", id="missing"),
    ],
)
@pytest.mark.parametrize(
    ("kind", "tables"),
    [
        pytest.param(ranges(), ranges_of, id="ranges"),
        pytest.param(metaranges(), metaranges_of, id="metaranges", marks=pytest.mark.slow),
    ],
)
def test_one_unreadable_file_of_several_ends_the_reading(
    spark: SparkSession,
    tmp_path: Path,
    kind: Kind,
    tables: Callable[[Path], list[str]],
    damage: Damage,
    error: str,
) -> None:
    ids = tables(tmp_path)
    damage(tmp_path / INTERNAL / ids[1])
    with pytest.raises(PythonException, match=f"(?s){error}.*{ids[1]}"):
        read(spark, tmp_path, kind, ids)


# ---- the cache


@dataclass
class Cached:
    """A cache of ranges for a namespace with three ranges. `run` reads them in a run of this name.

    `held`: the driver has the ids, so it reads the files and their rows itself.
    """

    spark: SparkSession
    root: Path
    ids: list[str]
    held: bool

    @property
    def warehouse(self) -> Warehouse:
        return Warehouse(str(self.root / "warehouse"))

    def cache(self, run_id: str, *, full: bool = False, lost: list[str] | None = None) -> TableCache:
        access = StoreAccess(f"file://{self.root}/lake")
        addresses = None if lost is None else self.spark.createDataFrame(pa.table({"address": lost}))
        return TableCache(self.spark, self.warehouse, "orchard", access, run_id, full=full, lost=addresses)

    def frame(self, ids: list[str]) -> DataFrame | pa.Table:
        named = pa.table({KIND.id_column: ids})
        return named if self.held else self.spark.createDataFrame(named)

    def run(self, run_id: str, ids: list[str] | None = None, *, full: bool = False) -> tuple[int, int]:
        """Return the number of rows that a run gets, and the number of files that it reads."""
        rows, reading = self.cache(run_id, full=full).rows(self.frame(ids or self.ids), KIND)
        return rows.count(), reading.files

    def batches(self) -> list[cache_batches.CacheBatch]:
        return cache_batches.cache_batches(self.warehouse, "orchard", KIND.name)

    def lose_a_part(self, table: str) -> None:
        """Remove a file with rows, as if an executor had written it to its own disk."""
        files = (self.root / "warehouse" / "orchard" / table).rglob("*.parquet")
        next(file for file in files if pq.read_metadata(file).num_rows).unlink()


@pytest.fixture(params=[False, True], ids=["on_executors", "on_the_driver"])
def cached(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Cached:
    (tmp_path / "lake").mkdir()
    return Cached(spark, tmp_path, ranges_of(tmp_path / "lake"), request.param)


@pytest.mark.long
def test_a_range_is_read_once(cached: Cached) -> None:
    assert cached.run("first") == (9, 3)
    assert cached.run("second") == (9, 0)


@pytest.mark.long
def test_lost_files_are_not_fetched_and_those_that_no_run_has_read_are_named(cached: Cached) -> None:
    read, never_read, there = cached.ids
    cached.run("first", [read])
    lost = [f"{KIND.folder}/{one}" for one in (read, never_read)]
    for name in lost:
        (cached.root / "lake" / name).unlink()
    for full, rows, unread in ((False, 6, {never_read}), (True, 3, {read, never_read})):
        found, fetched = cached.cache(f"full-{full}", full=full, lost=[*lost, f"other/{there}"]).rows(
            cached.frame(cached.ids), KIND
        )
        assert (found.count(), fetched.files, fetched.unread) == (rows, 1, tuple(sorted(unread)))


@pytest.mark.parametrize("cached", [False], indirect=True, ids=["on_executors"])
def test_rows_that_cannot_be_read_back_are_not_used(cached: Cached, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without these rows, a range seems to have fewer entries, and its objects seem to be unreferenced."""
    count = TableCache._counts

    def of_what_is_left(cache: TableCache, kind: Kind, batches: list[str]) -> DataFrame:
        if batches:
            cached.lose_a_part(KIND.name)
        return count(cache, kind, batches)

    with monkeypatch.context() as patch:
        patch.setattr(TableCache, "_counts", of_what_is_left)
        with pytest.raises(TableContractError, match=r"9 rows were written, and \d can be read"):
            cached.run("first")
    assert cached.run("second") == (9, 3)  # nothing of that batch counts


@pytest.mark.long
@pytest.mark.parametrize(("table", "written"), [(KIND.name, 9), (f"{KIND.name}_ids", 3)], ids=["rows", "ids"])
def test_a_batch_of_which_files_are_missing_after_the_write_is_not_used(
    cached: Cached, monkeypatch: pytest.MonkeyPatch, table: str, written: int
) -> None:
    require = Warehouse.require_row_count

    def of_the_remaining_files(warehouse: Warehouse, written: int, *parts: str, remedy: str) -> object:
        if parts[1] == table:
            cached.lose_a_part(parts[1])
        return require(warehouse, written, *parts, remedy=remedy)

    with monkeypatch.context() as patch:
        patch.setattr(Warehouse, "require_row_count", of_the_remaining_files)
        with pytest.raises(TableContractError, match=rf"{table}/\S+: has \d rows, and {written} were written"):
            cached.run("first")
    assert cached.run("second") == (9, 3)


@pytest.mark.parametrize("cached", [True], indirect=True, ids=["on_the_driver"])
def test_the_driver_refuses_a_cached_file_of_which_rows_are_missing(cached: Cached) -> None:
    cached.run("first")
    (batch,) = cached.batches()
    cached.lose_a_part(KIND.name)
    cache_batches.write_manifest(cached.warehouse, "orchard", KIND.name, batch.name)  # agrees with the files left
    with pytest.raises(TableContractError, match=r"9 rows were written, and 0 can be read\. Nothing was deleted"):
        cached.run("second")


@pytest.mark.long
@pytest.mark.parametrize("table", [KIND.name, f"{KIND.name}_ids"])
def test_a_batch_with_a_damaged_page_is_read_again_after_its_directory_is_removed(cached: Cached, table: str) -> None:
    cached.run("first")
    directory = next((cached.root / "warehouse" / "orchard" / table).iterdir())
    for file in filter(lambda one: pq.read_metadata(one).num_rows, directory.glob("*.parquet")):
        flip_page(file)
    with pytest.raises(TableContractError) as refused, explaining():
        cached.cache("second").rows(cached.frame(cached.ids), KIND)[0].toArrow()
    assert f"/{table}/{directory.name}/part-" in str(refused.value)
    assert "Remove the directory of this file, which is only a cache" in str(refused.value)
    shutil.rmtree(directory)
    assert cached.run("third") == (9, 3)


@pytest.mark.long
@pytest.mark.parametrize("cached", [True], indirect=True, ids=["on_the_driver"])
@pytest.mark.parametrize("limit", ["_FEW_IDS", "_FEW_FILES", "_FEW_BYTES", "_FEW_ROWS"])
def test_the_driver_leaves_many_ids_files_bytes_or_rows_to_executors(
    cached: Cached, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(table_cache, limit, 0)
    assert cached.run("first") == (9, 3)
    assert cached.run("second") == (9, 0)
    assert cached.run("third", cached.ids[:1]) == (3, 0)


@pytest.mark.long
@pytest.mark.parametrize("table", [KIND.name, f"{KIND.name}_ids"])
def test_files_whose_cached_rows_were_lost_are_read_again(cached: Cached, table: str) -> None:
    cached.run("first")
    cached.lose_a_part(table)
    rows, files = cached.run("second")
    assert rows == 9
    assert files > 0


@pytest.mark.long
def test_a_batch_that_is_removed_while_a_run_fetches_other_files_ends_the_run(
    cached: Cached, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of a metarange would be missing, and its objects would seem dead."""
    cached.run("first", cached.ids[:2])
    next_batch = TableCache._next_batch

    def after_removal(cache: TableCache, kind: Kind) -> str:
        name = next_batch(cache, kind)
        for table in (KIND.name, f"{KIND.name}_ids"):
            cached.warehouse.remove_directory("orchard", table, "00000001-first")
        return name

    with monkeypatch.context() as patch:
        patch.setattr(TableCache, "_next_batch", after_removal)
        with pytest.raises(TableContractError, match=r"00000001-first: was removed or damaged during this run\."):
            cached.run("second")
    assert cached.run("third") == (9, 2)


@pytest.mark.long
def test_many_small_batches_are_merged_and_the_newest_rows_of_a_range_count(
    cached: Cached, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_batches, "_MOST_SMALL", 2)
    ids = cached.ids
    for run_id, known in (("first", ids[:1]), ("second", ids[:2]), ("full", ids[1:2])):
        cached.run(run_id, known, full=run_id == "full")
    names = [batch.name for batch in cached.batches()]
    assert names == ["00000001-first", "00000002-second", "00000003-full"]
    assert cached.run("fourth") == (9, 1)
    merged, fetched = cached.batches()
    assert (merged.name, fetched.name) == ("00000003-fourth-merged", "00000004-fourth")
    assert merged.has_manifest
    (rows,) = filter(has_rows, cached.warehouse.files("orchard", KIND.name, merged.name))
    file = pq.ParquetFile(cached.warehouse.location("orchard", KIND.name, merged.name, rows))
    assert file.num_row_groups == 1
    assert cached.run("fifth") == (9, 0)
    cached.lose_a_part(f"{KIND.name}/{merged.name}")
    assert cached.run("sixth") == (9, 0)  # the merged files still exist, and are read again
    assert merged.name not in [batch.name for batch in cached.batches()]


def test_a_full_run_reads_its_own_batch_after_another_run_merged_it(
    cached: Cached, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the rows of the batch, the objects of its metaranges would seem to be unreferenced."""
    monkeypatch.setattr(cache_batches, "_MOST_SMALL", 1)
    cached.run("first")
    full = cached.cache("full", full=True)
    wanted = cached.frame(cached.ids)
    full.rows(wanted, KIND)
    assert cache_batches.merge_batches(cached.warehouse, "orchard", KIND.name, "other") == 2
    assert full.cached_rows(wanted, KIND).count() == 9


def test_a_batch_that_lost_rows_is_not_merged(cached: Cached, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_batches, "_MOST_SMALL", 1)
    cached.run("first")
    cached.run("second", full=True)
    kept = cached.batches()
    cached.lose_a_part(f"{KIND.name}/{kept[-1].name}")
    cache_batches.write_manifest(cached.warehouse, "orchard", KIND.name, kept[-1].name)  # it matches the remaining rows
    with pytest.raises(TableContractError) as refused:
        cache_batches.merge_batches(cached.warehouse, "orchard", KIND.name, "other")
    place = cached.warehouse.location("orchard", KIND.name, kept[-1].name)
    assert re.match(rf"{re.escape(place)}: \d rows of \S+ can be read, and 3 were written\. ", str(refused.value))
    assert "Nothing was deleted. Remove this directory, which is only a cache, then run the same command again." in str(
        refused.value
    )
    assert [one.name for one in cached.batches()] == [one.name for one in kept]


@pytest.mark.long
def test_a_merge_that_is_interrupted_changes_nothing(cached: Cached, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_batches, "_MOST_SMALL", 1)
    cached.run("first", cached.ids[:1])
    writes = ("write_file", "mark_complete", "append_rows", "write_document")
    cached.run("second", cached.ids[1:2], full=True)
    known = cached.cache("before").cached_rows(cached.frame(cached.ids[:2]), KIND).count()
    for number, name in enumerate(writes):
        with monkeypatch.context() as patch:
            patch.setattr(Warehouse, name, interrupted)
            with pytest.raises(KeyboardInterrupt):
                cache_batches.merge_batches(cached.warehouse, "orchard", KIND.name, f"try-{number}")
        assert cached.cache(f"after-{number}").cached_rows(cached.frame(cached.ids[:2]), KIND).count() == known


def interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("written", "there", "is_same"),
    [
        ({"a": 3, "b": 2}, {"a": 3, "b": 2}, True),
        ({"a": 3, "b": 2}, {"a": 2, "b": 3}, False),
        ({"a": 3, "b": 2}, {"a": 5}, False),
    ],
    ids=["same", "of_another_file", "all_of_one_file"],
)
def test_the_checksum_depends_on_the_rows_of_each_file(
    spark: SparkSession, written: dict[str, int], there: dict[str, int], is_same: bool
) -> None:
    def shares(rows: dict[str, int]) -> int:
        ids = [name for name, number in rows.items() for _ in range(number)]
        return spark.createDataFrame(pa.table({KIND.id_column: ids})).agg(F.sum(_checksum_share(KIND))).collect()[0][0]

    assert (shares(written) == shares(there)) is is_same
