"""Writes inventories as Amazon S3 delivers them: CSV, ORC and Parquet files, manifest and checksum."""

import csv
import gzip
import hashlib
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote_plus

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq

from retention_assets.inventory.rows import OBJECTS

LISTINGS = Path(__file__).parent / "data" / "lakefs"
FORMATS = ("CSV", "ORC", "Parquet")
_EXTENSIONS = {"CSV": "csv.gz", "ORC": "orc", "Parquet": "parquet"}
_CSV_SCHEMA = {
    "bucket": "Bucket",
    "key": "Key",
    "version_id": "VersionId",
    "is_latest": "IsLatest",
    "is_delete_marker": "IsDeleteMarker",
    "size": "Size",
    "last_modified_date": "LastModifiedDate",
    "e_tag": "ETag",
    "storage_class": "StorageClass",
}
_PARQUET_TYPES = {
    "is_latest": "boolean {}",
    "is_delete_marker": "boolean {}",
    "size": "int64 {}",
    "last_modified_date": "int64 {} (TIMESTAMP(MILLIS,true))",
}
_ORC_TYPES = {
    "is_latest": "boolean",
    "is_delete_marker": "boolean",
    "size": "bigint",
    "last_modified_date": "timestamp",
}
_ARROW_TYPES: dict[str, pa.DataType] = {
    "is_latest": pa.bool_(),
    "is_delete_marker": pa.bool_(),
    "size": pa.int64(),
    "last_modified_date": pa.timestamp("ms", tz="UTC"),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One row of an inventory. A delete marker has neither size nor ETag."""

    key: str
    size: int | None = 1
    last_modified: datetime = datetime(2026, 10, 1, tzinfo=UTC)
    etag: str | None = "0" * 32
    version_id: str = ""
    is_latest: bool | None = True
    is_delete_marker: bool | None = False
    bucket: str | None = None  # None: the inventory's own


@dataclass(frozen=True, slots=True)
class MadeInventory:
    """The objects of one delivery by key in the destination bucket, and the keys of its parts."""

    objects: dict[str, bytes]
    folder: str  # prefix/source-bucket/config-ID
    delivery: str  # YYYY-MM-DDTHH-MMZ
    files: tuple[str, ...] = field(default=())

    @property
    def manifest(self) -> bytes:
        return self.objects[f"{self.folder}/{self.delivery}/manifest.json"]

    @property
    def checksum(self) -> bytes:
        return self.objects[f"{self.folder}/{self.delivery}/manifest.checksum"]

    def write_to(self, directory: Path) -> str:
        """Write all objects below `directory` instead of the bucket; return the URL of the config-ID folder."""
        for key, content in self.objects.items():
            target = directory / key
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        return f"file://{directory.resolve()}/{self.folder}"


def listed_rows(repository: str) -> list[Row]:
    """Return `listing.csv` of a repository under tests/data/lakefs as rows of an inventory."""
    with (LISTINGS / repository / "listing.csv").open(encoding="utf-8", newline="") as lines:
        return [
            Row(line["key"], int(line["size"]), datetime.fromisoformat(line["last_modified"]), line["etag"])
            for line in csv.DictReader(lines)
        ]


def objects_table(rows: Sequence[Row], bucket: str) -> pa.Table:
    """Return the expected result of reading an inventory with `rows`."""
    plain = [(row.bucket or bucket, row.key, row.size, row.last_modified, row.etag) for row in rows]
    columns = zip(*plain, strict=True)
    return pa.Table.from_arrays(
        [pa.array(list(column), kind) for column, kind in zip(columns, OBJECTS.types, strict=True)], schema=OBJECTS
    )


def make_inventory(
    rows: Sequence[Row],
    bucket: str,
    created_at: datetime,
    file_format: str,
    *,
    config_id: str = "daily",
    prefix: str = "inventories",
    files: int = 2,
    versions: bool = False,
    without: Sequence[str] = (),
    version: str = "2016-11-30",
) -> MadeInventory:
    """Return one delivery of an inventory of `bucket`, its rows spread over `files` files.

    `versions` adds the columns VersionId, IsLatest and IsDeleteMarker. `without` leaves out columns, by their names in
    lower snake case. Everything else is as in Amazon S3.
    """
    columns = [
        name
        for name in _CSV_SCHEMA
        if name not in without and (versions or name not in ("version_id", "is_latest", "is_delete_marker"))
    ]
    delivery = created_at.strftime("%Y-%m-%dT%H-%MZ")
    folder = f"{prefix}/{bucket}/{config_id}"
    contents = [_file(rows[part::files], bucket, columns, file_format) for part in range(files)]
    # A name by content, as unique as Amazon's random one and the same in every run.
    names = [
        f"{folder}/data/{delivery}-{part}-{hashlib.md5(content).hexdigest()[:8]}.{_EXTENSIONS[file_format]}"
        for part, content in enumerate(contents)
    ]
    manifest = json.dumps(
        {
            "sourceBucket": bucket,
            "destinationBucket": "arn:aws:s3:::deliveries",
            "version": version,
            "creationTimestamp": str(int(created_at.timestamp() * 1000)),
            "fileFormat": file_format,
            "fileSchema": _schema(columns, file_format),
            "files": [
                {"key": name, "size": len(content), "MD5checksum": hashlib.md5(content).hexdigest()}
                for name, content in zip(names, contents, strict=True)
            ],
        },
        indent=2,
    ).encode()
    objects = dict(zip(names, contents, strict=True))
    objects[f"{folder}/hive/dt={created_at:%Y-%m-%d-%H-%M}/symlink.txt"] = "\n".join(
        f"s3://deliveries/{name}" for name in names
    ).encode()
    objects[f"{folder}/{delivery}/manifest.json"] = manifest
    objects[f"{folder}/{delivery}/manifest.checksum"] = hashlib.md5(manifest).hexdigest().encode()
    return MadeInventory(objects, folder, delivery, tuple(names))


def with_manifest(made: MadeInventory, **changes: object) -> MadeInventory:
    """Return the delivery with changed keys of its manifest (None: removed) and a matching checksum."""
    document = {**json.loads(made.manifest), **changes}
    manifest = json.dumps({key: value for key, value in document.items() if value is not None}).encode()
    home = f"{made.folder}/{made.delivery}"
    checksum = hashlib.md5(manifest).hexdigest().encode()
    changed = {f"{home}/manifest.json": manifest, f"{home}/manifest.checksum": checksum}
    return MadeInventory({**made.objects, **changed}, made.folder, made.delivery, made.files)


def _schema(columns: Sequence[str], file_format: str) -> str:
    if file_format == "CSV":
        return ", ".join(_CSV_SCHEMA[name] for name in columns)
    if file_format == "ORC":
        return f"struct<{','.join(f'{name}:{_ORC_TYPES.get(name, "string")}' for name in columns)}>"
    fields = [
        f"  {'required' if name in ('bucket', 'key') else 'optional'} "
        f"{_PARQUET_TYPES.get(name, 'binary {} (STRING)').format(name)};"
        for name in columns
    ]
    return f"message s3.inventory {{{''.join(fields)}}}"


def _values(row: Row, bucket: str) -> dict[str, object]:
    return {
        "bucket": row.bucket or bucket,
        "key": row.key,
        "version_id": row.version_id,
        "is_latest": row.is_latest,
        "is_delete_marker": row.is_delete_marker,
        "size": row.size,
        "last_modified_date": row.last_modified,
        "e_tag": row.etag,
        "storage_class": "STANDARD",
    }


def _file(rows: Sequence[Row], bucket: str, columns: Sequence[str], file_format: str) -> bytes:
    values = [_values(row, bucket) for row in rows]
    if file_format == "CSV":
        return _csv_file([[_csv_value(name, row[name]) for name in columns] for row in values])
    schema = pa.schema([(name, _ARROW_TYPES.get(name, pa.string())) for name in columns])
    table = pa.Table.from_pylist([{name: row[name] for name in columns} for row in values], schema=schema)
    target = io.BytesIO()
    if file_format == "Parquet":
        pq.write_table(table, target, compression="snappy")
        return target.getvalue()
    if "last_modified_date" in columns:  # ORC's plain timestamp has no zone
        place = columns.index("last_modified_date")
        table = table.set_column(place, "last_modified_date", table[place].cast(pa.timestamp("ms")))
    orc.write_table(table, target, compression="ZLIB")
    return target.getvalue()


def _csv_value(name: str, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03}Z"
    return quote_plus(str(value), safe="/") if name == "key" else str(value)


def _csv_file(lines: Sequence[Sequence[str]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(lines)
    return gzip.compress(text.getvalue().encode(), mtime=0)
