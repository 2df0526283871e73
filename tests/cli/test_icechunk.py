"""`retention icechunk`: references, status, log and upgrade. Each change takes the lease and writes a record."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from retention_assets.errors import GuardRefused, StoreError
from retention_assets.objectstore.mutate.writing import ObjectWriter
from retention_assets.state import clocks
from retention_assets.state.lease import holds, stop_sweeps, take_lease
from retention_assets.state.records import read_records
from retention_assets.warehouse.warehouse import Warehouse
from tests.end_to_end.command import Answer, run
from tests.icechunk.sweep.repositories import IcechunkRepository, histories, tree
from tests.icechunk_repositories import Format

Run = Callable[..., Answer]


class Command:
    """Runs `retention icechunk` on a repository."""

    def __init__(self, directory: Path, spec_version: Format) -> None:
        self.repository: IcechunkRepository = tree(directory / "r", spec_version)
        self.warehouse = Warehouse(str(directory / "warehouse"))
        self.file = directory / "retention.yaml"
        self.file.write_text(
            "warehouse: warehouse\n"
            "repositories:\n"
            "  field: {kind: icechunk, storage: r, policy: policy.yaml}\n"
            "  orchard: {kind: lakefs, namespace: file:///nowhere, source: {dump: d.json}, policy: policy.yaml}\n",
            encoding="utf-8",
        )

    def __call__(self, *arguments: str, repository: str = "field") -> Answer:
        return run("--config", self.file, "icechunk", repository, *arguments)

    def records(self) -> list[tuple[str, object]]:
        return [
            (kept.document["kind"], kept.document["published"])
            for kept in read_records(self.warehouse, "field")
            if kept.follows
        ]


@pytest.mark.parametrize("spec_version", [1, 2], ids=["format_1", "format_2"])
def test_branches_and_tags_are_changed_and_each_change_is_recorded(tmp_path: Path, spec_version: Format):
    command = Command(tmp_path, spec_version)
    ids = command.repository.ids
    commands = [
        ["branch", "create", "side", ids["a"], "--json"],
        ["branch", "reset", "side", ids["b"], "--json", "--from", ids["a"]],
        ["branch", "delete", "old", "--json"],
        ["tag", "create", "v3", ids["c"], "--json"],
        ["tag", "delete", "v1", "--json"],
    ]
    kinds = [" ".join(arguments).partition(" --json")[0] for arguments in commands]
    for arguments, kind in zip(commands, kinds, strict=True):
        answer = command(*arguments)
        assert answer.status == 0
        assert ("Stop them until this run ends" in " ".join(answer.err.split())) is (spec_version == 2)
        assert answer.document() == {"repository": "field", "done": kind, "conflicts": 0}
    found = {name: line[0] for name, line in histories(command.repository.open()).items()}
    assert found == {"branch dev": "y", "branch main": "f", "branch side": "b", "tag v2": "f", "tag v3": "c"}
    assert command.records() == [(kind, {"conflicts": 0}) for kind in kinds]


def test_the_status_is_shown_and_set(tmp_path: Path):
    command = Command(tmp_path, 2)
    change = command("status", "read-only", "--reason", "moving", "--json").document()
    assert change == {"repository": "field", "done": "status read-only", "conflicts": 0}
    refused = command("branch", "delete", "dev")
    assert (refused.status, refused.out) == (1, "")
    assert "the repository is read-only (reason: moving). Nothing was changed" in " ".join(refused.err.split())
    shown = command("status", "--json").document()
    assert shown == {
        "format": 2, "snapshots": 10, "branches": ["dev", "main", "old"], "tags": ["v1", "v2"], "deleted_tags": [],
        "status": "read-only", "reason": "moving",
    }  # fmt: skip
    for arguments in (("online", "--reason", "done"), ("--reason", "done")):
        wrong = command("status", *arguments)
        assert (wrong.status, wrong.out) == (2, "")
        assert "--reason is only for `status read-only`" in wrong.err
    assert command("status", "online").status == 0
    shown = command("status").out
    assert "status: online" in shown
    assert "reason: none" in shown
    assert command("branch", "delete", "dev").out == "field: done: branch delete dev\n"


def test_a_remedy_has_the_name_of_the_repository(tmp_path: Path):
    def refused(*arguments: str) -> str:
        answer = command(*arguments)
        assert answer.status != 0
        return " ".join(answer.err.split())

    command = Command(tmp_path, 1)
    assert "icechunk field upgrade`" in refused("status", "read-only")
    assert "icechunk field status` lists" in refused("branch", "delete", "another")
    assert "show field expired_snapshots`" in refused("branch", "create", "side", "no-id")
    (tmp_path / "r/snapshots" / command.repository.ids["b"]).unlink()
    assert "restore field --address snapshots/" in refused("status")


def test_the_log_is_shown_newest_first(tmp_path: Path):
    command = Command(tmp_path, 2)
    command("tag", "delete", "v1")
    entries = command("log", "--json", "--limit", "2").document()
    assert [entry["kind"] for entry in entries] == ["tag_deleted", "tag_created"]
    assert entries[0]["name"] == "v1"
    assert entries[0]["previous_snapshot_id"] == command.repository.ids["b"]
    first_line = command("log").out.splitlines()[0]
    assert "tag_deleted" in first_line and f"previous_snapshot_id={command.repository.ids['b']}" in first_line


def test_a_repository_is_upgraded_after_a_dry_run(tmp_path: Path):
    command = Command(tmp_path, 1)
    before = command.repository.files()
    refusal = " ".join(command("log").err.split())
    assert "a repository of format 1 has no log" in refusal and "icechunk field upgrade`" in refusal
    dry = command("upgrade", "--dry-run")
    assert (dry.status, command.repository.files(), command.records()) == (0, before, [])
    assert "would be upgraded: 10 snapshots, 3 branches, 2 tags" in dry.out
    assert command("upgrade", "--json").document()["snapshots"] == 10
    assert command("status", "--json").document()["format"] == 2
    ((kind, record),) = command.records()
    assert kind == "upgrade"
    assert json.loads(json.dumps(record))["snapshots"] == 10
    assert command("upgrade").status == 1


def test_a_change_of_a_renamed_repository_is_refused(tmp_path: Path):
    command = Command(tmp_path, 2)
    assert command("tag", "delete", "v1").status == 0
    command.file.write_text(command.file.read_text("utf-8").replace("  field:", "  renamed:"), encoding="utf-8")
    before = command.repository.files()
    refused = command("branch", "delete", "dev", repository="renamed")
    assert (refused.status, command.repository.files()) == (1, before)
    assert "under the name field" in " ".join(refused.err.split())


def test_a_change_is_refused_while_a_sweep_runs(tmp_path: Path):
    command = Command(tmp_path, 2)
    take_lease(command.warehouse, "field", "a sweep", datetime.now(UTC), timedelta(minutes=30))
    before = command.repository.files()
    refused = command("branch", "delete", "dev")
    assert refused.status == 1
    assert "a sweep holds the lease" in " ".join(refused.err.split())
    assert command.repository.files() == before


@pytest.mark.parametrize("arguments", [["branch", "delete", "dev"], ["upgrade"]], ids=["branch", "upgrade"])
def test_a_clock_that_is_ahead_changes_nothing_and_leaves_the_lease_of_a_running_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
):
    command, now = Command(tmp_path, 1), datetime.now(UTC)
    lease = take_lease(command.warehouse, "field", "a sweep", now, timedelta(minutes=30))
    monkeypatch.setattr(clocks, "store_time", lambda *_: now)
    monkeypatch.setattr("retention_assets.cli.icechunk.utc_now", lambda: now + timedelta(hours=1))
    before = command.repository.files()
    refused = command(*arguments)
    assert refused.status == 1
    assert "differ by 3599 s; at most 300 s is allowed. Nothing was changed" in " ".join(refused.err.split())
    assert holds(command.warehouse, lease, now)
    assert command.repository.files() == before


@pytest.mark.parametrize(
    ("spec_version", "arguments"),
    [
        pytest.param(1, ["branch", "delete", "dev"], id="branch_of_format_1"),
        pytest.param(2, ["tag", "delete", "v1"], id="tag_of_format_2"),
        pytest.param(2, ["status", "read-only"], id="status"),
        pytest.param(1, ["upgrade"], id="upgrade"),
    ],
)
def test_a_change_that_lost_its_lease_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec_version: Format, arguments: list[str]
):
    """The process was suspended for longer than its lease."""
    command = Command(tmp_path, spec_version)
    before, require_conditions = command.repository.files(), ObjectWriter.require_conditions

    def suspended(writer: ObjectWriter) -> None:
        require_conditions(writer)
        stop_sweeps(command.warehouse, "field", "somebody", datetime.now(UTC))

    monkeypatch.setattr(ObjectWriter, "require_conditions", suspended)
    refused = command(*arguments)
    assert (refused.status, command.repository.files()) == (1, before)
    assert "this command lost the lease of the repository" in " ".join(refused.err.split())
    assert command.records() == []


@pytest.mark.parametrize("lost", ["record", "lease"])
def test_if_the_record_of_a_change_is_not_written_the_message_says_that_the_change_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
):
    command = Command(tmp_path, 2)
    create, target = Warehouse.create_document, {"record": "records", "lease": "leases"}[lost]

    def created(warehouse: Warehouse, document: dict[str, object], *parts: str) -> bool:
        if target in parts and "branch side" in histories(command.repository.open()):
            raise StoreError("warehouse: no space is left. It was not written. Free space there.")
        return create(warehouse, document, *parts)

    monkeypatch.setattr(Warehouse, "create_document", created)
    answer = command("branch", "create", "side", command.repository.ids["a"])
    assert answer.status == StoreError.exit_code
    message = " ".join(answer.err.split())
    assert "the change was made: branch create" in message
    assert "Do not run the command again" in message
    assert "The cause: " in message and message.endswith("no space is left. It was not written. Free space there.")
    assert "branch side" in histories(command.repository.open())
    assert len(command.records()) == (lost == "lease")


def test_a_refused_change_leaves_no_record_and_gives_the_lease_back(tmp_path: Path):
    command = Command(tmp_path, 2)
    assert command("branch", "delete", "main").status == 1
    assert command.records() == []
    assert command("branch", "delete", "dev").status == 0


@pytest.mark.parametrize(
    "arguments", [["branch", "delete", "dev"], ["tag", "delete", "v1"], ["upgrade"]], ids=["branch", "tag", "upgrade"]
)
def test_nothing_is_changed_in_a_store_that_ignores_conditions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
):
    def ignored(_writer: ObjectWriter) -> None:
        raise GuardRefused("the store ignored the condition If-Match")

    command = Command(tmp_path, 1)
    before = command.repository.files()
    monkeypatch.setattr(ObjectWriter, "require_conditions", ignored)
    answer = command(*arguments)
    assert (answer.status, answer.out) == (1, "")
    assert "ignored the condition" in answer.err
    assert command.repository.files() == before
    assert command.records() == []


@pytest.mark.parametrize(
    ("arguments", "repository", "violation"),
    [
        (["branch", "delete", "dev"], "orchard", "repositories.orchard.kind is not `icechunk`"),
        (["status"], "nobody", "there is no repository 'nobody'"),
        (["tag", "create", "v9", "short"], "field", "'short' is not the id of a snapshot"),
    ],
    ids=["lakefs", "unknown", "no_id"],
)
def test_invalid_arguments_are_a_usage_error(tmp_path: Path, arguments: list[str], repository: str, violation: str):
    answer = Command(tmp_path, 2)(*arguments, repository=repository)
    assert (answer.status, answer.out) == (2, "")
    assert violation in " ".join(answer.err.split())
