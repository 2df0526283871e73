"""A table file that cannot be read ends the reading: its rows are never left out. Source: DESIGN.md, invariant 3."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from retention_assets.formats.writer import Entry, Range, write_metarange, write_range
from retention_assets.stores.access import StoreAccess
from retention_assets.stores.ranges import COMMITTED, Kind, metaranges, ranges, read_tables

Damage = Callable[[Path], object]


def laid(place: Path, table: tuple[str, bytes]) -> str:
    """Write a table below a namespace, and return its id."""
    table_id, content = table
    (place / COMMITTED).mkdir(exist_ok=True)
    (place / COMMITTED / table_id).write_bytes(content)
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
    sizes = {one: (tmp_path / COMMITTED / one).stat().st_size for one in ids}
    assert sum(found["file_bytes"].to_pylist()) == sum(sizes.values())


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def alter(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[3] ^= 1
    file.write_bytes(content)


def exchange(file: Path) -> None:
    """Lay another whole table under the name."""
    other = next(one for one in file.parent.iterdir() if one != file)
    file.write_bytes(other.read_bytes())


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
    ("kind", "tables"), [(ranges(), ranges_of), (metaranges(), metaranges_of)], ids=["ranges", "metaranges"]
)
def test_one_file_of_several_that_cannot_be_read_ends_it(
    spark: SparkSession,
    tmp_path: Path,
    kind: Kind,
    tables: Callable[[Path], list[str]],
    damage: Damage,
    error: str,
) -> None:
    ids = tables(tmp_path)
    damage(tmp_path / COMMITTED / ids[1])
    with pytest.raises(PythonException, match=f"(?s){error}.*{ids[1]}"):
        read(spark, tmp_path, kind, ids)
