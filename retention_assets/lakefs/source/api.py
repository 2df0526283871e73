"""Reads a repository from a running lakeFS server.

Branches, tags and new commits come from the API. The other commits come from a dump that the server writes into the
namespace.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, NamedTuple

from retention_assets.config.configuration import INTERNAL, canonical_namespace
from retention_assets.core.amounts import counted
from retention_assets.core.heads import moved_on_by_commits
from retention_assets.errors import AccessDenied, RetentionError, SourceError
from retention_assets.lakefs.formats.sstable import CONTENT_ID
from retention_assets.lakefs.names.generated import DATA
from retention_assets.lakefs.rules.references import Commit, References, creation_time
from retention_assets.lakefs.source.client import Json, LakeFSClient, NotFound
from retention_assets.lakefs.source.dump import read_commit_table
from retention_assets.lakefs.source.repository import StagedList, require_known_heads, staged_folder, visible_files
from retention_assets.lakefs.source.staged_list import StagedScan
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.objectstore.outcomes import Outcome
from retention_assets.policy.rules import ServerRules

_LOG = logging.getLogger(__name__)
_CLOCK_TOLERANCE = timedelta(minutes=5)  # how far the store's clock may be behind; if it is further behind, files stay
_GONE = (Outcome.DELETED, Outcome.MISSING)
_ATTEMPTS = 3  # times that the branches and tags are read again if they changed, or if their commits were not found
_DUMP_LIFE = timedelta(minutes=10)  # a dump is reused for this long; see `ApiSource.references`
_FEW_PAGES = 200  # pages of logs; reading more pages takes longer than a dump
_LOG_PAGE = 100  # commits; usually only one commit is new
_DUMP_TIMEOUT = timedelta(hours=1)  # lakectl waits as long. Source: docs/lakefs-formats.md, "Dumps"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 15.0  # seconds between polls


class _Identity(NamedTuple):
    """The identity of a repository, as its server reports it."""

    instance: str  # its creation time: a repository that is deleted and created again gets another one
    namespace: str  # as the server spells it
    is_read_only: bool


@dataclass(frozen=True, slots=True)
class _Heads:
    """The commit of each branch and each tag, from several readings of the lists.

    `replaced`: the names that had another commit in an earlier reading, with that commit; empty if the last two
    readings were the same.
    """

    branches: Mapping[str, str]
    tags: Mapping[str, str]
    replaced: frozenset[tuple[str, str, str]] = frozenset()  # kind, name, commit

    @classmethod
    def of(cls, readings: Sequence[Mapping[str, Mapping[str, str]]]) -> "_Heads":
        """Return the newest commit of each name in any reading. `readings`: oldest first; names are by kind."""
        newest: dict[str, dict[str, str]] = {"branches": {}, "tags": {}}
        for reading in readings:
            for kind, commits in reading.items():
                newest[kind] |= commits
        replaced = {
            (kind, name, commit)
            for reading in readings
            for kind, commits in reading.items()
            for name, commit in commits.items()
            if newest[kind][name] != commit
        }
        return cls(newest["branches"], newest["tags"], frozenset(replaced))

    def only_moved_on(self, commits: Mapping[str, Commit], known: Collection[str]) -> bool:
        """Return whether only branches got another commit, each only by new commits, which are not in `known`.

        Then no reading has missed a branch or tag that took over an earlier commit: see `_heads_now`.
        """
        return all(
            kind == "branches"
            and moved_on_by_commits(self.branches[name], commit, lambda at: commits[at].main_parent, known)
            for kind, name, commit in self.replaced
        )


@dataclass(frozen=True, slots=True)
class _LastReferences:
    """The references that were read last, and the time when their dump was started."""

    references: References
    dumped_at: datetime


class ApiSource:
    """Reads a repository from its server. `namespace` is the server's URL of the storage that `access` opens."""

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
        self._last: _LastReferences | None = None
        self._written: dict[str, Sequence[str]] = {}  # by run: the files that the server wrote for this source
        self._warned = False

    def staged(self) -> StagedList:
        """Let the server write a list of the staged objects of all branches, and return the list.

        `taken_at` of the list is the time before the branches are listed. Each branch is scanned after that time. So
        an object that was staged at that time is in the list, or was committed or discarded before the scan.
        `StagedScan` explains why the list is complete. Source: docs/lakefs-formats.md, "Staged lists".

        Errors: SourceError when the repository is read-only, when the server fails, or when a file that the server
        reports is missing.
        """
        repository = self._require_repository()
        taken_at = self._clock()
        if repository.is_read_only:
            raise SourceError(
                f"{self._where}: the repository is read-only, so the server writes no list of its staged objects. "
                "Nothing was deleted. Plan and sweep the repository that it mirrors."
            )
        created_at = datetime.fromtimestamp(int(repository.instance), UTC)
        scan = StagedScan(self._client, self._repository, repository.namespace, created_at, self._where)
        try:
            found = scan.take(self._heads("branches"))
            files = self._staged_files(found.run_id, found.locations)
        except RetentionError:
            self._release_unfinished(scan.run_id, taken_at)
            raise
        shown = tuple(
            (self._relative(entry.physical_address) or entry.physical_address, entry.created_at)
            for entry in found.shown
        )
        if found.run_id is not None:
            self._written[found.run_id] = _written_for(found.run_id, files, taken_at)
        return StagedList(tuple(sorted(files)), taken_at, shown, found.run_id)

    def release(self, staged: StagedList) -> None:
        """Remove the files that the server wrote for `staged`; see `LakeFSSource`.

        A file is removed only if it is in the folder of a run that the server started for this `ApiSource`, and only if
        it was written after the request. Files of other runs are never removed.
        """
        files = self._written.pop(staged.run_id or "", ())
        if not files:
            return
        from retention_assets.objectstore.mutate.deletion import ObjectDeleter  # this import is slow

        try:
            removed = zip(files, ObjectDeleter(self._access).delete_all(files), strict=True)
            details = [f"{file}: {one.detail}" for file, one in removed if one.outcome not in _GONE]
        except RetentionError as error:
            details = [str(error)]
        if not details:
            self._remove_empty(files[0].rpartition("/")[0])
        elif not self._warned:
            self._warned = True
            _LOG.warning(
                "%s: the staged list that the server wrote for this run could not be removed (%s). The list stays "
                "in the store and does no harm. To have such lists removed, allow deletes below "
                "%s/retention/gc/uncommitted/.",
                self._where,
                details[0],
                INTERNAL,
            )

    def _release_unfinished(self, run_id: str | None, asked_at: datetime) -> None:
        """Remove the files of a list that could not be read whole. The caller then raises the error of the list."""
        if run_id is None:
            return
        with suppress(RetentionError):
            self._written[run_id] = _written_for(run_id, visible_files(self._reader, staged_folder(run_id)), asked_at)
            self.release(StagedList((), asked_at, (), run_id))

    def _remove_empty(self, folder: str) -> None:
        """Remove the empty directories of a run from a local disk. Object stores have no directories."""
        if self._access.is_local:
            path = self._access.directory / folder
            with suppress(OSError):  # not empty, or no permission: a directory costs nothing
                path.rmdir()
                path.parent.rmdir()

    def references(self) -> References:
        """Return all commits, and the branches and tags as the server lists them after `taken_at`.

        The first call takes a dump. For the next `_DUMP_LIFE`, calls list the branches and tags and read only the new
        commits, from the logs of the branches and tags. Dumps are avoided because each one leaves a copy of all commits
        in the namespace for ever. A new dump is taken when the logs are long, or when the logs do not have the commit
        of a branch or tag.

        A call without a dump misses some commits: those that were made since the last dump and that no branch or tag
        reaches any more, because the branch was deleted or reset. Every other new commit is reached by a branch or tag.

        Errors: SourceError when the dump fails or takes over an hour, or when no log has the commit of a branch or tag.
        """
        instance = self._require_repository().instance
        taken_at = self._clock()
        last = self._last
        if last is None or last.references.instance != instance or taken_at - last.dumped_at > _DUMP_LIFE:
            return self._dump(instance, taken_at)
        before = last.references
        heads = self._heads_now()
        if (heads.branches, heads.tags, heads.replaced) == (before.branches, before.tags, frozenset()):
            references = replace(before, taken_at=taken_at)
        else:
            commits = dict(before.commits)
            is_complete = self._add_reached(commits, heads, iter(range(_FEW_PAGES)))
            if not (is_complete and heads.only_moved_on(commits, before.commits.keys())):
                return self._dump(instance, taken_at)
            references = References(commits, heads.branches, heads.tags, taken_at, instance)
        self._last = _LastReferences(references, last.dumped_at)
        return references

    def _dump(self, instance: str, taken_at: datetime) -> References:
        """Take a dump, and return its commits with the branches and tags that are listed after the dump.

        The dump has every commit that existed when the dump began, also commits that no branch reaches. A commit that
        was made after that is missing if its branch is deleted before the branches are listed. The dump is not repeated
        for such a commit. The commit can have three kinds of objects:

        - Objects that were staged when the dump began. The staged list has them.
        - Objects that were written after that. They are young.
        - Objects of another commit. They have the same risk as objects of an old commit from which someone makes a
          branch later (docs/safety.md, "The window").

        The server reads the commits in the order of their ids, so the dump can have a commit and lack an ancestor that
        was made during the dump. Such commits are read again from the logs.
        """
        commits = read_commit_table(self._reader, self._dumped_commits())
        incomplete = _take_incomplete(commits)
        problem = ""
        for _ in range(_ATTEMPTS):
            known, heads = commits.keys() | incomplete.keys(), self._heads_now()
            if not self._add_reached(commits, heads, count()):
                problem = "the log of a branch or tag did not have the commit that the branch or tag points to"
            elif not heads.only_moved_on(commits, known):
                problem = "a branch was reset, or a branch or tag was created again at another commit, meanwhile"
            else:
                references = References(commits | incomplete, heads.branches, heads.tags, taken_at, instance)
                self._last = _LastReferences(require_known_heads(self._where, references, "Run again."), taken_at)
                return references
        raise SourceError(
            f"{self._where}: in each of {_ATTEMPTS} attempts {problem}. Nothing was used or deleted. Run again."
        )

    def _heads_now(self) -> _Heads:
        """Return the branches and the tags, each with its commit.

        Someone can create a branch or tag at a commit, and then delete or reset the branch or tag that was there
        before. If this happens during a reading of the lists, the reading can miss both names. So the lists are read
        until two readings are the same. (Only several such changes, one during each reading, can then be missed.) On a
        busy server, each reading may differ. Then a branch or tag that the last reading lacks still counts. For a name
        that got another commit, new commits alone must have replaced the earlier one: see `_Heads.only_moved_on`.
        """
        readings = [self._reading()]
        for _ in range(_ATTEMPTS):
            readings.append(self._reading())
            if readings[-1] == readings[-2]:
                return _Heads.of(readings[-1:])
        return _Heads.of(readings)

    def _reading(self) -> dict[str, dict[str, str]]:
        return {kind: self._heads(kind) for kind in ("branches", "tags")}

    def rules(self) -> ServerRules | None:
        """Return the rules of `settings/gc_rules`; None if no rules are set."""
        self._require_repository()
        return self._client.gc_rules(self._repository)  # without rules every commit is active: fewer are deleted

    def grace(self) -> timedelta:
        """Return the minimum age of objects that the server's own garbage collection deletes."""
        response = self._client.get("/config/garbage-collection", {})
        return timedelta(seconds=self._client.expect(response, "grace_period", int))

    def other_repositories(self) -> dict[str, str] | None:
        """See `LakeFSSource`."""
        expect = self._client.expect
        try:
            namespaces = {
                expect(repository, "id", str): canonical_namespace(expect(repository, "storage_namespace", str))
                for page in self._client.pages("/repositories", {})
                for repository in page
            }
        except AccessDenied:
            return None
        if self._repository not in namespaces:
            self._require_repository()  # under a wrong name, the repository itself would be in the result
        return {name: namespace for name, namespace in namespaces.items() if name != self._repository}

    def _require_repository(self) -> _Identity:
        """Return the repository's identity.

        Errors: SourceError when the server does not know the repository, or has another namespace for it.
        """
        response = self._client.get("/repositories/{repository}", self._names)
        reported = self._client.expect(response, "storage_namespace", str)
        if canonical_namespace(reported) != self._namespace:
            raise SourceError(
                f"{self._where}: its namespace is {reported} on the server, but `namespace` is {self._namespace}. "
                "Nothing was read or deleted. Correct `namespace`, or source.api."
            )
        created = str(self._client.expect(response, "creation_date", int))
        return _Identity(created, reported, response.get("read_only") is True)

    def _heads(self, kind: str) -> dict[str, str]:
        """Return the commit of each branch (hidden branches too), or of each tag.

        Source: docs/lakefs-formats.md, "Branches".
        """
        hidden: dict[str, Any] = {"show_hidden": "true"} if kind == "branches" else {}
        expect = self._client.expect
        return {
            expect(head, "id", str): expect(head, "commit_id", str)
            for page in self._client.pages("/repositories/{repository}/" + kind, self._names, **hidden)
            for head in page
        }

    def _staged_files(self, run_id: str | None, locations: tuple[str, ...]) -> Mapping[str, datetime]:
        """Return the files of a run with their write times. Errors: SourceError when the file of a page is missing."""
        if run_id is None:
            return {}
        folders = {staged_folder(run_id), *map(self._folder, locations)}
        files = {file: at for folder in folders for file, at in visible_files(self._reader, folder).items()}
        if len(files) < len(locations):
            raise SourceError(
                f"{self._where}: the server wrote {counted(len(locations), 'file')} of staged objects, but "
                f"{self._reader.describe(min(folders))} has {len(files)}. Nothing was deleted. "
                "Check that `storage` is the location of this repository."
            )
        return files

    def _folder(self, location: str) -> str:
        """Return the path of `location` below the namespace. Errors: SourceError when the location is outside of it."""
        path = self._relative(location)
        if path is None:
            raise SourceError(
                f"{self._where}: the server wrote its staged list to {location}, outside of {self._namespace}. "
                "Nothing was deleted. Correct `namespace`."
            )
        return path

    def _relative(self, location: str) -> str | None:
        """Return the path of an absolute address below the namespace; None when the address is outside of it."""
        address = canonical_namespace(location)
        inside = self._namespace + "/"
        if address.startswith(inside):
            return address.removeprefix(inside)
        # A server with local storage prints absolute file paths. Source: docs/lakefs-formats.md, "Addresses"
        if not (self._namespace.startswith("local://") and address.startswith("local://")):
            return None
        rests = _rests(address, "/" + inside.removeprefix("local://"))
        # The path can have the folder several times. The last one before `data/` counts; without `data/`, the last one.
        generated = [rest for rest in rests if rest.startswith(DATA)]
        return next(reversed(generated or rests), None)

    def _dumped_commits(self) -> str:
        """Let the server dump the references, wait for the dump, and return the id of its metarange of commits."""
        expect, path = self._client.expect, "/repositories/{repository}/dump"
        task = expect(self._client.post(path, self._names), "id", str)
        until, pause = self._clock() + _DUMP_TIMEOUT, _FIRST_PAUSE
        while True:
            response = self._client.get(path, self._names, task_id=task)
            if response.get("error"):
                raise SourceError(
                    f"{self._where}: the dump {task} failed: {str(response['error'])[:200]}. Nothing was deleted. "
                    "Run again. If the error persists, read the server's log."
                )
            if expect(response, "done", bool):
                return self._content_id(expect(response, "refs", dict))
            if self._clock() >= until:
                raise SourceError(
                    f"{self._where}: the dump {task} was not finished after {_DUMP_TIMEOUT}. Nothing was deleted. "
                    "Run again when the server is less busy."
                )
            self._sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _content_id(self, refs: Json) -> str:
        metarange_id = self._client.expect(refs, "commits_meta_range_id", str)
        if not CONTENT_ID.fullmatch(metarange_id):
            raise SourceError(
                f"{self._where}: the dump's commits are in {metarange_id!r}, which is not the id of a metarange. "
                "Nothing was deleted. Check that the server is a lakeFS of version 1.72 or later."
            )
        return metarange_id

    def _add_reached(self, commits: dict[str, Commit], heads: _Heads, pages: Iterator[int]) -> bool:
        """Add the commits that branches and tags reach to `commits`; return whether all of these commits were found.

        `pages` has one item for each page of a log that may be read. The log of a branch has the branch's commit even
        if the branch has moved on. If the branch was deleted or reset, the log of the commit itself is read.
        """
        return all(
            any(self._add_from_log(commits, head, self._log(ref, pages)) for ref in (name, head))
            for name, head in (*heads.branches.items(), *heads.tags.items())
        )

    def _add_from_log(self, commits: dict[str, Commit], head: str, log: Iterator[Commit]) -> bool:
        """Add the commits that `head` reaches to `commits`, from a log; return whether all of them were found.

        Commits are not requested one by one: the server can respond with 404 for a commit that exists. Source:
        docs/lakefs-formats.md, "Commits that the server does not find".
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
        """Yield the log of a branch, tag or commit while `pages` has items; yield nothing when `ref` does not exist."""
        path, names = "/repositories/{repository}/refs/{ref}/commits", {**self._names, "ref": ref}
        try:
            for _, page in zip(pages, self._client.pages(path, names, _LOG_PAGE), strict=False):
                yield from map(self._commit, page)
        except NotFound:
            return

    def _commit(self, response: Json) -> Commit:
        """Return the commit of a log entry. Logs cut off fractions of a second, so the end of the second is taken."""
        expect = self._client.expect
        return Commit(
            commit_id=expect(response, "id", str),
            parents=tuple(map(str, expect(response, "parents", list))),
            created_at=creation_time(expect(response, "creation_date", int), microsecond=999_999),
            metarange_id=expect(response, "meta_range_id", str),
            version=expect(response, "version", int),
        )


def _take_incomplete(commits: dict[str, Commit]) -> dict[str, Commit]:
    """Remove the commits with an ancestor that is not in `commits`, and return them."""
    waiting = [one.commit_id for one in commits.values() if not commits.keys() >= set(one.parents)]
    children: defaultdict[str, list[str]] = defaultdict(list)
    for commit in commits.values() if waiting else ():
        for parent in commit.parents:
            children[parent].append(commit.commit_id)
    taken: dict[str, Commit] = {}
    while waiting:
        commit_id = waiting.pop()
        if commit_id in commits:
            taken[commit_id] = commits.pop(commit_id)
            waiting += children[commit_id]
    return taken


def _written_for(run_id: str, files: Mapping[str, datetime], asked_at: datetime) -> Sequence[str]:
    """Return the files in the folder of a run if all of them were written after the request; else nothing.

    Write times may be up to `_CLOCK_TOLERANCE` too early.
    """
    folder = f"{staged_folder(run_id)}/"
    own = sorted(file for file in files if file.startswith(folder))
    is_ours = all(files[file] >= asked_at - _CLOCK_TOLERANCE for file in own)
    return own if is_ours else ()


def _rests(location: str, folder: str) -> list[str]:
    """Return the rest of a location after `folder`, once for each occurrence of `folder` in the location."""
    found, at = [], location.find(folder)
    while at >= 0:
        found.append(location[at + len(folder) :])
        at = location.find(folder, at + 1)
    return found
