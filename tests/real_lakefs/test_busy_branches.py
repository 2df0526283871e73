"""Branches are deleted and created without pause: no staged object is lost, and no plan is refused."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from retention_assets.lakefs.source.api import ApiSource
from retention_assets.lakefs.source.repository import StagedList
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.objects import ObjectReader
from tests.real_lakefs.client import ACCESS_KEY, SECRET_KEY
from tests.real_lakefs.repository import Repository
from tests.real_lakefs.retention import Retention
from tests.real_lakefs.server import Server

STAGED_LISTS = "_lakefs/retention/gc/uncommitted"
_STAGED = 50
_SCANS = 200  # 1.5 % of them met a branch that was away
_DELETIONS_A_SECOND = 8
_ALIVE = 5  # branches that live at a time


def access_to(repository: Repository) -> StoreAccess:
    settings = repository.server.store.settings(repository.folder)
    storage, options = settings["storage"], dict(settings.get("storage_options", {}))
    if "://" not in storage:
        return StoreAccess(f"file://{storage}")
    return StoreAccess(storage, {**options, "secret_access_key": "testing"})


def source_of(repository: Repository) -> ApiSource:
    return ApiSource(
        url=repository.server.url,
        access_key=ACCESS_KEY,
        secret_key=SECRET_KEY,
        repository=repository.name,
        namespace=repository.namespace,
        access=access_to(repository),
        clock=repository.server.clock,
    )


def addresses_of(staged: StagedList, repository: Repository) -> set[str]:
    reader = ObjectReader(access_to(repository))
    files = [pq.read_table(BytesIO(reader.read(file)))["physical_address"].to_pylist() for file in staged.files]
    return {address for found in files for address in found} | {address for address, _ in staged.shown}


@contextmanager
def again_and_again(act: Callable[[int], None], pause: float = 0.0) -> Iterator[list[int]]:
    """Call `act` in a thread again and again during the block. The list has an entry per call. Errors are raised."""
    stop, times, failed = threading.Event(), [0], list[BaseException]()

    def loop() -> None:
        try:
            while not stop.is_set():
                act(times[0])
                times[0] += 1
                stop.wait(pause)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield times
    finally:
        stop.set()
        thread.join()
    assert not failed, failed


@pytest.fixture(params=[pytest.param("lakefs", marks=pytest.mark.slow), "lakefs_on_s3"])
def repository(request: pytest.FixtureRequest) -> Repository:
    return with_branch_ahead(request.getfixturevalue(request.param))


def with_branch_ahead(server: Server) -> Repository:
    """Return a repository with a branch for staged objects before the busy ones, and nothing staged after them."""
    made = server.new_repository("busy")
    made.upload_and_commit("main", "a", b"a")
    made.branch("a-staged")
    return made


def with_staged(repository: Repository) -> set[str]:
    return {repository.upload("a-staged", f"staged/{number}", b"%d" % number) for number in range(_STAGED)}


def by_another(repository: Repository) -> Repository:
    """Return the repository for another thread."""
    return replace(repository, client=repository.server.client())


def test_a_branch_that_is_created_again_during_the_scan_hides_no_staged_object(repository: Repository) -> None:
    wanted, source, other = with_staged(repository), source_of(repository), by_another(repository)

    def make_again(number: int) -> None:
        other.branch("ci")
        other.delete_branch("ci")

    with again_and_again(make_again) as times:
        for scan in range(_SCANS):
            missing = wanted - addresses_of(source.staged(), repository)
            assert not missing, f"scan {scan} lost {len(missing)} of {_STAGED}, after {times[0]} branches"
    assert times[0] > _SCANS // 4  # otherwise too little happened between the scans


def test_a_scan_that_fails_for_its_last_branch_still_gives_all_staged_objects(repository: Repository) -> None:
    wanted, source, other = with_staged(repository), source_of(repository), by_another(repository)

    def make_another(number: int) -> None:
        other.branch(f"run-{number:08}")
        other.delete_branch(f"run-{number:08}")

    with again_and_again(make_another) as times:
        for _ in range(_SCANS):
            assert wanted <= addresses_of(source.staged(), repository)
    assert times[0] > _SCANS // 4  # otherwise too little happened between the scans


def test_an_object_linked_by_the_printed_address_is_in_the_staged_list(repository: Repository) -> None:
    linked = repository.upload_and_link("a-staged", "linked", b"1")
    uploaded = repository.upload("a-staged", "uploaded", b"2")
    assert addresses_of(source_of(repository).staged(), repository) == {linked, uploaded}


@contextmanager
def busy(repository: Repository) -> Iterator[list[int]]:
    """Create branches, commit to them and delete them, eight per second, for as long as the block lasts."""
    other, alive = by_another(repository), list[str]()

    def come_and_go(number: int) -> None:
        alive.append(f"run-{number:08}")
        other.branch(alive[-1])
        other.upload(alive[-1], f"runs/{number}", b"%d" % number)
        if number % 2:
            other.commit(alive[-1])
        if len(alive) > _ALIVE:
            other.delete_branch(alive.pop(0))

    with again_and_again(come_and_go, 1 / _DELETIONS_A_SECOND) as times:
        yield times


@pytest.mark.slow
def test_eight_deleted_branches_a_second_do_not_prevent_a_liveness_check(repository: Repository) -> None:
    wanted, source = with_staged(repository), source_of(repository)
    with busy(repository) as times:
        while times[0] < 10 * _DELETIONS_A_SECOND:
            staged, references = source.staged(), source.references()
            assert wanted <= addresses_of(staged, repository)
            assert staged.taken_at <= references.taken_at
            assert references.branches.keys() >= {"main", "a-staged"}
            assert references.commits.keys() >= {*references.branches.values(), *references.tags.values()}


def test_a_plan_is_made_and_swept_while_branches_come_and_go(lakefs_on_s3: Server, tmp_path: Path) -> None:
    repository = with_branch_ahead(lakefs_on_s3)
    replaced = repository.upload_and_commit("main", "b", b"1")
    repository.upload_and_commit("main", "b", b"2")
    thrown_away = repository.upload("a-staged", "thrown-away", b"not the number of a branch")
    repository.reset("a-staged", "thrown-away")
    wanted = with_staged(repository)
    repository.server.clock.forward(days=10)
    retention = Retention(tmp_path, repository, settle="0s")
    with busy(repository) as times:
        found = {row["address"]: row["reason"] for row in retention.plan_and_sweep()}
        assert times[0] > _DELETIONS_A_SECOND
    assert found == {replaced: "expired", thrown_away: "unreferenced"}
    assert not found.keys() & repository.stored().keys()
    assert wanted <= repository.stored().keys()
    assert repository.unreadable() == []
    reader = ObjectReader(access_to(repository))
    assert not reader.holds_objects(STAGED_LISTS)  # the lists of the plan and of each liveness check were removed
    assert retention.verify().status == 0


def test_liveness_checks_leave_no_files_if_no_branch_moved(repository: Repository) -> None:
    with_staged(repository)
    source, reader = source_of(repository), ObjectReader(access_to(repository))
    counts = []
    for _ in range(5):
        staged = source.staged()
        source.references()
        assert reader.holds_objects(STAGED_LISTS)
        source.release(staged)
        assert not reader.holds_objects(STAGED_LISTS)
        counts.append(sum(batch.num_rows for batch in reader.list("_lakefs")))
    assert set(counts) == {counts[0]}


def test_liveness_checks_leave_no_files_if_a_branch_moved(repository: Repository) -> None:
    source, reader = source_of(repository), ObjectReader(access_to(repository))
    known = source.references().commits.keys()
    for number in range(5):
        repository.upload("main", "c", b"%d" % number)
        made = repository.commit("main")
        before = sum(batch.num_rows for batch in reader.list("_lakefs"))
        references = source.references()
        assert sum(batch.num_rows for batch in reader.list("_lakefs")) == before
        assert references.branches["main"] == made
        assert references.commits.keys() == {*known, made}
        known = references.commits.keys()
