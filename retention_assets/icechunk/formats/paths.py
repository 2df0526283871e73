"""Paths of the files of a repository, and names of the backups below `overwritten/`. Source: Icechunk facts 1."""

import re
from dataclasses import dataclass
from enum import Enum

from retention_assets.icechunk.formats.ids import CANONICAL, decode_id, encode_id

REPO = "repo"
CONFIG = "config.yaml"
SNAPSHOTS = "snapshots/"
MANIFESTS = "manifests/"
TRANSACTIONS = "transactions/"
CHUNKS = "chunks/"
OVERWRITTEN = "overwritten/"

YEAR_3000 = 32_503_680_000_000  # milliseconds since 1970; backups count down to it, so the newest is listed first
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
