"""The warehouse: the project's own tables, one directory (partition) for each table and day.

Spark writes and reads the rows. This module names the directories, stores the metadata of a partition beside its rows,
and reads and writes small JSON documents.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from functools import cached_property, partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from obstore.exceptions import BaseError
from obstore.store import LocalStore, MemoryStore, from_url

from retention_assets.config.documents import problem_in
from retention_assets.errors import ConfigurationError, GuardRefused, ObjectMissing, StoreError, TableContractError
from retention_assets.objectstore.access import NO_RETRIES, has_plain_endpoint
from retention_assets.objectstore.conditional import Conditional, require_known
from retention_assets.objectstore.failures import LIST, READ, REMOVE, WRITE, RequestKind, failure_of
from retention_assets.tables import TABLES, TIMESTAMP, maker_of, packed, remedy_of_damaged
from retention_assets.warehouse.metadata import Details, PartitionMetadata

if TYPE_CHECKING:  # Spark is imported in the functions that use it: commands without Spark start faster
    from pyspark.sql import DataFrame, SparkSession

LAYOUT = 1  # version of the directory layout; a warehouse without the document `warehouse.json` has version 1
_LAYOUT = "warehouse.json"
_DOCUMENT = re.compile(r".*\.json")
_KNOWN_LAYOUTS: set[str] = set()  # the roots whose layout this process has read
_READABLE: set[tuple[str, str, "StoredFile"]] = set()  # files that this process has checked: root, path and file
METADATA = "_facts.json"  # Spark ignores names that begin with an underscore
REPLACED = "_replaced.json"  # the metadata of the rows that a run began to replace, see `keep_metadata`
SUCCESS = "_SUCCESS"  # the marker file that Spark writes after all rows of a table
PART = "part-00000.parquet"  # the file of a merged batch of a cache
_ROW_GROUP = 8192  # rows of a row group of a table that the driver writes: each is decoded whole, and lists can be long
_FOOTER = 2**16  # bytes read from the end of a Parquet file; a longer footer takes a second read
_FEW = 10_000  # the most rows of which the driver reads a column
_AT_ONCE = 16  # footers or documents read at the same time
_ENCODED = str.maketrans({"%": "%25", "#": "%23", "?": "%3F"})
_OWN_FILE = re.compile(r"part-(\d{5}-)?[0-9a-f]{32}[-.]")  # the name of a file that this module writes or copies
_BASE_NAME = "mapreduce.output.basename"  # option of Spark and Hadoop: how the names of written files begin
_CONDITIONS = "_conditions"  # scratch file that tests whether the store honours conditional writes
_FROM_BACKUP = (
    "Copy it from a backup of the warehouse. If that copy of a plan or approval may be older than the last plan, "
    "approval or withdrawal, plan, approve or withdraw again."
)
_READ, _WRITE, _LIST, _REMOVE = (replace(one, of_warehouse=True) for one in (READ, WRITE, LIST, REMOVE))


@dataclass(frozen=True, slots=True)
class Written:
    """The number of rows that were written, and the total size in bytes of the objects in the rows.

    `observed`: further figures of these rows by name, which Spark counted while it wrote the rows.
    `files`: the digest of the files that were written; see `Warehouse.files_digest`. None: they are not known.
    """

    rows: int
    size: int
    observed: Mapping[str, Any] = field(default_factory=dict)
    files: str | None = None


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of the warehouse: its size in bytes, and when it was written (UTC, by the clock of the store)."""

    size: int
    written_at: datetime


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one partition, with the time of the data (UTC) and the details of its `PartitionMetadata`.

    Tables that grow with the number of objects are Spark frames. The driver makes and reads the small tables of
    policies and commits.
    """

    data: "DataFrame | pa.Table"
    taken_at: datetime
    details: Details = field(default_factory=Details)
    written: Written | None = None  # None: `data` is not written to the partition yet
    began: float | None = None  # when the asset began to make the rows, by `time.monotonic`
    read: Callable[[Sequence[str] | None], pa.Table] | None = None  # reads columns of the partition without Spark
    count: int | None = None  # rows of a partition that was read
    check: Callable[[], None] | None = None  # see `require_unchanged`
    made_from: Sequence["Rows"] = ()  # the partitions from which these rows are made

    def require_unchanged(self) -> None:
        """Require that the partition has the files that it had when it was opened. Errors: TableContractError.

        Spark Connect lists the directory of a frame again each time it computes the frame. Files that were replaced do
        not come back, so the rows that were read until now are those of the metadata.
        """
        if self.check:
            self.check()

    @property
    def frame(self) -> "DataFrame":
        """The rows as a frame of Spark."""
        if not self.is_held:
            return self.data
        from pyspark.sql import SparkSession

        from retention_assets.spark.frames import from_arrow

        return from_arrow(SparkSession.active(), self.data)

    @property
    def is_held(self) -> bool:
        """Whether the driver holds all rows."""
        return isinstance(self.data, pa.Table)

    @property
    def table(self) -> pa.Table:
        """All rows, in the memory of the driver."""
        if isinstance(self.data, pa.Table):
            return self.data
        return self.read(None) if self.read else self.data.toArrow()

    def columns(self, *names: str) -> pa.Table:
        """Return some columns of the rows, in the driver's memory. Others, such as lists of names, can be large."""
        return self.read(names) if self.read else self.table.select(names)

    def ids(self, name: str) -> "DataFrame | pa.Table":
        """Return one column: as a table if the rows are known to be few, and as a frame of Spark otherwise."""
        is_few = isinstance(self.data, pa.Table) or (self.count is not None and self.count <= _FEW)
        return self.columns(name) if is_few else self.frame.select(name)


class Warehouse:
    """The tables of all repositories below one root: a local path, or a URL that Spark and obstore both read.

    Every method that reads or writes raises AccessDenied or StoreError if the store fails. The message has the root,
    the path and the remedy.
    """

    def __init__(self, root: str, *, any_layout: bool = False) -> None:
        """Open the warehouse. With `any_layout`, no request is sent, and the layout is not checked.

        A directory that does not exist is read as an empty warehouse. Only a write creates it.
        """
        self._root = root.rstrip("/")
        self._stores: tuple[Any, Any] | None = None
        if not self._is_absent():
            self._open()
        if not any_layout and self._root not in _KNOWN_LAYOUTS:
            self.require_layout()

    def _is_absent(self) -> bool:
        """Return whether this is a directory that does not exist, and that a write can create.

        It is not absent if it cannot be seen, or if a link or file is in its place or above it: then opening it fails.
        """
        if "://" in self._root:
            return False
        with suppress(OSError):
            try:
                os.lstat(self._root)
            except FileNotFoundError:
                above = next((one for one in Path(self._root).parents if os.path.lexists(one)), None)
                return above is not None and above.is_dir() and os.access(above, os.W_OK | os.X_OK)
        return False

    def _open(self) -> tuple[Any, Any]:
        """Return the stores of `_opened`, which creates a directory that does not exist."""
        if self._stores is None:
            self._stores = self._call(self._opened, "", _WRITE)
        return self._stores

    @property
    def _store(self) -> Any:
        """The store for requests that read, list or remove."""
        return MemoryStore() if self._stores is None and self._is_absent() else self._open()[0]

    @cached_property
    def _conditional(self) -> Conditional:
        return Conditional(self._open()[1], request=_WRITE)

    def _opened(self) -> tuple[Any, Any]:
        """Return obstore's store for the root, and one that sends each request once.

        Spark takes the characters of a URL literally. obstore decodes `%23`, and ends the path before `#` and `?`.
        """
        if "://" not in self._root:
            if Path(self._root).is_file():
                raise ConfigurationError(
                    f"{self._root}: the warehouse is a file, and must be a directory. Nothing was read or deleted. "
                    "Correct `warehouse`."
                )
            store = LocalStore(self._root, mkdir=True)
            return store, store
        url = self._root.replace("s3a://", "s3://", 1).translate(_ENCODED)
        # As for `storage_options`, an endpoint with http:// needs no second setting.
        client: Any = {"allow_http": True} if has_plain_endpoint(url) else None
        return from_url(url, client_options=client), from_url(url, client_options=client, retry_config=NO_RETRIES)

    def _call[T](self, call: Callable[[], T], path: str, request: RequestKind) -> T:
        """Return the result of `call`. Errors: ObjectMissing, AccessDenied or StoreError if the store fails.

        The store's own exception is not attached, because its text may contain signed URLs.
        """
        try:
            return call()
        except (BaseError, OSError) as error:
            failure = failure_of(error, ())
        raise failure.as_error(self._root, path, request)

    def require_layout(self) -> None:
        """Raise TableContractError if a version with another layout of the directories wrote this warehouse."""
        document = self.read_document(_LAYOUT)
        if document is not None and document.get("layout") != LAYOUT:
            raise TableContractError(
                f"{self.location(_LAYOUT)}: the warehouse has layout {document.get('layout')!r}, and this version of "
                f"retention_assets reads layout {LAYOUT}. Nothing was read or deleted. Use the version of "
                "retention_assets that wrote the warehouse."
            )
        _KNOWN_LAYOUTS.add(self._root)

    def write_layout(self) -> None:
        """Write the version of the directory layout if it is missing, as in warehouses of earlier versions."""
        if self.read_document(_LAYOUT) is None:
            self.write_document({"layout": LAYOUT}, _LAYOUT)

    @property
    def root(self) -> str:
        """The path or URL of the warehouse. Another process opens the same warehouse with it."""
        return self._root

    def location(self, *parts: str) -> str:
        """Return the path or URL of a directory of the warehouse, for Spark."""
        return "/".join((self._root, *parts))

    def partition(self, repository: str, table: str, day: date) -> str:
        """Return the directory of one partition."""
        return self.location(repository, table, day.isoformat())

    def is_complete(self, *parts: str) -> bool:
        """Return whether all rows of the directory were written."""
        return self.file(*parts, SUCCESS) is not None

    def require(self, repository: str, table: str, day: date) -> str:
        """Return the directory of a complete partition.

        Errors: TableContractError when it is not complete; the message names the command that makes it.
        """
        if not self.is_complete(repository, table, day.isoformat()):
            raise TableContractError(
                f"{repository}: {table} of {day} is missing, or was not written completely. Nothing was deleted. "
                f"Make it: {maker_of(repository, table, day)}."
            )
        return self.partition(repository, table, day)

    def rows(
        self, spark: "SparkSession", repository: str, table: str, day: date, needed: Sequence[str] | None = None
    ) -> Rows:
        """Return the rows and metadata of a partition.

        Args:
            spark: the Spark session.
            repository: name of the repository.
            table: name of the table.
            day: day of the partition.
            needed: columns that the partition must have; None: all columns of the table.

        Errors: TableContractError when the partition is missing or incomplete, when its files have another number of
        rows than were written or are not those of its metadata, when columns are missing, or when another run writes or
        removes the partition meanwhile.
        GuardRefused when a guard refused the data in it.
        """
        parts = repository, table, day.isoformat()
        listed = self._table_files(*parts)
        metadata = self.metadata(repository, table, day)
        if refused := metadata.details.refused:
            raise GuardRefused(
                f"{repository}: {table} of {day} was refused by {refused}. Nothing was deleted. "
                f"Make it again: {maker_of(repository, table, day)}."
            )
        files = self.require_rows(repository, table, day, metadata.rows)
        if needed is None:
            needed = TABLES[table].schema.names if table in TABLES else []
        self._require_columns(files, needed, repository, table, day)
        self.require_files(metadata.files, repository, table, day, listed)

        def read(columns: Sequence[str] | None) -> pa.Table:
            from retention_assets.warehouse.reading import read_directory

            found = read_directory(self, *parts, schema=packed(TABLES[table].schema), columns=columns)
            self._require_unchanged(listed, *parts)
            return found

        frame, check = self._frame(spark, files, *parts), partial(self._require_unchanged, listed, *parts)
        check()
        return Rows(frame, metadata.taken_at, metadata.details, read=read, count=metadata.rows, check=check)

    def require_files(
        self,
        written: str | None,
        repository: str,
        table: str,
        day: date,
        listed: Sequence[tuple[str, int]] | None = None,
    ) -> None:
        """Require that a partition `has_files` that were written. Errors: TableContractError."""
        if not self.has_files(written, repository, table, day.isoformat(), listed=listed):
            raise TableContractError(
                f"{repository}: {table} of {day} has files of another run, which is not finished or was interrupted. "
                f"Nothing was deleted. Make the table again: {maker_of(repository, table, day)}."
            )

    def has_files(self, written: str | None, *parts: str, listed: Sequence[tuple[str, int]] | None = None) -> bool:
        """Return whether a directory has the files that were written; also True if it is not known which these are.

        `written`: their digest, see `files_digest`; None: it is not known. `listed`: the files that are there, if the
        caller knows them.
        """
        return written is None or written == _digest_of(self._table_files(*parts) if listed is None else listed)

    def _require_unchanged(self, listed: Sequence[tuple[str, int]], repository: str, table: str, day: str) -> None:
        """Raise TableContractError if the table files of a partition are not those that were `listed`.

        Spark and Arrow list the directory themselves. If another run replaces or removes the partition meanwhile, they
        read only some of its rows, or the rows of another run. Each file that a run writes has a name of its own, so
        names and sizes show this. Times and ETags may change by themselves on a network file system.
        """
        if self._table_files(repository, table, day) != listed:
            raise TableContractError(
                f"{repository}: {table} of {day} was written or removed by another run while it was read. Nothing more "
                f"was deleted. Run the same command again."
            )

    def frame(self, spark: "SparkSession", *parts: str) -> "DataFrame":
        """Return the rows of a directory that Spark wrote, with the columns of its files."""
        return self._frame(spark, self._footers("Plan again.", *parts), *parts)

    def write_frame(self, rows: "DataFrame", *parts: str, mode: str = "overwrite") -> str | None:
        """Write the rows of a frame to a directory with Spark, and return the digest of the files: see `files_digest`.

        The names of the files begin with a name of this write. So the digest is not of files that another run writes
        to the same directory meanwhile. It is None if a cluster gives files other names.

        `mode`: of Spark, for a directory that exists.
        Errors: AccessDenied or StoreError if the files cannot be written; TableContractError if another run replaced
        them; ConfigurationError if Spark has no jars for the store; Spark's own error for another reason.
        """
        from retention_assets.spark.failures import refused_write

        name = f"part-{uuid4().hex}"

        def write() -> None:
            try:
                rows.write.option(_BASE_NAME, name).mode(mode).parquet(self.location(*parts))
            except Exception as error:
                self._require_file_system(error)
                if reason := refused_write(str(error)):
                    raise OSError(reason) from error
                raise

        self._call(write, "/".join(parts), _WRITE)
        found = {path.rpartition("/")[2]: size for path, size in self._table_files(*parts)}
        written = [(one, size) for one, size in found.items() if one.startswith(name)]
        if not written and any(_OWN_FILE.match(one) for one in found):
            raise TableContractError(
                f"{self.location(*parts)}: another run replaced these files while they were written. Nothing was "
                "deleted. Run the same command again."
            )
        return _digest_of(written) if written else None

    def require_used_by_spark(self, spark: "SparkSession") -> None:
        """Require that Spark can read a warehouse in a store, for which it has its own client and credentials.

        Errors: ConfigurationError if Spark has no jars for the store; AccessDenied or StoreError if it cannot read it.
        """
        from retention_assets.spark.failures import first_line
        from retention_assets.spark.frames import opened_files

        def read() -> None:
            try:
                opened_files(spark).text(self.location(_LAYOUT)).isEmpty()
            except Exception as error:
                self._require_file_system(error)
                raise OSError(f"Spark: {first_line(error)}") from error

        self._call(read, _LAYOUT, _READ)

    def _require_file_system(self, error: Exception) -> None:
        """Raise ConfigurationError if the error of Spark means that Spark has no jars for the store."""
        from retention_assets.spark.failures import missing_file_system

        if reason := missing_file_system(str(error)):
            scheme = " Outside EMR, write the URL with `s3a://`." if self._root.startswith("s3://") else ""
            raise ConfigurationError(
                f"{self._root}: Spark cannot use the warehouse, because it has no jars for this store ({reason}). "
                f"Nothing was deleted. Name the jars with `spark.jars.packages` under `spark` in the configuration; "
                f"docs/running.md has an example.{scheme}"
            ) from error

    def _frame(self, spark: "SparkSession", files: Sequence[pq.FileMetaData], *parts: str) -> "DataFrame":
        """Read a directory with the schema in its files' footers, because Spark would start a job to infer it."""
        from pyspark.sql.pandas.types import from_arrow_schema

        from retention_assets.spark.frames import opened_files

        reader = opened_files(spark)
        if files:
            reader = reader.schema(from_arrow_schema(in_utc(files[0].schema.to_arrow_schema())))
        return reader.parquet(self.location(*parts))

    def _require_columns(
        self, files: Sequence[pq.FileMetaData], needed: Sequence[str], repository: str, table: str, day: date
    ) -> None:
        missing = sorted({name for file in files for name in set(needed) - set(file.schema.to_arrow_schema().names)})
        if missing:
            raise TableContractError(
                f"{repository}: {table} of {day} is missing the columns {', '.join(missing)}: another version made it. "
                f"Nothing was deleted. Make it again: {maker_of(repository, table, day)}."
            )

    def require_rows(self, repository: str, table: str, day: date, written: int) -> list[pq.FileMetaData]:
        """Require that a partition has as many rows as were written. See `require_row_count`."""
        remedy = f"Make the table again: {maker_of(repository, table, day)}."
        return self.require_row_count(written, repository, table, day.isoformat(), remedy=remedy)

    def require_row_count(self, written: int, *parts: str, remedy: str) -> list[pq.FileMetaData]:
        """Require that the files of a directory have as many rows as were written, and return their footers.

        If executors write to their own local disks, the directory looks complete but some files are not visible here.
        Only the footers are read.
        Errors: TableContractError, also for a file that is incomplete or not a Parquet file. The message has `remedy`.
        """
        files = self._footers(remedy, *parts)
        if (found := sum(file.num_rows for file in files)) != written:
            raise TableContractError(
                f"{self.location(*parts)}: has {found:,} rows, and {written:,} were written. Nothing was deleted. "
                f"{remedy} If this fails again, another run writes the same files, or the machines of the cluster do "
                "not see the same warehouse."
            )
        return files

    def _footers(self, remedy: str, *parts: str) -> list[pq.FileMetaData]:
        files = self._table_files(*parts)
        if len(files) == 1:
            return [self._footer_of(*files[0], remedy)]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(lambda file: self._footer_of(file[0], file[1], remedy), files))

    def _table_files(self, *parts: str) -> list[tuple[str, int]]:
        """Return path and size of the Parquet files in a directory."""
        listed = self._level(*parts)["objects"]
        return sorted((one["path"], one["size"]) for one in listed if has_rows(one["path"].rpartition("/")[2]))

    def files_digest(self, *parts: str) -> str:
        """Return the digest of the names and sizes of a table's files. All files that a run writes have new names."""
        return _digest_of(self._table_files(*parts))

    def read_with[T](self, read: Callable[[], T], *parts: str) -> T:
        """Return the result of `read`, which reads the tables of this path with pyarrow.

        Errors: AccessDenied or StoreError; TableContractError if a file is damaged.
        """
        try:
            return self._call(read, "/".join(parts), _READ)
        except (pa.ArrowException, StoreError) as error:
            self._require_undamaged(*parts)
            if isinstance(error, StoreError):
                raise
            raise TableContractError(
                f"{self.location(*parts)}: the files have other columns: {str(error).rstrip('.')}. Nothing was "
                "deleted. Copy them from a backup of the warehouse. If they belong to a plan, you can also plan again. "
                "If they belong to a cache, you can also remove their directory."
            ) from error

    def _require_undamaged(self, *parts: str) -> None:
        """Raise TableContractError if a Parquet file in a directory and below it cannot be decoded.

        Pyarrow raises the same error for a damaged page as for a store that fails, and does not name the file. So each
        file is read again from the store. If this fails, it is unknown whether a file is damaged.
        """
        with suppress(StoreError):  # also ObjectMissing and AccessDenied
            for path in sorted(self.tree(*parts)) or ["/".join(parts)]:
                if has_rows(path.rpartition("/")[2]):
                    self._decoded(self._get(path), path)

    def _decoded(self, content: bytes, path: str) -> pa.Table:
        try:
            return pq.read_table(_of_arrow(content))
        except (pa.ArrowException, OSError) as error:
            raise TableContractError(
                f"{self.location(path)}: is incomplete or damaged: {' '.join(str(error).split()).rstrip('.')}. Nothing "
                f"was deleted. {remedy_of_damaged(path)}"
            ) from error

    def _level(self, *parts: str) -> Mapping[str, Any]:
        path = "/".join(parts)
        level: Mapping[str, Any] = self._call(lambda: self._store.list_with_delimiter(path), path, _LIST)
        return level

    def _footer_of(self, path: str, size: int, remedy: str) -> pq.FileMetaData:
        def end(length: int) -> bytes:
            start = max(0, size - length)
            return self._call(lambda: bytes(self._store.get_range(path, start=start, end=size)), path, _READ)

        tail = end(_FOOTER) if size else b""
        length = int.from_bytes(tail[-8:-4], "little") + 8  # of the footer, its length field and the magic bytes
        try:
            return pq.read_metadata(pa.BufferReader(tail if min(length, size) <= len(tail) else end(length)))
        except (pa.ArrowException, OSError, ValueError) as error:
            raise TableContractError(
                f"{self.location(path)}: is damaged, or not a Parquet file: {str(error).strip().rstrip('.')}. Nothing "
                f"was changed or deleted. {remedy}"
            ) from error

    def require_readable(self, files: Mapping[str, StoredFile], columns: Collection[str], remedy: str) -> None:
        """Require that Parquet files are complete and have these columns. `files`: by path below the root.

        Spark ignores an empty file, and reads a missing column as nulls. The files never change, so each is checked
        once in a process. Errors: TableContractError that names the file; the message has `remedy`.
        """

        def check(path: str) -> None:
            found = self._footer_of(path, files[path].size, remedy).schema.names
            if missing := sorted(set(columns) - set(found)):
                raise TableContractError(
                    f"{self.location(path)}: is missing the columns {', '.join(missing)}. Nothing was changed or "
                    f"deleted. {remedy}"
                )
            _READABLE.add((self._root, path, files[path]))

        unchecked = [path for path, file in files.items() if (self._root, path, file) not in _READABLE]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(check, sorted(unchecked)))

    def directories(self, *parts: str) -> list[str]:
        """Return the names of the directories in a directory, sorted; empty if it does not exist."""
        return sorted(name.rstrip("/").rsplit("/", 1)[-1] for name in self._level(*parts)["common_prefixes"])

    def write_metadata(self, repository: str, table: str, day: date, metadata: PartitionMetadata) -> None:
        """Write the metadata of a partition beside its rows. Call this after the rows are written."""
        self.write_document(metadata.document(), repository, table, day.isoformat(), METADATA)

    def keep_metadata(self, repository: str, table: str, day: date) -> None:
        """Keep the metadata of a partition while `write_table` replaces its rows: the run may be interrupted."""
        partition = repository, table, day.isoformat()
        if document := self.read_document(*partition, METADATA):
            self.write_document(document, *partition, REPLACED)

    def newest_rows(self, repository: str, table: str) -> int:
        """Return the number of rows in the table's newest complete partition; 0 if there is none."""
        for day in reversed(self.directories(repository, table)):
            with suppress(TableContractError):  # damaged metadata: a plan writes them again
                if metadata := self.metadata_if_there(repository, table, day):
                    return metadata.rows
        return 0

    def metadata(self, repository: str, table: str, day: date) -> PartitionMetadata:
        """Return the metadata of a partition. Errors: TableContractError when it is incomplete or damaged."""
        self.require(repository, table, day)
        metadata = self.metadata_if_there(repository, table, day.isoformat())
        if metadata is None:
            raise TableContractError(
                f"{repository}: {table} of {day} has no metadata: its run was interrupted. Nothing was deleted. "
                f"Make it again: {maker_of(repository, table, day)}."
            )
        return metadata

    def metadata_if_there(
        self, repository: str, table: str, day: str, name: str = METADATA
    ) -> PartitionMetadata | None:
        """Return the metadata of a partition that may be incomplete; None if it has none. `name`: of the file.

        Errors: TableContractError when the metadata is damaged.
        """
        document = self.read_document(repository, table, day, name)
        try:
            return None if document is None else PartitionMetadata.of_document(document)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise TableContractError(
                f"{repository}: the metadata of {table} of {day} is damaged: {error!r}. Nothing was deleted. "
                f"Make it again: {maker_of(repository, table, day)}."
            ) from error

    def write_document(self, document: Mapping[str, Any], *parts: str) -> None:
        """Write a small JSON document atomically. Errors: AccessDenied or StoreError."""
        self._put(_encoded(document), *parts)

    def write_text(self, text: str, *parts: str) -> str:
        """Write a text atomically. Return its path or URL."""
        self._put(text.encode(), *parts)
        return self.location(*parts)

    def _put(self, content: bytes | Path, *parts: str) -> None:
        path = "/".join(parts)
        self._call(lambda: self._open()[0].put(path, content), path, _WRITE)

    def create_document(self, document: Mapping[str, Any], *parts: str) -> bool:
        """Create a small JSON document. Return False, and write nothing, if a document exists at the path.

        If several writers create the same path at once, exactly one gets True. Their documents must differ.
        Errors: AccessDenied or StoreError, also when it is unknown whether the document was written.
        """
        path = "/".join(parts)
        return require_known(self._conditional.create(path, _encoded(document)), self._root, path, _WRITE)

    @property
    def is_local(self) -> bool:
        """Whether the warehouse is in a directory of this machine."""
        return "://" not in self._root or self._root.startswith("file://")

    def require_conditions(self, scratch: str = _CONDITIONS) -> None:
        """Raise GuardRefused if the store ignores conditional writes: two sweeps could then hold the same lease.

        See `Conditional`. The test leaves the file `scratch`. Do not remove the default file: another run may use it.
        Errors: also AccessDenied or StoreError when the test could not run.
        """
        self._conditional.require_honoured(scratch, self._root, with_replace=not self.is_local)

    def append_rows(self, rows: pa.Table, *parts: str) -> None:
        """Write rows atomically as one new Parquet file.

        Errors: TableContractError when the file exists; AccessDenied or StoreError, also when it is unknown whether the
        file was written.
        """
        target, path = BytesIO(), "/".join(parts)
        pq.write_table(rows, target)
        created = self._conditional.create(path, target.getvalue())
        if not require_known(created, self._root, path, _WRITE):
            raise TableContractError(
                f"{self.location(*parts)}: the file exists already. It was not overwritten. Run the same command again."
            )

    def write_file(self, source: Path, *parts: str) -> None:
        """Copy a file of this machine into the warehouse."""
        self._put(source, *parts)

    def mark_complete(self, *parts: str) -> None:
        """Mark a directory as complete, as Spark does when it has written all rows."""
        self._put(b"", *parts, SUCCESS)

    def write_table(self, rows: pa.Table, *parts: str) -> str:
        """Replace a directory with one Parquet file of these rows, as Spark does, and return the digest of the file.

        A file that `keep_metadata` wrote stays. Errors: as `write_document`.
        """
        self.remove_directory(*parts, keep=REPLACED)
        target = BytesIO()
        pq.write_table(rows, target, store_schema=False, row_group_size=_ROW_GROUP)
        # A new name, as Spark gives its files: a frame of the replaced file must not read the rows of this one.
        content, name = target.getvalue(), f"part-00000-{uuid4().hex}.parquet"
        self._put(content, *parts, name)
        self.mark_complete(*parts)
        return _digest_of([(name, len(content))])

    def copy_table(self, source: Sequence[str], target: Sequence[str]) -> str:
        """Replace the directory `target` with a copy of the table files in `source`. Return the digest of the copies.

        An object store copies the files itself. The copies have new names, like files that Spark writes. The target
        is marked as complete after all files are copied. Errors: as `write_document`.
        """
        self.remove_directory(*target)
        copies = []
        for number, (path, size) in enumerate(self._table_files(*source)):
            copy = "/".join((*target, f"part-{number:05}-{uuid4().hex}.parquet"))
            self._call(partial(self._copy, path, copy), copy, _WRITE)
            copies.append((copy, size))
        self.mark_complete(*target)
        return _digest_of(copies)

    def _copy(self, path: str, copy: str) -> None:
        if not self.is_local:
            self._store.copy(path, copy)
            return
        source, target = Path(self._local(path)), Path(self._local(copy))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)  # obstore would make a hard link, so both tables would share one file
        with suppress(FileNotFoundError):  # only Spark's own files have checksums, which Spark verifies
            shutil.copyfile(_checksums(source), _checksums(target))

    def content_digest(self, *parts: str) -> str:
        """Return the digest of the contents of a table's files on a disk. An object store verifies contents itself."""

        def content(path: str) -> str:
            with Path(self._local(path)).open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()

        paths = [path for path, _ in self._table_files(*parts)] if self.is_local else []
        contents = sorted(self._call(partial(content, path), path, _READ) for path in paths)
        return hashlib.sha256(json.dumps(contents).encode()).hexdigest()

    def _local(self, *parts: str) -> str:
        return self.location(*parts).removeprefix("file://")

    def read_rows(self, *parts: str) -> pa.Table:
        """Return the rows of one Parquet file.

        Errors: TableContractError when the file is missing, incomplete or damaged.
        """
        path = "/".join(parts)
        try:
            content = self._get(path)
        except ObjectMissing as error:
            raise TableContractError(
                f"{self.location(path)}: the file is missing. Nothing was deleted. Copy it from a backup of the "
                "warehouse."
            ) from error
        return self._decoded(content, path)

    def _get(self, *parts: str) -> bytes:
        path = "/".join(parts)
        return self._call(lambda: bytes(self._store.get(path).bytes()), path, _READ)

    def read_document(self, *parts: str, shape: Any = None, remedy: str = _FROM_BACKUP) -> dict[str, Any] | None:
        """Return a JSON document; None if it does not exist. `shape`: the keys that the caller needs; see `problem_in`.

        Errors: TableContractError if it is not a JSON object, or has another shape; AccessDenied or StoreError if it
        could not be read. The message of the first one has `remedy`.
        """
        try:
            content = self._get(*parts)
        except ObjectMissing:
            return None
        try:
            document = json.loads(content)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise TableContractError(f"{self.location(*parts)}: is not a JSON object. Nothing was deleted. {remedy}")
        if shape is not None and (problem := problem_in(document, shape)):
            raise TableContractError(
                f"{self.location(*parts)}: is damaged, or another version wrote it: {problem}. Nothing was deleted. "
                f"{remedy}"
            )
        return document

    def documents(self, *parts: str) -> list[str]:
        """Return the names of the JSON documents in a directory, sorted."""
        return [name for name in self.files(*parts) if name.endswith(".json")]

    def has_document_after(self, *parts: str, named: re.Pattern[str] = _DOCUMENT) -> bool:
        """Return whether the directory of this document has a document with a greater name, of those that are `named`.

        If the store can begin a listing after a name, smaller names are not listed.
        """
        path, directory = "/".join(parts), "/".join((*parts[:-1], ""))

        def found() -> bool:
            listed = (entry["path"] for page in self._store.list(directory, offset=path) for entry in page)
            later = (one.removeprefix(directory) for one in listed if one > path)  # a store may ignore the offset
            return any(map(named.fullmatch, later))

        return self._call(found, directory, _LIST)

    def read_documents(self, *parts: str, shape: Any) -> list[dict[str, Any]]:
        """Return the JSON documents in a directory, in the order of their names. `shape`: see `read_document`."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            found = pool.map(lambda name: self.read_document(*parts, name, shape=shape), self.documents(*parts))
            return [document for document in found if document is not None]

    def files(self, *parts: str) -> list[str]:
        """Return the names of the files directly in a directory, sorted; empty if the directory does not exist."""
        return sorted(entry["path"].rsplit("/", 1)[-1] for entry in self._level(*parts)["objects"])

    def file(self, *parts: str) -> StoredFile | None:
        """Return the size and the write time of a file; None if it does not exist."""
        path = "/".join(parts)
        try:
            found = self._call(lambda: self._store.head(path), path, _READ)
        except ObjectMissing:
            return None
        return StoredFile(found["size"], found["last_modified"])

    def tree(self, *parts: str) -> dict[str, StoredFile]:
        """Return every file in a directory and below it, by its path below the root."""
        prefix = "/".join((*parts, ""))

        def listed() -> dict[str, StoredFile]:
            return {
                entry["path"]: StoredFile(entry["size"], entry["last_modified"])
                for entries in self._store.list(prefix)
                for entry in entries
            }

        return self._call(listed, prefix, _LIST)

    def remove_document(self, *parts: str, written_until: datetime | None = None) -> bool:
        """Remove a document if it exists. Return whether it is gone.

        A document that was written after `written_until` stays.
        """
        found = self.file(*parts)
        if found is None:
            return True
        if written_until is not None and found.written_at > written_until:
            return False
        self.remove_file(*parts)
        return True

    def remove_file(self, *parts: str) -> None:
        """Remove a file that exists. The credentials need no permission to read it."""
        path = "/".join(parts)
        self._call(lambda: self._store.delete(path), path, _REMOVE)

    def remove_directory(self, *parts: str, keep: str | None = None) -> None:
        """Remove a directory of this warehouse with its contents, if it exists. `keep`: the name of one that stays."""
        if "://" not in self._root:
            directory = Path(self.location(*parts))
            if keep is None or not (directory / keep).exists():
                shutil.rmtree(directory, ignore_errors=True)
                return
            for entry in directory.iterdir():  # another run may remove the same files
                if entry.name != keep:
                    entry.unlink(missing_ok=True)
            return
        path = "/".join(parts)

        def remove() -> None:
            for entries in self._store.list(path):
                self._store.delete([entry["path"] for entry in entries if entry["path"] != f"{path}/{keep}"])

        self._call(remove, path, _REMOVE)

    def remove_files(self, paths: Collection[str], *parts: str) -> None:
        """Remove files in a directory and below it, and the directories that are empty then. Other files stay.

        `paths`: the paths below the root. On a local disk, links are removed and not followed, and a file that cannot
        be removed stays without an error.
        """
        if "://" in self._root:
            self._call(lambda: self._store.delete(sorted(paths)), "/".join(parts), _REMOVE)
            return
        for folder, directories, names in os.walk(self.location(*parts), topdown=False):  # follows no links
            for one in (Path(folder, name) for name in (*names, *directories)):
                if one.relative_to(self._root).as_posix() in paths or one.is_symlink():
                    with suppress(OSError):
                        one.unlink()
            with suppress(OSError):  # it is not empty
                Path(folder).rmdir()

    def is_link(self, *parts: str) -> bool:
        """Return whether a directory or file is a symbolic link, whose target may be outside the warehouse."""
        return self.is_local and Path(self._local(*parts)).is_symlink()


def _checksums(file: Path) -> Path:
    """Return the file with Spark's checksums of a file."""
    return file.with_name(f".{file.name}.crc")


def has_rows(name: str) -> bool:
    """Return whether a file with this name has rows of a table. Spark ignores names that begin with `_` or `.`."""
    return name.endswith(".parquet") and name[0] not in "._"


def in_utc(schema: pa.Schema) -> pa.Schema:
    """Return the schema with all times in UTC. Sessions of other projects may write times without a time zone."""
    fields = [field.with_type(TIMESTAMP) if pa.types.is_timestamp(field.type) else field for field in schema]
    return pa.schema(fields)


def _digest_of(files: Iterable[tuple[str, int]]) -> str:
    named = sorted((path.rpartition("/")[2], size) for path, size in files)
    return hashlib.sha256(json.dumps([one for one in named if has_rows(one[0])]).encode()).hexdigest()


def _encoded(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False).encode()


def _of_arrow(content: bytes) -> pa.BufferReader:
    """Return a reader of a copy of the content in a buffer that Arrow owns.

    Arrow threads may release the buffer after the reading function has returned. Releasing a Python file or Python
    bytes needs Python's global lock. A thread that waits for this lock while the process exits aborts the process.
    """
    copy = pa.BufferOutputStream()
    copy.write(content)
    return pa.BufferReader(copy.getvalue())
