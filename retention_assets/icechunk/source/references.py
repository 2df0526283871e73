"""Branches and tags of an Icechunk repository of format 1, read from their files. Source: Icechunk facts 1, Layout."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from retention_assets.errors import CorruptFile, ObjectMissing, SourceError
from retention_assets.icechunk.formats.references import (
    REFERENCES,
    ReferenceFile,
    ReferenceKind,
    read_reference,
    reference_file,
)
from retention_assets.objectstore.objects import ObjectFacts, ObjectReader


@dataclass(frozen=True, slots=True)
class References:
    """The snapshot that each branch and each live tag names, and what a deleted tag named, if its file still says."""

    branches: Mapping[str, bytes]
    tags: Mapping[str, bytes]
    deleted_tags: Mapping[str, bytes | None]
    paths: tuple[str, ...]  # of all their files


def read_references(reader: ObjectReader) -> References:
    """Return all references.

    Icechunk passes over a tag that it cannot read, and then collects what the tag keeps. Here it ends the run.
    Source: Icechunk facts 1, v1 hazard.
    Errors: CorruptFile for a file that holds no id, or that has no business below `refs/`; SourceError for a reference
    that went while it was read.
    """
    paths = tuple(sorted(one.path for one in reference_facts(reader)))
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


def reference_facts(reader: ObjectReader) -> Iterator[ObjectFacts]:
    """Yield every file below `refs/`, whatever it is."""
    for batch in reader.list(REFERENCES):
        for row in batch.to_pylist():
            yield ObjectFacts(row["path"], row["size"], row["last_modified"], row["e_tag"])


def _named(reader: ObjectReader, file: ReferenceFile, path: str) -> bytes:
    try:
        return read_reference(reader.read(path), reader.describe(path))
    except ObjectMissing:
        raise SourceError(
            f"{reader.describe(path)}: the {file.kind.value} {file.name} was listed, and is not there any more. "
            f"Nothing was changed or deleted. Run again."
        ) from None


def _named_once(reader: ObjectReader, path: str) -> bytes | None:
    """Return what a deleted tag named; unreadable is as good as unknown, since it keeps nothing."""
    try:
        return read_reference(reader.read(path), reader.describe(path))
    except (CorruptFile, ObjectMissing):
        return None
