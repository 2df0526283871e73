"""References from a running lakeFS server: its API for what moves, its dump in the namespace for the commits."""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from retention_assets.config import canonical_namespace
from retention_assets.errors import SourceError
from retention_assets.formats.sstable import CONTENT_ID
from retention_assets.history.references import Commit, References
from retention_assets.stores.lakefs import GCRules, StagedList, require_known_heads, staged_folder, visible_files
from retention_assets.stores.lakefs_client import Json, LakeFSClient, NotFound
from retention_assets.stores.lakefs_dump import read_commit_table
from retention_assets.stores.lakefs_staged import StagedScan
from retention_assets.stores.objects import ObjectReader, StoreAccess

_ATTEMPTS = 3  # a branch that vanishes in each of three attempts is no accident
_DUMP_PATIENCE = timedelta(hours=1)  # what lakectl waits. Source: lakeFS facts 3.3
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 15.0  # seconds between questions


class _Known(NamedTuple):
    """What a server says of a repository."""

    instance: str  # when it was created: one that is created again under its name is another
    namespace: str  # as the server spells it


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
        self._reader = ObjectReader(access)
        self._clock = clock
        self._sleep = sleep
        self._names = {"repository": repository}
        self._where = f"{url}: repository {repository}"

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
        return StagedList(self._staged_files(found.run_id, found.locations), taken_at, shown)

    def references(self) -> References:
        """Return a fresh dump's commits with the branches and tags as they stand after it.

        It is taken at the instant before the first question. The commits of a branch or tag that moved during the
        dump come from its log. Where one vanishes, it starts over.

        Errors: SourceError when the dump fails or takes over an hour, or branches keep vanishing.
        """
        instance = self._require_repository().instance
        for _ in range(_ATTEMPTS):
            taken_at = self._clock()
            before = self._heads("branches")
            commits = read_commit_table(self._reader, self._dumped_commits())
            branches, tags = self._heads("branches"), self._heads("tags")
            heads = [*branches.items(), *tags.items()]
            if before.keys() <= branches.keys() and all(self._add_moved(commits, *head) for head in heads):
                references = References(commits, branches, tags, taken_at, instance)
                return require_known_heads(self._where, references, "Run again.")
        raise self._restless("dump of the references")

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
        hidden = {"show_hidden": "true"} if kind == "branches" else {}
        expect = self._client.expect
        return {
            expect(head, "id", str): expect(head, "commit_id", str)
            for page in self._client.pages("/repositories/{repository}/" + kind, self._names, **hidden)
            for head in page
        }

    def _staged_files(self, run_id: str | None, locations: tuple[str, ...]) -> tuple[str, ...]:
        """Return the files of a run: one at least for each page that had rows, or it is an error."""
        if run_id is None:
            return ()
        folders = {staged_folder(run_id), *map(self._folder, locations)}
        files = {file for folder in folders for file in visible_files(self._reader, folder)}
        if len(files) < len(locations):
            raise SourceError(
                f"{self._where}: the server wrote {len(locations)} files of staged objects, but "
                f"{self._reader.describe(min(folders))} has {len(files)}. Nothing was believed. "
                "Check that `storage` is the place of this repository."
            )
        return tuple(sorted(files))

    def _folder(self, location: str) -> str:
        """Return a location of the server's as a path below the namespace. Errors: SourceError when it is outside."""
        path = self._relative(location)
        if path is None:
            raise SourceError(
                f"{self._where}: the server wrote its staged list to {location}, outside of {self._namespace}. "
                "Nothing was believed. Correct `namespace`."
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
                    f"{self._where}: the dump {task} failed: {str(answer['error'])[:200]}. Nothing was believed. "
                    "Run again; if it stays so, the server's log says why."
                )
            if expect(answer, "done", bool):
                return self._content_id(expect(answer, "refs", dict))
            if self._clock() >= until:
                raise SourceError(
                    f"{self._where}: the dump {task} was not done after {_DUMP_PATIENCE}. Nothing was believed. "
                    "Run again when the server is less busy."
                )
            self._sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _content_id(self, refs: Json) -> str:
        metarange_id = self._client.expect(refs, "commits_meta_range_id", str)
        if not CONTENT_ID.fullmatch(metarange_id):
            raise SourceError(f"{self._where}: the dump's commits are in {metarange_id!r}, which is no metarange's id.")
        return metarange_id

    def _add_moved(self, commits: dict[str, Commit], name: str, head: str) -> bool:
        """Add what `head` reaches and `commits` lack, from the log of `name`; return whether all of it was found.

        A commit is never looked up alone: that can answer 404 though it exists. Source: lakeFS facts, H16.
        """
        reached: dict[str, Commit] = {}
        logged: dict[str, Commit] = {}
        missing = {head} - commits.keys()
        log = self._log(name)
        while missing:
            commit = next(log, None)
            if commit is None:
                return False  # it moved again, or vanished: the caller starts over
            logged[commit.commit_id] = commit
            while ready := missing & logged.keys():
                reached |= {commit_id: logged[commit_id] for commit_id in ready}
                parents = {parent for commit_id in ready for parent in logged[commit_id].parents}
                missing = (missing | parents) - reached.keys() - commits.keys()
        commits |= reached
        return True

    def _log(self, name: str) -> Iterator[Commit]:
        """Yield the log of a branch or tag; nothing when there is none of that name."""
        names = {**self._names, "ref": name}
        try:
            for page in self._client.pages("/repositories/{repository}/refs/{ref}/commits", names):
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

    def _restless(self, what: str) -> SourceError:
        return SourceError(
            f"{self._where}: branches vanished or moved during each of {_ATTEMPTS} attempts to take a {what}. Nothing "
            "was believed or deleted. Run again when nobody deletes branches."
        )
