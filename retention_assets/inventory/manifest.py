"""Reads manifests of Amazon S3 Inventory: the files of one delivery, their format and the time of the scan.

A delivery is a folder `YYYY-MM-DDTHH-MMZ` with `manifest.json` and `manifest.checksum`. The files that the manifest
names are in another folder; the module `rows` reads them. Source: S3 User Guide, "Locating your inventory list".
Inventories of Azure and Google storage have other columns, manifests and layouts. They are not supported.
"""

import hashlib
import re
from collections.abc import Buffer
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, Field, ValidationError

from retention_assets.config.documents import wrong_keys
from retention_assets.core.amounts import counted
from retention_assets.errors import CorruptFile

REQUIRED_COLUMNS = ("bucket", "key", "size", "last_modified_date")

_CSV_NAMES = {
    "Bucket": "bucket",
    "Key": "key",
    "VersionId": "version_id",
    "IsLatest": "is_latest",
    "IsDeleteMarker": "is_delete_marker",
    "Size": "size",
    "LastModifiedDate": "last_modified_date",
    "ETag": "e_tag",
}
_ORC_SCHEMA = re.compile(r"struct<(.*)>", re.DOTALL)
_ORC_COLUMN = re.compile(r"\s*(\w+)\s*:[^,]*")
_PARQUET_SCHEMA = re.compile(r"message\s+[\w.]+\s*\{(.*)\}", re.DOTALL)
_PARQUET_COLUMN = re.compile(r"\s*(?:required|optional)\s+\w+\s+(\w+)\s*(?:\([^;]*\))?\s*")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST_TIMESTAMP = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)


_REMEDY = (
    "Run the same command again. If the error persists, wait for the next delivery, or remove `inventory` so that the "
    "store is listed."
)


def unusable(name: str, what: str, remedy: str = _REMEDY) -> CorruptFile:
    """Return the error for the inventory file `name`, with `what` as the problem. The caller raises the error."""
    return CorruptFile(f"{name}: {what}. The inventory was not used and nothing was deleted. {remedy}")


class FileFormat(StrEnum):
    """The format of an inventory's files: CSV compressed with gzip, ORC or Parquet."""

    CSV = "CSV"
    ORC = "ORC"
    PARQUET = "Parquet"


@dataclass(frozen=True, slots=True)
class InventoryFile:
    """One file of an inventory, as the manifest describes it."""

    key: str  # in the bucket that the inventory is delivered to
    size: int  # bytes
    md5: str  # hexadecimal, lower case


@dataclass(frozen=True, slots=True)
class Manifest:
    """One delivery of an inventory. If the inventory lists only a prefix, the manifest does not show this."""

    name: str  # name of the manifest object, for error messages
    source_bucket: str
    created_at: datetime  # aware, UTC: the start of the scan; objects that were written later may be missing
    file_format: FileFormat
    columns: tuple[str, ...]  # in the order that they have in the files; known columns in snake_case, others as written
    files: tuple[InventoryFile, ...]

    @property
    def lists_versions(self) -> bool:
        """Whether the files also list old versions and delete markers."""
        return "is_latest" in self.columns


class _FileEntry(BaseModel):
    key: str = Field(min_length=1)
    size: int = Field(ge=0)
    MD5checksum: str = Field(pattern=r"^[0-9a-fA-F]{32}$")


class _Document(BaseModel):
    """The content of `manifest.json`; other keys are ignored."""

    sourceBucket: str = Field(min_length=1)  # noqa: N815 (Amazon's name)
    version: Literal["2016-11-30"]
    creationTimestamp: int = Field(ge=0, le=_LATEST_TIMESTAMP)  # noqa: N815 (Amazon's name); milliseconds since 1970
    fileFormat: FileFormat  # noqa: N815 (Amazon's name)
    fileSchema: str  # noqa: N815 (Amazon's name)
    files: list[_FileEntry]


def read_manifest(content: Buffer, checksum: Buffer, name: str) -> Manifest:
    """Return the parsed `manifest.json`, after checking it against `manifest.checksum`.

    Args:
        content: the bytes of `manifest.json`.
        checksum: the bytes of `manifest.checksum`, the MD5 of `content` in hexadecimal.
        name: name of the manifest object, for error messages.

    Raises:
        CorruptFile: the checksum differs; the version or the format is unknown; the document or its schema cannot be
            read; or a column is missing that the classification of objects needs.
    """
    expected = bytes(checksum).decode("ascii", errors="replace").strip().lower()
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != expected:
        raise unusable(name, f"its MD5 is {found}, but manifest.checksum says {expected[:40]!r}")
    try:
        document = _Document.model_validate_json(bytes(content))
    except ValidationError as error:
        raise unusable(name, wrong_keys(error)[0]) from None
    columns = _columns(document.fileFormat, document.fileSchema, name)
    _require_columns(columns, name)
    return Manifest(
        name=name,
        source_bucket=document.sourceBucket,
        created_at=_EPOCH + timedelta(milliseconds=document.creationTimestamp),
        file_format=document.fileFormat,
        columns=columns,
        files=tuple(InventoryFile(entry.key, entry.size, entry.MD5checksum.lower()) for entry in document.files),
    )


def _columns(file_format: FileFormat, schema: str, name: str) -> tuple[str, ...]:
    if file_format is FileFormat.CSV:
        names = [column.strip() for column in schema.split(",")]
        return tuple(_CSV_NAMES.get(column, column) for column in names)
    schema_pattern, column_pattern, separator = (
        (_ORC_SCHEMA, _ORC_COLUMN, ",") if file_format is FileFormat.ORC else (_PARQUET_SCHEMA, _PARQUET_COLUMN, ";")
    )
    matched = schema_pattern.fullmatch(schema.strip())
    parts = [part for part in matched[1].split(separator) if part.strip()] if matched else []
    columns = [column_pattern.fullmatch(part) for part in parts]
    if not columns or None in columns:
        raise unusable(name, f"fileSchema is not a flat {file_format} schema: {schema[:200]!r}")
    return tuple(column[1] for column in columns if column)


def _require_columns(columns: tuple[str, ...], name: str) -> None:
    required = list(REQUIRED_COLUMNS)
    if {"version_id", "is_latest", "is_delete_marker"} & set(columns):
        required += ["is_latest", "is_delete_marker"]  # without them an old version would count as the object
    if missing := [column for column in required if column not in columns]:
        raise unusable(
            name,
            f"the inventory does not have these columns: {', '.join(missing)}",
            "Add these fields to the configuration of the inventory in S3.",
        )
    if len(set(columns)) < len(columns):
        twice = sorted({column for column in columns if columns.count(column) > 1})
        raise unusable(
            name, f"in fileSchema, {counted(len(twice), 'column is', 'columns are')} duplicated: {', '.join(twice)}"
        )
