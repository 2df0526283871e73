"""Where our own tables lie: one directory per table and day, with the facts of its making beside the rows.

Rows are written and read by Spark; this module names the places, and reads and writes the small documents.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from obstore.exceptions import NotFoundError
from obstore.store import LocalStore, from_url
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from retention_assets.errors import GuardRefused, TableContractError
from retention_assets.objectstore.access import NO_RETRIES
from retention_assets.objectstore.conditional import Conditional, require_known
from retention_assets.objectstore.failures import WRITE, Failure
from retention_assets.tables import DELETION_PROOF, DELETION_REPORT, TABLES

REFUSED = "refused"  # note of a table: the guards that refused it, which is written all the same for people to see
FACTS = "_facts.json"  # Spark passes over names that begin with an underscore
_SUCCESS = "_SUCCESS"
_FOOTER = 2**16  # bytes read from a Parquet file's end: footers of our tables are smaller, a longer one is read again
_AT_ONCE = 16  # files whose footers are read at once
_CONDITIONS = "_conditions"  # a file that shows whether the store honours conditions


@dataclass(frozen=True, slots=True)
class Facts:
    """What was true when a partition was made. Instants are UTC, by this machine's clock unless said otherwise."""

    taken_at: datetime  # the picture in the table is no older than this
    rows: int
    run_id: str
    notes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one partition, when their picture was taken (UTC), and what else must be known of them."""

    frame: DataFrame
    taken_at: datetime
    notes: Mapping[str, str] = field(default_factory=dict)


class Warehouse:
    """The tables of all repositories below one root: a local path, or a URL that Spark and obstore both read."""

    def __init__(self, root: str) -> None:
        self._root = root.rstrip("/")
        if "://" in self._root:
            url = self._root.replace("s3a://", "s3://", 1)
            self._store: Any = from_url(url)
            self._conditional = Conditional(from_url(url, retry_config=NO_RETRIES))
        else:
            self._store = LocalStore(self._root, mkdir=True)
            self._conditional = Conditional(self._store)

    @property
    def root(self) -> str:
        """Where everything lies: what another process opens the same warehouse by."""
        return self._root

    def location(self, *parts: str) -> str:
        """Return where Spark finds a directory of the warehouse."""
        return "/".join((self._root, *parts))

    def partition(self, repository: str, table: str, day: date) -> str:
        """Return the directory of one partition."""
        return self.location(repository, table, day.isoformat())

    def is_complete(self, *parts: str) -> bool:
        """Return whether Spark finished writing the directory."""
        return self._exists("/".join((*parts, _SUCCESS)))

    def require(self, repository: str, table: str, day: date) -> str:
        """Return the partition's directory. Errors: TableContractError that names the command that makes it."""
        if not self.is_complete(repository, table, day.isoformat()):
            raise TableContractError(
                f"{repository}: {table} of {day} is not there, or its writing was cut off. Nothing was deleted. "
                f"Make it: `retention {_maker(table)} {repository} --as-of {day}`."
            )
        return self.partition(repository, table, day)

    def rows(
        self, spark: SparkSession, repository: str, table: str, day: date, needed: Sequence[str] | None = None
    ) -> Rows:
        """Return a partition with its facts. `needed`: columns that it must have; None: all of its table.

        Errors: TableContractError naming the command that makes it, also when the files have not as many rows as were
        written, or lack columns; GuardRefused when a guard refused what is in it.
        """
        facts = self.facts(repository, table, day)
        if refused := facts.notes.get(REFUSED):
            raise GuardRefused(
                f"{repository}: {table} of {day} was refused by {refused}. Nothing was deleted. "
                f"Make it again: `retention {_maker(table)} {repository} --as-of {day}`."
            )
        files = self.require_rows(repository, table, day, facts.rows)
        if needed is None:
            needed = TABLES[table].schema.names if table in TABLES else []
        self._require_columns(files, needed, repository, table, day)
        return Rows(self._frame(spark, files, repository, table, day.isoformat()), facts.taken_at, facts.notes)

    def frame(self, spark: SparkSession, *parts: str) -> DataFrame:
        """Return the rows of a directory that Spark wrote, with the columns that its files have."""
        return self._frame(spark, self._footers(*parts), *parts)

    def _frame(self, spark: SparkSession, files: Sequence[pq.FileMetaData], *parts: str) -> DataFrame:
        """Read with the schema of the files' footers: Spark would start a job to find it."""
        reader = spark.read.schema(from_arrow_schema(files[0].schema.to_arrow_schema())) if files else spark.read
        return reader.parquet(self.location(*parts))

    def _require_columns(
        self, files: Sequence[pq.FileMetaData], needed: Sequence[str], repository: str, table: str, day: date
    ) -> None:
        lacking = sorted({name for file in files for name in set(needed) - set(file.schema.to_arrow_schema().names)})
        if lacking:
            raise TableContractError(
                f"{repository}: {table} of {day} lacks the columns {', '.join(lacking)}: another version made it. "
                f"Nothing was deleted. Make it again: `retention {_maker(table)} {repository} --as-of {day}`."
            )

    def require_rows(self, repository: str, table: str, day: date, written: int) -> list[pq.FileMetaData]:
        """Require that a partition's files have as many rows as were written, and return their footers.

        Where executors write to disks of their own, the directory is complete and some of its files are not seen.
        Errors: TableContractError.
        """
        files = self._footers(repository, table, day.isoformat())
        if (found := sum(file.num_rows for file in files)) != written:
            raise TableContractError(
                f"{repository}: {table} of {day} has {found:,} rows in {self.partition(repository, table, day)}, and "
                f"{written:,} were written. Nothing was deleted. Make it again: `retention {_maker(table)} "
                f"{repository} --as-of {day}`. If that does not help, the cluster's machines do not see one warehouse."
            )
        return files

    def row_count(self, *parts: str) -> int:
        """Return how many rows the Parquet files of a directory have, by their footers: no row is read.

        Errors: TableContractError for a file that is no whole Parquet file.
        """
        return sum(file.num_rows for file in self._footers(*parts))

    def _footers(self, *parts: str) -> list[pq.FileMetaData]:
        listed = self._store.list_with_delimiter("/".join(parts))["objects"]
        files = {one["path"]: one["size"] for one in listed}
        tables = [path for path in files if path.endswith(".parquet") and path.rpartition("/")[2][0] not in "._"]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(lambda path: self._footer_of(path, files[path]), tables))

    def _footer_of(self, path: str, size: int) -> pq.FileMetaData:
        def end(length: int) -> bytes:
            return bytes(self._store.get_range(path, start=max(0, size - length), end=size))

        tail = end(_FOOTER)
        length = int.from_bytes(tail[-8:-4], "little") + 8  # of the footer, with its length and the format's mark
        try:
            return pq.read_metadata(pa.BufferReader(tail if length <= len(tail) else end(length)))
        except pa.ArrowException as error:
            raise TableContractError(f"{self.location(path)}: is cut off, or no Parquet file: {error}") from error

    def directories(self, *parts: str) -> list[str]:
        """Return the names of the directories below a place, sorted; none when the place is not there."""
        prefix = "/".join(parts)
        found = self._store.list_with_delimiter(prefix)["common_prefixes"]
        return sorted(name.rstrip("/").rsplit("/", 1)[-1] for name in found)

    def write_facts(self, repository: str, table: str, day: date, facts: Facts) -> None:
        """Lay the facts beside the rows, after the rows."""
        document = {**asdict(facts), "taken_at": facts.taken_at.isoformat()}
        self.write_document(document, repository, table, day.isoformat(), FACTS)

    def facts(self, repository: str, table: str, day: date) -> Facts:
        """Return the facts of a partition. Errors: TableContractError when its writing did not end."""
        self.require(repository, table, day)
        document = self.read_document(repository, table, day.isoformat(), FACTS)
        if document is None:
            raise TableContractError(
                f"{repository}: {table} of {day} was written, its facts were not. Nothing was deleted. "
                f"Make it again: `retention {_maker(table)} {repository} --as-of {day}`."
            )
        return Facts(
            datetime.fromisoformat(document["taken_at"]).astimezone(UTC),
            document["rows"],
            document["run_id"],
            document["notes"],
        )

    def write_document(self, document: Mapping[str, Any], *parts: str) -> None:
        """Write a small JSON document, whole or not at all."""
        self._store.put("/".join(parts), _text(document))

    def create_document(self, document: Mapping[str, Any], *parts: str) -> bool:
        """Write a small JSON document where none is; return False when something is there, which then stays.

        Of several writers at once one is answered True; their documents must differ. Errors: AccessDenied or
        StoreError, also when it cannot be known whether it was written.
        """
        path = "/".join(parts)
        return require_known(self._conditional.create(path, _text(document)), self._root, path)

    @property
    def is_local(self) -> bool:
        """Whether it lies in a directory of this machine."""
        return "://" not in self._root or self._root.startswith("file://")

    def require_conditions(self) -> None:
        """Refuse a store that ignores conditions: two sweeps would then both hold a lease. See `Conditional`.

        Errors: GuardRefused; AccessDenied or StoreError when it cannot be known.
        """
        self._conditional.require_honoured(_CONDITIONS, self._root, with_replace=not self.is_local)

    def append_rows(self, rows: pa.Table, *parts: str) -> None:
        """Write rows as one Parquet file, whole, where none is yet.

        Errors: TableContractError when one is there; AccessDenied or StoreError when it may not have been written.
        """
        target, path = BytesIO(), "/".join(parts)
        pq.write_table(rows, target)
        answer = self._conditional.create(path, target.getvalue())
        if isinstance(answer, Failure):
            raise answer.as_error(self._root, path, WRITE)
        if not answer:
            raise TableContractError(f"{self.location(*parts)}: is there already; nothing was written over")

    def read_rows(self, *parts: str) -> pa.Table:
        """Return what `append_rows` wrote."""
        return pq.read_table(_of_arrow(self._store.get("/".join(parts)).bytes()))

    def read_document(self, *parts: str) -> dict[str, Any] | None:
        """Return a JSON document, or None when there is none."""
        try:
            content = bytes(self._store.get("/".join(parts)).bytes())
        except (FileNotFoundError, NotFoundError):
            return None
        document = json.loads(content)
        if not isinstance(document, dict):
            raise TableContractError(f"{self.location(*parts)}: is not a JSON object")
        return document

    def documents(self, *parts: str) -> list[str]:
        """Return the names of the JSON documents in a directory, sorted."""
        return [name for name in self.files(*parts) if name.endswith(".json")]

    def files(self, *parts: str) -> list[str]:
        """Return the names of the files directly in a directory, sorted; none when it is not there."""
        objects = self._store.list_with_delimiter("/".join(parts))["objects"]
        return sorted(entry["path"].rsplit("/", 1)[-1] for entry in objects)

    def remove_document(self, *parts: str) -> None:
        """Remove a document; one that is not there is fine."""
        if self._exists("/".join(parts)):
            self._store.delete("/".join(parts))

    def remove_directory(self, *parts: str) -> None:
        """Remove a directory of this warehouse with all that is in it; one that is not there is fine."""
        if "://" not in self._root:
            shutil.rmtree(self.location(*parts), ignore_errors=True)
            return
        for entries in self._store.list("/".join(parts)):
            self._store.delete([entry["path"] for entry in entries])

    def _exists(self, path: str) -> bool:
        try:
            self._store.head(path)
        except (FileNotFoundError, NotFoundError):
            return False
        return True


def _text(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False).encode()


def _of_arrow(content: bytes) -> pa.BufferReader:
    """Return a reader of a copy of the content that belongs to Arrow alone.

    Arrow's threads may release what they read after the reading function has returned. A file or bytes of Python's are
    released under Python's lock. A thread that waits for this lock while the process ends aborts the process.
    """
    copy = pa.BufferOutputStream()
    copy.write(content)
    return pa.BufferReader(copy.getvalue())


def _maker(table: str) -> str:
    """Return the command that makes a table."""
    return {DELETION_REPORT.name: "sweep", DELETION_PROOF.name: "verify"}.get(table, "plan")
