"""What tests of the sweep share."""

import pytest
from pyspark.sql import SparkSession

from retention_assets.stores import carriers
from retention_assets.sweep import work
from tests.end_to_end.command import Place, orchard_on_disk


@pytest.fixture(scope="session")
def approved(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A plan of orchard on disk that is approved. Not to be changed."""
    place = orchard_on_disk(tmp_path_factory.mktemp("approved"))
    place.write(mode="delete")
    assert place.run("approve", place.plan()).status == 0
    return place


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let groups be of two objects, and one object be larger than a chunk."""
    monkeypatch.setattr(work, "_GROUP", 2)
    monkeypatch.setattr(carriers, "_CHUNK", 64)
