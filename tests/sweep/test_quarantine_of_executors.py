"""A quarantine to which no object can be moved, or from which none could be restored, is refused before the sweep."""

from pathlib import Path
from socket import gethostname
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from retention_assets.config.configuration import Repository
from retention_assets.config.settings import LakeFSSettings, SourceSettings
from retention_assets.errors import ConfigurationError, GuardRefused, StoreError
from retention_assets.objectstore.access import open_store
from retention_assets.objectstore.outcomes import Outcome
from retention_assets.objectstore.rate_limiter import RateLimiter
from retention_assets.sweep.actions import Quarantine, marked
from retention_assets.sweep.sweep_run import action_of
from retention_assets.sweep.worker import OBJECTS, Action
from tests.sweep.small_world import a_plan


def action(directory: Path, storage: str, quarantine: str, master: str) -> Action:
    settings = LakeFSSettings.model_validate(
        {
            "kind": "lakefs",
            "namespace": "s3://lake/orchard",
            "source": SourceSettings(dump="dump.json"),
            "policy": ["policy.json"],
            "quarantine": {"url": quarantine},
        }
    )
    file = directory / "retention.yaml"
    repository = Repository("orchard", "s3://lake/orchard", storage, settings, directory, file)
    spark = SimpleNamespace(sparkContext=SimpleNamespace(master=master))
    opened = SimpleNamespace(repository=repository, access=open_store(repository))
    sweep: Any = SimpleNamespace(opened=opened, spark=spark, name="orchard", day="2026-11-01")
    return action_of(sweep, a_plan(), "quarantine")


def test_a_directory_is_no_quarantine_of_a_bucket_if_executors_run_on_other_machines(tmp_path: Path) -> None:
    with pytest.raises(GuardRefused, match=r"the executors of spark://head:7077 run on other machines.* Nothing was"):
        action(tmp_path, "s3://lake/orchard", "attic", "spark://head:7077")


@pytest.mark.parametrize(
    ("storage", "quarantine", "master"),
    [
        pytest.param("s3://lake/orchard", "attic", "local[*]", id="one_machine"),
        pytest.param("s3://lake/orchard", "s3://attic/orchard", "spark://head:7077", id="a_bucket"),
        pytest.param("file:///mounted/orchard", "attic", "spark://head:7077", id="a_shared_directory"),
    ],
)
def test_a_quarantine_that_a_restore_can_read_is_used(
    tmp_path: Path, storage: str, quarantine: str, master: str
) -> None:
    assert isinstance(action(tmp_path, storage, quarantine, master), Quarantine)


def planned(lake: Path) -> pa.Table:
    """Return the plan's one object, after it was written to the directory of the repository."""
    lake.mkdir()
    (lake / "x").write_bytes(b"abc")
    return pa.Table.from_pylist([{"address": "x", "size": 3}], OBJECTS)


def test_a_machine_that_does_not_see_the_quarantine_of_the_driver_moves_nothing(tmp_path: Path) -> None:
    """Otherwise each executor moves objects to its own disk, and a retried task records them as `missing`."""
    objects, lake, attic = planned(tmp_path / "lake"), tmp_path / "lake", tmp_path / "attic"
    moving = action(tmp_path, f"file://{lake}", str(attic), "spark://head:7077")
    with marked(moving):
        attic.rename(tmp_path / "on the driver")  # this machine has the lake, and not the quarantine
        for is_directory in (False, True):
            if is_directory:
                attic.mkdir()
            with pytest.raises(StoreError, match=rf"attic: the machine {gethostname()} does not see the quarantine of"):
                moving.open(RateLimiter())
        assert list(attic.iterdir()) == []
        assert (lake / "x").read_bytes() == b"abc"
        attic.rmdir()
        (tmp_path / "on the driver").rename(attic)
        results = moving.open(RateLimiter()).do(objects, "1", lambda: True)
    assert [one.outcome for one in results] == [Outcome.QUARANTINED]
    assert [one.name for one in attic.iterdir()] == ["2026-11-01"]  # the marker was removed


@pytest.mark.parametrize("is_there", [False, True])
def test_a_sweep_that_moves_nothing_leaves_no_directory_of_its_own(tmp_path: Path, is_there: bool) -> None:
    attic = tmp_path / "attic"
    if is_there:
        attic.mkdir()
    with marked(action(tmp_path, f"file://{tmp_path}/lake", str(attic), "spark://head:7077")):
        assert list(attic.iterdir()) != []
    assert attic.exists() is is_there
    assert not is_there or list(attic.iterdir()) == []


def test_the_marker_of_an_interrupted_sweep_does_not_count_for_a_later_one(tmp_path: Path) -> None:
    planned(tmp_path / "lake")
    first, second = (
        action(tmp_path, f"file://{tmp_path}/lake", str(tmp_path / "attic"), "Spark Connect") for _ in range(2)
    )
    with marked(first), pytest.raises(StoreError, match="does not see the quarantine"):
        second.open(RateLimiter())


def test_a_quarantine_is_refused_if_a_key_of_the_customer_encrypts_the_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SERVER_SIDE_ENCRYPTION", "sse-c")
    monkeypatch.setenv("AWS_SSE_CUSTOMER_KEY_BASE64", "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=")
    with pytest.raises(ConfigurationError, match="objects that are encrypted with a key of the customer"):
        action(tmp_path, "s3://lake/orchard", "s3://attic/orchard", "local[*]")
