"""The chain of records: each names the one before it, so that none can be changed or taken out unnoticed."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from retention_assets.errors import GuardRefused
from retention_assets.stores.warehouse import Warehouse
from retention_assets.sweep.lease import release_lease, take_lease, witnessed_record
from retention_assets.sweep.records import Record, fingerprint, read_records, write_record


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


def write(warehouse: Warehouse, number: int) -> None:
    for run in range(number):
        write_record(warehouse, record(f"run-{run}"))


def follows(warehouse: Warehouse) -> list[bool]:
    return [kept.follows for kept in read_records(warehouse, "orchard")]


def file_of(warehouse: Warehouse, number: int) -> Path:
    return Path(warehouse.root, "orchard", "records", f"{number:08d}.json")


def test_where_nothing_was_run_there_are_no_records(warehouse: Warehouse) -> None:
    assert list(read_records(warehouse, "orchard")) == []


def test_each_record_names_the_one_before_it(warehouse: Warehouse) -> None:
    write(warehouse, 3)
    write_record(warehouse, record(repository="meadow"))
    first, second, third = read_records(warehouse, "orchard")
    assert [kept.name for kept in (first, second, third)] == ["00000001.json", "00000002.json", "00000003.json"]
    assert [kept.document["run_id"] for kept in (first, second, third)] == ["run-0", "run-1", "run-2"]
    assert second.document["previous"] == fingerprint(first.document)
    assert third.document["previous"] == fingerprint(second.document)
    assert follows(warehouse) == [True, True, True]


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
        pytest.param(Path.unlink, [True, False, False], id="taken_out"),
        pytest.param(exchange_with_the_next, [True, False, False, False], id="exchanged"),
        pytest.param(take_out_and_close_the_gap, [True, False, True], id="taken_out_and_the_gap_closed"),
    ],
)
def test_a_record_that_was_tampered_with_breaks_the_chain(
    warehouse: Warehouse, tamper: Callable[[Path], object], expected: list[bool]
) -> None:
    write(warehouse, 4)
    tamper(file_of(warehouse, 2))
    assert follows(warehouse) == expected


def test_a_chain_whose_first_record_was_taken_out_does_not_follow(warehouse: Warehouse) -> None:
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


class Crowded(Warehouse):
    """A warehouse in which others are always quicker."""

    def create_document(self, document: object, *parts: str) -> bool:
        return False


def test_a_record_that_never_finds_a_place_is_an_error(warehouse: Warehouse) -> None:
    with pytest.raises(GuardRefused, match="orchard: no record could be written"):
        write_record(Crowded(warehouse.root), record())
