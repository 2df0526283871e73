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
from tests.end_to_end.command import DAY, Answer, Place, files_below, staged_folder
from tests.repositories import active_commits, api, objects_by_commit

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture
def place(approved: Place, tmp_path: Path) -> Place:
    """A copy of the approved orchard that a test may change."""
    return approved.copy(tmp_path / "copy")


def lake(place: Place) -> dict[str, tuple[int, float]]:
    return files_below(place.directory / "lake")


def ledger_files(place: Place, kind: str) -> list[Path]:
    """Return the ledger's files of a kind: `attempted`, `done` or `decided`."""
    return sorted(place.warehouse.glob(f"orchard/ledger/{DAY}/*/*/*-{kind}.parquet"))


def stage_later(place: Place) -> None:
    """Let the staged list be newer than the dump."""
    now = datetime.now(UTC).timestamp()
    for file in (place.directory / "lake" / staged_folder()).iterdir():
        os.utime(file, (now, now))


def assert_refused(answer: Answer, *names: str) -> None:
    assert answer.status == 1, answer
    assert answer.out == ""
    assert answer.err.count("error: ") == 1
    for name in names:
        assert name in answer.err


def test_candidates_that_are_not_the_approved_ones_are_refused(place: Place) -> None:
    named = place.warehouse / place.name / "planned_objects"
    (file,) = [path for path in named.glob("*/*.parquet") if pq.read_table(path)][:1]
    rows = pq.read_table(file)
    active = active_commits("orchard")
    held = next(row for row in objects_by_commit("orchard").to_pylist() if row["commit_id"] in active)
    address = held["physical_address"].removeprefix("s3://lake/orchard/")
    addresses = pa.array([address, *rows["address"].to_pylist()[1:]])
    pq.write_table(rows.set_column(rows.schema.get_field_index("address"), "address", addresses), file)
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    before = lake(place)
    assert_refused(place.run("sweep"), "deletion_candidates", "Nothing was deleted", "retention plan orchard")
    assert lake(place) == before


def test_a_sweep_is_refused_if_the_policy_was_changed_after_the_plan(place: Place) -> None:
    rules = {"default_retention_days": 31, "branches": []}
    (place.directory / "gc_rules.json").write_text(json.dumps(rules), encoding="utf-8")
    before = lake(place)
    assert_refused(place.run("sweep"), "policy", "Nothing was deleted", "retention plan orchard")
    assert lake(place) == before


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
    place: Place, changes: dict[str, str], names: str, remedy: str
) -> None:
    place.write(**changes)
    before = lake(place)
    assert_refused(place.run("sweep"), names, "Nothing was deleted", remedy)
    assert lake(place) == before


def test_objects_that_were_approved_for_quarantine_are_not_deleted(place: Place) -> None:
    plan_hash = json.loads((place.warehouse / place.name / "plans" / DAY / "current.json").read_text())["plan_hash"]
    place.write(mode="quarantine")
    approved = place.run("approve", plan_hash)
    assert approved.status == 0, approved.err
    assert "  mode: quarantine\n" in approved.out
    assert f"  quarantine.url: file://{place.directory}/lake.quarantine\n" in approved.out
    before = lake(place)
    place.write(mode="delete")
    assert_refused(place.run("sweep"), "mode was quarantine, is delete", f"retention approve orchard {plan_hash}")
    place.write(mode="quarantine", quarantine={"url": "elsewhere"})
    assert_refused(place.run("sweep"), f"quarantine.url was file://{place.directory}/lake.quarantine, is")
    assert lake(place) == before
    assert ledger_files(place, "attempted") == []
    assert not (place.warehouse / place.name / "leases").exists()


def test_a_plan_whose_approval_was_withdrawn_is_refused(place: Place) -> None:
    withdrawn = place.run("withdraw")
    assert withdrawn.status == 0, withdrawn.err
    assert "Withdrawn by" in withdrawn.out
    assert withdrawn.out.endswith(" stop orchard\n")
    before = lake(place)
    assert_refused(place.run("sweep"), "withdrew the approval", "Nothing was deleted", "retention approve orchard")
    assert lake(place) == before


def test_a_staged_list_that_is_not_known_any_more_is_refused(place: Place) -> None:
    place.write(staged=None)
    before = lake(place)
    assert_refused(place.run("sweep"), "staged list", "Nothing was deleted")
    assert lake(place) == before


def test_a_staged_list_that_is_newer_than_the_references_is_refused(place: Place) -> None:
    stage_later(place)
    before = lake(place)
    assert_refused(place.run("sweep"), "staged list", "newer than the references", "Nothing was deleted")
    assert lake(place) == before


def test_a_sweep_refuses_a_dump_that_is_older_than_an_hour(place: Place) -> None:
    place.write(source={"dump": "dump.json"})
    before = lake(place)
    refused = place.run("sweep")
    remedies = "Replace it with a new dump", "--dump-age"
    assert_refused(refused, "dump.json", "at most 1h old", "Nothing was deleted", *remedies)
    assert lake(place) == before
    assert not list(place.warehouse.glob("orchard/records/*"))


def test_a_sweep_uses_an_older_dump_if_dump_age_allows_it_and_records_this(place: Place) -> None:
    place.write(source={"dump": "dump.json", "dump_age": "2h"})
    dumped = api("orchard")["refs_dump"].values()
    taken_at = min(time for id_ in dumped if (time := lake(place).get(f"_lakefs/{id_}", (0, 0.0))[1]))
    swept = place.run("sweep", "--dump-age", "3650d")
    assert swept.status == 0, swept.err
    (record,) = (json.loads(file.read_text()) for file in place.warehouse.glob("orchard/records/*.json"))
    assert record["dump"] == {"taken_at": datetime.fromtimestamp(taken_at, UTC).isoformat(), "dump_age": "3650d"}


@pytest.mark.slow
def test_a_plan_from_an_old_dump_is_made_and_warns_that_the_sweep_refuses(place: Place) -> None:
    place.write(source={"dump": "dump.json"})
    planned = place.run("plan", "--json")
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
    place: Place, source: dict[str, object], age: str, words: str
) -> None:
    place.write(source=source)
    answer = place.run("sweep", "--dump-age", age)
    assert answer.status == 2
    assert words in answer.err


@pytest.mark.parametrize("trouble", ["unknown", pytest.param("newer", marks=pytest.mark.slow)])
def test_a_plan_without_a_staged_list_to_rely_on_warns_and_cannot_be_approved(place: Place, trouble: str) -> None:
    if trouble == "unknown":
        place.write(staged=None)
    else:
        stage_later(place)
    before = lake(place)
    planned = place.run("plan", "--json")
    assert planned.status == 0, planned.err
    document = planned.document()
    assert any("must not be executed" in warning for warning in document["warnings"])
    assert "must not be executed" in planned.err
    assert_refused(place.run("approve", document["plan_hash"]), "staged list", "Nothing was approved")
    approval = {"plan_hash": document["plan_hash"], "day": DAY, "approved_by": "somebody", "approved_at": "some time"}
    (place.warehouse / place.name / "approvals").mkdir(exist_ok=True)
    place_of_approval = place.warehouse / place.name / "approvals" / f"{document['plan_hash']}.json"
    place_of_approval.write_text(json.dumps(approval), encoding="utf-8")  # as if somebody approved it in another way
    assert_refused(place.run("sweep"), "staged list", "Nothing was deleted")
    assert lake(place) == before


@pytest.mark.slow
def test_an_interrupted_sweep_is_continued_by_the_next_one(place: Place) -> None:
    assert place.run("sweep").status == 0
    after, planned = lake(place), {row["address"] for row in place.rows("deletion_candidates")}
    for done in ledger_files(place, "done"):  # as if the process had died before it could write what it had done
        done.unlink()
    again = place.run("sweep")
    assert again.status == 0, again.err
    rows = place.rows("deletion_report")
    assert {row["address"] for row in rows} == planned
    assert {row["outcome"] for row in rows} == {"missing"}
    assert lake(place) == after


def test_an_attempted_row_is_written_before_an_object_is_deleted(place: Place) -> None:
    before = lake(place)
    assert place.run("sweep").status == 0
    noted = pa.concat_tables([pq.read_table(file) for file in ledger_files(place, "attempted")])
    assert set(noted["address"].to_pylist()) == before.keys() - lake(place).keys()
    assert set(noted["outcome"].to_pylist()) == {"attempted"}


def test_the_dump_of_the_sample_is_not_older_than_its_staged_list(approved: Place) -> None:
    """Otherwise the plans of the tests above would be blocked for another reason."""
    staged = max(file.stat().st_mtime for file in (approved.directory / "lake" / staged_folder()).iterdir())
    tables = [approved.directory / "lake" / "_lakefs" / table_id for table_id in api("orchard")["refs_dump"].values()]
    assert staged <= min(table.stat().st_mtime for table in tables)


def protect_records(place: Place, **records: object) -> None:
    document = yaml.safe_load(place.file.read_text("utf-8"))
    place.file.write_text(yaml.safe_dump({**document, "records": records}), encoding="utf-8")


def write_records_anew(place: Place) -> None:
    """Rewrite the records with another approver, without signatures, and rewrite the lease to match them."""
    tables = place.warehouse / place.name
    (file,) = (tables / "records").iterdir()
    document = {**json.loads(file.read_text("utf-8")), "approved_by": "somebody-else"}
    document.pop("signature")
    file.write_text(json.dumps(document), encoding="utf-8")
    lease = max((tables / "leases").iterdir())
    named = {**json.loads(lease.read_text("utf-8")), "record": fingerprint(document)}
    lease.write_text(json.dumps(named), encoding="utf-8")


@pytest.mark.slow
def test_rewritten_records_are_detected_only_with_signatures_or_a_witness(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECORDS_KEY", "0123456789abcdef" * 2)
    protected = {"signing_key": {"env": "RECORDS_KEY"}, "witness": str(tmp_path / "witness")}
    protect_records(place, **protected)
    swept = place.run("sweep")
    assert swept.status == 0, swept.err
    assert len(list((tmp_path / "witness" / place.name).iterdir())) == 1
    write_records_anew(place)
    refused = place.run("verify")
    assert refused.status == 1
    assert "records_signed: orchard/records/00000001.json is not signed" in refused.err
    assert "records_copied: 1 records were removed or changed since they were copied to" in refused.err
    protect_records(place)
    believed = place.run("verify")
    assert believed.status == 0, believed.err
    assert "records.signing_key is not configured: anyone who can write to the warehouse can" in believed.out
