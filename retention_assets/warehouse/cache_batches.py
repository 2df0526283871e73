"""Lists the batches of a table cache that can be read, and merges small batches, without Spark.

The rows of a batch are in `<kind>/<batch>`, the ids of its files in `<kind>_ids/<batch>`. Beside the ids, a manifest
lists all files of the batch with their sizes. The manifest is written last, so one listing shows whether a batch is
complete.
"""

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate, groupby
from pathlib import Path
from typing import TypedDict

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from retention_assets.errors import TableContractError
from retention_assets.warehouse.warehouse import PART, SUCCESS, StoredFile, Warehouse, has_rows, in_utc

BATCH = pa.field("batch", pa.string())  # name of a batch: number and run id; `_MERGED` at the end of merged ones
ROWS = pa.field("rows", pa.int64())  # number of rows of the file
MANIFEST = "_batch.json"  # Spark ignores names that begin with an underscore
_SMALL = 2**25  # the most bytes of a small batch
_MOST_SMALL = 24  # if there are more small batches, they are merged, because many batches are slow to read
_MOST_MERGED = 2**28  # bytes that one merge reads
_ROW_GROUP = 2**18  # rows of a row group
_MERGED = "-merged"
_WITHOUT = "Remove this file, and run the same command again: the rows of the batch are then counted."


class _Manifest(TypedDict):
    rows: dict[str, int]  # the size of each file with rows, by its name
    ids: dict[str, int]  # as `rows`, of the files with ids
    replaces: list[str]


@dataclass(frozen=True, slots=True)
class CacheBatch:
    """A complete batch. `has_manifest`: all files of the batch have the sizes in its manifest."""

    name: str
    size: int  # bytes of the files with its rows
    ids_size: int  # bytes of the files with the ids
    has_manifest: bool


def ids_of(kind: str) -> str:
    """Return the name of the directory with the ids of a cache's files."""
    return f"{kind}_ids"


def cache_batches(warehouse: Warehouse, repository: str, kind: str, of_run: str = "") -> list[CacheBatch]:
    """Return the batches that can be read, oldest first.

    Batches that were merged into another one are left out, except for those of the run `of_run`. A batch without a
    manifest was written by an earlier version or an interrupted run: only its rows show whether it is complete.
    """
    complete, replaced = complete_and_replaced(warehouse, repository, kind)
    left_out = {name for name in replaced if not of_run or not name.endswith(of_run)}
    return [batch for batch in complete if batch.name not in left_out]


def complete_and_replaced(
    warehouse: Warehouse, repository: str, kind: str
) -> tuple[list[CacheBatch], dict[str, datetime]]:
    """Return all complete batches, oldest first, and the batches whose rows are in a complete merged batch.

    The second result has the names of these batches, each with the time at which its rows were merged (UTC). Their own
    files may still be complete.
    """
    rows, ids = (_by_batch(warehouse, repository, table) for table in (kind, ids_of(kind)))
    complete: list[CacheBatch] = []
    replaced: dict[str, datetime] = {}
    for name in sorted(rows.keys() & ids.keys()):
        if SUCCESS not in rows[name] or SUCCESS not in ids[name]:
            continue
        manifest = None
        if MANIFEST in ids[name]:
            manifest = warehouse.read_document(
                repository, ids_of(kind), name, MANIFEST, shape=_Manifest, remedy=_WITHOUT
            )
        if manifest is not None:
            if not _has_all(manifest["rows"], rows[name]) or not _has_all(manifest["ids"], ids[name]):
                continue  # files of the batch are missing: their rows are fetched again
            replaced |= dict.fromkeys(manifest["replaces"], ids[name][MANIFEST].written_at)
        size, ids_size = (sum(file.size for file in files[name].values()) for files in (rows, ids))
        complete.append(CacheBatch(name, size, ids_size, manifest is not None))
    return complete, replaced


def _has_all(manifest: Mapping[str, int], there: Mapping[str, StoredFile]) -> bool:
    return all(name in there and there[name].size == size for name, size in manifest.items())


def _by_batch(warehouse: Warehouse, repository: str, table: str) -> dict[str, dict[str, StoredFile]]:
    found: dict[str, dict[str, StoredFile]] = {}
    start = len(f"{repository}/{table}/")
    for path, file in warehouse.tree(repository, table).items():
        batch, _, name = path[start:].partition("/")
        found.setdefault(batch, {})[name] = file
    return found


def write_manifest(warehouse: Warehouse, repository: str, kind: str, name: str, replaces: Sequence[str] = ()) -> None:
    """Write the manifest of a batch, after its rows and ids were written and compared with the decoded rows."""
    document: dict[str, object] = {"replaces": list(replaces)}
    for part, table in (("rows", kind), ("ids", ids_of(kind))):
        files = {path.rpartition("/")[2]: file.size for path, file in warehouse.tree(repository, table, name).items()}
        document[part] = {file: size for file, size in files.items() if has_rows(file)}
    warehouse.write_document(document, repository, ids_of(kind), name, MANIFEST)


def need_merge(batches: Sequence[CacheBatch]) -> bool:
    """Return whether there are more than `_MOST_SMALL` small batches."""
    return sum(batch.size <= _SMALL for batch in batches) > _MOST_SMALL


def merge_batches(warehouse: Warehouse, repository: str, kind: str, run_id: str) -> int:
    """Merge small batches if there are many (see `need_merge`), and return how many were merged.

    Only neighbours are merged, so that the newest batch of a file stays the newest. Later runs do not read the batches
    that were merged. They are not removed, because a running process may still read them.
    """
    batches = cache_batches(warehouse, repository, kind)
    if not need_merge(batches):
        return 0
    merged = 0
    for is_small, run in groupby(batches, key=lambda batch: batch.size <= _SMALL):
        small = list(run) if is_small else []
        totals = accumulate(batch.size for batch in small)
        chosen = [batch for batch, total in zip(small, totals, strict=True) if total <= _MOST_MERGED]
        if len(chosen) > 1:
            _merge(warehouse, repository, kind, chosen, f"{chosen[-1].name.partition('-')[0]}-{run_id}{_MERGED}")
            merged += len(chosen)
    return merged


def _merge(warehouse: Warehouse, repository: str, kind: str, batches: Sequence[CacheBatch], target: str) -> None:
    """Write the rows of these batches as one batch. If several batches have a file, the newest counts."""
    newest: dict[str, tuple[CacheBatch, int]] = {}  # by id of the file: its batch, and its number of rows
    id_column = ""
    for batch in batches:
        for ids in _tables(warehouse, repository, ids_of(kind), batch.name):
            id_column = next(column for column in ids.column_names if column not in (BATCH.name, ROWS.name))
            rows = ids[ROWS.name].to_pylist()
            newest |= {one: (batch, count) for one, count in zip(ids[id_column].to_pylist(), rows, strict=True)}
    if not newest:
        return
    wanted: dict[CacheBatch, list[str]] = {}
    for one, (batch, _) in newest.items():
        wanted.setdefault(batch, []).append(one)
    counted = Counter[str]()
    with tempfile.TemporaryDirectory(prefix="retention-merge-") as directory:
        file = Path(directory) / "rows.parquet"
        with closing(_RowWriter(file, id_column, target)) as writer:
            for batch in batches:
                ids_of_batch = pa.array(wanted.get(batch, []), pa.string())
                for table in _tables(warehouse, repository, kind, batch.name):
                    counted.update(writer.append(table, ids_of_batch))
        for one, (batch, count) in newest.items():
            if batch.has_manifest and counted[one] != count:
                raise TableContractError(
                    f"{warehouse.location(repository, kind, batch.name)}: {counted[one]:,} rows of {one} can be read, "
                    f"and {count:,} were written. Nothing was deleted. Remove this directory, which is only a "
                    "cache, then run the same command again."
                )
        warehouse.write_file(file, repository, kind, target, PART)
    warehouse.mark_complete(repository, kind, target)
    # A batch without a manifest may have lost rows of a file. The next run fetches that file again.
    complete = [(one, rows) for one, (_, rows) in newest.items() if counted[one] == rows]
    columns = [[one for one, _ in complete], [target] * len(complete), [rows for _, rows in complete]]
    table = pa.table(columns, schema=pa.schema([pa.field(id_column, pa.string()), BATCH, ROWS]))
    warehouse.append_rows(table, repository, ids_of(kind), target, PART)
    warehouse.mark_complete(repository, ids_of(kind), target)
    write_manifest(warehouse, repository, kind, target, [batch.name for batch in batches])


class _RowWriter:
    """Writes the rows of a merged batch to one file."""

    def __init__(self, file: Path, id_column: str, batch: str) -> None:
        self._file, self._id_column, self._batch = file, id_column, batch
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []  # less than a row group: batches are small, and each row group costs time

    def append(self, table: pa.Table, ids: pa.Array) -> list[str]:
        """Add the rows that have these ids, and return the id of each row."""
        rows = table.filter(pc.is_in(table[self._id_column], ids))
        batch = pa.repeat(pa.scalar(self._batch), rows.num_rows)
        rows = rows.set_column(rows.column_names.index(BATCH.name), BATCH, batch)
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._file, rows.schema)
        self._waiting.append(rows.cast(self._writer.schema))
        if sum(table.num_rows for table in self._waiting) >= _ROW_GROUP:
            self._write(self._writer)
        found: list[str] = rows[self._id_column].to_pylist()
        return found

    def close(self) -> None:
        """Write the rest, and close the file, so that it is complete."""
        if self._writer is not None:
            self._write(self._writer)
            self._writer.close()

    def _write(self, writer: pq.ParquetWriter) -> None:
        if any(table.num_rows for table in self._waiting):
            writer.write_table(pa.concat_tables(self._waiting), row_group_size=_ROW_GROUP)
        self._waiting = []


def _tables(warehouse: Warehouse, repository: str, table: str, name: str) -> Iterator[pa.Table]:
    """Yield the rows of each file of a batch, with times in UTC."""
    for file in filter(has_rows, warehouse.files(repository, table, name)):
        rows = warehouse.read_rows(repository, table, name, file)
        yield rows.cast(in_utc(rows.schema.remove_metadata()), safe=False)
