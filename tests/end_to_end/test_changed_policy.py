"""A policy or a setting that is changed during a sweep, for example by a new hold, ends the sweep."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from retention_assets.core.liveness import Liveness
from retention_assets.lakefs.sweep.liveness import LakeFSLiveness
from tests.end_to_end.command import run
from tests.lakefs_repositories import NAME, Version, address, build_repository

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("spark")]
RULES = {"default_retention_days": 7, "branches": []}


SETTINGS = {"mode": "delete", "grace": "1d", "settle": "0s", "sweep": {"round": 1}}
OF_FILE = (
    "the settings of the repository in {file} were changed during the sweep, or since the Dagster code "
    "location was loaded. Nothing more was deleted"
)


OF_POLICY = "the policy was changed after the plan was made. Nothing more was deleted"


@pytest.mark.parametrize(
    "setting", [{"mode": "plan"}, pytest.param({"grace": "2d"}, marks=pytest.mark.slow)], ids=["mode", "grace"]
)
def test_a_sweep_of_lakefs_ends_when_a_setting_or_the_policy_is_changed_between_two_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: dict[str, Any]
) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    old, day = now - timedelta(days=20), now.date().isoformat()
    # each directory is a batch
    live, *dead = (address(old, number, began=old - timedelta(days=number)) for number in range(4))
    only = Version("first", old, {"a": live})
    world = build_repository(tmp_path, [only], {"main": "first"}, staged=(), taken_at=datetime.now(UTC))
    world.store(dict.fromkeys([live, *dead], old))
    world.configure(RULES, **SETTINGS)
    command = "--config", tmp_path / "retention.yaml"
    plan_hash = run(*command, "plan", NAME, "--as-of", day, "--json").document()["plan_hash"]
    assert run(*command, "approve", NAME, plan_hash, "--as-of", day).status == 0
    check, file = LakeFSLiveness.now, tmp_path / "retention.yaml"

    def ended(rules: dict[str, Any], settings: dict[str, Any]) -> tuple[str, int]:
        """Return the error of a sweep whose configuration changes after its first check, and the objects left."""

        def checked(liveness: LakeFSLiveness) -> Liveness:
            found = check(liveness)
            world.configure({**RULES, **rules}, **{**SETTINGS, **settings})
            return found

        with monkeypatch.context() as patched:
            patched.setattr(LakeFSLiveness, "now", checked)
            swept = run(*command, "sweep", NAME, "--as-of", day)
        assert swept.status == 1
        return swept.err, sum((world.lake / one).exists() for one in dead)

    error, left = ended({}, setting)
    assert OF_FILE.format(file=file) in error
    assert left == 2
    world.configure(RULES, **SETTINGS)
    error, left = ended({"default_retention_days": 30}, {})
    assert OF_POLICY in error
    assert left == 1
