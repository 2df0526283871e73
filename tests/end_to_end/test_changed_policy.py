"""A policy or a setting that is changed during a sweep, for example by a new hold, ends the sweep."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from retention_assets.core.liveness import Liveness
from retention_assets.lakefs.sweep.liveness import LakeFSLiveness
from tests.end_to_end.command import run
from tests.lakefs_repositories import NAME, Version, address, build_repository

pytestmark = pytest.mark.usefixtures("spark")
RULES = {"default_retention_days": 7, "branches": []}


SETTINGS = {"mode": "delete", "grace": "1d", "settle": "0s", "sweep": {"round": 1}}
OF_FILE = (
    "the settings of the repository in {file} were changed during the sweep, or since the Dagster code "
    "location was loaded. Nothing more was deleted"
)


@pytest.mark.parametrize(
    ("rules", "settings", "reason"),
    [
        pytest.param(
            {"default_retention_days": 30},
            {},
            "the policy was changed after the plan was made. Nothing more was deleted",
            id="the_policy",
        ),
        pytest.param({}, {"mode": "plan"}, OF_FILE, id="the_mode"),
        pytest.param({}, {"grace": "2d"}, OF_FILE, id="the_grace_period", marks=pytest.mark.slow),
    ],
)
def test_a_sweep_of_lakefs_ends_when_the_policy_or_a_setting_is_changed_between_two_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rules: dict[str, Any], settings: dict[str, Any], reason: str
) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    old, day = now - timedelta(days=20), now.date().isoformat()
    other_directory = address(old, 2, began=old - timedelta(days=1))  # each directory is a batch
    live, dead = address(old), [address(old, 1), other_directory]
    only = Version("first", old, {"a": live})
    world = build_repository(tmp_path, [only], {"main": "first"}, staged=(), taken_at=datetime.now(UTC))
    world.store(dict.fromkeys([live, *dead], old))
    world.configure(RULES, **SETTINGS)
    command = "--config", tmp_path / "retention.yaml"
    plan_hash = run(*command, "plan", NAME, "--as-of", day, "--json").document()["plan_hash"]
    assert run(*command, "approve", NAME, plan_hash, "--as-of", day).status == 0
    check = LakeFSLiveness.now

    def checked(liveness: LakeFSLiveness) -> Liveness:
        found = check(liveness)
        world.configure({**RULES, **rules}, **{**SETTINGS, **settings})  # after the first check
        return found

    monkeypatch.setattr(LakeFSLiveness, "now", checked)
    swept = run(*command, "sweep", NAME, "--as-of", day)
    assert swept.status == 1
    assert reason.format(file=tmp_path / "retention.yaml") in swept.err
    assert sum((world.lake / one).exists() for one in dead) == 1
