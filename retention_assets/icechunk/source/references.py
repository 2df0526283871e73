"""Reads branches and tags of an Icechunk repository of format 1 from their files. Source: Icechunk facts 1, Layout."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from retention_assets.errors import CorruptFile, ObjectMissing, SourceError
from retention_assets.icechunk.formats.paths import (
    REFERENCES,
    ReferenceFile,
    ReferenceKind,
    read_reference,
    reference_file,
)
from retention_assets.objectstore.objects import ObjectMetadata, ObjectReader


@dataclass(frozen=True, slots=True)
class References:
    """The snapshots that branches, live tags and deleted tags name; None if a deleted tag has no readable file."""

    branches: Mapping[str, bytes]
    tags: Mapping[str, bytes]
    deleted_tags: Mapping[str, bytes | None]
    paths: tuple[str, ...]  # of all files below `refs/`


def read_references(reader: ObjectReader) -> References:
    """Return all branches, live tags and deleted tags.

    Icechunk skips a tag that it cannot read, and its garbage collection then deletes the snapshots that only this
    tag reaches. Here an unreadable tag is an error that ends the run. Source: Icechunk facts 1, v1 hazard.
    Errors: CorruptFile for a file that contains no id, or that does not belong below `refs/`; SourceError for a
    reference that disappears while it is read.
    """
    paths = tuple(sorted(one.path for one in reference_files(reader)))
    files = [reference_file(path) for path in paths]
    deleted = {one.name for one in files if one.tombstone}
    branches: dict[str, bytes] = {}
    tags: dict[str, bytes] = {}
    named: dict[str, bytes | None] = dict.fromkeys(deleted)
    for file, path in zip(files, paths, strict=True):
        if file.tombstone:
            continue
        if file.kind is ReferenceKind.TAG and file.name in deleted:
            named[file.name] = _named_once(reader, path)
        else:
            of_kind = branches if file.kind is ReferenceKind.BRANCH else tags
            of_kind[file.name] = _named(reader, file, path)
    return References(branches, tags, named, paths)


def reference_files(reader: ObjectReader) -> Iterator[ObjectMetadata]:
    """Yield path, size, time and ETag of every file below `refs/`, of any kind."""
    for batch in reader.list(REFERENCES):
        for row in batch.to_pylist():
            yield ObjectMetadata(row["path"], row["size"], row["last_modified"], row["e_tag"])


def _named(reader: ObjectReader, file: ReferenceFile, path: str) -> bytes:
    try:
        return read_reference(reader.read(path), reader.describe(path))
    except ObjectMissing:
        raise SourceError(
            f"{reader.describe(path)}: the {file.kind.value} {file.name} was listed, but its file no longer exists. "
            f"Nothing was changed or deleted. Run again."
        ) from None


def _named_once(reader: ObjectReader, path: str) -> bytes | None:
    """Return the snapshot that a deleted tag named; None if the file is missing or corrupt. The tag retains nothing."""
    try:
        return read_reference(reader.read(path), reader.describe(path))
    except (CorruptFile, ObjectMissing):
        return None
