"""`dagster.yaml` of the project lets a sweep be stopped while it runs."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._core.test_utils import create_run_for_test
from dagster._utils.tags import TagConcurrencyLimitsCounter

ROOT = Path(__file__).parents[2]
DAY = {"dagster/partition": "2026-11-01"}


def limits() -> dict[str, Any]:
    """Return the limits of runs in the `dagster.yaml` of the project."""
    settings: dict[str, Any] = yaml.safe_load((ROOT / "dagster.yaml").read_text(encoding="utf-8"))
    runs: dict[str, Any] = settings["concurrency"]["runs"]
    return runs


@pytest.mark.parametrize(
    ("job", "tags", "waits"),
    [
        pytest.param("orchard_stop", {}, False, id="stop"),
        pytest.param("orchard_withdraw", {}, False, id="withdraw"),
        pytest.param("orchard_plan", DAY, True, id="plan"),
        pytest.param("orchard_sweep", {"dagster/partition": "2026-10-31"}, True, id="sweep-of-another-day"),
    ],
)
def test_while_a_sweep_runs_only_runs_with_a_partition_wait(job: str, tags: dict[str, str], waits: bool) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        running, queued = (
            create_run_for_test(instance, job_name=one, tags=given)
            for one, given in (("orchard_sweep", DAY), (job, tags))
        )
    counter = TagConcurrencyLimitsCounter(limits()["tag_concurrency_limits"], [running])
    assert counter.is_blocked(queued) is waits


def test_more_than_one_run_can_run_at_the_same_time() -> None:
    assert limits().get("max_concurrent_runs", 10) > 1
