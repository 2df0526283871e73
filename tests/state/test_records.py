"""The chain of records: each has the hash of the one before, so that changed or missing records are noticed."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from retention_assets.config.configuration import Repository, load_configuration
from retention_assets.core.guards import CheckResult
from retention_assets.errors import ConfigurationError, GuardRefused, StoreError
from retention_assets.objectstore.access import StoreAccess
from retention_assets.state.acknowledged import acknowledge, complete_records, write_acknowledgement
from retention_assets.state.lease import (
    holds,
    lease_in_force,
    release_lease,
    resume_sweeps,
    stop_sweeps,
    take_lease,
    witnessed_record,
)
from retention_assets.state.ledger import ledger_digest
from retention_assets.state.records import (
    NO_SEAL,
    Record,
    Seal,
    fingerprint,
    newest_first,
    newest_of_plan,
    read_records,
    record_names,
    record_without_plan,
    seal_of,
    write_record,
)
from retention_assets.sweep.execute import execute
from retention_assets.sweep.sweep_run import verification_inputs
from retention_assets.sweep.verification import VerificationInputs, _records_follow, records_copied, records_signed
from retention_assets.warehouse.warehouse import Warehouse
from tests.faulty_s3 import FaultyS3, Request
from tests.ledgers import write_ledger
from tests.objectstore.s3 import REGION, Bucket
from tests.sweep.crashes.engine import InProcessEngine
from tests.sweep.crashes.runs import sweep_run
from tests.sweep.crashes.world import REPOSITORY, World
from tests.sweep.repository_sweep import FakeRepository


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(str(tmp_path / "warehouse"))


def record(run_id: str = "a-run", repository: str = "orchard") -> Record:
    return Record(
        kind="sweep",
        mode="delete",
        repository=repository,
        day="2026-11-01",
        plan_hash="a" * 64,
        policy_hash="b" * 64,
        planned_objects=2,
        planned_bytes=20,
        outcomes={"deleted": {"objects": 2, "bytes": 20}},
        approved_by="ada",
        approved_at="2026-11-01T00:00:00+00:00",
        fence=1,
        run_id=run_id,
        started="2026-11-01T00:00:00+00:00",
        ended="2026-11-01T00:10:00+00:00",
        longest_window_seconds=12.5,
        ledger_digest="c" * 64,
    )


def write(warehouse: Warehouse, number: int, seal: Seal = NO_SEAL) -> None:
    for run in range(number):
        write_record(warehouse, record(f"run-{run}"), seal)


def follows(warehouse: Warehouse) -> list[bool]:
    return [kept.follows for kept in read_records(warehouse, "orchard")]


def file_of(warehouse: Warehouse, number: int) -> Path:
    return Path(warehouse.root, "orchard", "records", f"{number:08d}.json")


def test_a_repository_without_runs_has_no_records(warehouse: Warehouse) -> None:
    assert list(read_records(warehouse, "orchard")) == []


def test_each_record_has_the_hash_of_the_record_before_it(warehouse: Warehouse) -> None:
    write(warehouse, 3)
    write_record(warehouse, record(repository="meadow"))
    first, second, third = read_records(warehouse, "orchard")
    assert [kept.name for kept in (first, second, third)] == ["00000001.json", "00000002.json", "00000003.json"]
    assert [kept.document["run_id"] for kept in (first, second, third)] == ["run-0", "run-1", "run-2"]
    assert second.document["previous"] == fingerprint(first.document)
    assert third.document["previous"] == fingerprint(second.document)
    assert follows(warehouse) == [True, True, True]


def test_the_newest_record_of_a_plan_is_found_without_reading_all_older_ones(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(warehouse, 40)
    write_record(warehouse, replace(record("another"), plan_hash="f" * 64))
    read: list[str] = []
    plain = warehouse.read_document
    monkeypatch.setattr(
        warehouse, "read_document", lambda *parts, **shape: read.append(parts[-1]) or plain(*parts, **shape)
    )
    newest = newest_of_plan(warehouse, "orchard", "2026-11-01", "a" * 64)
    assert newest is not None
    assert newest["run_id"] == "run-39"
    assert "00000001.json" not in read
    assert newest_of_plan(warehouse, "orchard", "2026-11-02", "a" * 64) is None


KEYS = {
    "kind", "mode", "repository", "day", "plan_hash", "policy_hash", "planned_objects", "planned_bytes", "outcomes",
    "approved_by", "approved_at", "fence", "run_id", "started", "ended", "longest_window_seconds", "ledger_digest",
    "published", "ended_early", "terms", "dump", "in_quarantine", "previous",
}  # fmt: skip


def test_a_record_has_the_same_keys_with_and_without_a_plan(warehouse: Warehouse) -> None:
    write(warehouse, 1)
    at = datetime(2026, 11, 1, tzinfo=UTC)
    change = record_without_plan("tag create v1", "orchard", "ada", at, at, "a-run", {"conflicts": 0})
    write_record(warehouse, change)
    first, second = (kept.document for kept in read_records(warehouse, "orchard"))
    assert first.keys() == second.keys() == KEYS
    assert (second["plan_hash"], second["outcomes"], second["fence"]) == ("", {}, 0)


def change_an_amount(file: Path) -> None:
    document = json.loads(file.read_text("utf-8"))
    document["outcomes"]["deleted"]["objects"] = 1
    file.write_text(json.dumps(document), encoding="utf-8")


def exchange_with_the_next(file: Path) -> None:
    other = file.with_name("00000003.json")
    mine, theirs = file.read_bytes(), other.read_bytes()
    file.write_bytes(theirs)
    other.write_bytes(mine)


def take_out_and_close_the_gap(file: Path) -> None:
    file.with_name("00000003.json").rename(file)
    file.with_name("00000004.json").rename(file.with_name("00000003.json"))


@pytest.mark.parametrize(
    ("tamper", "expected"),
    [
        pytest.param(change_an_amount, [True, True, False, True], id="changed"),
        pytest.param(Path.unlink, [True, False, False], id="removed"),
        pytest.param(exchange_with_the_next, [True, False, False, False], id="exchanged"),
        pytest.param(take_out_and_close_the_gap, [True, False, True], id="removed_and_renumbered"),
    ],
)
def test_a_record_that_was_tampered_with_breaks_the_chain(
    warehouse: Warehouse, tamper: Callable[[Path], object], expected: list[bool]
) -> None:
    write(warehouse, 4)
    tamper(file_of(warehouse, 2))
    assert follows(warehouse) == expected


def test_a_chain_without_its_first_record_is_broken(warehouse: Warehouse) -> None:
    write(warehouse, 3)
    file_of(warehouse, 1).unlink()
    assert follows(warehouse) == [False, False]


def test_records_of_runs_that_end_at_once_form_one_chain(warehouse: Warehouse) -> None:
    with ThreadPoolExecutor(8) as pool:
        names = list(pool.map(lambda run: write_record(Warehouse(warehouse.root), record(f"run-{run}")), range(8)))
    assert sorted(names) == [f"{number:08d}.json" for number in range(1, 9)]
    assert follows(warehouse) == [True] * 8


def test_a_lease_names_the_record_that_was_the_newest_when_it_was_written(warehouse: Warehouse) -> None:
    now = datetime(2026, 11, 1, tzinfo=UTC)
    assert witnessed_record(warehouse, "orchard") is None
    lease = take_lease(warehouse, "orchard", "a-run", now, timedelta(minutes=30))
    assert witnessed_record(warehouse, "orchard") is None
    write(warehouse, 2)
    release_lease(warehouse, lease, now)
    *_, last = read_records(warehouse, "orchard")
    assert witnessed_record(warehouse, "orchard") == fingerprint(last.document)


def test_a_file_that_is_not_a_record_is_ignored(warehouse: Warehouse) -> None:
    """Somebody put a note or a copy of a record into the directory."""
    write(warehouse, 1)
    for name in ("notes.json", "00000001 (copy).json", "7.json"):
        warehouse.write_document({"a": "b"}, "orchard", "records", name)
    write(warehouse, 1)
    assert follows(warehouse) == [True, True]
    assert record_names(warehouse, "orchard") == ["00000001.json", "00000002.json"]
    assert [one["run_id"] for _, one in newest_first(warehouse, "orchard")] == ["run-0", "run-0"]


class Crowded(Warehouse):
    """A warehouse in which others always create each document first."""

    def create_document(self, document: object, *parts: str) -> bool:
        return False


def test_a_record_that_conflicts_at_every_attempt_is_an_error(warehouse: Warehouse) -> None:
    with pytest.raises(GuardRefused, match="orchard: the audit record was not written"):
        write_record(Crowded(warehouse.root), record())


# ---- attackers with write access to the warehouse


KEY, OTHER_KEY = b"k" * 32, b"o" * 32


def inputs(warehouse: Warehouse, seal: Seal, today: date = date(2026, 11, 1)) -> VerificationInputs:
    records, newest = list(read_records(warehouse, "orchard")), witnessed_record(warehouse, "orchard")
    return VerificationInputs(None, warehouse, "orchard", [], records, [], newest, today, seal)  # type: ignore[arg-type]


def signed(warehouse: Warehouse, seal: Seal, today: date = date(2026, 11, 1)) -> CheckResult:
    return records_signed(inputs(warehouse, seal, today))


def copied(warehouse: Warehouse, seal: Seal) -> CheckResult:
    return records_copied(inputs(warehouse, seal))


def rewrite(warehouse: Warehouse, **changes: Any) -> None:
    """Rewrite the complete chain with changed fields, for which write access is enough. `None` removes a field."""
    before = None
    for name in warehouse.documents("orchard", "records"):
        document = {**(warehouse.read_document("orchard", "records", name) or {}), **changes}
        document = {key: value for key, value in document.items() if value is not None}
        document["previous"] = "0" * 64 if before is None else fingerprint(before)
        warehouse.write_document(document, "orchard", "records", name)
        before = document


def test_a_rewritten_chain_without_signatures_is_not_detected(warehouse: Warehouse) -> None:
    """Source: docs/safety.md. The chain alone does not protect against those who may write to the warehouse."""
    write(warehouse, 3)
    rewrite(warehouse, approved_by="somebody-else")
    assert follows(warehouse) == [True] * 3
    check_result = signed(warehouse, NO_SEAL)
    assert check_result.passed
    assert (
        "signing_key is not configured: anyone who can write to the warehouse can rewrite all records"
        in check_result.detail
    )


@pytest.mark.parametrize("changes", [{"approved_by": "mallory"}, {"signature": None}], ids=["changed", "stripped"])
def test_a_rewritten_signed_chain_is_detected(warehouse: Warehouse, changes: dict[str, Any]) -> None:
    seal = Seal((KEY,))
    write(warehouse, 3, seal)
    assert signed(warehouse, seal) == CheckResult("records_signed", True, "3 records are signed")
    rewrite(warehouse, **changes)
    assert follows(warehouse) == [True] * 3
    check_result = signed(warehouse, seal)
    assert not check_result.passed
    assert "orchard/records/00000001.json is not signed" in check_result.detail


def test_a_record_with_the_signature_of_another_key_is_detected(warehouse: Warehouse) -> None:
    write(warehouse, 1, Seal((KEY,)))
    write(warehouse, 1, Seal((OTHER_KEY,)))
    assert "00000002.json is not signed for orchard by a key of" in signed(warehouse, Seal((KEY,))).detail
    assert signed(warehouse, Seal((OTHER_KEY, KEY))).passed  # the key was changed, and the earlier one still verifies


def test_signed_records_fail_the_check_if_no_key_is_configured(warehouse: Warehouse) -> None:
    write(warehouse, 2, Seal((KEY,)))
    check_result = signed(warehouse, NO_SEAL)
    assert not check_result.passed
    assert (
        "2 records are signed, but records.signing_key is not configured: no signature was checked"
        in check_result.detail
    )


def test_a_signed_record_of_another_repository_is_detected(warehouse: Warehouse) -> None:
    seal = Seal((KEY,))
    write_record(warehouse, record(repository="meadow"), seal)
    document = warehouse.read_document("meadow", "records", "00000001.json")
    assert document
    warehouse.write_document(document, "orchard", "records", "00000001.json")
    assert follows(warehouse) == [True]
    assert not signed(warehouse, seal).passed


@pytest.mark.parametrize(
    ("since", "passed"),
    [(None, False), (date(2026, 11, 1), False), (date(2026, 11, 2), True)],
    ids=["no_end_given", "ended_on_the_day", "ended_before"],
)
def test_records_from_before_the_key_may_be_unsigned(warehouse: Warehouse, since: date | None, passed: bool) -> None:
    seal = Seal((KEY,), since)
    write(warehouse, 2)
    assert signed(warehouse, seal).passed is passed
    write(warehouse, 1, seal)
    assert signed(warehouse, seal).passed is passed
    write(warehouse, 1)  # after a signed record there is no time before the key
    assert "00000004.json is not signed" in signed(warehouse, seal).detail or not passed
    assert not signed(warehouse, seal).passed


def test_a_chain_of_forged_records_that_claim_to_be_older_than_the_key_is_detected(warehouse: Warehouse) -> None:
    seal, write_access = Seal((KEY,), date(2026, 11, 2)), NO_SEAL
    write(warehouse, 2, write_access)
    assert signed(warehouse, seal, date(2026, 11, 2)).passed  # the key was set on this day, and no run followed
    write(warehouse, 1, seal)
    assert signed(warehouse, seal, date(2026, 11, 20)).passed
    rewrite(warehouse, approved_by="mallory", signature=None)
    check_result = signed(warehouse, seal, date(2026, 11, 20))
    assert not check_result.passed
    assert "no record is signed, although records.signed_since, 2026-11-02, is over" in check_result.detail


# ---- the ledgers that records cover


@pytest.mark.parametrize(
    ("fence", "at", "passes"),
    [(1, 11, True), (1, 9, False), (3, 11, False)],
    ids=["after_the_record", "before_the_record", "of_the_run_itself"],
)
def test_rows_of_a_run_that_lost_its_lease_are_no_change_of_the_ledger(
    spark: SparkSession, warehouse: Warehouse, fence: int, at: int, passes: bool
) -> None:
    """A run that was suspended until another run took its lease writes its last rows after the record of that run."""
    began, plan = datetime(2026, 11, 1, tzinfo=UTC), ("2026-11-01", "a" * 64)

    def write_rows(fence: int, minute: int, **outcomes: str) -> None:
        written_at = began + timedelta(minutes=minute)
        write_ledger(warehouse, "orchard", began.date(), plan[1], outcomes, written_at, fence=fence, name=f"{minute}")

    write_rows(1, 1, a="attempted")
    write_rows(3, 5, a="deleted", b="deleted")
    digest = ledger_digest(spark, warehouse, "orchard", plan, 3)
    write_record(warehouse, replace(record(), fence=3, ledger_digest=digest))  # ended after ten minutes
    check = replace(inputs(warehouse, NO_SEAL), spark=spark)
    assert _records_follow(check).passed
    write_rows(fence, at, a="missing")
    found = _records_follow(check)
    assert found.passed == passes
    assert (
        "a run that had lost its lease wrote ledger rows after 00000001.json" if passes else "covers was changed"
    ) in found.detail


# ---- acknowledgements, which are written without a lease


LOST_OBJECT, AT = "data/a", datetime(2026, 11, 1, 12, tzinfo=UTC)
type Tampering = Callable[[Warehouse], None]


def acknowledged(warehouse: Warehouse) -> Callable[[], CheckResult]:
    """Write the records of a run and of a person who acknowledges an object as lost; return the check of the chain."""
    lease = take_lease(warehouse, "orchard", "a-run", AT, timedelta(minutes=5))
    write_record(warehouse, replace(record(), ledger_digest=None))
    release_lease(warehouse, lease, AT)
    acknowledge(warehouse, "orchard", [LOST_OBJECT], "ann", AT, "a-run")
    return lambda: _records_follow(inputs(warehouse, NO_SEAL))


def change_the_person(warehouse: Warehouse) -> None:
    document = warehouse.read_document("orchard", "records", "00000002.json") or {}
    warehouse.write_document({**document, "approved_by": "mallory"}, "orchard", "records", "00000002.json")


def remove_the_record(warehouse: Warehouse) -> None:
    file_of(warehouse, 2).unlink()


def add_an_entry(warehouse: Warehouse) -> None:
    write_acknowledgement(warehouse, "orchard", ["data/b"], "lost", "mallory", AT)


def add_an_address_to_the_entry(warehouse: Warehouse) -> None:
    remove_the_entry(warehouse)
    write_acknowledgement(warehouse, "orchard", [LOST_OBJECT, "data/b"], "lost", "ann", AT)


def remove_the_entry(warehouse: Warehouse) -> None:
    Path(warehouse.root, "orchard", "acknowledged", "00000001.parquet").unlink()


@pytest.mark.parametrize(
    ("tampering", "found"),
    [
        (change_the_person, "the last record that orchard/leases names was changed or is gone"),
        (remove_the_record, "the last record that orchard/leases names was changed or is gone"),
        (add_an_entry, "orchard/acknowledged/00000002.parquet has no record. If a person acknowledged these objects"),
        (add_an_address_to_the_entry, "orchard/acknowledged/00000001.parquet was changed after its record was written"),
        (remove_the_entry, "orchard/acknowledged/00000001.parquet was removed, or has no lost objects any more"),
    ],
    ids=["change_the_person", "remove_the_record", "add_an_entry", "add_an_address_to_the_entry", "remove_the_entry"],
)
def test_a_change_of_the_newest_acknowledgement_is_detected(
    warehouse: Warehouse, tampering: Tampering, found: str
) -> None:
    check = acknowledged(warehouse)
    assert check().passed, check().detail
    tampering(warehouse)
    assert not check().passed
    assert found in check().detail


def test_an_acknowledgement_without_its_record_gets_one(warehouse: Warehouse) -> None:
    check = acknowledged(warehouse)
    add_an_entry(warehouse)  # as a run does that ends before it writes the record
    complete_records(warehouse, "orchard", AT, "a-run")
    assert check().passed, check().detail


def test_an_acknowledgement_during_a_verification_does_not_look_like_tampering(warehouse: Warehouse) -> None:
    acknowledged(warehouse)
    read = inputs(warehouse, NO_SEAL)
    acknowledge(warehouse, "orchard", ["data/b"], "bob", AT, "another-run")
    assert _records_follow(read).passed, _records_follow(read).detail


def test_objects_that_were_found_again_need_no_record(warehouse: Warehouse) -> None:
    check = acknowledged(warehouse)
    write_acknowledgement(warehouse, "orchard", [LOST_OBJECT], "found", "the run a-run", AT)
    assert check().passed, check().detail


@pytest.mark.parametrize("is_stopped", [False, True], ids=["running", "stopped"])
def test_an_acknowledgement_does_not_end_the_lease_of_a_run_or_a_stop(warehouse: Warehouse, is_stopped: bool) -> None:
    lease = take_lease(warehouse, "orchard", "a-run", AT, timedelta(minutes=5))
    if is_stopped:
        stop_sweeps(warehouse, "orchard", "ann", AT)
    acknowledge(warehouse, "orchard", [LOST_OBJECT], "bob", AT, "another-run")
    assert holds(warehouse, lease, AT) is not is_stopped
    assert lease_in_force(warehouse, "orchard", AT) == (("ann", True) if is_stopped else ("a-run", False))
    if is_stopped:
        with pytest.raises(GuardRefused, match="sweeps were stopped by ann at 2026-11-01T12:00:00"):
            take_lease(warehouse, "orchard", "a-third-run", AT + timedelta(days=1), timedelta(minutes=5))
        resume_sweeps(warehouse, "orchard", AT)
    else:
        release_lease(warehouse, lease, AT)
    (kept,) = read_records(warehouse, "orchard")
    assert witnessed_record(warehouse, "orchard") == fingerprint(kept.document)
    assert take_lease(warehouse, "orchard", "a-third-run", AT, timedelta(minutes=5)).fence > lease.fence


def test_the_lease_of_a_run_that_died_names_an_acknowledgement_after_its_end(warehouse: Warehouse) -> None:
    lease, later = take_lease(warehouse, "orchard", "a-run", AT, timedelta(minutes=5)), AT + timedelta(hours=1)
    acknowledge(warehouse, "orchard", [LOST_OBJECT], "bob", later, "another-run")
    (kept,) = read_records(warehouse, "orchard")
    assert witnessed_record(warehouse, "orchard") == fingerprint(kept.document)
    assert not holds(warehouse, lease, later)
    assert take_lease(warehouse, "orchard", "a-third-run", later, timedelta(minutes=5)).fence > lease.fence


# ---- the witness


@pytest.fixture
def seal(tmp_path: Path) -> Seal:
    return Seal(witness=StoreAccess(f"file://{tmp_path}/witness"))


def test_the_witness_has_a_copy_of_each_record(warehouse: Warehouse, seal: Seal, tmp_path: Path) -> None:
    write(warehouse, 3, seal)
    copies = sorted((tmp_path / "witness" / "orchard").iterdir())
    assert [json.loads(one.read_text("utf-8")) for one in copies] == [
        kept.document for kept in read_records(warehouse, "orchard")
    ]
    assert copied(warehouse, seal) == CheckResult(
        "records_copied", True, f"file://{tmp_path}/witness/orchard has a copy of each record (3)"
    )


def cut_the_end_off(warehouse: Warehouse) -> None:
    file_of(warehouse, 3).unlink()


def cut_the_end_off_and_go_on(warehouse: Warehouse) -> None:
    cut_the_end_off(warehouse)
    write_record(warehouse, record("another-run"))


def remove_all(warehouse: Warehouse) -> None:
    for number in (1, 2, 3):
        file_of(warehouse, number).unlink()


@pytest.mark.parametrize(
    ("tamper", "lost"),
    [
        pytest.param(cut_the_end_off, "1 record was", id="the_end_removed"),
        pytest.param(cut_the_end_off_and_go_on, "1 record was", id="the_end_rewritten"),
        pytest.param(remove_all, "3 records were", id="all_removed"),
        pytest.param(lambda warehouse: rewrite(warehouse, approved_by="mallory"), "3 records were", id="rewritten"),
    ],
)
def test_the_witness_shows_a_rewrite_of_a_chain_that_looks_unbroken(
    warehouse: Warehouse, seal: Seal, tamper: Callable[[Warehouse], object], lost: str
) -> None:
    write(warehouse, 3, seal)
    tamper(warehouse)
    assert all(follows(warehouse))
    check_result = copied(warehouse, seal)
    assert not check_result.passed
    assert f"{lost} removed or changed after the copy to" in check_result.detail
    write_record(warehouse, record("a-later-run"), seal)  # the next run does not heal it
    assert f"{lost} removed or changed after the copy to" in copied(warehouse, seal).detail


def test_a_missing_copy_of_a_record_is_reported_and_the_next_run_writes_it(warehouse: Warehouse, seal: Seal) -> None:
    write(warehouse, 1, seal)
    write(warehouse, 2)
    check_result = copied(warehouse, seal)
    assert not check_result.passed
    assert "2 records have no copy in" in check_result.detail
    write(warehouse, 1, seal)
    assert copied(warehouse, seal).passed


@pytest.mark.parametrize("name", ["README.txt", ".DS_Store", "00000009.json", "00000009-notes.json"])
def test_another_file_at_the_witness_is_no_copy_of_a_record(
    warehouse: Warehouse, seal: Seal, tmp_path: Path, name: str
) -> None:
    other = tmp_path / "witness" / "orchard" / name
    other.parent.mkdir(parents=True)
    other.write_text("do not touch", encoding="utf-8")
    write(warehouse, 3, seal)
    assert copied(warehouse, seal) == CheckResult(
        "records_copied", True, f"file://{tmp_path}/witness/orchard has a copy of each record (3)"
    )
    assert other.read_text(encoding="utf-8") == "do not touch"


class WithRunThatEnds(Warehouse):
    """A warehouse in which another run ends after the first directory was listed."""

    def __init__(self, root: str, run_ends: Callable[[], object]) -> None:
        super().__init__(root)
        self._runs_that_end = [run_ends]

    def documents(self, *parts: str) -> list[str]:
        names = super().documents(*parts)
        while self._runs_that_end:
            self._runs_that_end.pop()()
        return names


def test_a_run_that_ends_during_a_verification_does_not_look_like_tampering(
    warehouse: Warehouse, seal: Seal, tmp_path: Path
) -> None:
    now = datetime(2026, 11, 1, tzinfo=UTC)
    repository = configured(tmp_path, {"witness": "witness"})
    changes = [record_without_plan("acknowledge", "field", "ada", now, now, f"run-{run}", {}) for run in range(3)]
    write_record(warehouse, replace(changes[0], mode="quarantine"), seal)  # then no ledger is read with Spark
    lease = take_lease(warehouse, "field", "a-run", now, timedelta(minutes=30))

    def run_ends() -> None:
        write_record(warehouse, changes[1], seal)
        release_lease(warehouse, lease, now)

    opened = SimpleNamespace(repository=repository)
    watched = WithRunThatEnds(warehouse.root, run_ends)
    verifying: Any = SimpleNamespace(name="field", warehouse=watched, opened=opened, spark=None, clock=lambda: now)
    verified = verification_inputs(verifying)
    write_record(warehouse, changes[2], seal)
    for check_result in (records_copied(verified), _records_follow(verified)):
        assert check_result.passed, check_result.detail


def test_without_a_witness_verification_says_what_it_cannot_detect(warehouse: Warehouse) -> None:
    assert copied(warehouse, NO_SEAL) == CheckResult(
        "records_copied",
        True,
        "records.witness is not configured: anyone who can write to the warehouse can remove the newest records",
    )


def test_a_sweep_that_cannot_copy_records_does_not_start(tmp_path: Path) -> None:
    world = World(tmp_path / "world")
    before = world.stored()
    (tmp_path / "witness").write_text("no directory")
    sealed = replace(
        sweep_run(world, "sweep", "delete", "a-run"), seal=Seal(witness=StoreAccess(f"file://{tmp_path}/witness"))
    )
    with pytest.raises(StoreError, match=r"witness: the directory cannot be created"):
        execute(sealed, InProcessEngine(world), FakeRepository())
    assert world.stored() == before
    assert world.warehouse.documents(REPOSITORY, "leases") == []


# ---- the configuration


def configured(directory: Path, records: dict[str, Any]) -> Repository:
    entry = {"kind": "icechunk", "storage": "field", "policy": "policy.yaml"}
    document = {"warehouse": "warehouse", "records": records, "repositories": {"field": entry}}
    file = directory / "retention.yaml"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    return load_configuration(file).repository("field")


def test_the_configuration_names_keys_and_witness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEW", "n" * 32)
    monkeypatch.setenv("OLD", "o" * 40)
    keys = {"signing_key": {"env": "NEW"}, "earlier_keys": [{"env": "OLD"}], "signed_since": date(2026, 11, 2)}
    seal = seal_of(configured(tmp_path, {**keys, "witness": "elsewhere"}))
    assert seal == Seal((b"n" * 32, b"o" * 40), date(2026, 11, 2), StoreAccess(f"file://{tmp_path}/elsewhere"))
    assert "nnn" not in repr(seal)
    assert seal_of(configured(tmp_path, {})) == NO_SEAL


def test_a_witness_that_refuses_checksums_gets_none(tmp_path: Path) -> None:
    options = {"region": REGION, "aws_checksum_algorithm": "none"}
    seal = seal_of(configured(tmp_path, {"witness": "s3://attic/copies", "storage_options": options}))
    assert seal.witness == StoreAccess("s3://attic/copies", {"region": REGION})


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="no_option"),
        pytest.param({"checksum_algorithm": "sha256"}, id="set"),
        pytest.param({"AWS_CHECKSUM_ALGORITHM": "sha256"}, id="set_with_the_prefix"),
    ],
)
def test_records_are_copied_to_a_bucket_that_demands_checksums(
    warehouse: Warehouse,
    bucket: Bucket,
    faulty: FaultyS3,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, str],
) -> None:
    """Amazon S3 demands them in a bucket with a default retention of Object Lock."""

    def without_checksum(request: Request) -> str | None:
        names = {name.lower() for name in request.headers}
        return "InvalidRequest" if request.method == "PUT" and "x-amz-checksum-sha256" not in names else None

    faulty.faults.refuses = without_checksum
    access = {"endpoint": faulty.endpoint, "region": REGION, "access_key_id": bucket.access_key}
    monkeypatch.setenv("SECRET", bucket.secret_key)
    secret = {"secret_access_key": {"env": "SECRET"}}
    records = {"witness": f"s3a://{bucket.name}/copies", "storage_options": {**access, **secret, **options}}
    seal = seal_of(configured(tmp_path, records))
    write(warehouse, 2, seal)
    assert copied(warehouse, seal) == CheckResult(
        "records_copied", True, f"s3://{bucket.name}/copies/orchard has a copy of each record (2)"
    )
    unchecked = Seal(witness=StoreAccess(f"s3://{bucket.name}", {**bucket.access().options, **access}))
    with pytest.raises(StoreError):  # the bucket of this test does demand checksums
        write(warehouse, 1, unchecked)


@pytest.mark.parametrize(
    ("records", "names"),
    [
        pytest.param({"signing_key": {"env": "SHORT"}}, "records.signing_key: the value of SHORT has 5", id="short"),
        pytest.param({"signing_key": {"env": "UNSET"}}, "the environment variable UNSET is not set", id="unset"),
        pytest.param({"signing_key": "in-the-file"}, "records.signing_key", id="a_key_in_the_file"),
        pytest.param({"witness": "warehouse/witness"}, "overlaps the warehouse", id="in_the_warehouse"),
        pytest.param({"witness": "."}, "overlaps the warehouse", id="around_the_warehouse"),
        pytest.param(
            {"witness": "s3://w", "storage_options": {"secret_access_key": "x"}},
            "secret_access_key is a secret",
            id="a_secret_in_the_file",
        ),
        pytest.param({"signing": {"env": "KEY"}}, "records.signing: ", id="an_unknown_key"),
    ],
)
def test_a_mistake_in_the_configuration_of_records_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, records: dict[str, Any], names: str
) -> None:
    monkeypatch.setenv("SHORT", "short")
    with pytest.raises(ConfigurationError) as refused:
        seal_of(configured(tmp_path, records))
    assert names in str(refused.value)
