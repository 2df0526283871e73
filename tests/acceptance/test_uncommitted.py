"""Unreferenced objects: which are collected, and which stay because they are staged, committed, or too young."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from retention_assets.lakefs.source.inventory_snapshot import InventorySnapshot
from retention_assets.warehouse.warehouse import Warehouse
from tests.acceptance.runs import Run
from tests.lakefs_repositories import BuiltRepository, Version, address, build_repository

NOW = datetime(2025, 11, 1, 6, tzinfo=UTC)  # when the plan is made
DAY, HOUR, SECOND, MICROSECOND = timedelta(days=1), timedelta(hours=1), timedelta(seconds=1), timedelta(microseconds=1)
OLD = NOW - 100 * DAY
GRACE, TOKEN_LIFE = 24 * HOUR, 48 * HOUR
RETENTION = {"default_retention_days": 10, "branches": []}
SIGNATURE, OTHER_SIGNATURE = "a" * 43, "b" * 43


@dataclass(frozen=True)
class Case:
    """One object of the store, and the reason why it is a candidate; None: it is not."""

    name: str
    address: str
    reason: str | None
    written_at: datetime = OLD


def _aged(name: str, reason: str | None, *, written: timedelta, number: int) -> Case:
    """An uncommitted object with an old address."""
    return Case(name, address(OLD, number), reason, NOW - written)


def _issued(name: str, reason: str | None, *, issued: timedelta, number: int) -> Case:
    """An uncommitted object whose address was issued after its time in the store."""
    return Case(name, address(NOW - issued, number), reason)


LINKED = address(OLD, 50)
HELD = {
    "head": Case("held by a head", address(OLD, 1), None),
    "active": Case("held by an active commit below the head", address(OLD, 2), None),
    "expired": Case("held by an expired commit only", address(OLD, 3), "expired"),
    "dangling": Case("held by a young dangling commit", address(OLD, 4), None),
    "expired_dangling": Case("held by an expired dangling commit", address(OLD, 5), "expired"),
    "expired_staged": Case("held by an expired commit and staged again", address(OLD, 6), None),
    "signed": Case("held with its signature", f"{LINKED},{SIGNATURE}", None),
    "young_expired": Case(
        "held by an expired commit, past the grace period, within a token's life",
        address(OLD, 7),
        "expired",
        NOW - 30 * HOUR,
    ),
}
STAGED = Case("staged", address(OLD, 10), None)
STAGED_SIGNED = Case("staged with its signature", address(OLD, 51, signature=SIGNATURE), None)
UNCOMMITTED = (
    Case("in nothing", address(OLD, 20), "unreferenced"),
    Case("the address that is held, without its signature", LINKED, "unreferenced"),
    Case("the address that is held, with another signature", f"{LINKED},{OTHER_SIGNATURE}", "unreferenced"),
    Case("the address that is staged, without its signature", address(OLD, 51), "unreferenced"),
    _aged("past the grace period, within a token's life", None, written=30 * HOUR, number=21),
    _aged("the limit itself", None, written=TOKEN_LIFE, number=22),
    _aged("the whole second before the limit, which counts as its end", None, written=TOKEN_LIFE + SECOND, number=23),
    _aged("less than a second before the limit", "unreferenced", written=TOKEN_LIFE + MICROSECOND, number=24),
    _aged("two seconds before the limit", "unreferenced", written=TOKEN_LIFE + 2 * SECOND, number=25),
    _issued("issued just now", None, issued=HOUR, number=30),
    _issued("issued at the limit", None, issued=TOKEN_LIFE, number=31),
    _issued("issued in the second before the limit", None, issued=TOKEN_LIFE + SECOND, number=32),
    _issued("issued two seconds before the limit", "unreferenced", issued=TOKEN_LIFE + 2 * SECOND, number=33),
    Case("of a name that lakeFS never makes", "data/report.csv", None),
)
ALL = (*HELD.values(), STAGED, STAGED_SIGNED, *UNCOMMITTED)


def built(directory: Path, *, staged_known: bool) -> BuiltRepository:
    def of(*names: str) -> dict[str, str]:
        return {f"path/{name}": HELD[name].address for name in names}

    commits = [
        Version("first", NOW - 90 * DAY, of("expired", "expired_staged", "young_expired")),
        Version("lost", NOW - 80 * DAY, of("expired_dangling"), ("first",)),
        Version("second", NOW - 30 * DAY, of("active", "signed"), ("first",)),
        Version("dropped", NOW - 2 * DAY, of("dangling"), ("second",)),
        Version("head", NOW - 3 * DAY, of("head", "signed"), ("second",)),
    ]
    staged = [STAGED.address, STAGED_SIGNED.address, HELD["expired_staged"].address] if staged_known else None
    objects = {case.address: case.written_at for case in ALL}
    return build_repository(directory, commits, {"main": "head"}, staged=staged, taken_at=NOW, objects=objects)


@dataclass(frozen=True)
class Seen:
    run: Run
    snapshot: InventorySnapshot
    reasons: dict[str, str]  # by address


@pytest.fixture(scope="module", params=["staged_list", "no_staged_list"])
def seen(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Seen]:
    built_repository = built(tmp_path_factory.mktemp(request.param), staged_known=request.param == "staged_list")
    repository = built_repository.repository(RETENTION, grace="24h", token_life="48h")
    run = Run(spark, repository, Warehouse(str(built_repository.directory / "warehouse")), NOW.date(), NOW)
    snapshot = run.snapshot()
    yield Seen(run, snapshot, {name: reason for name, _, reason in run.found(snapshot)})


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name.replace(" ", "_")) for case in ALL])
def test_each_object_is_a_candidate_for_the_expected_reason_or_is_kept(seen: Seen, case: Case) -> None:
    known = seen.run.repository.settings.staged is not None
    unknown_keeps = not known and case.reason == "unreferenced"
    was_only_staged = not known and case is HELD["expired_staged"]
    reason = None if unknown_keeps else "expired" if was_only_staged else case.reason
    assert seen.reasons.get(case.address) == reason


def test_only_objects_of_the_cases_are_candidates(seen: Seen) -> None:
    assert seen.reasons.keys() <= {case.address for case in ALL}
