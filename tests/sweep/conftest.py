"""An approved plan of orchard, and small chunks, for all tests of the sweep."""

import pytest

from retention_assets.objectstore.mutate import copying
from retention_assets.sweep import worker as work
from tests.end_to_end.command import Answer, Project


@pytest.fixture(scope="session")
def approved(planned_orchard: tuple[Project, Answer], tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Orchard on disk with an approved plan. Tests must not change it."""
    planned, answer = planned_orchard
    project = planned.copy(tmp_path_factory.mktemp("approved"), mode="delete")
    assert project.run("approve", answer.document()["plan_hash"]).status == 0
    return project


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a chunk have two objects, and let one object be larger than the parts in which objects are copied."""
    monkeypatch.setattr(work, "_MOST_IN_CHUNK", 2)
    monkeypatch.setattr(copying, "_CHUNK", 64)
