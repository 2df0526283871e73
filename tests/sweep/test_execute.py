"""`retention sweep` of orchard on disk: it executes a plan that is approved and still current, or deletes nothing."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from retention_assets.state.records import fingerprint
from tests.end_to_end.command import DAY, Answer, Project, files_below, run, staged_folder
from tests.saved_repositories import active_commits, api, objects_by_commit

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("spark")]


@pytest.fixture
def project(approved: Project, tmp_path: Path) -> Project:
    """A copy of the approved orchard that a test may change."""
    return approved.copy(tmp_path / "copy")


def lake(project: Project) -> dict[str, tuple[int, float]]:
    return files_below(project.directory / "lake")


def ledger_files(project: Project, kind: str) -> list[Path]:
    """Return the ledger's files of a kind: `attempted`, `done` or `decided`."""
    return sorted(project.warehouse.glob(f"orchard/ledger/{DAY}/*/*/*-{kind}.parquet"))


def stage_later(project: Project) -> None:
    """Let the staged list be newer than the dump."""
    now = datetime.now(UTC).timestamp()
    for file in (project.directory / "lake" / staged_folder()).iterdir():
        os.utime(file, (now, now))


def assert_refused(answer: Answer, *names: str) -> None:
    assert answer.status == 1, answer
    assert answer.out == ""
    assert answer.err.count("error: ") == 1
    for name in names:
        assert name in answer.err


def test_candidates_that_are_not_the_approved_ones_are_refused(project: Project) -> None:
    named = project.warehouse / project.name / "planned_objects"
    (file,) = [path for path in named.glob("*/*.parquet") if pq.read_table(path)][:1]
    rows = pq.read_table(file)
    active = active_commits("orchard")
    held = next(row for row in objects_by_commit("orchard").to_pylist() if row["commit_id"] in active)
    address = held["physical_address"].removeprefix("s3://lake/orchard/")
    addresses = pa.array([address, *rows["address"].to_pylist()[1:]])
    pq.write_table(rows.set_column(rows.schema.get_field_index("address"), "address", addresses), file)
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    before = lake(project)
    assert_refused(project.run("sweep"), "deletion_candidates", "Nothing was deleted", "retention plan orchard")
    assert lake(project) == before


def test_a_sweep_is_refused_if_the_policy_was_changed_after_the_plan(project: Project) -> None:
    rules = {"default_retention_days": 31, "branches": []}
    (project.directory / "gc_rules.json").write_text(json.dumps(rules), encoding="utf-8")
    before = lake(project)
    assert_refused(project.run("sweep"), "policy", "Nothing was deleted", "retention plan orchard")
    assert lake(project) == before


@pytest.mark.parametrize(
    ("changes", "names", "remedy"),
    [
        ({"mode": "quarantine"}, "mode was delete, is quarantine", "retention approve orchard"),
        ({"grace": "72h"}, "grace was 1d, is 3d", "retention plan orchard"),
        ({"token_life": "72h"}, "token_life was 1d, is 3d", "retention plan orchard"),
        ({"tags": "protect"}, "tags was ignore, is protect", "retention plan orchard"),
        ({"namespace": "s3://lake/other"}, "namespace was s3://lake/orchard, is s3://lake/other", "retention plan"),
    ],
    ids=["mode", "grace", "token_life", "tags", "namespace"],
)
def test_a_plan_that_was_approved_under_other_settings_is_refused(
    project: Project, changes: dict[str, str], names: str, remedy: str
) -> None:
    project.write(**changes)
    before = lake(project)
    assert_refused(project.run("sweep"), names, "Nothing was deleted", remedy)
    assert lake(project) == before


def test_objects_that_were_approved_for_quarantine_are_not_deleted(project: Project) -> None:
    plan_hash = json.loads((project.warehouse / project.name / "plans" / DAY / "current.json").read_text())["plan_hash"]
    project.write(mode="quarantine")
    approved = project.run("approve", plan_hash)
    assert approved.status == 0, approved.err
    assert "  mode: quarantine\n" in approved.out
    assert f"  quarantine.url: file://{project.directory}/lake.quarantine\n" in approved.out
    before = lake(project)
    project.write(mode="delete")
    assert_refused(project.run("sweep"), "mode was quarantine, is delete", f"retention approve orchard {plan_hash}")
    project.write(mode="quarantine", quarantine={"url": "elsewhere"})
    assert_refused(project.run("sweep"), f"quarantine.url was file://{project.directory}/lake.quarantine, is")
    assert lake(project) == before
    assert ledger_files(project, "attempted") == []
    assert not (project.warehouse / project.name / "leases").exists()


def test_a_plan_whose_approval_was_withdrawn_is_refused(project: Project) -> None:
    withdrawn = project.run("withdraw")
    assert withdrawn.status == 0, withdrawn.err
    assert "Withdrawn by" in withdrawn.out
    assert withdrawn.out.endswith(" stop orchard\n")
    again = project.run("withdraw")
    assert "Withdrawn by" not in again.out
    assert "Nobody had approved plan" in again.out
    before = lake(project)
    assert_refused(project.run("sweep"), "withdrew the approval", "Nothing was deleted", "retention approve orchard")
    assert lake(project) == before


def test_withdrawing_a_plan_that_nobody_approved_names_the_day_whose_plan_is_still_approved(project: Project) -> None:
    """After midnight UTC, the plan of today is another one than the plan that a person approved."""
    plans = project.warehouse / project.name / "plans"
    (next_day := plans / "2026-11-02").mkdir()
    document = json.loads((plans / DAY / "current.json").read_text(encoding="utf-8"))
    changed = json.dumps({**document, "day": "2026-11-02", "plan_hash": "f" * 64})
    (next_day / "current.json").write_text(changed, encoding="utf-8")
    withdrawn = run("--config", project.file, "withdraw", project.name, "--as-of", "2026-11-02")
    assert withdrawn.status == 0, withdrawn.err
    assert "Withdrawn by" not in withdrawn.out
    assert f"Nobody had approved plan {'f' * 64}" in withdrawn.out
    assert f"The plan of {DAY} is still approved." in withdrawn.out
    assert f" withdraw orchard --as-of {DAY}\n" in withdrawn.out


def test_a_staged_list_that_is_not_known_any_more_is_refused(project: Project) -> None:
    project.write(staged=None)
    before = lake(project)
    assert_refused(project.run("sweep"), "staged list", "Nothing was deleted")
    assert lake(project) == before


def test_a_staged_list_that_is_newer_than_the_references_is_refused(project: Project) -> None:
    stage_later(project)
    before = lake(project)
    assert_refused(project.run("sweep"), "staged list", "newer than the references", "Nothing was deleted")
    assert lake(project) == before


def test_a_sweep_refuses_a_dump_that_is_older_than_an_hour(project: Project) -> None:
    project.write(source={"dump": "dump.json"})
    before = lake(project)
    refused = project.run("sweep")
    remedies = "Replace it with a new dump", "--dump-age"
    assert_refused(refused, "dump.json", "at most 1h old", "Nothing was deleted", *remedies)
    assert lake(project) == before
    assert not list(project.warehouse.glob("orchard/records/*"))


def test_a_sweep_uses_an_older_dump_if_dump_age_allows_it_and_records_this(project: Project) -> None:
    project.write(source={"dump": "dump.json", "dump_age": "2h"})
    dumped = api("orchard")["refs_dump"].values()
    taken_at = min(time for id_ in dumped if (time := lake(project).get(f"_lakefs/{id_}", (0, 0.0))[1]))
    swept = project.run("sweep", "--dump-age", "3650d")
    assert swept.status == 0, swept.err
    (record,) = (json.loads(file.read_text()) for file in project.warehouse.glob("orchard/records/*.json"))
    assert record["dump"] == {"taken_at": datetime.fromtimestamp(taken_at, UTC).isoformat(), "dump_age": "3650d"}


@pytest.mark.slow
def test_a_plan_from_an_old_dump_is_made_and_warns_that_the_sweep_refuses(project: Project) -> None:
    project.write(source={"dump": "dump.json"})
    planned = project.run("plan", "--json")
    assert planned.status == 0, planned.err
    (warning,) = planned.document()["warnings"]
    assert "`retention sweep` refuses dumps that are older than 1h" in warning
    assert "Replace it with a new dump" in warning
    assert "--dump-age" in warning


@pytest.mark.parametrize(
    ("source", "age", "words"),
    [
        ({"dump": "dump.json"}, "12", "--dump-age: "),
        ({"api": {"url": "http://127.0.0.1:1", "access_key": "k", "secret_key": {"env": "S"}}}, "12h", "source.dump"),
    ],
    ids=["no_unit", "no_dump"],
)
def test_a_dump_age_that_is_invalid_or_without_a_dump_is_a_usage_error(
    project: Project, source: dict[str, object], age: str, words: str
) -> None:
    project.write(source=source)
    answer = project.run("sweep", "--dump-age", age)
    assert answer.status == 2
    assert words in answer.err


@pytest.mark.parametrize("trouble", ["unknown", pytest.param("newer", marks=pytest.mark.slow)])
def test_a_plan_without_a_staged_list_to_rely_on_warns_and_cannot_be_approved(project: Project, trouble: str) -> None:
    if trouble == "unknown":
        project.write(staged=None)
    else:
        stage_later(project)
    before = lake(project)
    planned = project.run("plan", "--json")
    assert planned.status == 0, planned.err
    document = planned.document()
    assert any("must not be executed" in warning for warning in document["warnings"])
    assert "must not be executed" in planned.err
    assert_refused(project.run("approve", document["plan_hash"]), "staged list", "Nothing was approved")
    approval = {"plan_hash": document["plan_hash"], "day": DAY, "approved_by": "somebody", "approved_at": "some time"}
    (project.warehouse / project.name / "approvals").mkdir(exist_ok=True)
    place_of_approval = project.warehouse / project.name / "approvals" / f"{document['plan_hash']}.json"
    place_of_approval.write_text(json.dumps(approval), encoding="utf-8")  # as if the plan was approved in another way
    assert_refused(project.run("sweep"), "staged list", "Nothing was deleted")
    assert lake(project) == before


@pytest.mark.slow
def test_an_interrupted_sweep_is_continued_by_the_next_one(project: Project) -> None:
    assert project.run("sweep").status == 0
    after, planned = lake(project), {row["address"] for row in project.rows("deletion_candidates")}
    for done in ledger_files(project, "done"):  # as if the process had crashed before it recorded the results
        done.unlink()
    again = project.run("sweep")
    assert again.status == 0, again.err
    rows = project.rows("deletion_report")
    assert {row["address"] for row in rows} == planned
    assert {row["outcome"] for row in rows} == {"missing"}
    assert lake(project) == after


def test_an_attempted_row_is_written_before_an_object_is_deleted(project: Project) -> None:
    before = lake(project)
    assert project.run("sweep").status == 0
    noted = pa.concat_tables([pq.read_table(file) for file in ledger_files(project, "attempted")])
    assert set(noted["address"].to_pylist()) == before.keys() - lake(project).keys()
    assert set(noted["outcome"].to_pylist()) == {"attempted"}


def test_the_dump_of_the_sample_is_not_older_than_its_staged_list(approved: Project) -> None:
    """Otherwise the plans of the tests above would be blocked for another reason."""
    staged = max(file.stat().st_mtime for file in (approved.directory / "lake" / staged_folder()).iterdir())
    tables = [approved.directory / "lake" / "_lakefs" / table_id for table_id in api("orchard")["refs_dump"].values()]
    assert staged <= min(table.stat().st_mtime for table in tables)


def protect_records(project: Project, **records: object) -> None:
    document = yaml.safe_load(project.file.read_text("utf-8"))
    project.file.write_text(yaml.safe_dump({**document, "records": records}), encoding="utf-8")


def rewrite_records(project: Project) -> None:
    """Rewrite the records with another approver, without signatures, and rewrite the lease to match them."""
    tables = project.warehouse / project.name
    (file,) = (tables / "records").iterdir()
    document = {**json.loads(file.read_text("utf-8")), "approved_by": "somebody-else"}
    document.pop("signature")
    file.write_text(json.dumps(document), encoding="utf-8")
    lease = max((tables / "leases").iterdir())
    named = {**json.loads(lease.read_text("utf-8")), "record": fingerprint(document)}
    lease.write_text(json.dumps(named), encoding="utf-8")


@pytest.mark.slow
def test_rewritten_records_are_detected_only_with_signatures_or_a_witness(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECORDS_KEY", "0123456789abcdef" * 2)
    protected = {"signing_key": {"env": "RECORDS_KEY"}, "witness": str(tmp_path / "witness")}
    protect_records(project, **protected)
    swept = project.run("sweep")
    assert swept.status == 0, swept.err
    assert len(list((tmp_path / "witness" / project.name).iterdir())) == 1
    rewrite_records(project)
    refused = project.run("verify")
    assert refused.status == 1
    assert "records_signed: orchard/records/00000001.json is not signed" in refused.err
    assert "records_copied: 1 record was removed or changed after the copy to" in refused.err
    protect_records(project)
    believed = project.run("verify")
    assert believed.status == 0, believed.err
    assert "records.signing_key is not configured: anyone who can write to the warehouse can" in believed.out
