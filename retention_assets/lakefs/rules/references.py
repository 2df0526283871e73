"""What a repository refers to at one moment: commits, branches, tags."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit as lakeFS records it. `metarange_id` is empty for the first commit of a repository."""

    commit_id: str
    parents: tuple[str, ...]
    created_at: datetime  # aware, UTC; may be set by the committer, so not monotonic along history
    metarange_id: str
    version: int = 1  # 0: the main parent is the last one; from 1 on it is the first

    @property
    def main_parent(self) -> str | None:
        """The parent that the branch stood on before. Source: lakeFS facts 3.1 (version 0 has it last)."""
        if not self.parents:
            return None
        return self.parents[-1] if self.version == 0 else self.parents[0]


@dataclass(frozen=True, slots=True)
class References:
    """Commits by id, and the commit that each branch (hidden ones too) and each tag names."""

    commits: Mapping[str, Commit]
    branches: Mapping[str, str]
    tags: Mapping[str, str]
    taken_at: datetime  # aware, UTC: nothing that happened before this instant is missing here
    instance: str | None = None  # what tells the repository from another of its name, where the source knows it


def references_hash(references: References) -> str:
    """Return a hash of what every branch and every tag names; commits follow from those by their ids."""
    named = {
        "branches": dict(references.branches),
        "tags": dict(references.tags),
        "commits": sorted(references.commits),
    }
    return hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()
