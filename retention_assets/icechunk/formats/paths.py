"""The paths of a repository's files, the names of backups, and the reference files of format 1.

A reference file is a branch or tag: its path has the name, and its small JSON content has the id of the snapshot.
Source: Icechunk facts 1, Layout.
"""

import json
import re
from dataclasses import dataclass
from enum import Enum

from retention_assets.errors import corrupt
from retention_assets.icechunk.formats.ids import CANONICAL, decode_id, encode_id, is_canonical

REPO = "repo"
CONFIG = "config.yaml"
SNAPSHOTS = "snapshots/"
MANIFESTS = "manifests/"
TRANSACTIONS = "transactions/"
CHUNKS = "chunks/"
OVERWRITTEN = "overwritten/"
REFERENCES = "refs/"

YEAR_3000 = 32_503_680_000_000  # milliseconds since 1970; backups count down to it, so the newest is listed first
_REFERENCE = re.compile(r"refs/(branch|tag)\.([^/]+)/ref\.json(\.deleted)?")
_LARGEST_REFERENCE = 256  # bytes; icechunk writes 35
_BACKUP = re.compile(rf"({re.escape(REPO)}|{re.escape(CONFIG)})\.(\d{{14}})\.({CANONICAL})", re.ASCII)


class Original(Enum):
    """The file that a backup is a copy of."""

    REPO = REPO
    CONFIG = CONFIG


@dataclass(frozen=True, slots=True)
class Backup:
    """The name of a backup below `overwritten/`; entries of the ops log store the name without the directory."""

    original: Original
    written_at: int  # milliseconds since 1970, UTC, on the writer's clock
    id: bytes

    def __post_init__(self) -> None:
        if not 0 <= YEAR_3000 - self.written_at < 10**14 or len(self.id) != 12:
            raise ValueError(f"no backup can be written at {self.written_at:,} ms with the id {self.id.hex()}")

    @property
    def name(self) -> str:
        """The name as icechunk writes it."""
        return f"{self.original.value}.{YEAR_3000 - self.written_at:014}.{encode_id(self.id)}"


def backup_named(name: str) -> Backup | None:
    """Return the backup with this name below `overwritten/`; None for a name that icechunk does not generate."""
    found = _BACKUP.fullmatch(name)
    return found and Backup(Original(found[1]), YEAR_3000 - int(found[2]), decode_id(found[3]))


class ReferenceKind(Enum):
    """Whether a reference is a branch or a tag."""

    BRANCH = "branch"
    TAG = "tag"


@dataclass(frozen=True, slots=True)
class ReferenceFile:
    """A file below `refs/`: a branch or tag, which names a snapshot, or the tombstone of a tag."""

    kind: ReferenceKind
    name: str
    tombstone: bool = False  # the tag was deleted; its `ref.json` stays, and its name can never be used again

    @property
    def path(self) -> str:
        """The path below the repository."""
        return f"{reference_address(self.kind.value, self.name)}/ref.json{'.deleted' if self.tombstone else ''}"


def reference_address(kind: str, name: str) -> str:
    """Return the address of a branch or tag in reports, for example `refs/branch.main`."""
    return f"{REFERENCES}{kind}.{name}"


def reference_file(path: str) -> ReferenceFile:
    """Return which reference the file at `path` below the repository belongs to.

    Raises:
        CorruptFile: icechunk creates no such file below `refs/`, so the file may be a reference that is not understood.
    """
    found = _REFERENCE.fullmatch(path)
    if found is None or (found[3] and found[1] != ReferenceKind.TAG.value):
        raise corrupt(path, "it is neither a branch nor a tag nor the tombstone of a tag")
    return ReferenceFile(ReferenceKind(found[1]), found[2], tombstone=found[3] is not None)


def read_reference(content: bytes, name: str) -> bytes:
    """Return the id of the snapshot that the `ref.json` file `content` names; `name` is its path.

    Raises:
        CorruptFile: the file is anything but `{"snapshot": "<id>"}`.
    """
    try:  # objects become tuples of pairs, which show a duplicated name
        found = json.loads(content, object_pairs_hook=tuple) if len(content) <= _LARGEST_REFERENCE else None
    except (ValueError, RecursionError) as error:
        raise corrupt(name, f"it is not JSON ({error})") from error
    if isinstance(found, tuple) and [key for key, _ in found] == ["snapshot"]:
        text = found[0][1]
        if isinstance(text, str) and is_canonical(text):
            return decode_id(text)
    raise corrupt(name, f"its content is {content[:80]!r}, not the id of a snapshot")


def write_reference(snapshot_id: bytes) -> bytes:
    """Return the `ref.json` file that names a snapshot."""
    return b'{"snapshot":"%b"}' % encode_id(snapshot_id).encode()
