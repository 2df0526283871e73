"""A sweep of yesterday's plan after a plan of today deletes no object that today's plan keeps."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.end_to_end.command import run
from tests.lakefs_repositories import NAME, Version, address, build_repository

pytestmark = pytest.mark.usefixtures("spark")


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
