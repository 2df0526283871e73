"""A quarantine to which no object can be moved, or from which none could be restored, is refused before the sweep."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from retention_assets.config.configuration import Repository
from retention_assets.config.settings import LakeFSSettings, SourceSettings
from retention_assets.errors import ConfigurationError, GuardRefused
from retention_assets.objectstore.access import open_store
from retention_assets.sweep.actions import Quarantine
from retention_assets.sweep.sweep_run import action_of
from tests.sweep.small_world import a_plan


def action(directory: Path, storage: str, quarantine: str, master: str) -> object:
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


def test_a_quarantine_is_refused_if_a_key_of_the_customer_encrypts_the_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SERVER_SIDE_ENCRYPTION", "sse-c")
    monkeypatch.setenv("AWS_SSE_CUSTOMER_KEY_BASE64", "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=")
    with pytest.raises(ConfigurationError, match="objects that are encrypted with a key of the customer"):
        action(tmp_path, "s3://lake/orchard", "s3://attic/orchard", "local[*]")
