"""A sweep of yesterday's plan keeps what today's plan keeps; an earlier day is verified after today's sweep."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.end_to_end.command import run
from tests.lakefs_repositories import NAME, Version, address, build_repository

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("spark")]


def test_a_sweep_of_yesterdays_plan_keeps_an_object_that_todays_plan_found_staged(tmp_path: Path) -> None:
    """A commit is in progress and has sealed the staged object. No liveness check sees the object until it ends."""
    now = datetime.now(UTC).replace(microsecond=0)
    old = now - timedelta(days=20)
    live, staged_again, dead = (address(old, number) for number in range(3))
    yesterday, today = ((now - timedelta(days=days)).date().isoformat() for days in (1, 0))

    def build(*staged: str):  # type: ignore[no-untyped-def]
        only = Version("first", old, {"a": live})
        return build_repository(tmp_path, [only], {"main": "first"}, staged=staged, taken_at=datetime.now(UTC))

    def retention(command: str, *arguments: str, day: str = yesterday):  # type: ignore[no-untyped-def]
        answer = run("--config", tmp_path / "retention.yaml", command, NAME, *arguments, "--as-of", day)
        assert answer.status == 0, answer.err
        return answer

    world = build()
    world.store({live: old, staged_again: old, dead: old})
    world.configure({"default_retention_days": 7, "branches": []}, mode="delete", grace="1d")
    plan_hash = retention("plan", "--json").document()["plan_hash"]
    retention("approve", plan_hash)
    build(staged_again)
    retention("plan", day=today)
    build()
    swept = retention("sweep", "--json").document()
    assert (world.lake / staged_again).exists()
    assert not (world.lake / dead).exists()
    assert {outcome: amount["objects"] for outcome, amount in swept["outcomes"].items() if amount["objects"]} == {
        "deleted": 1,
        "skipped": 1,
    }


def test_the_verification_of_an_earlier_day_does_not_require_objects_that_expired_before_todays_sweep(
    tmp_path: Path,
) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    old, day, earlier = (now - timedelta(days=days) for days in (20, 0, 5))
    live, dead = address(old), address(old, 1)
    versions = [
        Version("first", old, {"a": dead}),
        Version("second", now - timedelta(days=10), {"a": live}, ("first",)),  # "first" expires three days ago
    ]
    world = build_repository(tmp_path, versions, {"main": "second"}, taken_at=datetime.now(UTC))
    world.store({live: old, dead: old})
    world.configure({"default_retention_days": 7, "branches": []}, mode="delete", grace="1d")

    def retention(command: str, *arguments: str, day: datetime = day):  # type: ignore[no-untyped-def]
        return run("--config", tmp_path / "retention.yaml", command, NAME, *arguments, "--as-of", f"{day:%Y-%m-%d}")

    plan_hash = retention("plan", "--json").document()["plan_hash"]
    assert retention("approve", plan_hash).status == 0
    assert retention("sweep").status == 0
    assert not (world.lake / dead).exists()
    verified = retention("verify", day=earlier)
    assert verified.status == 0, verified.err
    (world.lake / live).unlink()
    verified = retention("verify", day=earlier)
    assert verified.status == 1
    assert f"first {live}" in verified.err
