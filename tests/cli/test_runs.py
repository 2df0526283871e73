"""The runs of commands belong to the code location that Dagster's UI shows."""

import os
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import click
import dagster as dg
import pytest
from dagster._core.instance.ref import InstanceRef
from dagster._utils.error import SerializableErrorInfo
from filelock import FileLock
from rich.console import Console
from sqlalchemy.exc import OperationalError

from retention_assets.assets.runs import daily
from retention_assets.cli import group, runs
from retention_assets.cli.group import Steps, program, run_job
from retention_assets.cli.runs import (
    _instance,
    _opened,
    code_location,
    end_dead_runs,
    output_shown_to_the_end,
    process_tag,
)
from retention_assets.config import folders
from retention_assets.config.configuration import Configuration
from retention_assets.errors import ConfigurationError
from retention_assets.spark import sessions
from retention_assets.tables import STORAGE_INVENTORY
from retention_assets.warehouse.metadata import PartitionMetadata
from retention_assets.warehouse.warehouse import Warehouse
from tests.assets.graph import configuration

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


@pytest.fixture
def other_process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("is_local", [True, False], ids=["local", "s3"])
def test_java_starts_for_as_many_objects_as_the_newest_complete_listing_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_local: bool
) -> None:
    """A warehouse on S3 is not read before Java starts: that would take longer than it saves."""
    configured: Any = SimpleNamespace(warehouse=str(tmp_path), spark={})
    warehouse, started_for, ran = Warehouse(configured.warehouse), list[int](), list[str]()
    for day, rows in ((1, 7), (2, 500), (3, 0)):  # the listing of the third day was interrupted
        warehouse.write_document({}, "orchard", STORAGE_INVENTORY.name, f"2026-11-0{day}", "other.json")
        if rows:
            metadata = PartitionMetadata(datetime(2026, 11, day, tzinfo=UTC), rows, "a-run")
            warehouse.write_metadata("orchard", STORAGE_INVENTORY.name, date(2026, 11, day), metadata)
    monkeypatch.setattr(Warehouse, "is_local", is_local)
    monkeypatch.setattr(sessions, "start_early", lambda _, objects: started_for.append(objects))
    monkeypatch.setattr(runs, "run_job", lambda _, __, job, *___: ran.append(job))
    run_job(configured, "orchard", "orchard_plan", date(2026, 11, 3))
    assert (started_for, ran) == ([500 if is_local else 0], ["orchard_plan"])


@pytest.mark.parametrize(("most", "objects"), [(3, 3), (2, 0)], ids=["few", "more than are counted"])
def test_java_starts_for_as_many_objects_as_a_local_repository_has_files_if_it_was_never_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, objects: int
) -> None:
    for name in ("data/slice/one", "data/slice/two", "three"):
        (tmp_path / "lake" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "lake" / name).touch()
    repository = SimpleNamespace(storage=f"file://{tmp_path}/lake")
    configured: Any = SimpleNamespace(warehouse=str(tmp_path / "warehouse"), spark={}, repository=lambda _: repository)
    started_for = list[int]()
    monkeypatch.setattr(group, "_MOST_COUNTED", most)
    monkeypatch.setattr(sessions, "start_early", lambda _, objects: started_for.append(objects))
    monkeypatch.setattr(runs, "run_job", lambda *_: None)
    run_job(configured, "orchard", "orchard_plan", date(2026, 11, 3))
    assert started_for == [objects]


RUN, REPEATED = (f"{number}" * 8 + "-0000-4000-8000-000000000000" for number in (1, 2))  # ids of runs


def status_after_the_next_command(tags: Mapping[str, str], run_id: str = RUN) -> dg.DagsterRunStatus:
    """Return the status of a started run with these tags after the next command."""
    with dg.DagsterInstance.ephemeral() as instance:
        run = dg.DagsterRun("orchard_plan", run_id, tags=tags, status=dg.DagsterRunStatus.STARTED)
        instance.add_run(run)
        end_dead_runs(instance)
        found = instance.get_run_by_id(run.run_id)
    assert found is not None
    return found.status


def tag_of(process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the tag of runs of this process."""
    with monkeypatch.context() as patch:
        patch.setattr(runs.os, "getpid", lambda: process.pid)
        return process_tag(RUN)


ON_LINUX = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system has no /proc")


@ON_LINUX
def test_a_run_of_a_command_has_the_tag_of_its_process() -> None:
    @dg.asset(partitions_def=daily)
    def table() -> None: ...

    logger = runs.progress_logger(Steps("", {}), Console(stderr=True))
    job = dg.define_asset_job("job", executor_def=dg.in_process_executor)
    definitions = dg.Definitions([table], jobs=[job], loggers={"progress": logger})
    with dg.DagsterInstance.ephemeral() as instance:
        run, _ = runs._executed(definitions, "job", date(2026, 11, 1), instance, {})
    assert run.is_success
    assert process_tag(run.run_id).items() <= run.tags.items()


@ON_LINUX
@pytest.mark.parametrize("reaped", [False, True])
def test_a_started_run_whose_process_was_killed_is_marked_as_failed_by_the_next_command(
    other_process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, *, reaped: bool
) -> None:
    tag = tag_of(other_process, monkeypatch)
    assert status_after_the_next_command(tag) is dg.DagsterRunStatus.STARTED
    other_process.kill()
    os.waitid(os.P_PID, other_process.pid, os.WEXITED | (0 if reaped else os.WNOWAIT))
    assert status_after_the_next_command(tag) is dg.DagsterRunStatus.FAILURE


@ON_LINUX
def test_a_command_marks_dead_runs_before_its_own_run(
    other_process: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    made, tags = configuration(tmp_path, "orchard"), tag_of(other_process, monkeypatch)
    other_process.kill()
    other_process.wait()
    dead = dg.DagsterRun("orchard_plan", RUN, tags=tags, status=dg.DagsterRunStatus.STARTED)
    with _instance(made) as (instance, _):
        instance.add_run(dead)

    def executed(*arguments: Any) -> Any:
        assert arguments[3].get_run_by_id(dead.run_id).status is dg.DagsterRunStatus.FAILURE
        return dg.DagsterRun("orchard_plan", status=dg.DagsterRunStatus.SUCCESS), []

    monkeypatch.setattr(runs, "_executed", executed)
    assert runs.run_job(made, "orchard", "orchard_plan", date(2026, 11, 1), Console(stderr=True)).run_id


@ON_LINUX
def test_a_run_whose_process_number_another_process_has_now_is_marked_as_failed() -> None:
    ((key, value),) = process_tag(RUN).items()
    space, _, process = value.rpartition("_")
    number, started_at, _ = process.split("-", 2)
    earlier = f"{space}_{number}-{int(started_at) - 1}-{RUN}"
    assert status_after_the_next_command({key: earlier}) is dg.DagsterRunStatus.FAILURE


@ON_LINUX
def test_a_run_that_repeats_the_run_of_a_killed_command_is_left_alone(
    other_process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dagster copies the tags to the new run, whose process is another one."""
    tag = tag_of(other_process, monkeypatch)
    other_process.kill()
    other_process.wait()
    assert status_after_the_next_command(tag) is dg.DagsterRunStatus.FAILURE
    assert status_after_the_next_command(tag, REPEATED) is dg.DagsterRunStatus.STARTED


@ON_LINUX
def test_a_run_of_a_process_that_proc_hides_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `hidepid`, `/proc` shows only the processes of the own user."""
    tag = process_tag(RUN)
    monkeypatch.setattr(runs, "_start_of", lambda number: None)
    assert status_after_the_next_command(tag) is dg.DagsterRunStatus.STARTED


@ON_LINUX
def test_runs_of_other_machines_and_of_dagster_are_left_alone() -> None:
    ((key, value),) = process_tag(RUN).items()
    elsewhere = {key: f"another-machine_1_{value.rpartition('_')[2]}"}
    for tags in (elsewhere, {}, {key: ""}, {key: "no process"}):
        assert status_after_the_next_command(tags) is dg.DagsterRunStatus.STARTED


def test_a_system_without_proc_has_no_tag_and_ends_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tag = process_tag(RUN)
    monkeypatch.setattr(runs, "_PROC", tmp_path)
    assert process_tag(RUN) == {}
    for tags in (tag, {"retention/process": f"_1-1-{RUN}"}):
        assert status_after_the_next_command(tags) is dg.DagsterRunStatus.STARTED


def test_a_folder_of_dagster_that_cannot_be_written_is_named_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    below = Configuration(file=tmp_path / "file/retention.yaml", warehouse=str(tmp_path), spark={}, repositories={})
    refused = r"file/\.dagster: cannot write to this folder: Not a directory\. Nothing was read or deleted\. Set the "
    with (
        pytest.raises(ConfigurationError, match=refused + "environment variable DAGSTER_HOME to a folder"),
        _instance(below),
    ):
        pass


def test_commands_that_make_the_databases_of_dagster_at_the_same_time_do_not_damage_them(tmp_path: Path) -> None:
    reference, all_ready = InstanceRef.from_dir(str(tmp_path)), Barrier(4)

    def opened(_: int) -> str:
        all_ready.wait()
        with _opened(reference, tmp_path) as instance:
            return instance.add_run(dg.DagsterRun("orchard_plan")).run_id

    with ThreadPoolExecutor(4) as pool:
        known = set(pool.map(opened, range(4)))
    with _opened(reference, tmp_path) as instance:
        assert {run.run_id for run in instance.get_runs()} == known


def test_databases_of_dagster_that_cannot_be_opened_are_named_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    made = configuration(tmp_path, "orchard")
    with _instance(made):
        pass
    with sqlite3.connect(tmp_path / "history/runs.db") as runs_database:
        runs_database.execute("INSERT INTO alembic_version VALUES ('another')")
    refused = rf"^{tmp_path}: Dagster's databases are damaged: CommandError: .* Nothing was read or deleted\. .* move"
    with pytest.raises(ConfigurationError, match=refused), _instance(made):
        pass
    for folder in ("history", "schedules"):
        (tmp_path / folder).rename(tmp_path / f"{folder}-damaged")
    with _instance(made) as (instance, _):
        assert instance.get_runs() == []


@pytest.mark.parametrize("damage", ["an index that is no database", "no table of runs"])
def test_databases_of_dagster_that_open_but_cannot_be_read_are_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    made = configuration(tmp_path, "orchard")
    with _instance(made):
        pass
    if damage == "no table of runs":
        with sqlite3.connect(tmp_path / "history/runs.db") as runs_database:
            runs_database.execute("DROP TABLE runs")
    else:
        (tmp_path / "history/runs/index.db").write_bytes(b"no database" * 1000)
    with pytest.raises(ConfigurationError, match=r"Dagster's databases are damaged: .*\. Nothing"), _instance(made):
        pass


def test_databases_of_dagster_that_another_process_holds_are_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def held(_: object) -> None:
        raise OperationalError("SELECT 1", {}, sqlite3.OperationalError("database is locked"))

    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    monkeypatch.setattr(dg.DagsterInstance, "from_ref", held)
    refused = r"cannot open Dagster's databases: OperationalError: .*locked\. Nothing was read or deleted\. Check that"
    with pytest.raises(ConfigurationError, match=refused), _instance(configuration(tmp_path, "orchard")):
        pass


def test_a_command_waits_no_longer_than_a_minute_for_a_suspended_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    monkeypatch.setattr(runs, "_SECONDS_TO_OPEN", 0)
    with FileLock(tmp_path / runs._LOCK), _instance(configuration(tmp_path, "orchard")) as (instance, _):
        assert instance.get_runs() == []


def test_a_folder_that_exists_and_is_read_only_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders.os, "access", lambda folder, mode: False)
    with pytest.raises(ConfigurationError, match=r": cannot write to this folder: it is not writable\. Nothing"):
        folders.writable_folder(tmp_path, "Choose another folder.")


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


def test_the_command_of_the_ui_has_the_path_of_dagster_if_the_shell_does_not_find_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda _: None)
    file = tmp_path / "retention.yaml"
    with _instance(Configuration(file=file, warehouse=str(tmp_path), spark={}, repositories={})) as (_, command):
        words = shlex.split(command)
    assert words[1:3] == [str(Path(sys.executable).with_name("dagster")), "dev"]
    assert Path(words[1]).is_file()


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="only Linux shows the signals of a process")
def test_ctrl_c_does_not_end_the_processes_that_show_the_output(tmp_path: Path) -> None:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance, output_shown_to_the_end(instance):
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        with instance.compute_log_manager.capture_logs(["a run"]):
            ignores = [status for status in statuses_of_children() if "tail" in status or "python" in status]
            assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
    assert len(ignores) >= 2
    for status in ignores:
        (blocked,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigBlk"))
        assert int(blocked, 16) >> (signal.SIGINT - 1) & 1, status


def test_an_interrupt_while_the_output_is_redirected_is_handled_after_it() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), runs._without_interrupts():
        os.kill(os.getpid(), signal.SIGINT)
        done.append("started")
    assert done == ["started"]


def statuses_of_children() -> list[str]:
    """Return what Linux says about each child of this process."""
    found = (file.read_text() for file in Path("/proc").glob("[0-9]*/status"))
    return [status for status in found if f"\nPPid:\t{os.getpid()}\n" in status]


def test_a_run_that_a_person_ended_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = SerializableErrorInfo("Interrupted", [], dg.DagsterExecutionInterruptedError.__name__)
    event = SimpleNamespace(is_step_failure=True, step_failure_data=SimpleNamespace(error=error))
    monkeypatch.setattr(runs, "_executed", lambda *_: (SimpleNamespace(is_success=False), [event]))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        runs.run_job(configuration(tmp_path, "orchard"), "orchard", "orchard_plan", date(2026, 11, 3), Console())


@pytest.mark.parametrize(
    ("makefile", "command"),
    [
        (None, f"dagster dev -m {NONE}"),
        ("test:\n\tpytest\n# make dev: no\n", f"dagster dev -m {NONE}"),
        ("dev: test ## Start the UI\n\tdagster dev\n", "make dev"),
    ],
    ids=["no_makefile", "no_target", "target"],
)
def test_the_command_of_the_ui_is_make_dev_only_where_there_is_this_target(
    makefile: str | None, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}")
    if makefile is not None:
        (tmp_path / "Makefile").write_text(makefile)
    file = tmp_path / "retention.yaml"
    with _instance(Configuration(file=file, warehouse=str(tmp_path), spark={}, repositories={})) as (_, shown):
        assert shown == f"RETENTION_CONFIG={file} {command}"
