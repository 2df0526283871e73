"""The interface of a source of references, the types that it returns, and the paths that the server writes to."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from retention_assets.config.configuration import INTERNAL
from retention_assets.core.amounts import counted
from retention_assets.errors import SourceError
from retention_assets.lakefs.rules.references import References
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.policy.rules import ServerRules

RULES = f"{INTERNAL}/retention/gc/rules/config.json"


@dataclass(frozen=True, slots=True)
class StagedList:
    """The staged objects: those in Parquet files of the server, and those that were read from the branches.

    `files` are relative to the namespace, with the columns physical_address and creation_date (unix seconds). `shown`
    are staged objects that were read from the branches, because the server's list may lack them. If both are empty,
    nothing is staged. The list has every object that was staged before `complete_until`, except objects that were
    committed or discarded since. `warning`: why a page of the list may be missing.
    """

    files: tuple[str, ...]
    taken_at: datetime  # aware, UTC
    shown: tuple[tuple[str, datetime | None], ...] = ()  # the address as in a file, and the time of the entry if known
    run_id: str | None = None  # the run in which the server wrote the files only for this list; None: the files stay
    warning: str | None = None
    first_page_at: datetime | None = None  # when the first page was written; None: `taken_at`

    @property
    def complete_until(self) -> datetime:
        """The time until which the list has every staged object: others can be staged after their page was written."""
        return self.first_page_at or self.taken_at


class LakeFSSource(Protocol):
    """Reads what a repository refers to. A method that cannot return everything raises a RetentionError."""

    def staged(self) -> StagedList | None:
        """Return the staged objects; None if they are not known. None does not mean that nothing is staged."""
        ...

    def release(self, staged: StagedList) -> None:
        """Remove the files that were written only for this list. The list must not be read after that.

        Files that cannot be removed stay, and a warning is logged.
        """
        ...

    def references(self) -> References:
        """Return all commits (also dangling ones), all branches (also hidden ones) and all tags."""
        ...

    def rules(self) -> ServerRules | None:
        """Return the rules of the server; None if no rules are set. Without rules every commit is active."""
        ...

    def other_repositories(self) -> Mapping[str, str] | None:
        """Return the namespaces of the other repositories of the server, by name.

        None if the user may not list them (fs:ListRepositories). Empty if the source has no server.
        """
        ...


@contextmanager
def staged_list(source: LakeFSSource) -> Iterator[StagedList | None]:
    """Yield the staged list of the source. The end of the block releases the list, also after an error."""
    staged = source.staged()
    try:
        yield staged
    finally:
        if staged is not None:
            source.release(staged)


def staged_folder(run_id: str) -> str:
    """Return the folder of the staged list of a run, relative to the namespace.

    Source: docs/lakefs-formats.md, "Staged lists".
    """
    return f"{INTERNAL}/retention/gc/uncommitted/{run_id}/uncommitted"


def visible_files(reader: ObjectReader, folder: str) -> Mapping[str, datetime]:
    """Return the write time of each file below `folder`, by path. Hidden files and `_SUCCESS` are left out."""
    return {
        path: written
        for batch in reader.list(folder)
        for path, written in zip(batch["path"].to_pylist(), batch["last_modified"].to_pylist(), strict=True)
        if not path.rpartition("/")[2].startswith(("_", "."))
    }


def require_known_heads(where: str, references: References, remedy: str) -> References:
    """Return `references`.

    Errors: SourceError when there is no commit or no branch, or when the commit of a branch or tag is missing.
    """
    if not references.commits or not references.branches:
        raise SourceError(
            f"{where}: has {counted(len(references.commits), 'commit')} and "
            f"{counted(len(references.branches), 'branch', 'branches')}, but every lakeFS repository "
            f"has at least one of each. Nothing was deleted. {remedy}"
        )
    missing = [
        f"{kind} {name} at {commit_id}"
        for kind, heads in (("branch", references.branches), ("tag", references.tags))
        for name, commit_id in sorted(heads.items())
        if commit_id not in references.commits
    ]
    if missing:
        which = counted(
            len(missing), f"branch or tag, {missing[0]}, has", f"branches and tags, {missing[0]} first, have"
        )
        raise SourceError(
            f"{where}: {which} a commit that is missing from the references. Nothing was deleted. {remedy}"
        )
    return references
