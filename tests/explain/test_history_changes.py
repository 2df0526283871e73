"""What a plan removes from the history of an Icechunk repository is named where a person decides about the plan."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from retention_assets.assets import automation
from retention_assets.core.amounts import Amount, HistoryChanges, human_removal
from retention_assets.explain.status import status_of
from retention_assets.icechunk.edits.stored import hash_with_edits, keep_edits
from retention_assets.icechunk.formats.ids import decode_id, encode_id
from retention_assets.icechunk.rules.planned import PlannedEdits
from retention_assets.icechunk.rules.snapshots import Reference
from retention_assets.state.plan import PLANNED_HEADS
from retention_assets.state.records import write_record
from tests.end_to_end.command import run
from tests.explain.test_status import HASH, NAME, World, a_plan, a_record

IDS = tuple(sorted(encode_id(bytes([number] * 12)) for number in range(4)))
MADE = datetime.now(UTC) - timedelta(hours=1)
EDITS = PlannedEdits(
    format=2,
    as_of=MADE,
    cutoff=MADE - timedelta(days=1),
    known=IDS,
    released=IDS[:2],
    dropped=IDS[1:3],
    deleted=frozenset({Reference("branch", "dev", decode_id(IDS[0]))}),
)
PLAN = replace(
    a_plan(MADE.date(), objects=0, size=0), made_at=MADE, references_hash=hash_with_edits("of the history", EDITS)
)


@pytest.fixture
def world(tmp_path: Any) -> World:
    """An Icechunk repository whose plan deletes no object, but removes three snapshots and a branch."""
    made = World(tmp_path)
    made.directory.joinpath("retention.yaml").write_text(
        f"warehouse: warehouse\nrepositories: {{{NAME}: {{kind: icechunk, storage: lake, policy: [policy.yaml], "
        "mode: delete}}\n",
        encoding="utf-8",
    )
    made.keep(PLAN)
    keep_edits(made.warehouse, NAME, HASH, "of the history", EDITS)
    heads: Mapping[str, Any] = {"branches": {"main": IDS[3], "dev": IDS[0]}, "tags": {}}
    made.warehouse.write_document(heads, NAME, PLANNED_HEADS, f"{HASH}.json")
    return made


def test_a_budget_counts_each_removed_snapshot_branch_and_tag() -> None:
    assert EDITS.history_changes() == HistoryChanges(snapshots=3, branches=1, tags=0)
    assert EDITS.history_changes().total == 4


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (HistoryChanges(), "0 objects, 0 B"),
        (HistoryChanges(branches=1), "0 objects, 0 B, and from the history 1 branch"),
        (HistoryChanges(2, 3, 1), "0 objects, 0 B, and from the history 2 snapshots, 3 branches and 1 tag"),
    ],
)
def test_a_removal_names_only_what_is_removed_from_the_history(changes: HistoryChanges, text: str) -> None:
    assert human_removal(Amount(), changes) == text


def test_approve_names_the_snapshots_and_branches_that_the_plan_removes(world: World) -> None:
    command = ("--config", world.file, "approve", NAME, HASH, "--as-of", MADE.date())
    answer = run(*command)
    assert answer.status == 0, answer.err
    assert ": 0 objects, 0 B, and from the history 3 snapshots and 1 branch, of orchard as of " in answer.out
    document = run(*command, "--json").document()
    assert document["removed_from_history"] == {"snapshots": 3, "branches": 1, "tags": 0}


def test_a_plan_whose_edits_are_missing_is_refused_before_it_is_approved(world: World) -> None:
    world.warehouse.write_document(
        {"references": "of another", "edits": EDITS.document()}, NAME, "planned_edits", f"{HASH}.json"
    )
    answer = run("--config", world.file, "approve", NAME, HASH, "--as-of", MADE.date())
    assert answer.status == 1
    assert (
        "do not match its hash or its time. Nothing was changed or deleted. Plan again: `retention plan" in answer.err
    )
    assert world.warehouse.documents(NAME, "approvals") == []


def test_status_names_what_the_plan_removes_from_the_history(world: World) -> None:
    answer = run("--config", world.file, "status")
    assert answer.status == 0, answer.err
    assert "3 snapshots" in answer.out
    assert "1 branch" in answer.out
    (document,) = run("--config", world.file, "status", "--json").document()
    assert document["removed_from_history"] == {"snapshots": 3, "branches": 1, "tags": 0}


def test_after_the_sweep_that_removed_them_the_status_names_no_changes_of_the_history(world: World) -> None:
    record = replace(a_record(), day=PLAN.day.isoformat())
    for published, changes in ((None, EDITS.history_changes()), ({"written": []}, HistoryChanges())):
        write_record(world.warehouse, replace(record, published=published))
        status = status_of(world.warehouse, world.repository, datetime.now(UTC))
        assert status.removed_from_history == changes
        assert bool(published) is not any("waits for approval" in need for need in status.needs)


def test_the_status_of_a_plan_with_unusable_edits_names_no_changes_but_a_required_action(world: World) -> None:
    world.warehouse.write_document(
        {"references": "of another", "edits": EDITS.document()}, NAME, "planned_edits", f"{HASH}.json"
    )
    status = status_of(world.warehouse, world.repository, datetime.now(UTC))
    assert status.removed_from_history == HistoryChanges()
    assert "do not match its hash" in " ".join(status.needs)


def test_the_message_about_a_waiting_plan_names_what_it_removes_from_the_history(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[automation.Message] = []
    monkeypatch.setattr(automation, "send", sent.append)
    tags = {"dagster/partition": MADE.date().isoformat()}
    context: Any = SimpleNamespace(dagster_run=SimpleNamespace(tags=tags, run_id=PLAN.run_id))
    clock = SimpleNamespace(now=lambda: datetime.now(UTC))
    resource: Any = SimpleNamespace(warehouse=world.warehouse, name=NAME, repository=world.repository, clock=clock)
    assert automation._send_if_plan_waits(context, resource) is None
    (message,) = sent
    assert "A sweep would remove 0 objects, 0 B, and from the history 3 snapshots and 1 branch.\n" in str(
        message["text"]
    )
    assert message["removed_from_history"] == {"snapshots": 3, "branches": 1, "tags": 0}
