"""The runs of commands belong to the code location that Dagster's UI shows."""

import shlex
from pathlib import Path

import click
import pytest

from retention_assets.cli.group import program
from retention_assets.cli.runs import _instance, code_location
from retention_assets.config.configuration import Configuration

NONE = "retention_assets.definitions"  # of `dagster dev -m retention_assets.definitions`
PROJECT = "[tool.dg]\ndirectory_type = 'project'\n[tool.dg.project]\nroot_module = 'lake'\n"
SERVER = "load_from: [{grpc_server: {host: lake, port: 4000, location_name: ours}}"


@pytest.mark.parametrize(
    ("files", "location"),
    [
        ({}, NONE),
        ({"pyproject.toml": PROJECT}, "lake.definitions"),
        ({"workspace.yaml": f"{SERVER}]"}, "ours"),
        ({"workspace.yaml": f"{SERVER}, {{python_module: other}}]"}, NONE),
        ({"pyproject.toml": "[tool.dagster"}, NONE),
    ],
    ids=["no_project", "project", "workspace", "several", "broken"],
)
def test_runs_belong_to_the_code_location_of_the_folder(
    files: dict[str, str], location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert code_location() == location


def test_a_variable_names_the_code_location_of_a_server_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    assert code_location() == "retention_assets"
    monkeypatch.setenv("RETENTION_CODE_LOCATION", "lakes")
    assert code_location() == "lakes"


def test_printed_commands_quote_paths_with_spaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "my lakes" / "retention.yaml"
    file.parent.mkdir()
    with click.Context(click.Command("retention"), obj=file):
        assert shlex.split(f"{program()} status")[-3:] == ["--config", str(file), "status"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    with _instance(Configuration(file=file, warehouse=str(tmp_path), spark={}, repositories={})) as (_, command):
        variables = shlex.split(command)[:2]
    assert variables == [f"DAGSTER_HOME={file.parent}/.dagster", f"RETENTION_CONFIG={file}"]
