"""The paths of a repository's files, the names of backups, and the reference files of format 1.

A reference file is a branch or tag: its path has the name, and its small JSON content has the id of the snapshot.
Source: docs/icechunk-formats.md, "Paths".
"""

import json
import re
from dataclasses import dataclass

from retention_assets.errors import CorruptFile, corrupt
from retention_assets.icechunk.formats.ids import CANONICAL, decode_id, encode_id, is_canonical
from retention_assets.policy.rules import RefKind

REPO = "repo"
CONFIG = "config.yaml"
SNAPSHOTS = "snapshots/"
MANIFESTS = "manifests/"
TRANSACTIONS = "transactions/"
CHUNKS = "chunks/"
OVERWRITTEN = "overwritten/"
REFERENCES = "refs/"

# Patterns of the paths that icechunk generates for files that may be deleted.
FILE = f"(?:{SNAPSHOTS}|{TRANSACTIONS}|{MANIFESTS}|{CHUNKS}){CANONICAL}"
BACKUP = rf"(?:{re.escape(REPO)}|{re.escape(CONFIG)})\.(\d{{14}})\.{CANONICAL}"  # below `overwritten/`

YEAR_3000 = 32_503_680_000_000  # milliseconds since 1970. Names of backups count down to it, so the newest comes first
TOMBSTONE = "ref.json.deleted"  # the file in the directory of a tag that was deleted
_REFERENCE = re.compile(r"refs/(branch|tag)\.([^/]+)/ref\.json(\.deleted)?")
_LARGEST_REFERENCE = 256  # bytes; icechunk writes 35
_BACKUP = re.compile(BACKUP, re.ASCII)


def backup_name(written_at: int, suffix: bytes, original: str = REPO) -> str:
    """Return the name below `overwritten/` of a backup, as icechunk writes it. The ops log stores these names.

    Args:
        written_at: milliseconds since 1970, UTC, on the writer's clock.
        suffix: 12 random bytes, which make the name unique.
        original: the file that the backup is a copy of.
    """
    return f"{original}.{YEAR_3000 - written_at:014}.{encode_id(suffix)}"


def backup_written_at(name: str) -> int | None:
    """Return when a backup was written, in milliseconds since 1970 (UTC), on the writer's clock.

    None: icechunk does not generate such a name.
    """
    found = _BACKUP.fullmatch(name)
    return None if found is None else YEAR_3000 - int(found[1])


@dataclass(frozen=True, slots=True)
class ReferenceFile:
    """A file below `refs/`: a branch or tag, which names a snapshot, or the tombstone of a tag."""

    kind: RefKind
    name: str
    tombstone: bool = False  # the tag was deleted; its `ref.json` stays, and its name can never be used again

    @property
    def path(self) -> str:
        """The path below the repository."""
        return f"{reference_address(self.kind, self.name)}/{TOMBSTONE if self.tombstone else 'ref.json'}"


def reference_address(kind: RefKind, name: str) -> str:
    """Return the address of a branch or tag in reports, for example `refs/branch.main`."""
    return f"{REFERENCES}{kind}.{name}"


def reference_file(path: str) -> ReferenceFile:
    """Return the reference of the file at `path` below the repository.

    Raises:
        CorruptFile: icechunk creates no such file below `refs/`, so the file may be an unknown kind of reference.
    """
    found = _REFERENCE.fullmatch(path)
    if found is None or (found[3] and found[1] != "tag"):
        raise CorruptFile(
            f"{path}: it is neither a branch nor a tag nor the tombstone of a tag. Nothing was deleted. If a program "
            "other than icechunk left the file there, delete it. If icechunk wrote it, keep it: this version does "
            "not know it."
        )
    return ReferenceFile("branch" if found[1] == "branch" else "tag", found[2], tombstone=found[3] is not None)


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
