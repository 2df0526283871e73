"""Where the references of a lakeFS repository come from: the port, what it hands over, and where the server writes."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from retention_assets.errors import SourceError
from retention_assets.lakefs.rules.references import References
from retention_assets.objectstore.objects import ObjectReader

METADATA = "_lakefs"  # the server's own files below a namespace. Source: lakeFS facts 1.2
RULES = f"{METADATA}/retention/gc/rules/config.json"


@dataclass(frozen=True, slots=True)
class StagedList:
    """The addresses that staging areas hold, as Parquet files: physical_address, creation_date (unix seconds).

    `files` are relative to the namespace. `shown` are objects that are staged, too, or were a moment ago: a server's
    branches showed them where its list could not be trusted. Without both nothing is staged. What was staged before
    `taken_at` and has been neither committed nor thrown away since is in the list.
    """

    files: tuple[str, ...]
    taken_at: datetime  # aware, UTC
    shown: tuple[tuple[str, datetime], ...] = ()  # the address as in a file, and when the entry was made
    run_id: str | None = None  # of the server's run that wrote the files for this list alone; None: they stay


@dataclass(frozen=True, slots=True)
class GCRules:
    """The server's own rules of committed retention: whole days, and days by exact branch name."""

    default_days: int
    branches: Mapping[str, int]


class LakeFSSource(Protocol):
    """What a repository refers to. Every method raises a RetentionError rather than return a part."""

    def staged(self) -> StagedList | None:
        """Return what is staged, or None where that is not known. Unknown is not zero."""
        ...

    def release(self, staged: StagedList) -> None:
        """Remove the files that were written for this list alone; nobody may read the list after that.

        What cannot be removed stays, with a warning in the log.
        """
        ...

    def references(self) -> References:
        """Return all commits, dangling ones too, all branches, hidden ones too, and all tags."""
        ...

    def rules(self) -> GCRules | None:
        """Return the server's rules, or None when none are set: then every commit is active."""
        ...

    def repositories(self) -> Mapping[str, str]:
        """Return the namespace of each repository of the server by its name; none where no server is asked."""
        ...


def staged_folder(run_id: str) -> str:
    """Return where the server writes a staged list, relative to the namespace. Source: lakeFS facts, H3."""
    return f"{METADATA}/retention/gc/uncommitted/{run_id}/uncommitted"


def visible_files(reader: ObjectReader, folder: str) -> Mapping[str, datetime]:
    """Return when each file below `folder` was written, without markers such as `_SUCCESS`, by path."""
    return {
        path: written
        for batch in reader.list(folder)
        for path, written in zip(batch["path"].to_pylist(), batch["last_modified"].to_pylist(), strict=True)
        if not path.rpartition("/")[2].startswith(("_", "."))
    }


def unknown_heads(branches: Mapping[str, str], tags: Mapping[str, str], commits: Collection[str]) -> list[str]:
    """Return, in words, each branch and tag whose commit is not among `commits`."""
    named = [("branch", branches), ("tag", tags)]
    return [
        f"{kind} {name} at {commit_id}"
        for kind, heads in named
        for name, commit_id in sorted(heads.items())
        if commit_id not in commits
    ]


def require_known_heads(where: str, references: References, remedy: str) -> References:
    """Return `references` if every branch and tag in them names a commit in them, else raise SourceError."""
    if not references.commits or not references.branches:
        raise SourceError(
            f"{where}: no commit or no branch at all, which no lakeFS repository can have. Nothing was deleted. "
            f"{remedy}"
        )
    if unknown := unknown_heads(references.branches, references.tags, references.commits):
        raise SourceError(
            f"{where}: {unknown[0]} (and {len(unknown) - 1} more) names a commit that the references lack. "
            f"Nothing was deleted. {remedy}"
        )
    return references
