"""References from a running lakeFS server: its API for what moves, its dump in the namespace for the commits."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from retention_assets.config.configuration import canonical_namespace
from retention_assets.errors import RetentionError, SourceError
from retention_assets.lakefs.formats.sstable import CONTENT_ID
from retention_assets.lakefs.rules.references import Commit, References
from retention_assets.lakefs.source.client import Json, LakeFSClient, NotFound
from retention_assets.lakefs.source.dump import read_commit_table
from retention_assets.lakefs.source.repository import (
    METADATA,
    GCRules,
    StagedList,
    require_known_heads,
    staged_folder,
    visible_files,
)
from retention_assets.lakefs.source.staged_list import StagedScan
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.objects import ObjectReader

_LOG = logging.getLogger(__name__)
_CLOCKS_DIFFER = timedelta(minutes=5)  # this machine's clock and the store's; what differs more leaves files behind
_GONE = ("deleted", "missing")  # outcomes of a deletion
_ATTEMPTS = 3  # readings of the branches and tags beside one dump
_DUMP_LIFE = timedelta(minutes=10)  # how long later readings add to a dump: commits that came and went are not seen
_FEW_PAGES = 200  # of logs: beyond, a dump is quicker
_LOG_PAGE = 100  # commits; what is new is mostly one commit
_DUMP_PATIENCE = timedelta(hours=1)  # what lakectl waits. Source: lakeFS facts 3.3
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 15.0  # seconds between questions


class _Known(NamedTuple):
    """What a server says of a repository."""

    instance: str  # when it was created: one that is created again under its name is another
    namespace: str  # as the server spells it


@dataclass(frozen=True, slots=True)
class _Dumped:
    """References as they were read last, and when the dump behind them was begun."""

    references: References
    taken_at: datetime


class ApiSource:
    """A repository as its server shows it now. `namespace` is the server's name for the place that `access` opens."""

    def __init__(
        self,
        *,
        url: str,
        access_key: str,
        secret_key: str,
        repository: str,
        namespace: str,
        access: StoreAccess,
        clock: Callable[[], datetime],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = LakeFSClient(url, access_key, secret_key)
        self._repository = repository
        self._namespace = canonical_namespace(namespace)
        self._access = access
        self._reader = ObjectReader(access)
        self._clock = clock
        self._sleep = sleep
        self._names = {"repository": repository}
        self._where = f"{url}: repository {repository}"
        self._dumped: _Dumped | None = None
        self._written: dict[str, Sequence[str]] = {}  # the files of each run that the server made for this object
        self._warned = False

    def staged(self) -> StagedList:
        """Return the list that the server writes now, of all branches; see `StagedScan` for why it is complete.

        It is taken at the instant before the branches are listed: a branch is scanned after that, so what had been
        staged by then is found, or was committed or thrown away meanwhile. Source: lakeFS facts, H3, H4, H23.

        Errors: SourceError when the server fails, or when what it says it wrote is not there.
        """
        repository = self._require_repository()
        taken_at = self._clock()
        scan = StagedScan(self._client, self._repository, repository.namespace, self._where)
        found = scan.take(self._heads("branches"))
        shown = tuple(
            (self._relative(entry.physical_address) or entry.physical_address, entry.created_at)
            for entry in found.shown
        )
        files = self._staged_files(found.run_id, found.locations)
        if found.run_id is not None:
            self._written[found.run_id] = _written_for(found.run_id, files, taken_at)
        return StagedList(tuple(sorted(files)), taken_at, shown, found.run_id)

    def release(self, staged: StagedList) -> None:
        """Remove the files of a list of this object's; see `LakeFSSource`.

        Only files go that this object itself saw in the folder of a run which the server named to it, and that were
        written since it asked: a run of another time or of somebody else is never touched.
        """
        files = self._written.pop(staged.run_id or "", ())
        if not files:
            return
        from retention_assets.objectstore.mutate.deletion import ObjectDeleter  # a third of a second, needed only here

        try:
            removed = ObjectDeleter(self._access).delete_all(files)
            details = [f"{one.path}: {one.detail}" for one in removed if one.outcome not in _GONE]
        except RetentionError as error:
            details = [str(error)]
        if not details:
            self._remove_empty(files[0].rpartition("/")[0])
        elif not self._warned:
            self._warned = True
            _LOG.warning(
                "%s: the staged list that the server wrote for this run could not be removed (%s). It stays, and "
                "does no harm. To let such lists be removed, allow deletion below %s/retention/gc/uncommitted/.",
                self._where,
                details[0],
                METADATA,
            )

    def _remove_empty(self, folder: str) -> None:
        """Remove the directories of a run from this machine's disk, where they are empty; a store has none."""
        if self._access.is_local:
            path = Path(self._access.url.removeprefix("file://")) / folder
            with suppress(OSError):  # not empty, or not ours to remove: a directory costs nothing
                path.rmdir()
                path.parent.rmdir()

    def references(self) -> References:
        """Return all commits, with the branches and tags as they stand after `taken_at`.

        The first reading takes a dump. For `_DUMP_LIFE` later readings list the branches and tags, and take the commits
        that were added from their logs: a dump leaves a copy of all commits in the namespace for ever. Where the logs
        are long, or do not explain a branch or tag, a new dump is taken.

        A reading without a dump lacks commits that were made since the last dump and that no branch or tag reaches any
        more: whoever made them deleted or reset the branch again. Nothing else moves without a branch or tag.

        Errors: SourceError when the dump fails or takes over an hour, or when no log explains a branch or tag.
        """
        instance = self._require_repository().instance
        taken_at = self._clock()
        dumped = self._dumped
        if dumped is None or dumped.references.instance != instance or taken_at - dumped.taken_at > _DUMP_LIFE:
            return self._dump(instance, taken_at)
        before = dumped.references
        branches, tags = self._heads_after(before.branches)
        if (branches, tags) == (before.branches, before.tags):
            references = replace(before, taken_at=taken_at)
        else:
            commits = dict(before.commits)
            if self._unexplained(commits, branches, tags, iter(range(_FEW_PAGES))):
                return self._dump(instance, taken_at)
            references = References(commits, branches, tags, taken_at, instance)
        self._dumped = _Dumped(references, dumped.taken_at)
        return references

    def _dump(self, instance: str, taken_at: datetime) -> References:
        """Return the commits of a fresh dump, with the branches and tags as they stand after it.

        A branch that vanishes meanwhile starts nothing over. The dump has every commit that there was when it began,
        those that no branch reaches included. A commit that was made after that and is lost with its branch holds what
        was staged then, which the staged list has; or what was written then, which is young; or what another commit
        holds, like a branch that is made after the reading from an old commit (docs/safety.md, The window).
        """
        before = self._heads("branches")
        commits = read_commit_table(self._reader, self._dumped_commits())
        for _ in range(_ATTEMPTS):
            branches, tags = self._heads_after(before)
            if not self._unexplained(commits, branches, tags, count()):
                references = References(commits, branches, tags, taken_at, instance)
                self._dumped = _Dumped(require_known_heads(self._where, references, "Run again."), taken_at)
                return references
            before = branches
        raise SourceError(
            f"{self._where}: in each of {_ATTEMPTS} attempts the log of a branch or tag lacked the commit that the "
            "branch or tag names. Nothing was used or deleted. Run again."
        )

    def _heads_after(self, before: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
        """Return the branches and the tags.

        A branch that another one replaces while the list is read may be missed under both names. Then one of `before`
        is gone, and the list is read again. Tags come last, for a tag that replaces a branch.
        """
        for _ in range(_ATTEMPTS):
            branches = self._heads("branches")
            if before.keys() <= branches.keys():
                break
            before = branches  # after the last attempt: at most what was replaced during that one is missed
        return branches, self._heads("tags")

    def rules(self) -> GCRules | None:
        """Return the rules of `settings/gc_rules`. Two rules for one branch: the last counts, as on the server."""
        self._require_repository()
        try:
            answer = self._client.get("/repositories/{repository}/settings/gc_rules", self._names)
        except NotFound as error:
            if error.words == "repository not found":
                raise
            return None  # without rules every commit is active: only keeping more can follow
        expect = self._client.expect
        branches = answer.get("branches") or []  # null when there are none. Source: lakeFS facts, H17
        if not isinstance(branches, list):
            branches = expect(answer, "branches", list)
        return GCRules(
            default_days=expect(answer, "default_retention_days", int),
            branches={expect(rule, "branch_id", str): expect(rule, "retention_days", int) for rule in branches},
        )

    def grace(self) -> timedelta:
        """Return how old, at the least, an object must be for the server's own collection to take it."""
        answer = self._client.get("/config/garbage-collection", {})
        return timedelta(seconds=self._client.expect(answer, "grace_period", int))

    def repositories(self) -> dict[str, str]:
        """Return the namespace of each repository that the server has, by its name there."""
        expect = self._client.expect
        return {
            expect(repository, "id", str): expect(repository, "storage_namespace", str)
            for page in self._client.pages("/repositories", {})
            for repository in page
        }

    def _require_repository(self) -> _Known:
        """Return what the server says of the repository.

        Errors: SourceError unless the server knows the repository and keeps it where we look.
        """
        answer = self._client.get("/repositories/{repository}", self._names)
        reported = self._client.expect(answer, "storage_namespace", str)
        if canonical_namespace(reported) != self._namespace:
            raise SourceError(
                f"{self._where}: the server keeps it in {reported}, but `namespace` is {self._namespace}. "
                "Nothing was read or deleted. Correct `namespace`, or source.api."
            )
        return _Known(str(self._client.expect(answer, "creation_date", int)), reported)

    def _heads(self, kind: str) -> dict[str, str]:
        """Return the commit of each branch, hidden ones too, or of each tag. Source: lakeFS facts, H18."""
        hidden: dict[str, Any] = {"show_hidden": "true"} if kind == "branches" else {}
        expect = self._client.expect
        return {
            expect(head, "id", str): expect(head, "commit_id", str)
            for page in self._client.pages("/repositories/{repository}/" + kind, self._names, **hidden)
            for head in page
        }

    def _staged_files(self, run_id: str | None, locations: tuple[str, ...]) -> Mapping[str, datetime]:
        """Return when the files of a run were written: one at least for each page that had rows, or it is an error."""
        if run_id is None:
            return {}
        folders = {staged_folder(run_id), *map(self._folder, locations)}
        files = {file: at for folder in folders for file, at in visible_files(self._reader, folder).items()}
        if len(files) < len(locations):
            raise SourceError(
                f"{self._where}: the server wrote {len(locations)} files of staged objects, but "
                f"{self._reader.describe(min(folders))} has {len(files)}. Nothing was deleted. "
                "Check that `storage` is the place of this repository."
            )
        return files

    def _folder(self, location: str) -> str:
        """Return a location of the server's as a path below the namespace. Errors: SourceError when it is outside."""
        path = self._relative(location)
        if path is None:
            raise SourceError(
                f"{self._where}: the server wrote its staged list to {location}, outside of {self._namespace}. "
                "Nothing was deleted. Correct `namespace`."
            )
        return path

    def _relative(self, location: str) -> str | None:
        """Return an absolute address as a path below the namespace; None when it is outside."""
        whole = canonical_namespace(location)
        inside = self._namespace + "/"
        if whole.startswith(inside):
            return whole.removeprefix(inside)
        # A local server prints the absolute path of its files. Source: lakeFS facts 1.3
        path, found, rest = whole.rpartition("/" + inside.removeprefix("local://"))
        if self._namespace.startswith("local://") and path.startswith("local://") and found:
            return rest
        return None

    def _dumped_commits(self) -> str:
        """Let the server dump the references; return the id of the commits' metarange once it is written."""
        expect, path = self._client.expect, "/repositories/{repository}/dump"
        task = expect(self._client.post(path, self._names), "id", str)
        until, pause = self._clock() + _DUMP_PATIENCE, _FIRST_PAUSE
        while True:
            answer = self._client.get(path, self._names, task_id=task)
            if answer.get("error"):
                raise SourceError(
                    f"{self._where}: the dump {task} failed: {str(answer['error'])[:200]}. Nothing was deleted. "
                    "Run again; if it stays so, the server's log says why."
                )
            if expect(answer, "done", bool):
                return self._content_id(expect(answer, "refs", dict))
            if self._clock() >= until:
                raise SourceError(
                    f"{self._where}: the dump {task} was not done after {_DUMP_PATIENCE}. Nothing was deleted. "
                    "Run again when the server is less busy."
                )
            self._sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _content_id(self, refs: Json) -> str:
        metarange_id = self._client.expect(refs, "commits_meta_range_id", str)
        if not CONTENT_ID.fullmatch(metarange_id):
            raise SourceError(f"{self._where}: the dump's commits are in {metarange_id!r}, which is no metarange's id.")
        return metarange_id

    def _unexplained(
        self, commits: dict[str, Commit], branches: Mapping[str, str], tags: Mapping[str, str], pages: Iterator[int]
    ) -> bool:
        """Add to `commits` what branches and tags reach; return whether a log that was read leaves any unexplained.

        `pages` has an item for each page of a log that may be read. The log of a branch explains its commit also when
        the branch moved on. Where the branch is gone or was reset, its commit is still there and has a log of its own.
        """
        return not all(
            any(self._add_moved(commits, head, self._log(ref, pages)) for ref in (name, head))
            for name, head in (*branches.items(), *tags.items())
        )

    def _add_moved(self, commits: dict[str, Commit], head: str, log: Iterator[Commit]) -> bool:
        """Add what `head` reaches and `commits` lack, from a log; return whether all of it was found.

        A commit is never looked up alone: that can answer 404 though it exists. Source: lakeFS facts, H16.
        """
        reached: dict[str, Commit] = {}
        logged: dict[str, Commit] = {}
        missing = {head} - commits.keys()
        while missing:
            commit = next(log, None)
            if commit is None:
                return False
            logged[commit.commit_id] = commit
            while ready := missing & logged.keys():
                reached |= {commit_id: logged[commit_id] for commit_id in ready}
                parents = {parent for commit_id in ready for parent in logged[commit_id].parents}
                missing = (missing | parents) - reached.keys() - commits.keys()
        commits |= reached
        return True

    def _log(self, ref: str, pages: Iterator[int]) -> Iterator[Commit]:
        """Yield the log of a branch, tag or commit while `pages` has items; nothing when there is none of that name."""
        path, names = "/repositories/{repository}/refs/{ref}/commits", {**self._names, "ref": ref}
        try:
            for _, page in zip(pages, self._client.pages(path, names, _LOG_PAGE), strict=False):
                yield from map(self._commit, page)
        except NotFound:
            return

    def _commit(self, answer: Json) -> Commit:
        """Return a commit of a log. Logs cut the second off: the end of the second counts, which keeps more."""
        expect = self._client.expect
        return Commit(
            commit_id=expect(answer, "id", str),
            parents=tuple(map(str, expect(answer, "parents", list))),
            created_at=datetime.fromtimestamp(expect(answer, "creation_date", int), UTC).replace(microsecond=999_999),
            metarange_id=expect(answer, "meta_range_id", str),
            version=expect(answer, "version", int),
        )


def _written_for(run_id: str, files: Mapping[str, datetime], asked_at: datetime) -> Sequence[str]:
    """Return the files in the folder of a run, if the server wrote all of them since it was asked; else nothing."""
    folder = f"{staged_folder(run_id)}/"
    own = sorted(file for file in files if file.startswith(folder))
    is_ours = all(files[file] >= asked_at - _CLOCKS_DIFFER for file in own)
    return own if is_ours else ()
