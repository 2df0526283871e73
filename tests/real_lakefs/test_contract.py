"""The real lakeFS server and the fake one of tests/lakefs/source hide the same objects.

The last tests hold for the real server only: which addresses it still accepts days after it issued them.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from hashlib import md5
from typing import Any, Protocol

import pytest

from tests.lakefs.source import fake_lakefs_server
from tests.lakefs.source.fake_lakefs_repository import Repository as FakeRepository
from tests.lakefs.source.fake_lakefs_repository import saved
from tests.lakefs.source.fake_lakefs_server import FakeLakeFSServer, serving
from tests.real_lakefs.client import ACCESS_KEY, SECRET_KEY, Client, Refused
from tests.real_lakefs.hooks import Webhook, webhook
from tests.real_lakefs.repository import Repository
from tests.real_lakefs.server import Server

_CONTENT = b"done"
_MD5 = md5(_CONTENT, usedforsecurity=False).hexdigest()


class Subject(Protocol):
    """A server with a repository whose branch `main` has nothing staged. Its methods change the state."""

    client: Client
    name: str
    path: str  # of an object that the HEAD of `main` shows

    def stage_again(self) -> str:
        """Upload the content of HEAD's object to its path again; return the physical address."""
        ...

    def link_as_printed(self, path: str) -> str:
        """Link an object inside the namespace by an address in another form than the namespace; return the address."""
        ...

    def overwrite_while_a_commit_waits(self, path: str) -> tuple[str, str]:
        """Stage an object, begin a commit, overwrite the object; return both physical addresses."""
        ...

    def stage_and_scan_while_a_branch_is_away(self, path: str) -> dict[str, Any]:
        """Stage an object; return the response of a scan during which a later branch is deleted and created again."""
        ...


@dataclass
class RealSubject:
    """The real server."""

    repository: Repository
    hook: Webhook
    path: str = "_SUCCESS"

    def __post_init__(self) -> None:
        self.client, self.name = self.repository.client, self.repository.name
        self.repository.add_hook("main", self.hook)
        self.repository.upload_and_commit("main", self.path, _CONTENT)

    def stage_again(self) -> str:
        self.repository.upload("main", self.path, _CONTENT)
        return str(self.repository.stat("main", self.path)["physical_address"])

    def link_as_printed(self, path: str) -> str:
        self.repository.upload_and_link("main", path, _CONTENT)
        return str(self.repository.stat("main", path)["physical_address"])

    def overwrite_while_a_commit_waits(self, path: str) -> tuple[str, str]:
        self.repository.upload("main", path, b"first")
        first = self.repository.stat("main", path)["physical_address"]
        self.repository.commit_under_way("main", self.hook)
        self.repository.upload("main", path, b"second")
        return first, self.repository.stat("main", path)["physical_address"]

    def stage_and_scan_while_a_branch_is_away(self, path: str) -> dict[str, Any]:
        repository = self.repository
        repository.upload("main", path, b"staged")
        repository.branch("aside")
        with ThreadPoolExecutor(4) as pool:  # entries of elsewhere make the scan take longer, and are not in its list
            for number in range(1500):
                outside = f"{repository.server.store.namespace('elsewhere')}/{number}"
                pool.submit(repository.stage, "aside", f"{number:05}", outside, b"")
            repository.branch("wip")
            repository.branch("zzz")  # a scan that ends with the branch that is away fails
            for _ in range(30):
                answer = pool.submit(scan, self)
                with suppress(Refused):
                    repository.delete_branch("wip")
                found = answer.result()
                with suppress(Refused):
                    repository.branch("wip")
                if not found["gc_uncommitted_location"]:
                    return found
        pytest.fail("30 scans found the branch that was deleted meanwhile")


@dataclass
class FakeServerSubject:
    """The fake server, whose state the test sets directly."""

    server: FakeLakeFSServer
    repository: FakeRepository

    def __post_init__(self) -> None:
        assert (ACCESS_KEY, SECRET_KEY) == (fake_lakefs_server.ACCESS_KEY, fake_lakefs_server.SECRET_KEY)
        self.client, self.name = Client(self.server.url), self.repository.name
        self.repository.changes = ()
        entry = next(iter(self.repository.objects("main@")))
        self.path, self._size, self._checksum = entry["path"], entry["size_bytes"], entry["checksum"]

    def _stage(self, path: str, address: str, **content: Any) -> str:
        change = {"branch": "main", "path": path, "physical_address": address, "type": "added", **content}
        self.repository.changes = (*self.repository.changes, change)
        return address

    def stage_again(self) -> str:
        address = f"{self.repository.namespace}/data/slice/again"
        return self._stage(self.path, address, size_bytes=self._size, checksum=self._checksum)

    def link_as_printed(self, path: str) -> str:
        return self._stage(path, "local:///blocks/data/slice/linked", size_bytes=len(_CONTENT), checksum=_MD5)

    def overwrite_while_a_commit_waits(self, path: str) -> tuple[str, str]:
        first, second = (f"{self.repository.namespace}/data/slice/{name}" for name in ("first", "second"))
        return self._stage(path, first), self._stage(path, second)

    def stage_and_scan_while_a_branch_is_away(self, path: str) -> dict[str, Any]:
        self._stage(path, f"{self.repository.namespace}/data/slice/staged")
        self.repository.branches["zzz"] = self.repository.branches["main"]  # a scan that ends with no branch fails
        self.repository.unfound.append({"wip"})
        return scan(self)


@pytest.fixture(params=["the_real_server", "the_fake_server"])
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    if request.param == "the_fake_server":
        orchard = saved("orchard")
        with serving(orchard) as server:
            yield FakeServerSubject(server, orchard)
        return
    lakefs: Server = request.getfixturevalue("lakefs")
    with webhook() as hook:
        yield RealSubject(lakefs.new_repository("contract"), hook)


def ask(subject: Subject, method: str, below: str, **query: str) -> Any:
    return subject.client.ask(method, f"/repositories/{subject.name}{below}", query or None, body={})


def scan(subject: Subject) -> dict[str, Any]:
    """Let the server write its list of staged objects; return the response of its only page."""
    answer: dict[str, Any] = ask(subject, "POST", "/gc/prepare_uncommited")
    assert not answer.get("continuation_token")
    return answer


def lists_rows(subject: Subject) -> bool:
    return bool(scan(subject)["gc_uncommitted_location"])


def shown(subject: Subject) -> list[tuple[str, str]]:
    return [(row["path"], row["type"]) for row in ask(subject, "GET", "/branches/main/diff")["results"]]


def address_at(subject: Subject, ref: str, path: str) -> str:
    return str(ask(subject, "GET", f"/refs/{ref}/objects/stat", path=path)["physical_address"])


def test_an_object_staged_again_with_the_content_of_head_is_readable_and_in_no_list(subject: Subject) -> None:
    before = address_at(subject, "main@", subject.path)
    again = subject.stage_again()
    assert address_at(subject, "main", subject.path) == again != before
    assert address_at(subject, "main@", subject.path) == before
    assert shown(subject) == []
    assert not lists_rows(subject)


def test_an_object_linked_by_another_spelling_of_the_namespace_is_only_in_the_diff(
    subject: Subject,
) -> None:
    linked = subject.link_as_printed("linked")
    assert linked.startswith("local:///")
    assert address_at(subject, "main", "linked") == linked
    assert shown(subject) == [("linked", "added")]
    assert not lists_rows(subject)


def test_an_object_overwritten_while_its_commit_waits_is_in_no_list_and_in_no_commit(subject: Subject) -> None:
    first, second = subject.overwrite_while_a_commit_waits("p.csv")
    assert address_at(subject, "main", "p.csv") == second != first
    assert shown(subject) == [("p.csv", "added")]
    assert lists_rows(subject)
    with pytest.raises(Refused, match="404"):
        address_at(subject, "main@", "p.csv")


def test_a_branch_that_is_missing_during_the_scan_hides_rows_of_other_branches_without_an_error(
    subject: Subject,
) -> None:
    answer = subject.stage_and_scan_while_a_branch_is_away("staged")
    assert answer["gc_uncommitted_location"] == ""
    assert shown(subject) == [("staged", "added")]
    assert lists_rows(subject)


# ---- uploads that are linked or staged days later: docs/safety.md, "Not promised"


def issued_three_days_ago(repository: Repository, *paths: str) -> list[str]:
    """Issue and write an address for each path, wait three days, and return the printed addresses."""
    printed = [repository.backing("main", path) for path in paths]
    for address in printed:
        repository.write_backing(address, _CONTENT)
    repository.server.clock.forward(days=3)
    return printed


def below_the_namespace(repository: Repository, printed: str) -> str:
    return f"{repository.namespace}{printed[printed.index('/data/') :]}"


def test_a_local_server_accepts_an_address_days_later_as_printed_but_not_below_the_namespace(lakefs: Server) -> None:
    repository = lakefs.new_repository("days-later")
    linked, expired, staged, blocked = issued_three_days_ago(repository, "linked", "expired", "staged", "blocked")
    repository.link("main", "linked", linked, _CONTENT)
    repository.stage("main", "staged", staged, _CONTENT)
    assert repository.read("main", "linked") == repository.read("main", "staged") == (200, _CONTENT)
    with pytest.raises(Refused, match="link address expired"):
        repository.link("main", "expired", below_the_namespace(repository, expired), _CONTENT)
    with pytest.raises(Refused, match="path traversal blocked"):
        repository.stage("main", "blocked", below_the_namespace(repository, blocked), _CONTENT)


@pytest.mark.slow
def test_a_server_on_s3_stages_an_address_days_later_but_does_not_link_it(lakefs_on_s3: Server) -> None:
    repository = lakefs_on_s3.new_repository("days-later")
    expired, staged = issued_three_days_ago(repository, "expired", "staged")
    assert expired == below_the_namespace(repository, expired)
    with pytest.raises(Refused, match="link address expired"):
        repository.link("main", "expired", expired, _CONTENT)
    repository.stage("main", "staged", staged, _CONTENT)
    assert repository.read("main", "staged") == (200, _CONTENT)
