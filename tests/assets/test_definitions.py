"""The definitions: they are valid, equal to the golden file, and loading them reads no store and no server."""

import json
import re
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster._core.remote_representation.external_data import asset_node_snaps_from_repo
from dagster._core.storage.tags import RETRY_NUMBER_TAG

from retention_assets import definitions as module
from retention_assets.assets.declaration import column_lineage
from retention_assets.assets.runs import SweepOptions
from retention_assets.config.configuration import Configuration, load_configuration
from retention_assets.definitions import build_definitions
from retention_assets.demo import sample
from retention_assets.errors import ConfigurationError, GuardRefused
from retention_assets.tables import DUE_OBJECTS, TABLES, shown_tables
from tests.assets.graph import GOLDEN, configuration, snapshot, written


def test_definitions_of_several_repositories_load_and_touch_nothing(tmp_path: Path) -> None:
    made = build_definitions(configuration(tmp_path, "orchard", "meadow"))
    dg.Definitions.validate_loadable(made)
    assert [path.name for path in tmp_path.iterdir()] == ["retention.yaml"]
    keys = {tuple(key.path) for key in made.resolve_asset_graph().get_all_asset_keys()}
    assert {key[0] for key in keys} == {"orchard", "meadow"}
    assert {key[1] for key in keys if key[0] == "orchard"} == {key[1] for key in keys if key[0] == "meadow"}


def test_definitions_of_one_repository_have_its_jobs_and_no_others(tmp_path: Path) -> None:
    made = build_definitions(configuration(tmp_path, "orchard", "meadow"), names=["meadow"])
    dg.Definitions.validate_loadable(made)
    assert snapshot(made) == snapshot(build_definitions(configuration(tmp_path, "meadow")))


def test_the_asset_graph_equals_the_golden_file(tmp_path: Path) -> None:
    found = snapshot(build_definitions(configuration(tmp_path, "orchard")))
    agreed = json.loads(GOLDEN.read_text("utf-8"))
    assert json.loads(written(found)) == agreed, "if this is meant: python -m tests.assets.graph"


def test_every_guard_blocks_and_every_asset_is_daily(tmp_path: Path) -> None:
    found = snapshot(build_definitions(configuration(tmp_path, "orchard")))
    assert found["checks_that_do_not_block"] == []
    assert len({asset["partitions"] for asset in found["assets"].values()}) == 1
    checks = {name.partition("/")[2]: asset["blocking_checks"] for name, asset in found["assets"].items()}
    verification = checks.pop("deletion_proof")
    guards = [guard for names in checks.values() for guard in names]
    assert len(guards) == len(set(guards)) >= 13
    assert {"live_exist", "deleted_are_gone", "totals_hold", "records_follow"} <= set(verification)


def test_only_a_repository_that_may_be_swept_has_a_sweep_schedule(tmp_path: Path) -> None:
    made = configuration(tmp_path, "orchard")
    planning = snapshot(build_definitions(made))["schedules"]
    assert planning.keys() == {"orchard_plan_schedule", "orchard_housekeeping_schedule"}
    sweeping = snapshot(build_definitions(load_configuration(changed(made, mode="delete"))))["schedules"]
    assert sweeping["orchard_sweep_schedule"] == ["orchard_sweep", "0 6 * * *", "STOPPED"]


def test_every_job_schedule_and_sensor_has_a_description(tmp_path: Path) -> None:
    made = configuration(tmp_path, "orchard")
    built = build_definitions(load_configuration(changed(made, mode="delete"))).get_repository_def()
    named = [*built.get_all_jobs(), *built.schedule_defs, *built.sensor_defs]
    assert [one.name for one in named if not one.description] == ["__ASSET_JOB"]
    assert len(built.schedule_defs) == 3


def changed(made: Configuration, **keys: object) -> Path:
    """Write the configuration with these settings of orchard changed, and return its file."""
    document = yaml.safe_load(made.file.read_text("utf-8"))
    document["repositories"]["orchard"] |= keys
    made.file.write_text(yaml.safe_dump(document), encoding="utf-8")
    return made.file


def test_each_repository_has_its_own_times_and_owners(tmp_path: Path) -> None:
    half_past_one = yaml.safe_load("13:30")  # YAML 1.1 reads minutes
    keys = {"schedule": {"plan": half_past_one}, "owners": "team:lake", "mode": "delete"}
    file = changed(configuration(tmp_path, "orchard", "meadow"), **keys)
    found = snapshot(build_definitions(load_configuration(file)))
    assert {name: cron for name, (_, cron, _) in found["schedules"].items()} == {
        "orchard_plan_schedule": "30 13 * * *",
        "orchard_sweep_schedule": "0 6 * * *",
        "orchard_housekeeping_schedule": "0 1 * * 0",
        "meadow_plan_schedule": "0 3 * * *",
        "meadow_housekeeping_schedule": "0 1 * * 0",
    }
    owners = {name.partition("/")[0]: asset["owners"] for name, asset in found["assets"].items()}
    assert owners == {"orchard": ["team:lake"], "meadow": []}


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("schedule", {"plan": "25:00"}, "'25:00' is not a time of day: write `HH:MM`"),
        ("schedule", {"plan": 3}, "3 is not a time of day"),
        ("schedule", {"plan_within": "59s"}, "59s is too short: write at least 1m, or null for never"),
        ("owners", ["lake team"], "'lake team' is not an owner: write an e-mail address, or `team:name`"),
    ],
)
def test_a_wrong_time_duration_or_owner_is_refused_with_its_value(
    tmp_path: Path, key: str, value: object, message: str
) -> None:
    file = changed(configuration(tmp_path, "orchard"), **{key: value})
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        load_configuration(file)


def test_only_the_deletion_report_has_the_tag_of_deleting_assets(tmp_path: Path) -> None:
    assets = snapshot(build_definitions(configuration(tmp_path, "orchard")))["assets"]
    tagged = [name for name, asset in assets.items() if asset["tags"]["retention/deletes"] == "true"]
    assert tagged == ["orchard/deletion_report"]


def test_the_jobs_that_delete_have_the_tag_of_deleting_runs(tmp_path: Path) -> None:
    file = changed(configuration(tmp_path, "orchard"), approval={"in_dagster": True})
    jobs = build_definitions(load_configuration(file)).get_repository_def().get_all_jobs()
    tagged = {job.name for job in jobs if job.tags.get("retention/deletes") == "true"}
    assert tagged == {"orchard_purge", "orchard_sweep"}


def test_planning_never_includes_the_asset_that_deletes(tmp_path: Path) -> None:
    jobs = snapshot(build_definitions(configuration(tmp_path, "orchard")))["jobs"]
    assert "orchard/deletion_report" not in jobs["orchard_plan"]
    assert jobs["orchard_sweep"] == jobs["orchard_report"] == ["orchard/deletion_report"]
    assert jobs["orchard_verify"] == ["orchard/deletion_proof"]


@pytest.mark.parametrize("name", ["orchard", "Orchard", "2024", "_X"])
def test_materialize_on_one_asset_never_starts_the_sweep_job(tmp_path: Path, name: str) -> None:
    """Dagster's UI starts the first job in `job_names` of the selected asset."""
    definitions = build_definitions(configuration(tmp_path, name))
    nodes = asset_node_snaps_from_repo(definitions.get_repository_def())
    jobs = {node.asset_key.path[-1]: node.job_names for node in nodes}
    assert f"{name}_sweep" in jobs["deletion_report"]
    assert [asset for asset, names in jobs.items() if names[0] == f"{name}_sweep"] == []


@pytest.mark.parametrize("name", ["orchard", "Orchard", "2024", "_X"])
def test_the_report_job_does_not_sweep(name: str) -> None:
    run = dg.DagsterRun(job_name=f"{name}_report")
    assert not SweepOptions().may_sweep(run, name)
    assert SweepOptions().may_sweep(dg.DagsterRun(job_name=f"{name}_sweep"), name)


@pytest.mark.parametrize("job", ["orchard_sweep", "__ASSET_JOB"])
def test_a_run_that_dagster_started_to_retry_another_one_does_not_sweep(job: str) -> None:
    retry = dg.DagsterRun(job_name=job, tags={RETRY_NUMBER_TAG: "1"})
    with pytest.raises(GuardRefused, match=r"a sweep is never retried by itself.*: `retention sweep orchard`"):
        SweepOptions(execute=True).may_sweep(retry, "orchard")
    assert not SweepOptions().may_sweep(dg.DagsterRun(job_name="__ASSET_JOB", tags={RETRY_NUMBER_TAG: "1"}), "orchard")


def test_a_dump_age_that_is_too_long_names_the_longest_one_that_a_run_accepts(tmp_path: Path) -> None:
    too_long = SweepOptions(dump_age="9999999999d")
    text = r"^dump_age: .* too long: the longest duration is 999999999d\. Nothing was deleted\. Correct the option\.$"
    with pytest.raises(ConfigurationError, match=text):
        too_long.applied_to(configuration(tmp_path, "orchard"), "orchard")


def test_the_storage_is_listed_before_the_staged_list_and_the_references_are_read(tmp_path: Path) -> None:
    """The order is: storage, staged, references, ranges.

    Source: docs/uncommitted.md, "The order of reading is a safety property".
    """
    assets = snapshot(build_definitions(configuration(tmp_path, "orchard")))["assets"]
    order = [
        "storage_inventory",
        "uncommitted_objects",
        "commit_graph",
        "potential_commits",
        "active_ranges",
        "addresses",
    ]
    for older, newer in zip(order, [*order[1:], "deletion_candidates"], strict=True):
        assert f"orchard/{older}" in assets[f"orchard/{newer}"]["depends_on"], (older, newer)


def test_retention_config_names_the_configuration_that_dagster_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = configuration(tmp_path, "somewhere").file
    monkeypatch.setenv("RETENTION_CONFIG", str(file))
    assert {key.path[0] for key in module.defs().resolve_asset_graph().get_all_asset_keys()} == {"somewhere"}
    monkeypatch.setenv("RETENTION_CONFIG", str(tmp_path / "nowhere.yaml"))
    with pytest.raises(ConfigurationError, match="there is no such file"):
        module.defs()


def test_without_retention_config_dagster_loads_the_configuration_of_the_demo() -> None:
    dg.Definitions.validate_loadable(module.defs())


def test_without_a_configuration_the_error_of_dagster_names_retention_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample, "_CHECKOUT", tmp_path / "nowhere")  # as in an installed package
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RETENTION_CONFIG", raising=False)
    with pytest.raises(ConfigurationError, match="RETENTION_CONFIG"):
        module.defs()


def both_kinds(tmp_path: Path) -> dg.Definitions:
    made = configuration(tmp_path, "orchard")
    document = yaml.safe_load(made.file.read_text(encoding="utf-8"))
    document["repositories"]["field"] = {"kind": "icechunk", "storage": "s3://lake/field", "policy": "p.yaml"}
    made.file.write_text(yaml.safe_dump(document), encoding="utf-8")
    return build_definitions(load_configuration(made.file))


@pytest.mark.parametrize(
    ("system", "repository", "not_computed"),
    [
        pytest.param("lakefs", "orchard", {"outcome", "detail", "at"}, id="lakefs"),
        pytest.param("icechunk", "field", {"outcome", "detail", "at", "paths"}, id="icechunk"),
    ],
)
def test_columns_are_computed_from_columns_of_the_tables_above(
    tmp_path: Path, system: str, repository: str, not_computed: set[str]
) -> None:
    graph = both_kinds(tmp_path).resolve_asset_graph()
    lineage = {table: column_lineage(system, repository, table) for table in TABLES}
    computed = {table: one["dagster/column_lineage"].deps_by_column for table, one in lineage.items() if one}
    assert len(computed) >= 5
    for table, columns in computed.items():
        above = graph.get(dg.AssetKey([repository, table])).parent_keys
        assert columns.keys() ^ set(TABLES[table].schema.names) <= not_computed, table
        for column, sources in columns.items():
            assert sources, column
            assert {one.asset_key for one in sources} <= above, (table, column)
            assert all(one.column_name in TABLES[one.asset_key.path[-1]].schema.names for one in sources), column


def test_a_plan_is_overdue_after_two_days_or_as_configured(tmp_path: Path) -> None:
    def policies(made: Configuration) -> dict[str, object]:
        specs = build_definitions(made).resolve_all_asset_specs()
        return {spec.key.path[-1]: spec.freshness_policy for spec in specs if spec.freshness_policy}

    made = configuration(tmp_path, "orchard")
    assert policies(made) == {"deletion_candidates": dg.FreshnessPolicy.time_window(timedelta(days=2))}
    weekly = load_configuration(changed(made, schedule={"plan_within": "7d"}))
    assert policies(weekly) == {"deletion_candidates": dg.FreshnessPolicy.time_window(timedelta(days=7))}
    shortest = load_configuration(changed(made, schedule={"plan_within": "1m"}))
    assert policies(shortest) == {"deletion_candidates": dg.FreshnessPolicy.time_window(timedelta(minutes=1))}
    assert policies(load_configuration(changed(made, schedule={"plan_within": None}))) == {}


def test_lakefs_and_icechunk_repositories_load_together(tmp_path: Path) -> None:
    definitions = both_kinds(tmp_path)
    dg.Definitions.validate_loadable(definitions)
    found = snapshot(definitions)
    field = {key.partition("/")[2]: asset for key, asset in found["assets"].items() if asset["group"] == "field"}
    assert found["checks_that_do_not_block"] == []
    order = ["storage_inventory", "repository_history", "expired_snapshots", "reachable_manifests", "reachable_chunks"]
    for older, newer in pairwise([*order, "deletion_candidates", "deletion_report", "deletion_proof"]):
        assert f"field/{older}" in field[newer]["depends_on"], (older, newer)
    assert "field/deletion_report" not in found["jobs"]["field_plan"]
    assert {"metadata_exists", "manifests_whole", "chunks_exist", "nothing_live"} <= {
        guard for asset in field.values() for guard in asset["blocking_checks"]
    }


@pytest.mark.parametrize(("group", "is_icechunk"), [("orchard", False), ("field", True)])
def test_the_tables_that_show_accepts_for_a_kind_are_its_assets(tmp_path: Path, group: str, is_icechunk: bool) -> None:
    assets = snapshot(both_kinds(tmp_path))["assets"]
    named = {key.partition("/")[2] for key, asset in assets.items() if asset["group"] == group}
    assert sorted(named & TABLES.keys() | {DUE_OBJECTS.name}) == shown_tables(is_icechunk=is_icechunk)
