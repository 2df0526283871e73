"""Leases: they allow one sweep of a repository at a time, expire, and can be revoked by a person."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from obstore.store import LocalStore

from retention_assets.errors import GuardRefused, TableContractError
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.conditional import Conditional
from retention_assets.state.lease import (
    LEASES,
    Lease,
    held_lease,
    holds,
    release_lease,
    renew_lease,
    require_lease,
    require_seen_by_all,
    resume_sweeps,
    stop_sweeps,
    take_lease,
)
from retention_assets.warehouse.warehouse import Warehouse
from tests.frames import NOW

LIFE, MARGIN = timedelta(minutes=30), timedelta(minutes=5)
A_MOMENT = timedelta(microseconds=1)


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(str(tmp_path / "warehouse"))


def take(warehouse: Warehouse, holder: str = "a-run", now: datetime = NOW, repository: str = "orchard") -> Lease:
    return take_lease(warehouse, repository, holder, now, LIFE)


class Interrupted(Warehouse):
    """A warehouse that calls a function of the test before it creates a document."""

    def __init__(self, root: str, interruptions: list[Callable[[], object]]) -> None:
        super().__init__(root)
        self._interruptions = interruptions

    def create_document(self, document: object, *parts: str) -> bool:
        if self._interruptions:
            self._interruptions.pop(0)()
        return super().create_document(document, *parts)  # type: ignore[arg-type]


class IgnoresConditions:
    """A store that ignores the conditions of writes, as old S3 servers do."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def put(self, path: str, content: bytes, mode: object = None) -> None:
        self._store.put(path, content)

    def get(self, path: str) -> Any:
        return self._store.get(path)


def ignoring_conditions(warehouse: Warehouse) -> Warehouse:
    made = Warehouse(warehouse.root)
    made._conditional = Conditional(IgnoresConditions(LocalStore(warehouse.root, mkdir=True)))
    return made


# ---- stores that ignore conditions


def test_no_lease_is_given_on_a_store_that_ignores_conditions(warehouse: Warehouse) -> None:
    careless = ignoring_conditions(warehouse)
    with pytest.raises(GuardRefused, match=r"ignored the condition If-None-Match.* Nothing was deleted"):
        take(careless)
    assert warehouse.documents("orchard", LEASES) == []


def test_a_lease_whose_document_another_holder_overwrote_is_lost(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs take the lease at once, and the store lets both write the same document."""
    careless = ignoring_conditions(warehouse)
    monkeypatch.setattr(careless, "require_conditions", lambda: None)
    first = take(careless)
    release_lease(careless, first, NOW)
    (careless_document,) = warehouse.documents("orchard", LEASES)[-1:]
    second = take(careless, "another-run")
    overwritten = warehouse.documents("orchard", LEASES)[-1]
    document = warehouse.read_document("orchard", LEASES, overwritten)
    assert document
    assert careless_document != overwritten
    warehouse.write_document({**document, "holder": "a-third-run"}, "orchard", LEASES, overwritten)
    assert not holds(warehouse, second, NOW)
    release_lease(warehouse, second, NOW)  # it is not this one's to give back
    assert warehouse.documents("orchard", LEASES)[-1] == overwritten


def test_if_the_store_accepts_two_leases_one_of_them_is_refused_at_once(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, quick = ignoring_conditions(warehouse), ignoring_conditions(warehouse)
    for each in (slow, quick):
        monkeypatch.setattr(each, "require_conditions", lambda: None)
    create = slow.create_document

    def overtaken(document: Any, *parts: str) -> bool:
        answer = create(document, *parts)
        quick.write_document({**document, "holder": "another-run"}, *parts)
        return answer

    monkeypatch.setattr(slow, "create_document", overtaken)
    with pytest.raises(GuardRefused, match="another run or a person took it"):
        take(slow)


# ---- warehouses that other machines do not see


@pytest.mark.parametrize(
    ("root", "url", "single_machine", "refused"),
    [
        pytest.param("{here}", "s3://lake/orchard", False, True, id="a_bucket_swept_from_a_disk"),
        pytest.param("{here}", "s3://lake/orchard", True, False, id="only_one_machine_sweeps"),
        pytest.param("{here}", "file:///lake/orchard", False, False, id="both_on_this_machine"),
        pytest.param("s3a://tables", "s3://lake/orchard", False, False, id="both_in_buckets"),
        pytest.param("file://{here}", "s3://lake/orchard", False, True, id="a_disk_written_as_a_url"),
    ],
)
def test_a_lease_that_other_machines_do_not_see_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: str, url: str, single_machine: bool, refused: bool
) -> None:
    monkeypatch.setattr(Warehouse, "require_layout", lambda _: None)  # the bucket does not exist
    warehouse = Warehouse(root.format(here=tmp_path))
    with pytest.raises(GuardRefused, match=r"sweep\.single_machine") if refused else nullcontext():
        require_seen_by_all(warehouse, "orchard", StoreAccess(url), single_machine=single_machine)


# ---- taking, renewing and releasing a lease


def test_no_other_sweep_may_start_while_a_lease_is_held(warehouse: Warehouse) -> None:
    lease = take(warehouse)
    assert holds(warehouse, lease, NOW)
    with pytest.raises(GuardRefused, match=r"orchard: a-run holds the lease, .* Nothing was deleted. .* 00:35:00 UTC"):
        take(warehouse, "another-run")
    assert holds(warehouse, lease, NOW)


def test_a_check_of_a_lease_does_not_list_earlier_leases(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        release_lease(warehouse, take(warehouse), NOW)
    lease = take(warehouse)
    monkeypatch.setattr(warehouse, "files", lambda *_: pytest.fail("all leases are listed"))
    assert holds(warehouse, lease, NOW)


def test_repositories_have_leases_of_their_own(warehouse: Warehouse) -> None:
    take(warehouse)
    take(warehouse, "another-run", repository="meadow")


def test_a_released_lease_can_be_taken_at_once_with_a_greater_fence(warehouse: Warehouse) -> None:
    first = take(warehouse)
    release_lease(warehouse, first, NOW)
    assert not holds(warehouse, first, NOW)
    second = take(warehouse, "another-run")
    assert second.fence > first.fence


def test_exactly_one_of_several_concurrent_takers_gets_the_lease(warehouse: Warehouse) -> None:
    takers = 8
    all_at_once = threading.Barrier(takers)

    def one(number: int) -> Lease | None:
        all_at_once.wait()
        try:
            return take(Warehouse(warehouse.root), f"run-{number}")
        except GuardRefused:
            return None

    with ThreadPoolExecutor(takers) as pool:
        taken = [lease for lease in pool.map(one, range(takers)) if lease]
    (winner,) = taken
    assert holds(warehouse, winner, NOW)
    assert len(warehouse.documents("orchard", LEASES)) == 1


def test_a_taker_that_is_overtaken_between_read_and_write_is_refused(warehouse: Warehouse) -> None:
    slow = Interrupted(warehouse.root, [lambda: take(warehouse, "a-quicker-run")])
    with pytest.raises(GuardRefused, match="another run or a person took it"):
        take(slow)


@pytest.mark.parametrize(
    ("after", "is_free"),
    [
        pytest.param(LIFE, False, id="its_end_is_not_enough"),
        pytest.param(LIFE + MARGIN - A_MOMENT, False, id="clocks_may_differ_by_the_margin"),
        pytest.param(LIFE + MARGIN, True, id="the_margin_itself_is_enough"),
    ],
)
def test_the_lease_of_a_dead_run_is_free_a_margin_after_its_end(
    warehouse: Warehouse, after: timedelta, is_free: bool
) -> None:
    dead = take(warehouse)
    if is_free:
        assert take(warehouse, "another-run", NOW + after).fence > dead.fence
        assert not holds(warehouse, dead, NOW)
    else:
        with pytest.raises(GuardRefused, match="Wait until that run ends"):
            take(warehouse, "another-run", NOW + after)


@pytest.mark.parametrize(
    ("after", "held"), [(LIFE - A_MOMENT, True), (LIFE, False)], ids=["until_its_end", "the_end_is_too_late"]
)
def test_a_lease_is_not_valid_after_its_end(warehouse: Warehouse, after: timedelta, held: bool) -> None:
    lease = take(warehouse)
    assert holds(warehouse, lease, NOW + after) is held
    if not held:
        with pytest.raises(GuardRefused, match=r"it expired. Nothing more was deleted"):
            require_lease(warehouse, lease, NOW + after)


def test_a_lease_is_renewed_once_a_quarter_of_its_life_is_over(warehouse: Warehouse) -> None:
    lease = take(warehouse)
    assert renew_lease(warehouse, lease, NOW + LIFE / 4 - A_MOMENT) is lease
    later = renew_lease(warehouse, lease, NOW + LIFE / 4)
    assert (later.until, later.fence) == (NOW + LIFE / 4 + LIFE, lease.fence)
    assert holds(warehouse, later, NOW + LIFE)
    assert not holds(warehouse, lease, NOW)  # tasks of the old lease end


def test_a_refusal_has_the_time_at_which_the_holder_renewed_its_lease(warehouse: Warehouse) -> None:
    renewed_at = NOW + LIFE / 2
    renew_lease(warehouse, take(warehouse), renewed_at)
    with pytest.raises(GuardRefused, match=f"a-run holds the lease, and took or renewed it at {renewed_at:%F %T} UTC"):
        take(warehouse, "another-run", renewed_at)


def test_an_expired_lease_is_not_renewed_although_nobody_took_it(warehouse: Warehouse) -> None:
    lease = take(warehouse)
    with pytest.raises(GuardRefused, match="it expired"):
        renew_lease(warehouse, lease, NOW + LIFE)
    assert len(warehouse.documents("orchard", LEASES)) == 1


def test_a_lease_can_be_released_without_knowing_its_renewals(warehouse: Warehouse) -> None:
    first = take(warehouse)
    later = renew_lease(warehouse, first, NOW + LIFE / 2)
    release_lease(warehouse, first, NOW + LIFE / 2)
    assert not holds(warehouse, later, NOW + LIFE / 2)
    take(warehouse, "another-run", NOW + LIFE / 2)


def test_a_lost_lease_is_neither_renewed_nor_released(warehouse: Warehouse) -> None:
    lost = take(warehouse)
    after = NOW + LIFE + MARGIN
    taken = take(warehouse, "another-run", after)
    with pytest.raises(GuardRefused):
        renew_lease(warehouse, lost, NOW + LIFE / 2)
    release_lease(warehouse, lost, after)
    assert holds(warehouse, taken, after)


# ---- stopping


def test_after_a_stop_no_sweep_holds_a_lease_or_may_begin_until_it_is_resumed(warehouse: Warehouse) -> None:
    lease = take(warehouse)
    assert stop_sweeps(warehouse, "orchard", "ada", NOW) == "a-run"
    assert not holds(warehouse, lease, NOW)
    with pytest.raises(
        GuardRefused,
        match=r"lost: ada stopped all sweeps\. .* `retention resume orchard`\. Then run .*: the run continues\.$",
    ):
        require_lease(warehouse, lease, NOW)
    years_later = NOW + timedelta(days=5000)
    with pytest.raises(GuardRefused, match=r"sweeps were stopped by ada at .*`retention resume orchard`"):
        take(warehouse, "another-run", years_later)
    release_lease(warehouse, lease, NOW)  # the stopped run's own end changes nothing
    with pytest.raises(GuardRefused, match="were stopped"):
        take(warehouse, "another-run", NOW)
    resume_sweeps(warehouse, "orchard", NOW)
    assert take(warehouse, "another-run").fence > lease.fence


def test_a_stop_reports_that_no_sweep_was_running(warehouse: Warehouse) -> None:
    assert stop_sweeps(warehouse, "orchard", "ada", NOW) is None
    resume_sweeps(warehouse, "orchard", NOW)
    release_lease(warehouse, take(warehouse), NOW)
    assert stop_sweeps(warehouse, "orchard", "ada", NOW) is None


def test_a_second_stop_names_no_running_sweep_but_the_second_person_has_stopped_the_sweeps(
    warehouse: Warehouse,
) -> None:
    take(warehouse)
    assert stop_sweeps(warehouse, "orchard", "ada", NOW) == "a-run"
    assert stop_sweeps(warehouse, "orchard", "bob", NOW) is None
    with pytest.raises(GuardRefused, match="sweeps were stopped by bob"):
        take(warehouse, "another-run")


def test_a_stop_does_not_name_a_dead_sweep_whose_lease_has_expired(warehouse: Warehouse) -> None:
    take(warehouse)
    assert stop_sweeps(warehouse, "orchard", "ada", NOW + LIFE) is None


def test_a_stop_at_the_time_of_a_renewal_still_stops_the_sweep(warehouse: Warehouse) -> None:
    lease = take(warehouse)
    renewals: list[Lease] = []
    meanwhile = Interrupted(warehouse.root, [lambda: renewals.append(renew_lease(warehouse, lease, NOW + LIFE / 2))])
    assert stop_sweeps(meanwhile, "orchard", "ada", NOW + LIFE / 2) == "a-run"
    assert not holds(warehouse, renewals[0], NOW + LIFE / 2)


def test_a_stop_at_the_time_of_a_resume_keeps_the_sweeps_stopped(warehouse: Warehouse) -> None:
    stop_sweeps(warehouse, "orchard", "ada", NOW)
    meanwhile = Interrupted(warehouse.root, [lambda: stop_sweeps(warehouse, "orchard", "bob", NOW)])
    told = (
        r"another process changed the lease at the same time\. Nothing was changed\. .*: `retention resume orchard`\.$"
    )
    with pytest.raises(GuardRefused, match=told):
        resume_sweeps(meanwhile, "orchard", NOW)
    with pytest.raises(GuardRefused, match="were stopped by bob"):
        take(warehouse)


def test_a_stop_fails_after_too_many_conflicts(warehouse: Warehouse) -> None:
    def overtake() -> None:
        stop_sweeps(warehouse, "orchard", "bob", NOW)

    with pytest.raises(GuardRefused) as refused:
        stop_sweeps(Interrupted(warehouse.root, [overtake] * 100), "orchard", "ada", NOW)
    message = str(refused.value)
    assert (
        "the sweeps were not stopped: other processes wrote a lease at each of 100 attempts. Nothing was changed"
        in message
    )
    assert message.endswith("Try again: `retention stop orchard`.")


def test_a_renewal_at_the_time_of_a_stop_is_refused(warehouse: Warehouse) -> None:
    lease = take(warehouse)
    meanwhile = Interrupted(warehouse.root, [lambda: stop_sweeps(warehouse, "orchard", "ada", NOW)])
    with pytest.raises(GuardRefused, match="ada stopped all sweeps"):
        renew_lease(meanwhile, lease, NOW + LIFE / 2)


def test_only_stopped_sweeps_can_be_resumed(warehouse: Warehouse) -> None:
    for prepare in (lambda: None, lambda: take(warehouse)):
        prepare()
        with pytest.raises(GuardRefused, match=r"its sweeps are not stopped. Nothing was changed"):
            resume_sweeps(warehouse, "orchard", NOW)
    stop_sweeps(warehouse, "orchard", "ada", NOW)
    resume_sweeps(warehouse, "orchard", NOW)
    with pytest.raises(GuardRefused, match="not stopped"):
        resume_sweeps(warehouse, "orchard", NOW)


# ---- random events

STEPS = st.lists(
    st.tuples(st.sampled_from(["take", "renew", "release", "stop", "resume", "wait"]), st.sampled_from(["a", "b"])),
    max_size=25,
)


@given(STEPS, st.integers(min_value=1, max_value=20))
def test_two_holders_never_have_the_lease_at_once_and_fences_increase(
    steps: list[tuple[str, str]], minutes: int
) -> None:
    with TemporaryDirectory() as root:
        warehouse, now = Warehouse(root), NOW
        leases: dict[str, Lease] = {}
        fences: list[int] = []
        for step, who in steps:
            now += timedelta(minutes=minutes if step == "wait" else 0)
            try:
                if step == "take":
                    leases[who] = take(warehouse, who, now)
                    fences.append(leases[who].fence)
                elif step == "renew" and who in leases:
                    leases[who] = renew_lease(warehouse, leases[who], now)
                elif step == "release" and who in leases:
                    release_lease(warehouse, leases.pop(who), now)
                elif step == "stop":
                    stop_sweeps(warehouse, "orchard", who, now)
                elif step == "resume":
                    resume_sweeps(warehouse, "orchard", now)
            except GuardRefused:
                pass
            assert sum(holds(warehouse, lease, now) for lease in leases.values()) <= 1
        assert fences == sorted(set(fences))


class CannotRelease(Warehouse):
    """A warehouse to which nobody can write after the lease was taken."""

    has_lease = False

    def create_document(self, document: object, *parts: str) -> bool:
        if self.has_lease:
            raise OSError("the warehouse does not answer")
        self.has_lease = True
        return super().create_document(document, *parts)  # type: ignore[arg-type]


def test_the_error_that_ended_a_run_is_raised_even_if_its_lease_cannot_be_released(tmp_path: Path) -> None:
    with pytest.raises(GuardRefused, match="a live object"), hold(CannotRelease(str(tmp_path))):
        raise GuardRefused("a live object")
    with pytest.raises(OSError, match="does not answer"), hold(CannotRelease(str(tmp_path / "another"))):
        pass


def test_a_run_that_ended_with_an_error_releases_its_lease(warehouse: Warehouse) -> None:
    with pytest.raises(GuardRefused), hold(warehouse) as lease:
        raise GuardRefused("a live object")
    assert take(warehouse, "another-run").fence > lease.fence


def hold(warehouse: Warehouse) -> AbstractContextManager[Lease]:
    return held_lease(warehouse, "orchard", "a-run", lambda: NOW, LIFE)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b'{"holder": "a-run"}', id="without_keys"),
        pytest.param(
            b'{"holder": "a", "fence": 1, "at": "2026-11-01T00:00:00+00:00", "until": null, "released": false}',
            id="no_time",
        ),
        pytest.param(
            b'{"holder": "a", "fence": 1, "at": "2026-11-01T00:00:00", "until": "2026-11-01T00:00:00", "released": 0}',
            id="without_a_time_zone",
        ),
    ],
)
def test_a_damaged_lease_is_refused_until_a_person_stops_and_resumes_sweeps(
    warehouse: Warehouse, tmp_path: Path, content: bytes
) -> None:
    lease = take(warehouse)
    (tmp_path / "warehouse" / "orchard" / LEASES / "00000001.json").write_bytes(content)
    with pytest.raises(
        TableContractError, match=r"leases/00000001\.json: this newest lease is damaged.*retention stop"
    ):
        take(warehouse, "another", NOW + 2 * LIFE)
    assert "damaged" in str(stop_sweeps(warehouse, "orchard", "ada", NOW))
    assert not holds(warehouse, lease, NOW)
    with pytest.raises(GuardRefused, match="sweeps were stopped by ada"):
        take(warehouse, "another", NOW + 2 * LIFE)
    resume_sweeps(warehouse, "orchard", NOW)
    assert take(warehouse, "another", NOW).fence > lease.fence


def test_a_file_that_is_no_lease_is_ignored(warehouse: Warehouse, tmp_path: Path) -> None:
    first = take(warehouse)
    (tmp_path / "warehouse" / "orchard" / LEASES / "00000000.notes.json").write_text("{}")
    (tmp_path / "warehouse" / "orchard" / LEASES / "a-copy.json").write_text("{}")
    assert stop_sweeps(warehouse, "orchard", "ada", NOW) == first.holder
    resume_sweeps(warehouse, "orchard", NOW)
    take(warehouse, "another", NOW)


def test_a_damaged_record_prevents_a_sweep_and_does_not_prevent_a_stop(warehouse: Warehouse, tmp_path: Path) -> None:
    first = take(warehouse)
    records = tmp_path / "warehouse" / "orchard" / "records"
    records.mkdir()
    (records / "00000001.json").write_bytes(b"")
    assert stop_sweeps(warehouse, "orchard", "ada", NOW) == first.holder
    resume_sweeps(warehouse, "orchard", NOW)
    with pytest.raises(TableContractError, match=r"the newest record is damaged.*move it out of this directory"):
        take(warehouse, "another", NOW)
    (records / "00000001.json").unlink()
    take(warehouse, "another", NOW)
