"""The Dagster component: the keys of its `defs.yaml`, and that it does not change the rest of a project."""

import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster_pyspark import LazyPySparkResource

from retention_assets.assets.resources import SPARK, TABLES
from retention_assets.config.configuration import load_configuration
from retention_assets.errors import ConfigurationError
from tests.assets.graph import REPOSITORY

TYPE = "retention_assets.component.RetentionRepository"
OWN_SPARK = """
import dagster as dg
from dagster_pyspark import LazyPySparkResource


@dg.definitions
def defs() -> dg.Definitions:
    return dg.Definitions(resources={"pyspark": LazyPySparkResource(spark_config={})})
"""
FOREIGN = """
import dagster as dg


@dg.asset(group_name="orchard")
def load_fruit() -> None: ...


@dg.asset(group_name="orchard", partitions_def=dg.HourlyPartitionsDefinition("2026-01-01-00:00"))
def load_weather() -> None: ...
"""
_names = count()
Load = Callable[..., dg.Definitions]


def attributes(*names: str, **more: object) -> dict[str, object]:
    entries = {name: {**REPOSITORY, "namespace": f"s3://lake/{name}"} for name in names}
    return {"warehouse": "s3a://tables/all", "repositories": entries, **more}


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Return a function that loads a project with these components (attributes by folder) and modules."""
    name = f"project_{next(_names)}"
    monkeypatch.syspath_prepend(tmp_path)

    def loaded(modules: dict[str, str] | None = None, **components: dict[str, object]) -> dg.Definitions:
        defs = tmp_path / name / "defs"
        defs.mkdir(parents=True)
        (tmp_path / "pyproject.toml").write_text(f'[tool.dg.project]\nroot_module = "{name}"\n', encoding="utf-8")
        for folder, of_component in components.items():
            (defs / folder).mkdir()
            document = {"type": TYPE, "attributes": of_component}
            (defs / folder / "defs.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
        for module, text in (modules or {}).items():
            (defs / module).write_text(text, encoding="utf-8")
        return dg.load_from_defs_folder(path_within_project=tmp_path)

    yield loaded
    for module in [module for module in sys.modules if module.startswith(name)]:
        del sys.modules[module]


def groups(definitions: dg.Definitions) -> set[str | None]:
    dg.Definitions.validate_loadable(definitions)
    return {spec.group_name for spec in definitions.resolve_all_asset_specs()}


def refusal(load: Load, **components: dict[str, object]) -> str:
    """Return the messages with which Dagster refuses to load the components."""
    with pytest.raises(Exception, match="Error while building") as raised:
        load(**components)
    error: BaseException | None = raised.value
    messages = []
    while error is not None:
        messages.append(str(error))
        error = error.__cause__
    return "\n".join(messages)


def test_two_components_with_one_warehouse_load_together(load: Load) -> None:
    definitions = load(one=attributes("orchard"), two=attributes("meadow", "thicket"))
    assert groups(definitions) == {"orchard", "meadow", "thicket"}
    jobs = [job.name for job in definitions.get_repository_def().get_all_jobs()]
    assert {"orchard_plan", "meadow_sweep", "thicket_verify"} <= set(jobs)


def test_two_warehouses_in_one_project_are_refused(load: Load) -> None:
    other = {**attributes("meadow"), "warehouse": "s3a://tables/other"}
    assert "different resources with same key" in refusal(load, one=attributes("orchard"), two=other)


def test_the_executor_of_the_project_stays_and_each_job_uses_one_process(load: Load) -> None:
    definitions = load(one=attributes("orchard"))
    assert definitions.executor is None
    assert definitions.resolve_job_def("orchard_plan").executor_def.name == "in_process"


def test_a_project_may_use_its_own_spark_resource(load: Load) -> None:
    definitions = load({"spark.py": OWN_SPARK}, one=attributes("orchard", project_spark=True))
    assert groups(definitions) == {"orchard"}
    assert type(definitions.resources["pyspark"]).__name__ == "LazyPySparkResource"


def test_tables_are_read_in_the_session_of_the_project(load: Load) -> None:
    definitions = load({"spark.py": OWN_SPARK}, one=attributes("orchard", project_spark=True))
    resources = {**definitions.resources, "pyspark": LazyPySparkResource(spark_config={"spark.app.name": "project"})}
    with dg.build_resources({name: resources[name] for name in (SPARK, TABLES)}) as built:
        assert getattr(built, TABLES).pyspark is getattr(built, SPARK)


def test_no_job_runs_an_asset_of_the_project_that_is_in_the_group_of_the_repository(load: Load) -> None:
    definitions = load({"loading.py": FOREIGN}, one=attributes("orchard"))
    assert groups(definitions) == {"orchard"}
    jobs = {job.name: job for job in definitions.get_repository_def().get_all_jobs() if job.name.startswith("orchard_")}
    selected = {name: job.asset_layer.selected_asset_keys for name, job in jobs.items()}
    assert {key.path[0] for keys in selected.values() for key in keys} == {"orchard"}
    deleting = {dg.AssetKey(["orchard", "deletion_report"]), dg.AssetKey(["orchard", "deletion_proof"])}
    every = {spec.key for spec in definitions.resolve_all_asset_specs() if spec.key.path[0] == "orchard"}
    assert selected["orchard_plan"] == every - deleting


def test_a_component_may_name_a_configuration_file(load: Load, tmp_path: Path) -> None:
    file = tmp_path / "retention.yaml"
    file.write_text(yaml.safe_dump(attributes("orchard")), encoding="utf-8")
    assert groups(load(one={"configuration": str(file)})) == {"orchard"}


def test_the_error_for_a_wrong_key_names_the_key_and_the_file(load: Load) -> None:
    wrong = attributes("orchard")
    wrong["repositories"]["orchard"]["graze"] = "1d"  # type: ignore[index]
    assert "one/defs.yaml: repositories.orchard.graze: unknown key" in refusal(load, one=wrong)


def written(directory: Path, of_component: dict[str, object]) -> Path:
    file = directory / "defs.yaml"
    file.write_text(yaml.safe_dump({"type": TYPE, "attributes": of_component}), encoding="utf-8")
    return file


def test_the_command_line_reads_the_defs_yaml_of_a_component(tmp_path: Path) -> None:
    found = load_configuration(written(tmp_path, attributes("orchard", project_spark=True)))
    assert found.file == tmp_path / "defs.yaml"
    assert found.repository("orchard").path("p.json") == tmp_path / "p.json"


def test_the_command_line_refuses_a_template_that_only_dagster_resolves(tmp_path: Path) -> None:
    file = written(tmp_path, {**attributes("orchard"), "warehouse": "{{ env.TABLES }}"})
    with pytest.raises(ConfigurationError, match="which only Dagster resolves"):
        load_configuration(file)


def test_a_configuration_file_and_other_attributes_are_refused_together(tmp_path: Path) -> None:
    file = written(tmp_path, {**attributes("orchard"), "configuration": "retention.yaml"})
    with pytest.raises(ConfigurationError, match="has `configuration` and also repos"):
        load_configuration(file)
