"""Icechunk repositories are planned, approved, swept and verified by the command, then read by icechunk."""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import yaml
from pyspark.sql import SparkSession

from retention_assets.config.configuration import load_configuration
from retention_assets.errors import StoreError
from retention_assets.icechunk.edits.publishing import Published, publish
from retention_assets.icechunk.edits.stored import planned_edits
from retention_assets.icechunk.source.opening import open_icechunk
from retention_assets.icechunk.sweep import sweeping, verification
from retention_assets.state.plan import load_plan
from retention_assets.sweep import sweep_run
from retention_assets.warehouse.warehouse import Warehouse
from tests.end_to_end.command import Answer, run
from tests.icechunk_projects import (
    FOREIGN,
    GARBAGE,
    KEEP,
    POLICY,
    IcechunkProject,
    ago,
    array_of,
    commit_again,
    icechunk_project,
    now,
    random_history,
    reachable_arrays,
)
from tests.icechunk_repositories import FORMATS, INITIAL, Commit, Format, open_repository
from tests.saved_repositories import AS_OF

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("spark", "forgetful")]

# main: root <- a <- b <- c <- d <- e; the tag v1 is on b; the branch old: a <- x <- y, whose tip has expired.
COMMITS = (
    Commit("a", None, ago(100)),
    Commit("b", "a", ago(90)),
    Commit("c", "b", ago(80)),
    Commit("x", "a", ago(79)),
    Commit("y", "x", ago(78)),
    Commit("d", "c", ago(40)),
    Commit("e", "d", ago(5)),
)
BRANCHES = {"main": "e", "old": "y"}
TAGS = {"v1": "b"}
TAGS_WITH_TIP = {**TAGS, "keep": "y"}  # the tip of the expired branch stays
GONE = {"a", "c", "x", "y"}


def made(root: Path, spec_version: Format, tags: Mapping[str, str] = TAGS) -> IcechunkProject:
    return icechunk_project(root, spec_version, COMMITS, BRANCHES, tags)


def execute(field: IcechunkProject, plan_hash: str) -> None:
    """Approve and sweep."""
    for command in (("approve", plan_hash), ("sweep",)):
        answer = field.project.run(*command)
        assert answer.status == 0, answer.err


@dataclass(frozen=True)
class Swept:
    """A repository before and after the sweep of its plan."""

    field: IcechunkProject
    before: set[str]  # files
    arrays: dict[str, npt.NDArray[np.int32]]  # by snapshot, before
    report: list[dict[str, object]]
    verified: Answer


class Planned:
    """The repository in both formats. Each is planned when it is first needed. Tests must copy it to change it."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory
        self._planned: dict[tuple[Format, frozenset[str]], tuple[IcechunkProject, str]] = {}

    def copy(
        self, spec_version: Format, directory: Path, tags: Mapping[str, str] = TAGS, **settings: object
    ) -> tuple[IcechunkProject, str]:
        """Return a copy with other settings, and the hash of its plan."""
        key = spec_version, frozenset(tags)
        if key not in self._planned:
            field = made(self._factory.mktemp("planned"), spec_version, tags)
            self._planned[key] = field, field.project.plan()
        field, plan_hash = self._planned[key]
        copied = field.copy(directory)
        copied.project.write(**settings)
        copied.project.adopt()
        return copied, plan_hash


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Planned:
    return Planned(tmp_path_factory)


@pytest.fixture(scope="module", params=[pytest.param(1, marks=pytest.mark.slow), 2], ids=["format_1", "format_2"])
def swept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, planned: Planned) -> Swept:
    field, plan_hash = planned.copy(request.param, tmp_path_factory.mktemp("swept"))
    before, arrays = field.files(), reachable_arrays(field.directory)
    execute(field, plan_hash)
    report, verified = field.project.rows("deletion_report"), field.project.run("verify", "--json")
    return Swept(field, before, arrays, report, verified)


def test_a_sweep_deletes_expired_snapshots_and_references_and_their_files(swept: Swept) -> None:
    ids, gone = swept.field.ids, swept.before - swept.field.files()
    assert {f"snapshots/{ids[name]}" for name in GONE} == {path for path in gone if path.startswith("snapshots/")}
    assert GARBAGE in gone
    assert FOREIGN not in gone
    assert open_repository(swept.field.directory).list_branches() == {"main"}
    assert open_repository(swept.field.directory).list_tags() == {"v1"}


def test_kept_snapshots_are_readable_after_a_sweep_and_new_commits_succeed(swept: Swept, tmp_path: Path) -> None:
    field = swept.field.copy(tmp_path)
    kept = {field.ids[name] for name in "bde"}
    after = reachable_arrays(field.directory)
    assert kept | {INITIAL} >= after.keys() >= kept
    for snapshot, array in after.items():
        np.testing.assert_array_equal(array, swept.arrays[snapshot])
    line = [one.id for one in open_repository(field.directory).ancestry(branch="main")]
    assert line == [field.ids["e"], field.ids["d"], INITIAL]
    commit_again(field.directory)
    np.testing.assert_array_equal(array_of(field.directory, field.ids["e"]), swept.arrays[field.ids["e"]])


def test_the_report_has_each_deleted_file_and_each_deleted_reference(swept: Swept) -> None:
    by_address = {row["address"]: row for row in swept.report}
    references = {name for name in by_address if str(name).startswith("refs/")}
    assert references == {"refs/branch.old"}
    assert {row["outcome"] for row in swept.report} == {"deleted"}
    listed = ("snapshots", "transactions", "manifests", "chunks")
    left = swept.field.files(*listed)
    assert by_address.keys() - references == {path for path in swept.before if path.split("/")[0] in listed} - left
    assert by_address["refs/branch.old"]["size"] == 0


def test_the_report_command_counts_objects_and_references_separately(swept: Swept) -> None:
    answer = swept.field.project.run("report")
    assert answer.status == 0, answer.err
    assert "Branches and tags removed: 1" in answer.out
    assert next(line.split()[3] for line in answer.out.splitlines() if "unattempted" in line) == "0"


def test_the_record_has_the_edits_that_the_sweep_published(swept: Swept) -> None:
    (file,) = (swept.field.project.warehouse / "field" / "records").glob("*.json")
    document = json.loads(file.read_text(encoding="utf-8"))
    assert document["published"]["references_removed"] == ["refs/branch.old"]
    assert document["published"]["conflicts"] == 0
    assert document["outcomes"].keys() == {"deleted"}


def test_verification_passes_after_a_sweep(swept: Swept) -> None:
    assert swept.verified.status == 0, swept.verified.err
    rows = swept.verified.document()
    assert {row["check"].partition(" ")[0] for row in rows if row["passed"]} >= {
        "references_resolve",
        "kept_exist",
        "logs_exist",
        "deleted_are_gone",
        "totals_hold",
        "records_follow",
    }
    assert all(row["passed"] for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("swept", [2], indirect=True, ids=["format_2"])
def test_a_plan_after_a_sweep_has_no_candidates(swept: Swept, tmp_path: Path) -> None:
    field = swept.field.copy(tmp_path)
    field.project.adopt()
    answer = field.project.run("plan", "--json")
    assert answer.status == 0, answer.err
    assert answer.document()["candidates"] == {"objects": 0, "bytes": 0}
    before = field.files()
    execute(field, answer.document()["plan_hash"])
    assert field.files() == before
    verified = field.project.run("verify")
    assert verified.status == 0, verified.err


@pytest.mark.parametrize("moment", ["list_objects", "files_kept"])
def test_a_sweep_that_runs_while_verify_reads_or_lists_the_repository_fails_no_check(
    planned: Planned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    field, plan_hash = planned.copy(2, tmp_path)
    before, function, calls = field.files(), getattr(verification, moment), []

    def after_a_sweep(*arguments: object) -> object:
        calls.append(moment)
        if len(calls) == 1:
            execute(field, plan_hash)
        return function(*arguments)

    monkeypatch.setattr(verification, moment, after_a_sweep)
    verified = field.project.run("verify")
    assert verified.status == 0, verified.err
    assert calls
    assert before - field.files()


@pytest.mark.parametrize("swept", [2], indirect=True, ids=["format_2"])
@pytest.mark.slow
def test_verification_fails_if_a_kept_file_is_lost(swept: Swept, tmp_path: Path) -> None:
    field = swept.field.copy(tmp_path)
    lost = next(path for path in sorted(field.directory.glob("chunks/*")) if path.name != Path(FOREIGN).name)
    lost.unlink()
    answer = field.project.run("verify")
    assert answer.status == 1
    assert f"kept_exist: 1 kept file is not in the store, first chunks/{lost.name}" in answer.err
    known = run("--config", field.project.file, "acknowledge", "field", "--yes", "--json").document()
    assert known["addresses"] == [f"chunks/{lost.name}"]
    verified = field.project.run("verify")
    assert verified.status == 0, verified.err


@pytest.mark.slow
def test_after_the_restore_of_one_snapshot_the_plan_names_the_command_that_restores_its_files(
    planned: Planned, tmp_path: Path
) -> None:
    quarantine = {"url": str(tmp_path / "attic")}
    field, plan_hash = planned.copy(2, tmp_path / "project", mode="quarantine", quarantine=quarantine)
    before = field.files("snapshots", "manifests", "chunks", "transactions")
    execute(field, plan_hash)
    restore = ("--config", field.project.file, "restore", "field")
    assert run(*restore, "--address", f"snapshots/{field.ids['c']}").status == 0
    refused = field.project.run("plan")
    assert refused.status == 1
    assert "metadata_exists: 1 referenced object is missing: manifests/" in refused.err
    assert f"`retention restore field --plan {plan_hash}`" in refused.err
    assert run(*restore, "--plan", plan_hash).status == 0
    assert field.files("snapshots", "manifests", "chunks", "transactions") == before
    assert field.project.run("plan").status == 0


def test_a_budget_counts_the_references_that_a_plan_deletes_also_after_a_sweep_deleted_them(
    planned: Planned, tmp_path: Path
) -> None:
    field, plan_hash = planned.copy(2, tmp_path)
    execute(field, plan_hash)
    warehouse = Warehouse(load_configuration(field.project.file).warehouse)
    plan = load_plan(warehouse, "field", AS_OF.date())
    edits = planned_edits(warehouse, plan)
    assert edits.deleted_branches == ("old",)
    changes = plan.candidates.objects + len({*edits.released, *edits.dropped})
    (field.project.warehouse / "field" / "approvals" / f"{plan_hash}.json").unlink()
    field.project.write(budget={"objects": changes})
    refused = field.project.run("sweep")
    assert refused.status == 1
    excess = f"its {changes + 1:,} objects, snapshots and references are more than the budget's {changes:,}"
    assert excess in refused.err


# ---- comparison with icechunk


def by_icechunk(field: IcechunkProject, directory: Path) -> set[str]:
    """Let icechunk expire and collect a copy, and return the remaining files."""
    shutil.copytree(field.directory, directory)
    repository = open_repository(directory)
    repository.expire_snapshots(AS_OF - KEEP, delete_expired_branches=True)
    open_repository(directory).garbage_collect(now())
    return {path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()}


def without_own(files: set[str]) -> set[str]:
    """Return the files without references and backups of the repo object, whose names depend on the writer."""
    return {path for path in files if path.partition("/")[0] not in ("overwritten", "refs")}


def assert_like_icechunk(field: IcechunkProject, tmp_path: Path) -> None:
    before, arrays = field.files(), reachable_arrays(field.directory)
    theirs = by_icechunk(field, tmp_path / "theirs")
    execute(field, field.project.plan())
    ours, after = field.files(), reachable_arrays(field.directory)
    assert without_own(ours) == without_own(theirs), {"ours": sorted(ours - theirs), "theirs": sorted(theirs - ours)}
    assert GARBAGE in before - ours
    assert open_repository(field.directory).list_branches() == open_repository(tmp_path / "theirs").list_branches()
    for snapshot, array in after.items():
        np.testing.assert_array_equal(array, arrays[snapshot])
    commit_again(field.directory)
    verified = field.project.run("verify")
    assert verified.status == 0, verified.err


def histories(*seeds: int) -> Iterator[tuple[int, Format]]:
    return ((seed, FORMATS[seed % 2]) for seed in seeds)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "spec_version"), histories(*range(21)))
def test_a_sweep_of_a_random_history_leaves_the_files_that_icechunk_leaves(
    tmp_path: Path, seed: int, spec_version: Format
) -> None:
    assert_like_icechunk(icechunk_project(tmp_path / "ours", spec_version, *random_history(seed)), tmp_path)


@pytest.mark.slow
def test_the_verification_of_an_earlier_day_does_not_require_a_snapshot_whose_hold_ended_before_the_sweep(
    tmp_path: Path,
) -> None:
    field = made(tmp_path, 2)
    held = {"id": "audit", "snapshot": field.ids["c"], "reason": "an audit", "until": ago(1).date().isoformat()}
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump({**POLICY, "holds": [held]}), encoding="utf-8")
    execute(field, field.project.plan())
    assert f"snapshots/{field.ids['c']}" not in field.files()
    command = "--config", field.project.file, "verify", "field", "--as-of"
    verified = run(*command, ago(3).date().isoformat())
    assert verified.status == 0, verified.err


# ---- changes between the plan and its sweep


@pytest.mark.slow
def test_a_sweep_that_was_interrupted_after_publishing_edits_is_continued(planned: Planned, tmp_path: Path) -> None:
    field, plan_hash = planned.copy(2, tmp_path)
    configuration = load_configuration(field.project.file)
    opened = open_icechunk(configuration.repository("field"), now)
    edits = planned_edits(warehouse := Warehouse(configuration.warehouse), load_plan(warehouse, "field", AS_OF.date()))
    publish(opened.access, edits, opened.policy(), now, lambda _: None)
    execute(field, plan_hash)
    outcomes = {row["address"]: row["outcome"] for row in field.project.rows("deletion_report")}
    assert outcomes.pop("refs/branch.old") == "missing"
    assert set(outcomes.values()) == {"deleted"}
    assert f"snapshots/{field.ids['c']}" in outcomes


def interrupt_sweep(field: IcechunkProject, plan_hash: str, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Approve the plan, and sweep until the function `step` of the sweep fails."""
    assert field.project.run("approve", plan_hash).status == 0

    def unavailable(*_: object) -> None:
        raise StoreError("the store answered 503. Nothing was written. Try again.")

    with monkeypatch.context() as patched:
        patched.setattr(sweeping, step, unavailable)
        assert field.project.run("sweep").status == 3


@pytest.mark.parametrize("spec_version", FORMATS)
def test_a_branch_that_somebody_created_again_after_an_interrupted_sweep_removed_it_stays(
    planned: Planned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec_version: Format
) -> None:
    """The first sweep removes the branch, and cannot record this. In format 2 a tag keeps the tip in the history."""
    field, plan_hash = planned.copy(spec_version, tmp_path, TAGS if spec_version == 1 else TAGS_WITH_TIP)
    tip = field.ids["y"]
    before = array_of(field.directory, tip)
    interrupt_sweep(field, plan_hash, monkeypatch, "keep_publication")
    assert set(open_repository(field.directory).list_branches()) == {"main"}
    open_repository(field.directory).create_branch("old", tip)
    second = field.project.run("sweep")
    if spec_version == 1:
        assert second.status == 1
        assert "are live again" in second.err or "that a branch or tag reaches again" in second.err
    else:
        assert second.status == 0, second.err
    assert "If so, somebody has created it again. It stays, because nobody approved the deletion of a new" in second.err
    assert set(open_repository(field.directory).list_branches()) == {"main", "old"}
    assert np.array_equal(array_of(field.directory, tip), before)


@pytest.mark.parametrize("spec_version", FORMATS)
def test_a_branch_that_somebody_created_again_after_a_sweep_of_a_later_plan_removed_it_stays(
    planned: Planned, tmp_path: Path, spec_version: Format
) -> None:
    """The plan of the day before deletes the branch, too, and its approval is still valid."""
    field, plan_hash = planned.copy(spec_version, tmp_path, TAGS_WITH_TIP)
    assert field.project.run("approve", plan_hash).status == 0
    of_later = ["field", "--as-of", (AS_OF.date() + timedelta(days=1)).isoformat()]

    def later(command: str, *arguments: str) -> Answer:
        answer = run("--config", field.project.file, command, *of_later, *arguments)
        assert answer.status == 0, answer.err
        return answer

    later("approve", later("plan", "--json").document()["plan_hash"])
    later("sweep")
    assert set(open_repository(field.directory).list_branches()) == {"main"}
    before = array_of(field.directory, field.ids["y"])
    open_repository(field.directory).create_branch("old", field.ids["y"])
    answer = field.project.run("sweep")
    assert answer.status == 0, answer.err
    assert "the branch old was created again or moved since the plan. It stays, because nobody" in answer.err
    assert set(open_repository(field.directory).list_branches()) == {"main", "old"}
    assert np.array_equal(array_of(field.directory, field.ids["y"]), before)


@pytest.mark.parametrize("spec_version", FORMATS)
def test_a_branch_that_an_interrupted_sweep_removed_stays_if_it_is_created_while_the_next_sweep_begins(
    planned: Planned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec_version: Format
) -> None:
    field, plan_hash = planned.copy(spec_version, tmp_path, TAGS if spec_version == 1 else TAGS_WITH_TIP)
    interrupt_sweep(field, plan_hash, monkeypatch, "keep_publication")
    begin = sweeping.begin_publication

    def created_meanwhile(*arguments: Any) -> None:
        open_repository(field.directory).create_branch("old", field.ids["y"])
        begin(*arguments)

    monkeypatch.setattr(sweeping, "begin_publication", created_meanwhile)
    answer = field.project.run("sweep")
    assert answer.status == (1 if spec_version == 1 else 0), answer.err
    assert ("that a branch or tag reaches again" in answer.err) == (spec_version == 1)
    assert set(open_repository(field.directory).list_branches()) == {"main", "old"}
    assert array_of(field.directory, field.ids["y"]).size


@pytest.mark.parametrize("spec_version", FORMATS)
def test_a_sweep_that_was_interrupted_before_its_edits_removes_the_references(
    planned: Planned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec_version: Format
) -> None:
    field, plan_hash = planned.copy(spec_version, tmp_path)
    interrupt_sweep(field, plan_hash, monkeypatch, "publish")
    commit_again(field.directory)  # the ops log of format 2 goes on
    answer = field.project.run("sweep")
    assert answer.status == 0, answer.err
    assert set(open_repository(field.directory).list_branches()) == {"main"}


@pytest.mark.slow
def test_after_a_sweep_that_was_interrupted_between_a_parent_and_its_child_plans_and_the_sweep_go_on(
    planned: Planned, tmp_path: Path
) -> None:
    """Format 1: the expired snapshot y has lost its parent x, and the kept snapshot b has lost its former parent a."""
    field, plan_hash = planned.copy(1, tmp_path / "field")
    configuration = load_configuration(field.project.file)
    opened = open_icechunk(configuration.repository("field"), now)
    edits = planned_edits(warehouse := Warehouse(configuration.warehouse), load_plan(warehouse, "field", AS_OF.date()))
    publish(opened.access, edits, opened.policy(), now, lambda _: None)
    for name in "ax":
        (field.directory / "snapshots" / field.ids[name]).unlink()
    for head, tip in (("branch", "main"), "ed"), (("tag", "v1"), "b"):
        line = [one.id for one in open_repository(field.directory).ancestry(**dict([head]))]
        assert line == [*(field.ids[name] for name in tip), INITIAL]
    planned_again = field.copy(tmp_path / "again")
    planned_again.project.adopt()
    for project, its_plan in (field, plan_hash), (planned_again, planned_again.project.plan()):
        execute(project, its_plan)
        verified = project.project.run("verify")
        assert verified.status == 0, verified.err


@pytest.mark.parametrize("spec_version", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_new_tag_on_a_snapshot_to_delete_ends_the_sweep(
    planned: Planned, tmp_path: Path, spec_version: Format
) -> None:
    field, plan_hash = planned.copy(spec_version, tmp_path)
    assert field.project.run("approve", plan_hash).status == 0
    open_repository(field.directory).create_tag("keep-it", field.ids["c"])
    before = field.files()
    answer = field.project.run("sweep")
    assert answer.status == 1, answer.err
    assert "that a branch or tag reaches again" in answer.err or "live again" in answer.err
    assert field.files() == before


def stop(field: IcechunkProject) -> None:
    assert run("--config", field.project.file, "stop", "field").status == 0


def hold_a_snapshot(field: IcechunkProject) -> None:
    hold = {"id": "paper", "snapshot": field.ids["c"], "reason": "a figure of it is published"}
    policy = yaml.safe_dump({**POLICY, "holds": [hold]})
    (field.project.directory / "policy.yaml").write_text(policy, encoding="utf-8")


@pytest.mark.parametrize("spec_version", [pytest.param(1, marks=pytest.mark.slow), 2])
@pytest.mark.parametrize(
    ("act", "reason"),
    [
        pytest.param(stop, "the lease is lost", id="sweeps_are_stopped"),
        pytest.param(
            hold_a_snapshot,
            "the policy was changed after the plan was made. Nothing more was deleted",
            id="a_hold_is_added",
        ),
    ],
)
def test_a_refused_publication_of_edits_ends_the_sweep_without_changes(
    planned: Planned,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spec_version: Format,
    act: Callable[[IcechunkProject], None],
    reason: str,
) -> None:
    field, plan_hash = planned.copy(spec_version, tmp_path)
    assert field.project.run("approve", plan_hash).status == 0
    before = field.files()

    def publish_after(*arguments: object) -> Published:
        act(field)
        return publish(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(sweeping, "publish", publish_after)
    answer = field.project.run("sweep")
    assert answer.status == 1
    assert reason in answer.err
    assert field.files() == before


# ---- quarantine


def test_the_history_is_not_edited_if_a_worker_does_not_see_the_quarantine(
    planned: Planned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep_run, "is_on_this_machine", lambda _: False)
    monkeypatch.setattr(sweep_run, "prepare_directory", lambda *_: None)  # the file is on the disk of the driver only
    field, plan_hash = planned.copy(2, tmp_path, mode="quarantine")
    before = {path: (field.directory / path).read_bytes() for path in field.files()}
    assert "is not approved" in field.project.run("sweep").err  # the workers are not asked before the approval
    assert field.project.run("approve", plan_hash).status == 0
    refused = field.project.run("sweep")
    assert refused.status == 3
    assert "by which sweeps recognize this quarantine" in refused.err
    assert "Nothing was moved." in refused.err
    assert {path: (field.directory / path).read_bytes() for path in field.files()} == before
    assert not (field.project.warehouse / "field" / "publications").exists()


@pytest.mark.slow
def test_restored_files_have_their_original_content(planned: Planned, tmp_path: Path) -> None:
    field, plan_hash = planned.copy(2, tmp_path, mode="quarantine")
    names = ("snapshots", "transactions", "manifests", "chunks")
    before = {path: (field.directory / path).read_bytes() for path in field.files(*names)}
    execute(field, plan_hash)
    assert field.files(*names) < before.keys()
    restored = run("--config", field.project.file, "restore", "field", "--plan", plan_hash)
    assert restored.status == 0, restored.err
    assert {path: (field.directory / path).read_bytes() for path in field.files(*names)} == before


@pytest.mark.slow
def test_a_purge_checks_liveness_and_then_deletes_the_copies(planned: Planned, tmp_path: Path) -> None:
    field, plan_hash = planned.copy(2, tmp_path, mode="quarantine", quarantine={"keep": "0d"})
    execute(field, plan_hash)
    attic = field.directory.with_name(f"{field.directory.name}.quarantine")
    approval = run("--config", field.project.file, "purge", "field").out.split()[-1]
    purged = run("--config", field.project.file, "purge", "field", "--approve", approval)
    assert purged.status == 0, purged.err
    assert "checking which objects are live" in purged.err
    assert not [path for path in attic.rglob("objects/**/*") if path.is_file()]


@pytest.mark.parametrize("spec_version", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_purge_leaves_the_manifests_and_chunks_that_a_restored_snapshot_needs_in_quarantine(
    planned: Planned, tmp_path: Path, spec_version: Format
) -> None:
    field, plan_hash = planned.copy(spec_version, tmp_path, mode="quarantine", quarantine={"keep": "0d"})
    names = ("snapshots", "transactions", "manifests", "chunks")
    before, array = field.files(*names), array_of(field.directory, field.ids["x"])
    execute(field, plan_hash)
    restore = "--config", field.project.file, "restore", "field"
    assert run(*restore, "--address", f"snapshots/{field.ids['x']}").status == 0
    purge = "--config", field.project.file, "purge", "field"
    purged = run(*purge, "--approve", run(*purge).out.split()[-1])
    assert purged.status == 0, purged.err
    assert "live again but missing from the path" in purged.err
    assert run(*restore, "--plan", plan_hash).status == 0
    assert field.files(*names) < before  # what the snapshot does not need was purged
    if spec_version == 1:  # in format 2, the repo object does not list it any more
        np.testing.assert_array_equal(array_of(field.directory, field.ids["x"]), array)


# ---- approval


@pytest.mark.slow
def test_a_budget_of_bytes_does_not_approve_edits_of_the_history(planned: Planned, tmp_path: Path) -> None:
    field, _ = planned.copy(2, tmp_path, budget={"bytes": "1 GiB"})
    before = field.files()
    refused = field.project.run("sweep")
    assert refused.status == 1
    assert "the budget does not cover the" in refused.err
    assert field.files() == before
    field.project.write(budget={"objects": 1000})
    answer = field.project.run("sweep")
    assert answer.status == 0, answer.err
    assert field.files() - field.files("overwritten") < before
