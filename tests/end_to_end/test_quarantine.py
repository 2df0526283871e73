"""Objects are moved to a quarantine in another bucket, restored or purged. `verify` finds what others changed."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.end_to_end.approved import Approved, World, commit, copied, copy_of_project, held_by
from tests.end_to_end.command import Answer, Json, sample
from tests.end_to_end.s3_server import Lake, Listing, empty_lake

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("spark")]

HASH = re.compile(r"--approve ([0-9a-f]{64})")
_NUMBERS = count()


@dataclass(frozen=True, slots=True)
class Moved:
    """A world whose planned objects are in quarantine, in the bucket `attic`."""

    world: World
    attic: Lake
    before: Listing

    def copies(self) -> dict[str, bytes]:
        """Return the content of each copy in quarantine, by address."""
        paths = [path for path in self.attic.listing() if "/objects/" in path]
        return {path.partition("/objects/")[2]: self.attic.read(path) for path in paths}

    def copied(self, directory: Path) -> "Moved":
        """Return a copy with its own buckets and its own warehouse."""
        number = next(_NUMBERS)
        lake, attic = (one.copied(f"{one.bucket}-{number}") for one in (self.world.lake, self.attic))
        project = copy_of_project(self.world.project, directory, lake, quarantine={"url": attic.storage})
        return replace(self, world=replace(self.world, lake=lake, project=project), attic=attic)

    def back(self) -> set[str]:
        """Return the planned addresses that exist in the repository again."""
        return self.world.planned & self.world.lake.listing().keys()


@dataclass(frozen=True, slots=True)
class Budgets:
    """Two sweeps of a plan without approval: beyond the budget and within the budget."""

    beyond: Answer
    within: Answer
    moved: Moved


@pytest.fixture(scope="module")
def budgets(
    approved: Approved, new_lake: Callable[[], Lake], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Budgets]:
    lake = new_lake()
    attic = empty_lake(lake.server, f"{lake.bucket}-attic", "kept")
    settings: Json = {"mode": "quarantine", "quarantine": {"url": attic.storage}, "budget": {"objects": 10}}
    with copied(approved, tmp_path_factory.mktemp("quarantine"), lake, **settings) as world:
        shutil.rmtree(world.project.warehouse / "orchard" / "approvals")
        before = lake.listing()
        beyond = world.project.run("sweep")
        assert lake.listing() == before
        world.project.write(budget={"objects": 100})
        within = world.project.run("sweep", "--json")
        yield Budgets(beyond, within, Moved(world, moved_by_a_person(world, attic), before))


def moved_by_a_person(world: World, attic: Lake) -> Lake:
    """Move the copies to another bucket, and set `quarantine.url` to it. The manifests stay in the earlier bucket.

    So each copy of the world can have a quarantine of its own. Without the manifests, the earlier one would be unseen.
    """
    kept = attic.copied(f"{attic.bucket}-kept")
    for path in attic.listing():
        if "/objects/" in path:
            attic.delete(path)
    world.project.write(quarantine={"url": kept.storage})
    return kept


@pytest.fixture(scope="module")
def moved(budgets: Budgets) -> Moved:
    """The state after the sweep within the budget. Tests must copy it before they change it."""
    return budgets.moved


def test_a_plan_that_exceeds_the_budget_needs_an_approval_by_a_person(budgets: Budgets) -> None:
    assert budgets.beyond.status == 1
    assert "its 59 objects are more than the budget's 10" in budgets.beyond.err
    assert "retention approve orchard" in budgets.beyond.err


def test_a_budget_approves_a_plan_within_its_limits_and_the_record_names_the_budget(budgets: Budgets) -> None:
    assert budgets.within.status == 0, budgets.within.err
    assert budgets.within.document()["outcomes"]["quarantined"]["objects"] == 59
    (record,) = [json.loads(file.read_text("utf-8")) for file in budgets.moved.world.records()]
    assert record["approved_by"] == "the budget in the configuration"
    assert record["mode"] == "quarantine"
    assert {name: amount["objects"] for name, amount in record["outcomes"].items()} == {"quarantined": 59}


def test_objects_moved_out_of_the_repository_are_complete_in_the_other_bucket(moved: Moved) -> None:
    left = moved.world.lake.listing()
    assert left.items() <= moved.before.items()
    assert moved.before.keys() - left.keys() == moved.world.planned
    assert moved.copies() == {address: sample(address) for address in moved.world.planned}


def test_manifests_in_the_quarantine_list_its_objects_without_the_warehouse(moved: Moved) -> None:
    manifests = [moved.attic.read(path) for path in moved.attic.listing() if "/manifest/" in path]
    named = [(row["address"], row["size"]) for one in manifests for row in json.loads(one)["objects"]]
    assert sorted(named) == sorted((address, row["size"]) for address, row in moved.world.candidates.items())


def test_quarantined_shows_the_amount_of_each_plan(moved: Moved) -> None:
    answer = moved.world.command("quarantined", "--json")
    size = sum(row["size"] for row in moved.world.candidates.values())
    assert answer.document() == [{"plan": f"2026-11-01 {moved.world.plan_hash}", "objects": 59, "bytes": size}]


def test_verification_passes_after_the_move(moved: Moved, tmp_path: Path) -> None:
    answer = moved.copied(tmp_path).world.project.run("verify")
    assert answer.status == 0, answer.err
    assert "passed: quarantine_is_whole" in answer.out


# ---- restore


@dataclass
class Restored:
    """Three restores, a fourth without objects, and a sweep of the same plan: the answer and the state after each."""

    moved: Moved
    address: str
    answers: dict[str, Answer] = field(default_factory=dict)
    back: dict[str, set[str]] = field(default_factory=dict)
    copies: dict[str, set[str]] = field(default_factory=dict)

    def record(self, step: str, answer: Answer) -> None:
        self.answers[step] = answer
        self.back[step] = self.moved.back()
        self.copies[step] = set(self.moved.copies())


PATH = "raw/week=03"


@pytest.fixture(scope="module")
def restored(moved: Moved, tmp_path_factory: pytest.TempPathFactory) -> Restored:
    copy = moved.copied(tmp_path_factory.mktemp("restored"))
    world = copy.world
    steps = Restored(copy, min(world.planned))
    steps.record("address", world.command("restore", "--address", steps.address, "--json"))
    steps.record("path", world.command("restore", "--path", PATH))
    steps.record("plan", world.command("restore", "--plan", world.plan_hash[:12]))
    steps.record("report", world.project.run("report", "--json"))
    steps.record("again", world.command("restore", "--plan", world.plan_hash))
    steps.record("sweep", world.project.run("sweep"))
    return steps


@pytest.mark.slow
def test_restore_by_address_restores_one_object(restored: Restored) -> None:
    assert restored.answers["address"].status == 0, restored.answers["address"].err
    assert restored.answers["address"].document()["outcomes"]["restored"]["objects"] == 1
    assert restored.back["address"] == {restored.address}
    assert restored.copies["address"] == restored.moved.world.planned - {restored.address}


@pytest.mark.slow
def test_restore_by_path_restores_the_objects_below_the_path(restored: Restored) -> None:
    candidates = restored.moved.world.candidates
    below = {name for name, row in candidates.items() if any(path.startswith(f"{PATH}/") for path in row["paths"])}
    assert len(below) == 5
    assert restored.back["path"] - restored.back["address"] == below


@pytest.mark.slow
def test_restore_by_abbreviated_plan_hash_restores_all_other_objects(restored: Restored) -> None:
    assert restored.back["plan"] == restored.moved.world.planned
    assert restored.copies["plan"] == set()
    for address in restored.moved.world.planned:
        assert restored.moved.world.lake.read(address) == sample(address)


@pytest.mark.slow
def test_the_report_counts_objects_that_were_restored_after_the_sweep(restored: Restored) -> None:
    answer = restored.answers["report"]
    assert answer.status == 0, answer.err
    objects = {outcome: amount["objects"] for outcome, amount in answer.document()["outcomes"].items()}
    assert objects == {"restored": len(restored.moved.world.planned), "unattempted": 0}


@pytest.mark.slow
def test_a_restore_from_an_empty_quarantine_is_refused(restored: Restored) -> None:
    assert restored.answers["again"].status == 1
    assert "no object in quarantine matches" in restored.answers["again"].err


@pytest.mark.slow
def test_another_sweep_of_the_plan_does_not_delete_restored_objects(restored: Restored) -> None:
    assert restored.answers["sweep"].status == 0
    assert restored.back["sweep"] == restored.moved.world.planned
    assert restored.moved.world.outcomes() == {"restored": restored.moved.world.planned}


# ---- purge


@dataclass
class Purged:
    """Purges after one object was restored: too early, with a wrong hash, under a new hold, and after the hold."""

    moved: Moved
    address: str
    answers: dict[str, Answer] = field(default_factory=dict)
    copies: dict[str, set[str]] = field(default_factory=dict)

    def record(self, step: str, answer: Answer) -> None:
        self.answers[step] = answer
        self.copies[step] = set(self.moved.copies())


@pytest.fixture(scope="module")
def purged(moved: Moved, tmp_path_factory: pytest.TempPathFactory) -> Purged:
    copy = moved.copied(tmp_path_factory.mktemp("purged"))
    world = copy.world
    steps = Purged(copy, max(world.planned))
    steps.record("restore", world.command("restore", "--address", steps.address))
    steps.record("early", world.command("purge", "--json"))
    world.project.write(quarantine={"url": copy.attic.storage, "keep": "0s"})
    steps.record("shown", world.command("purge"))
    steps.record("wrong", world.command("purge", "--approve", "0" * 64))
    hold = world.project.directory / "hold.yaml"
    hold.write_text(f"holds: [{{id: legal, prefix: {PATH}/, reason: a lawsuit}}]\n", encoding="utf-8")
    world.project.write(policy=["gc_rules.json", hold.name])
    steps.record("held", world.command("purge", "--approve", *HASH.findall(steps.answers["shown"].out)))
    world.project.write(policy=["gc_rules.json"])
    steps.record("rest", world.command("purge"))
    steps.record("purge", world.command("purge", "--approve", *HASH.findall(steps.answers["rest"].out), "--json"))
    steps.record("verify", world.project.run("verify"))
    return steps


def test_nothing_is_purged_before_quarantine_keep_is_over(purged: Purged) -> None:
    early = purged.answers["early"].document()
    assert early["due"]["objects"] == 0
    assert early["approve"] is None


def test_nothing_is_purged_without_the_hash_of_the_due_objects(purged: Purged) -> None:
    assert "58 objects" in purged.answers["shown"].out
    assert purged.answers["wrong"].status == 1
    assert purged.copies["wrong"] == purged.moved.world.planned - {purged.address}


def test_copies_that_a_new_hold_keeps_are_not_purged(purged: Purged) -> None:
    """No active commit has the object, only the hold. The copy is the last one."""
    candidates = purged.moved.world.candidates
    below = {name for name, row in candidates.items() if any(path.startswith(f"{PATH}/") for path in row["paths"])}
    assert purged.answers["held"].status == 0, purged.answers["held"].err
    assert purged.copies["held"] == below - {purged.address}
    assert "live again but missing from the path" in " ".join(purged.answers["held"].err.split())
    assert f"{len(below - {purged.address})} objects" in purged.answers["rest"].out


def test_purged_copies_are_deleted_and_restored_objects_stay(purged: Purged) -> None:
    assert purged.answers["purge"].status == 0, purged.answers["purge"].err
    assert purged.answers["purge"].document()["failed"] == 0
    assert purged.copies["purge"] == set()
    assert purged.moved.back() == {purged.address}
    assert purged.moved.world.command("quarantined", "--json").document() == []
    assert "no object is in quarantine" in purged.moved.world.command("quarantined").out


def test_verification_passes_after_restore_and_purge(purged: Purged) -> None:
    assert purged.answers["verify"].status == 0, purged.answers["verify"].err
    assert "58 purged + 1 restored" in purged.answers["verify"].out


# ---- changes by others


@dataclass(frozen=True, slots=True)
class Tampered:
    """Changes by others after a sweep, and the answer of `verify`."""

    lost: str
    back: str
    vanished: str
    answer: Answer

    def violation(self, check: str) -> str:
        (found,) = [line for line in self.answer.err.splitlines() if line.strip().startswith(f"{check}:")]
        return found


@pytest.fixture(scope="module")
def tampered(moved: Moved, tmp_path_factory: pytest.TempPathFactory) -> Tampered:
    copy = moved.copied(tmp_path_factory.mktemp("tampered"))
    world = copy.world
    lost = min(held_by(commit("week 21")) & world.lake.listing().keys())
    back, vanished, *_ = sorted(world.planned)
    world.lake.delete(lost)
    world.lake.put(back, sample(back), moved.before[back][1])
    (path,) = [path for path in copy.attic.listing() if path.endswith(f"/objects/{vanished}")]
    copy.attic.delete(path)
    edit_a_ledger(world)
    return Tampered(lost, back, vanished, world.project.run("verify"))


def edit_a_ledger(world: World) -> None:
    """Change the outcome of one ledger row to `deleted`."""
    file = min((world.project.warehouse / "orchard" / "ledger").rglob("*-done.parquet"))
    rows = pq.read_table(file).to_pylist()
    rows[-1]["outcome"] = "deleted"
    pq.write_table(pa.Table.from_pylist(rows, schema=pq.read_schema(file)), file)


def test_verification_reports_all_violations_and_changes_nothing(tampered: Tampered) -> None:
    assert tampered.answer.status == 1
    assert tampered.answer.out == ""
    assert "Nothing was changed" in tampered.answer.err


def test_verification_finds_a_missing_live_object(tampered: Tampered) -> None:
    assert f"first {tampered.lost}" in tampered.violation("live_exist")


def test_verification_finds_a_deleted_object_that_exists_again(tampered: Tampered) -> None:
    assert f"1 object that the ledger calls gone is in the listing, {tampered.back} first" in tampered.violation(
        "deleted_are_gone"
    )


def test_verification_finds_a_missing_copy_in_quarantine(tampered: Tampered) -> None:
    violation = tampered.violation("quarantine_is_whole")
    assert re.search(f"the first was moved to .*{tampered.vanished}\\b", violation)


def test_verification_finds_an_edited_ledger(tampered: Tampered) -> None:
    assert "the ledger that orchard/records/00000001.json covers was changed" in tampered.violation("records_follow")


def edit_a_record(files: list[Path]) -> None:
    """Change the approver of the last record."""
    document = json.loads(files[-1].read_text("utf-8"))
    files[-1].write_text(json.dumps({**document, "approved_by": "nobody"}), encoding="utf-8")


def remove_a_record(files: list[Path]) -> None:
    """Delete the last record."""
    files[-1].unlink()


@pytest.mark.parametrize(
    "tamper",
    [
        pytest.param(edit_a_record, id="edited"),
        pytest.param(remove_a_record, id="removed", marks=pytest.mark.slow),
    ],
)
def test_verification_finds_changes_of_the_last_record(
    moved: Moved, tmp_path: Path, tamper: Callable[[list[Path]], None]
) -> None:
    world = moved.copied(tmp_path).world
    tamper(world.records())
    answer = world.project.run("verify")
    assert answer.status == 1
    assert "records_follow: the last record that orchard/leases names was changed or is gone" in answer.err


# ---- buckets that keep versions


@dataclass(frozen=True, slots=True)
class Versioned:
    """A sweep of a bucket that keeps versions, and its purge: the answers, and the versions left after each."""

    planned: set[str]
    sweep: Answer
    after_sweep: set[str]
    shown: Answer
    purge: Answer
    after_purge: set[str]
    listing: Listing
    before: Listing


def old_versions(lake: Lake) -> set[str]:
    """Return the addresses with a noncurrent version."""
    response: Any = lake.client().list_object_versions(Bucket=lake.bucket)
    assert not response["IsTruncated"]
    keys = [entry["Key"] for entry in response.get("Versions", ()) if not entry["IsLatest"]]
    return {key.removeprefix(f"{lake.prefix}/") for key in keys}


@pytest.fixture(scope="module")
def versioned(approved: Approved, new_lake: Callable[[], Lake], tmp_path_factory: pytest.TempPathFactory) -> Versioned:
    lake = new_lake()
    lake.client().put_bucket_versioning(Bucket=lake.bucket, VersioningConfiguration={"Status": "Enabled"})
    before = lake.listing()
    with copied(approved, tmp_path_factory.mktemp("versioned"), lake) as world:
        sweep = world.project.run("sweep")
        after_sweep = old_versions(lake)
        shown = world.command("purge", "--versions")
        (approval,) = HASH.findall(shown.out)
        purge = world.command("purge", "--versions", "--approve", approval)
        return Versioned(world.planned, sweep, after_sweep, shown, purge, old_versions(lake), lake.listing(), before)


@pytest.mark.slow
def test_a_sweep_of_a_bucket_that_keeps_versions_warns_and_names_the_remedy(versioned: Versioned) -> None:
    assert versioned.sweep.status == 0, versioned.sweep.err
    assert "The bucket keeps versions" in versioned.sweep.err
    assert "retention purge orchard --versions" in versioned.sweep.err
    assert versioned.after_sweep == versioned.planned


@pytest.mark.slow
def test_purge_with_versions_deletes_exactly_the_versions_of_deleted_objects(versioned: Versioned) -> None:
    assert "purge orchard --versions --approve" in versioned.shown.out
    assert versioned.purge.status == 0, versioned.purge.err
    assert versioned.after_purge == set()
    assert versioned.before.keys() - versioned.listing.keys() == versioned.planned
