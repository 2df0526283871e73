"""The list of staged objects that a lakeFS server writes, taken so that it is complete while branches come and go.

The server scans its branches in the order of their names, a page a request. When it meets a branch that was deleted,
it forgets that it has written rows of the branches before: without rows of a branch behind, it throws the page away and
says that nothing is staged. When that branch is the last of the page, the request fails. No listing of branches shows
this for sure: the branch may exist again by then. Source: lakeFS facts, H4 and H23.
"""

import json
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import NamedTuple

from retention_assets.errors import SourceError
from retention_assets.lakefs.source.client import Json, LakeFSClient, NotFound

_ATTEMPTS = 3  # requests for a page; after them the branches are asked instead, which needs no luck
_AT_ONCE = 8  # branches that are asked at a time: 1,000 branches take 2 seconds on a local server
_PATIENCE = 600.0  # seconds; a page takes a minute to make and one to upload. Source: lakeFS facts 4.4, 9
_BRANCH_GONE = "branch not found"
_RUN_ID_LETTERS = frozenset("0123456789abcdefghijklmnopqrstuvwxyz")


class Shown(NamedTuple):
    """A staged object as its branch shows it."""

    physical_address: str  # as the server prints it
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Scan:
    """What one scan found: the run with the locations of its pages that had rows, and what branches showed instead."""

    run_id: str | None  # None: the server wrote no page
    locations: tuple[str, ...]
    shown: tuple[Shown, ...]


class _Mark(NamedTuple):
    """Where a page begins: at a branch, and in it at a path. The first page begins at the least one."""

    branch: str = ""
    path: str = ""


class StagedScan:
    """Takes the staged list of one repository, whose storage namespace the server spells `namespace`.

    `where` names the repository in messages.
    """

    def __init__(self, client: LakeFSClient, repository: str, namespace: str, where: str) -> None:
        self._client = client
        self._names = {"repository": repository}
        self._inside = namespace.rstrip("/") + "/"
        self._where = where

    def take(self, branches: Iterable[str]) -> Scan:
        """Return everything that is staged on `branches`, all those that there were before this call.

        A page is complete by one of three proofs, each of which can only add objects to the list:

        - The page has rows. Then its file holds the rows of every branch that the page passed: the server throws pages
          away whole, or not at all. A branch that the server did not find had been deleted, and what was staged on it
          was thrown away with it.
        - The page has no rows, and each of its branches that exists afterwards shows no staged object. Whatever was
          staged when the scan began was committed or thrown away by then, and references are read later.
        - The server keeps failing or contradicting its branches. Then the list has what the branches show themselves.

        A server that prints addresses in another spelling than its namespace (a local one, or a namespace that needs
        escaping) leaves out what clients linked as printed. Then the list also has what all branches show.
        """
        names = sorted(branches)
        scan = self._pages(names)
        if all(location.startswith(self._inside) for location in scan.locations):
            return scan
        return replace(scan, shown=(*scan.shown, *self._all_shown(names)))

    def _pages(self, names: list[str]) -> Scan:
        """Return what all pages have. Errors: SourceError when they do not end, or are of several runs."""
        locations: list[str] = []
        shown: list[Shown] = []
        run_id, token = None, ""
        seen = set[str]()
        while token not in seen:
            seen.add(token)
            answer, rows = self._page(token, names)
            shown += rows
            if answer is None:  # the branches showed all the rest
                return Scan(run_id, tuple(locations), tuple(shown))
            named = self._client.expect(answer, "run_id", str)
            if (run_id and named != run_id) or not _is_run_id(named):
                raise self._unusable(f"a page of the run {named!r} in the run {run_id!r}")
            run_id, token = named, _token_of(answer)
            if location := self._location(answer):
                locations.append(location)
            if not token:
                return Scan(run_id, tuple(locations), tuple(shown))
        raise self._unusable("pages that do not end")

    def _page(self, token: str, names: list[str]) -> tuple[Json | None, list[Shown]]:
        """Return a page, and what its branches show where the page itself cannot be trusted.

        No page: the server failed again and again, and the rows are of all branches from the page's mark on.
        """
        answer, passed = None, []
        for _ in range(_ATTEMPTS):
            answer = self._ask(token)
            if answer is None:
                continue
            if self._location(answer):
                return answer, []
            passed = self._passed(names, token, _token_of(answer))
            if not any(self._ask_each(self._shows_any, passed)):
                return answer, []
        if answer is None:
            passed = self._passed(names, token, "")
        return answer, self._all_shown(passed)

    def _ask(self, token: str) -> Json | None:
        """Let the server write a page; None when a branch vanished on which the request came to fail."""
        path = "/repositories/{repository}/gc/prepare_uncommited"
        try:
            return self._client.post(path, self._names, {"continuation_token": token} if token else {}, _PATIENCE)
        except SourceError as error:
            if _BRANCH_GONE in str(error):
                return None
            raise

    def _location(self, answer: Json) -> str:
        """Return where the page's file is; empty when the server says that it has no rows."""
        return self._client.expect(answer, "gc_uncommitted_location", str)

    def _passed(self, names: list[str], token: str, following: str) -> list[str]:
        """Return the branches between two marks, that of the second one only if the page ended inside of it."""
        first, last = self._mark(token).branch, self._mark(following) if following else None
        return [
            name
            for name in names
            if name >= first and (last is None or name < last.branch or (name == last.branch and last.path))
        ]

    def _mark(self, token: str) -> _Mark:
        """Return what a continuation token says. Source: lakeFS facts 4.4. Errors: SourceError."""
        if not token:
            return _Mark()
        try:
            mark = json.loads(b64decode(token, validate=True))
            return _Mark(str(mark["branch"]), str(mark["path"]))
        except (ValueError, KeyError, TypeError) as error:
            raise self._unusable(f"the continuation token {token[:80]!r}, which names no branch") from error

    def _ask_each[T](self, ask: Callable[[str], T], branches: list[str]) -> Iterator[T]:
        """Yield the answer of each branch."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            yield from pool.map(ask, branches)

    def _shows_any(self, branch: str) -> bool:
        return next(self._changes(branch), None) is not None

    def _all_shown(self, branches: list[str]) -> list[Shown]:
        """Return what branches show as staged; nothing of one that is gone, for its staging area is gone with it."""

        def shown(branch: str) -> list[Shown]:
            return [entry for paths in self._changes(branch) for entry in self._entries(branch, paths)]

        return [entry for entries in self._ask_each(shown, branches) for entry in entries]

    def _changes(self, branch: str) -> Iterator[list[str]]:
        """Yield the paths that are staged on a branch, some at a time, in order, without staged deletions."""
        expect = self._client.expect
        names = {**self._names, "branch": branch}
        try:
            for page in self._client.pages("/repositories/{repository}/branches/{branch}/diff", names):
                paths = [expect(change, "path", str) for change in page if expect(change, "type", str) != "removed"]
                if paths:
                    yield paths
        except NotFound as error:
            if _BRANCH_GONE not in error.words:
                raise

    def _entries(self, branch: str, paths: list[str]) -> Iterator[Shown]:
        """Yield the entries of the branch at `paths`. A path without one was committed as deleted, or thrown away."""
        waiting = paths
        while waiting:
            first = waiting[0]
            # `after` leaves its path out, and a prefix alone would miss the neighbours: two requests take a whole run
            # of new objects.
            found = self._listed(branch, prefix=first, amount=1) | self._listed(
                branch, after=first, amount=len(waiting)
            )
            yield from (found[path] for path in waiting if path in found)
            reached = max(found, default=first)
            waiting = [path for path in waiting[1:] if path > reached]

    def _listed(self, branch: str, **query: str | int) -> dict[str, Shown]:
        """Return objects of a branch by path, as it shows them with its staging area."""
        expect = self._client.expect
        names = {**self._names, "ref": branch}
        try:
            answer = self._client.get(
                "/repositories/{repository}/refs/{ref}/objects/ls", names, user_metadata="false", **query
            )
        except NotFound as error:
            if error.words == "repository not found":
                raise
            return {}
        return {
            expect(entry, "path", str): Shown(
                expect(entry, "physical_address", str), datetime.fromtimestamp(expect(entry, "mtime", int), UTC)
            )
            for entry in expect(answer, "results", list)
        }

    def _unusable(self, what: str) -> SourceError:
        return SourceError(
            f"{self._where}: prepare_uncommited answers with {what}. Nothing was used. Run again when no other "
            "collection runs."
        )


def _token_of(answer: Json) -> str:
    return str(answer.get("continuation_token") or "")


def _is_run_id(run_id: str) -> bool:
    return bool(run_id) and _RUN_ID_LETTERS.issuperset(run_id)
