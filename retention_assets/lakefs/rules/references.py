"""The references of a repository at one time: commits, branches, tags."""

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
    created_at: datetime  # aware, UTC; a committer can set it, so it may decrease along history
    metarange_id: str
    version: int = 1  # 0: the main parent is the last one; from 1 on it is the first

    @property
    def main_parent(self) -> str | None:
        """The parent that was the branch's head before this commit. Source: lakeFS facts 3.1 (version 0: the last)."""
        if not self.parents:
            return None
        return self.parents[-1] if self.version == 0 else self.parents[0]


@dataclass(frozen=True, slots=True)
class References:
    """Commits by id, and the commit that each branch (hidden ones too) and each tag names."""

    commits: Mapping[str, Commit]
    branches: Mapping[str, str]
    tags: Mapping[str, str]
    taken_at: datetime  # aware, UTC: all changes before this time are included
    instance: str | None = None  # differs if the repository was created again; None: the source does not know it


def references_hash(references: References) -> str:
    """Return a hash of the branches, the tags and all commit ids. A commit id determines the content of the commit."""
    named = {
        "branches": dict(references.branches),
        "tags": dict(references.tags),
        "commits": sorted(references.commits),
    }
    return hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()
