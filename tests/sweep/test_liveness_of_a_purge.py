"""Liveness checks of a purge. A purge reads the policy before each pass, opens the source once, and leaves no cache."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from retention_assets.config.configuration import Repository, load_configuration
from retention_assets.config.timestamps import utc_now
from retention_assets.errors import GuardRefused, TableContractError
from retention_assets.lakefs.rules.references import References
from retention_assets.lakefs.rules.reflog import Memory, SeenHead
from retention_assets.lakefs.sweep.memory import keep_memory
from retention_assets.policy.rules import Policy
from retention_assets.repositories import live_now as module
from retention_assets.repositories.live_now import LiveNow
from retention_assets.state.acknowledged import LOST, write_acknowledgement
from retention_assets.sweep.copies import Undo
from retention_assets.tables import REPOSITORY_HISTORY
from retention_assets.warehouse.metadata import Details, PartitionMetadata
from retention_assets.warehouse.warehouse import Warehouse
from tests.end_to_end.command import orchard_on_disk, staged_folder
from tests.frames import cached
from tests.icechunk_projects import ago, icechunk_project
from tests.icechunk_repositories import Commit
from tests.sweep.small_world import a_plan

pytestmark = pytest.mark.long


def orchard(directory: Path) -> Path:
    return orchard_on_disk(directory).file


def add_a_file_to_the_staged_list(directory: Path) -> None:
    """Add a file without changing the rows, since Spark would reuse the cached rows of an identical frame."""
    folder = directory / "lake" / staged_folder()
    for file in list(folder.iterdir()) if folder.is_dir() else ():
        shutil.copy2(file, file.with_name(f"{file.name}-again"))


def field(directory: Path) -> Path:
    return icechunk_project(directory, 2, (Commit("a", None, ago(5)),), {"main": "a"}, {}).project.file


def undo(spark: SparkSession, warehouse: Warehouse, repository: Repository, run_id: str) -> Undo:
    return Undo(spark, warehouse, repository, run_id, "a-person", lambda _: None, utc_now)


@pytest.mark.parametrize(
    ("make", "opens"), [(orchard, "open_repository"), (field, "open_icechunk")], ids=["lakefs", "icechunk"]
)
def test_the_source_is_opened_once_and_what_was_read_is_released(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], Path], opens: str
) -> None:
    configuration = load_configuration(make(tmp_path))
    (repository,) = configuration.repositories.values()
    opened: list[Repository] = []
    of_module = getattr(module, opens)

    def open_and_count(one: Repository, *arguments: Any) -> Any:
        opened.append(one)
        return of_module(one, *arguments)

    monkeypatch.setattr(module, opens, open_and_count)
    before = cached(spark)
    warehouse = Warehouse(configuration.warehouse)
    with LiveNow(undo(spark, warehouse, repository, "a-run"), []) as kept:
        assert opened == []
        first = {row["address"] for row in kept.now().collect()}
        after_first = cached(spark)
        add_a_file_to_the_staged_list(tmp_path)
        assert {row["address"] for row in kept.now().collect()} == first
        assert len(cached(spark)) <= len(after_first)
    assert first
    assert opened == [repository]
    assert cached(spark) <= before


def test_a_policy_that_is_changed_during_a_purge_counts_from_the_next_call(spark: SparkSession, tmp_path: Path) -> None:
    configuration = load_configuration(orchard(tmp_path))
    (repository,) = configuration.repositories.values()
    with LiveNow(undo(spark, Warehouse(configuration.warehouse), repository, "a-run"), []) as kept:
        before = {row["address"] for row in kept.now().collect()}
        longer = {"default_retention_days": 36_500, "branches": []}
        (tmp_path / "gc_rules.json").write_text(json.dumps(longer), encoding="utf-8")
        assert {row["address"] for row in kept.now().collect()} > before


def test_a_purge_needs_the_chunks_of_a_lost_icechunk_manifest_from_an_earlier_run(
    spark: SparkSession, tmp_path: Path
) -> None:
    configuration = load_configuration(field(tmp_path))
    (repository,) = configuration.repositories.values()

    def live(warehouse: Warehouse, run_id: str) -> set[str]:
        with LiveNow(undo(spark, warehouse, repository, run_id), []) as kept:
            return {row["address"] for row in kept.now().collect()}

    warehouse = Warehouse(configuration.warehouse)
    before = live(warehouse, "first")
    manifest = min(address for address in before if address.startswith("manifests/"))
    assert any(address.startswith("chunks/") for address in before)
    (tmp_path / "repository" / manifest).unlink()
    for project in (warehouse, Warehouse(str(tmp_path / "another"))):
        write_acknowledgement(project, repository.name, [manifest], LOST, "anna", utc_now())
    assert live(warehouse, "second") == before
    refused = rf"{manifest} is needed but lost, and no run ever read it.* give the policy's `default` a `keep_newer`"
    with pytest.raises(GuardRefused, match=refused):
        live(Warehouse(str(tmp_path / "another")), "third")


def test_a_purge_is_refused_while_commits_that_earlier_plans_found_are_lost(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newer dump, or a server that is restored again, may bring back commits that need the copies."""
    configuration = load_configuration(orchard(tmp_path))
    (repository,) = configuration.repositories.values()
    found = Memory((SeenHead("branch", "hotfix", "f" * 64, utc_now()),), {}, datetime(2026, 1, 1, tzinfo=UTC))
    monkeypatch.setattr(module, "read_memory", lambda *_: found)
    with LiveNow(undo(spark, Warehouse(configuration.warehouse), repository, "a-run"), []) as kept:
        refused = "orchard: Nothing was deleted. 1 commit .* branch hotfix had f{64}.* restored to an older state"
        with pytest.raises(GuardRefused, match=refused):
            kept.now()


def test_a_purge_refuses_a_dump_from_before_the_last_plan_also_without_the_reflog(
    spark: SparkSession, tmp_path: Path
) -> None:
    (repository,) = load_configuration(orchard(tmp_path)).repositories.values()
    settings = repository.lakefs.model_copy(update={"reflog": False})
    of_server = References({}, {}, {}, utc_now())  # a plan read the server after the dump was taken
    warehouse = Warehouse(str(tmp_path / "warehouse"))
    keep_memory(warehouse, a_plan(repository="orchard"), of_server, Policy(None, (), ()))
    with LiveNow(undo(spark, warehouse, replace(repository, settings=settings), "a-run"), []) as kept:
        refused = "orchard: the dump .* before the references of the last plan .* Nothing was deleted"
        with pytest.raises(GuardRefused, match=refused):
            kept.now()


def test_a_purge_is_refused_while_an_older_repo_object_is_in_the_place_of_the_one_that_a_plan_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    configuration, at = load_configuration(field(tmp_path)), utc_now()
    (repository,) = configuration.repositories.values()
    warehouse = Warehouse(configuration.warehouse)
    planned = PartitionMetadata(at, 1, "a-plan", Details(logged_until=at))  # its repo object had a later entry
    warehouse.write_metadata("field", REPOSITORY_HISTORY.name, at.date(), planned)
    with LiveNow(undo(spark, warehouse, repository, "a-run"), []) as kept:
        refused = "field: .* an older repo object was put in the place .* Nothing was changed or deleted"
        with pytest.raises(GuardRefused, match=refused):
            kept.now()


def test_an_acknowledgement_fails_after_too_many_conflicts(tmp_path: Path) -> None:
    class Overtaken(Warehouse):
        """A warehouse where another process always writes an entry first."""

        def append_rows(self, rows: pa.Table, *parts: str) -> None:
            super().append_rows(rows, *parts)
            super().append_rows(rows, *parts)

    with pytest.raises(TableContractError) as refused:
        write_acknowledgement(Overtaken(str(tmp_path)), "orchard", ["data/a"], LOST, "anna", utc_now())
    message = str(refused.value)
    assert "orchard: other runs wrote the next entry of acknowledged at each of 10 attempts. Nothing" in message
    assert message.endswith("Run the same command again.")
