"""Metadata of every asset's materialization: figures of its checks, duration, data version and code version."""

import shutil
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest

import retention_assets
from retention_assets.assets.declaration import Made, checked, code_version, declared
from retention_assets.assets.resources import TABLES
from retention_assets.core.amounts import Amount
from retention_assets.core.guards import CheckResult, live_not_shrunk
from retention_assets.state.ledger import results_of
from retention_assets.warehouse.warehouse import Rows
from tests.assets.graph import configuration

AT = datetime(2026, 11, 1, tzinfo=UTC)


class InMemoryIOManager(dg.IOManager):
    """An IO manager that keeps the rows of an asset in memory."""

    def __init__(self) -> None:
        self.rows: list[Rows] = []

    def handle_output(self, context: dg.OutputContext, obj: Rows) -> None:
        self.rows.append(obj)

    def load_input(self, context: dg.InputContext) -> Rows:
        raise NotImplementedError


def made(tmp_path: Path, *check_results: CheckResult, version: str | None = None):
    @declared(checks=[check_result.guard for check_result in check_results])
    def deletion_candidates(context: dg.AssetExecutionContext) -> Made:
        return checked(Rows(None, AT), check_results, {"plan_hash": "abc"}, version=version)  # type: ignore[arg-type]

    kept, asset = (
        InMemoryIOManager(),
        deletion_candidates.definition(configuration(tmp_path, "orchard").repository("orchard")),
    )
    with dg.DagsterInstance.ephemeral() as instance:
        ended = dg.materialize(
            [asset], instance=instance, partition_key="2026-11-01", resources={TABLES: kept}, raise_on_error=False
        )
    return ended, kept.rows


def test_a_check_reports_its_value_and_its_limit_for_its_partition(tmp_path: Path) -> None:
    ended, _ = made(
        tmp_path, live_not_shrunk(90, 100, 0.5), CheckResult("staged_read", False, "no staged list is known")
    )
    numbers = {
        one.check_name: {key: value.value for key, value in one.metadata.items()}
        for one in ended.get_asset_check_evaluations()
    }
    assert numbers == {"live_not_shrunk": {"value": 1 - 0.9, "limit": 0.5}, "staged_read": {"value": 1.0, "limit": 0.0}}
    assert {one.partition for one in ended.get_asset_check_evaluations()} == {"2026-11-01"}


def test_the_version_of_the_candidates_is_the_hash_of_the_plan(tmp_path: Path) -> None:
    ended, _ = made(tmp_path, version="5e1f")
    (event,) = ended.get_asset_materialization_events()
    tags = event.step_materialization_data.materialization.tags
    assert tags["dagster/data_version"] == "5e1f"
    assert tags["dagster/code_version"] == code_version()


@pytest.mark.parametrize(
    "module",
    [
        "assets/lakefs.py",
        "config/settings.py",
        "decoding/kernels.py",
        "state/policies.py",
        "state/memory.py",
        "lakefs/rules/candidates.py",
        "repositories/other_repositories.py",
        "objectstore/listing.py",
        "tables.py",
    ],
)
def test_a_changed_module_that_decides_what_a_table_contains_changes_the_version_of_the_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    package = tmp_path / "retention_assets"
    shutil.copytree(Path(retention_assets.__file__).parent, package, ignore=shutil.ignore_patterns("*.js", "saved"))
    monkeypatch.setattr(retention_assets, "__file__", str(package / "__init__.py"))
    assert code_version.__wrapped__() == code_version()
    with (package / module).open("a") as file:
        file.write("# changed\n")
    assert code_version.__wrapped__() != code_version()


def test_rows_have_the_start_time_of_their_asset(tmp_path: Path) -> None:
    _, (rows,) = made(tmp_path)
    assert rows.began is not None


def test_results_add_up_to_the_plan_and_an_attempt_without_result_is_unattempted() -> None:
    outcomes = {"deleted": Amount(3, 30), "failed": Amount(1, 5), "attempted": Amount(2, 7)}
    assert results_of(Amount(10, 100), outcomes) == {
        "deleted": Amount(3, 30),
        "failed": Amount(1, 5),
        "unattempted": Amount(6, 65),
    }
