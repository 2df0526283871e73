"""Reads and writes branches and tags of format 1, each a small JSON file. Source: Icechunk facts 1, Layout."""

import json
import re
from dataclasses import dataclass
from enum import Enum

from retention_assets.core.corruption import corrupt
from retention_assets.icechunk.formats.ids import decode_id, encode_id, is_canonical

REFERENCES = "refs/"
_MOST_BYTES = 256  # icechunk writes 35
_PATH = re.compile(r"refs/(branch|tag)\.([^/]+)/ref\.json(\.deleted)?")


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
        return f"{REFERENCES}{self.kind.value}.{self.name}/ref.json{'.deleted' if self.tombstone else ''}"


def reference_file(path: str) -> ReferenceFile:
    """Return which reference the file at `path` below the repository belongs to.

    Raises:
        CorruptFile: icechunk creates no such file below `refs/`, so the file may be a reference that is not understood.
    """
    found = _PATH.fullmatch(path)
    if found is None or (found[3] and found[1] != ReferenceKind.TAG.value):
        raise corrupt(path, "it is neither a branch nor a tag nor the tombstone of a tag")
    return ReferenceFile(ReferenceKind(found[1]), found[2], tombstone=found[3] is not None)


def read_reference(content: bytes, name: str) -> bytes:
    """Return the id of the snapshot that the `ref.json` file `content` names; `name` is its path.

    Raises:
        CorruptFile: the file is anything but `{"snapshot": "<id>"}`.
    """
    try:  # objects become tuples of pairs, which show a duplicated name
        found = json.loads(content, object_pairs_hook=tuple) if len(content) <= _MOST_BYTES else None
    except (ValueError, RecursionError) as error:
        raise corrupt(name, f"it is not JSON ({error})") from error
    if isinstance(found, tuple) and [key for key, _ in found] == ["snapshot"]:
        text = found[0][1]
        if isinstance(text, str) and is_canonical(text):
            return decode_id(text)
    raise corrupt(name, f"it holds {content[:80]!r}, not the id of a snapshot")


def write_reference(snapshot_id: bytes) -> bytes:
    """Return the `ref.json` file that names a snapshot."""
    return b'{"snapshot":"%b"}' % encode_id(snapshot_id).encode()
