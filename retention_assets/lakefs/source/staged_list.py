"""Takes a complete list of staged objects from a lakeFS server, also while branches are created and deleted.

The server scans its branches in the order of their names, one page per request. If the server meets a branch that was
deleted, it forgets that the page has rows of earlier branches. If no later branch has rows, the server discards the
page and reports that nothing is staged. If the deleted branch is the last one of the page, the request fails. A listing
of the branches cannot show this reliably, because the branch may exist again by then. Source: docs/uncommitted.md.
"""

import json
import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import NamedTuple

from retention_assets.errors import SourceError
from retention_assets.lakefs.formats.ranges import FIRST_SECOND, LAST_SECOND
from retention_assets.lakefs.names.generated import TYPED_ADDRESSES, has_other_spellings
from retention_assets.lakefs.source.client import Json, LakeFSClient, NotFound
from retention_assets.policy.matching import UNREADABLE, is_unreadable

_ATTEMPTS = 3  # requests for a page; if all of them fail, the staged objects are read from the branches
_AT_ONCE = 8  # branches that are read in parallel; 1,000 branches take 2 seconds on a local server
_PAGE_SECONDS = 600.0  # a page takes two minutes to write and upload. Source: docs/lakefs-formats.md, "Staged lists"
_OBJECTS = "/repositories/{repository}/refs/{ref}/objects/ls"
_BRANCH_GONE = "branch not found"
_REF_GONE = ("not found", _BRANCH_GONE)  # of `objects/ls` for a deleted branch; another 404 is an error
_RUN_ID = re.compile("[0-9a-z]+")


class Shown(NamedTuple):
    """A staged object that a branch shows."""

    physical_address: str  # as the server prints it
    created_at: datetime | None  # None: the entry has an impossible time


@dataclass(frozen=True, slots=True)
class Scan:
    """The result of one scan: the run, the files of its pages with rows, and objects read from branches instead."""

    run_id: str | None  # None: the server wrote no page
    locations: tuple[str, ...]
    shown: tuple[Shown, ...]


class _PageStart(NamedTuple):
    """The branch and path at which a page begins. Both are empty for the first page."""

    branch: str = ""
    path: str = ""


class StagedScan:
    """Takes the staged list of one repository.

    Args:
        client: the client of the server.
        repository: the name of the repository on the server.
        namespace: the storage namespace as the server spells it.
        created_at: when the repository was created (UTC, by the server's clock).
        where: the name of the repository in messages.

    Attributes:
        run_id: the run of the pages so far, also if a later page fails; None: the server wrote no page.
    """

    def __init__(self, client: LakeFSClient, repository: str, namespace: str, created_at: datetime, where: str) -> None:
        self._client = client
        self._names = {"repository": repository}
        self._inside = namespace.rstrip("/") + "/"
        self._may_lack_rows = has_other_spellings(namespace) or created_at < TYPED_ADDRESSES
        self._where = where
        self.run_id: str | None = None

    def take(self, branches: Iterable[str]) -> Scan:
        """Return all objects that are staged on `branches`, which must be all branches that existed before this call.

        There are three cases of pages. In each case, the list has all staged objects of the page, and may have more:

        - The page has rows. Then its file has the rows of every branch of the page, because the server discards only
          whole pages. If the server did not find a branch, the branch was deleted and its staged objects with it.
        - The page has no rows, and none of its branches shows a staged object afterwards. Then all objects that were
          staged when the scan began have been committed or discarded. References are read later and have these commits.
        - The server fails repeatedly, or its pages contradict its branches. Then the staged objects are read from the
          branches.

        The list lacks objects whose address is not spelled like the namespace: see `has_other_spellings`. It also
        lacks objects that servers before April 2021 staged: their addresses have no type. So in repositories that may
        have such objects, the staged objects of all branches are read too.
        """
        names = sorted(branches)
        scan = self._pages(names)
        is_spelled_alike = all(location.startswith(self._inside) for location in scan.locations)
        if is_spelled_alike and not self._may_lack_rows:
            return scan
        return replace(scan, shown=tuple(dict.fromkeys((*scan.shown, *self._all_shown(names)))))

    def _pages(self, names: list[str]) -> Scan:
        """Return the results of all pages. Errors: SourceError when the pages repeat, or belong to several runs."""
        locations: list[str] = []
        shown: list[Shown] = []
        token = ""
        seen = set[str]()
        while token not in seen:
            seen.add(token)
            response, rows = self._page(token, names)
            shown += rows
            if response is None:  # `rows` has the staged objects of all remaining branches
                return Scan(self.run_id, tuple(locations), tuple(shown))
            run_of_page = self._client.expect(response, "run_id", str)
            if (self.run_id and run_of_page != self.run_id) or not _RUN_ID.fullmatch(run_of_page):
                in_run = f", although the scan is the run {self.run_id!r}" if self.run_id else ""
                raise self._unusable(f"a page of the run {run_of_page!r}{in_run}")
            self.run_id, token = run_of_page, _token_of(response)
            if location := self._location(response):
                locations.append(location)
            if not token:
                return Scan(self.run_id, tuple(locations), tuple(shown))
            if is_unreadable(self._start_of(token).path):  # the server cannot continue at this path
                shown += self._all_shown(self._branches_on_page(names, token, ""))
                return Scan(self.run_id, tuple(locations), tuple(shown))
        raise self._unusable("pages that do not end")

    def _page(self, token: str, names: list[str]) -> tuple[Json | None, list[Shown]]:
        """Return a page, and the staged objects of its branches if the page cannot be trusted.

        The page is None if the server failed repeatedly. Then the objects are those of all branches from the page's
        first branch on.
        """
        response, on_page = None, []
        for _ in range(_ATTEMPTS):
            response = self._request_page(token)
            if response is None:
                continue
            if self._location(response):
                return response, []
            on_page = self._branches_on_page(names, token, _token_of(response))
            if not any(self._for_each(self._shows_any, on_page)):
                return response, []
        if response is None:
            on_page = self._branches_on_page(names, token, "")
        return response, self._all_shown(on_page)

    def _request_page(self, token: str) -> Json | None:
        """Let the server write a page, and return the response; None if it failed because a branch was deleted."""
        path = "/repositories/{repository}/gc/prepare_uncommited"
        try:
            return self._client.post(path, self._names, {"continuation_token": token} if token else {}, _PAGE_SECONDS)
        except SourceError as error:
            if _BRANCH_GONE in str(error):
                return None
            raise

    def _location(self, response: Json) -> str:
        """Return the location of the page's file; empty if the server reports no rows."""
        return self._client.expect(response, "gc_uncommitted_location", str)

    def _branches_on_page(self, names: list[str], token: str, following: str) -> list[str]:
        """Return the branches of the page from `token` to `following`.

        The branch of `following` is included only if the page ended inside that branch.
        """
        first, last = self._start_of(token).branch, self._start_of(following) if following else None
        return [
            name
            for name in names
            if name >= first and (last is None or name < last.branch or (name == last.branch and last.path))
        ]

    def _start_of(self, token: str) -> _PageStart:
        """Return the branch and path in a continuation token.

        Source: docs/lakefs-formats.md, "Staged lists". Errors: SourceError.
        """
        if not token:
            return _PageStart()
        try:
            start = json.loads(b64decode(token, validate=True))
            return _PageStart(str(start["branch"]), str(start["path"]))
        except (ValueError, KeyError, TypeError) as error:
            raise self._unusable(f"the continuation token {token[:80]!r}, which names no branch") from error

    def _for_each[T](self, read: Callable[[str], T], branches: list[str]) -> Iterator[T]:
        """Yield the result of `read` for each branch, in order. Several branches are read in parallel."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            yield from pool.map(read, branches)

    def _shows_any(self, branch: str) -> bool:
        return next(self._changes(branch), None) is not None

    def _all_shown(self, branches: list[str]) -> list[Shown]:
        """Return the staged objects of branches. A deleted branch has none: its staging area was deleted with it."""

        def shown(branch: str) -> list[Shown]:
            return [entry for paths in self._changes(branch) for entry in self._entries(branch, paths)]

        return [entry for entries in self._for_each(shown, branches) for entry in entries]

    def _changes(self, branch: str) -> Iterator[list[str]]:
        """Yield the paths of the staged objects of a branch, page by page, in order, without staged deletions."""
        expect = self._client.expect
        names = {**self._names, "branch": branch}
        try:
            for page in self._client.pages("/repositories/{repository}/branches/{branch}/diff", names):
                paths = [expect(change, "path", str) for change in page if expect(change, "type", str) != "removed"]
                if paths:
                    yield paths
        except NotFound as error:
            if _BRANCH_GONE not in error.server_message:
                raise

    def _entries(self, branch: str, paths: list[str]) -> Iterator[Shown]:
        """Yield the entries of the branch at `paths`. A path has no entry if it was deleted or discarded meanwhile."""
        for prefix in sorted({path.partition(UNREADABLE)[0] for path in paths if is_unreadable(path)}):
            yield from self._unreadable_below(branch, prefix)
        waiting = [path for path in paths if not is_unreadable(path)]
        while waiting:
            first = waiting[0]
            # `after` does not return its own path, so a second request gets it by prefix. The two requests together
            # return many neighbouring objects at once.
            found = self._listed(branch, prefix=first, amount=1) | self._listed(
                branch, after=first, amount=len(waiting)
            )
            yield from (found[path] for path in waiting if path in found)
            reached = max(found, default=first)
            waiting = [path for path in waiting[1:] if path > reached]

    def _unreadable_below(self, branch: str, prefix: str) -> Iterator[Shown]:
        """Yield the entries whose path begins with `prefix` and is not UTF-8, committed ones included.

        The server prints U+FFFD for bytes that are not UTF-8, so such an entry cannot be requested by its path.
        """
        names = {**self._names, "ref": branch}
        try:
            for page in self._client.pages(_OBJECTS, names, user_metadata="false", prefix=prefix):
                yield from (self._shown(entry) for entry in page if is_unreadable(self._path(entry)))
        except NotFound as error:
            if error.server_message not in _REF_GONE:
                raise

    def _listed(self, branch: str, **query: str | int) -> dict[str, Shown]:
        """Return objects of a branch by path, staged ones included. Paths that are not UTF-8 are left out."""
        expect = self._client.expect
        names = {**self._names, "ref": branch}
        try:
            response = self._client.get(_OBJECTS, names, user_metadata="false", **query)
        except NotFound as error:
            if error.server_message not in _REF_GONE:
                raise
            return {}
        found = {self._path(entry): self._shown(entry) for entry in expect(response, "results", list)}
        return {path: shown for path, shown in found.items() if not is_unreadable(path)}

    def _path(self, entry: Json) -> str:
        return self._client.expect(entry, "path", str)

    def _shown(self, entry: Json) -> Shown:
        expect = self._client.expect
        return Shown(expect(entry, "physical_address", str), _time_of(expect(entry, "mtime", int)))

    def _unusable(self, what: str) -> SourceError:
        return SourceError(
            f"{self._where}: prepare_uncommited responds with {what}. The list was not used. Run again when no other "
            "garbage collection runs."
        )


def _time_of(seconds: int) -> datetime | None:
    return datetime.fromtimestamp(seconds, UTC) if FIRST_SECOND <= seconds <= LAST_SECOND else None


def _token_of(response: Json) -> str:
    return str(response.get("continuation_token") or "")
