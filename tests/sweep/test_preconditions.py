"""Preconditions: planned objects that the store lists changed or not at all. `tests/objectstore` tests the requests."""

from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from retention_assets.errors import StoreError
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.mutate.writing import ObjectWriter
from retention_assets.objectstore.objects import LISTING, ObjectReader
from retention_assets.objectstore.rate_limiter import RateLimiter
from retention_assets.state.quarantine import QuarantineLocation
from retention_assets.sweep.actions import Delete
from retention_assets.sweep.preconditions import Preconditions, compared
from retention_assets.sweep.worker import OBJECTS
from tests.frames import OLD
from tests.objectstore.s3 import Bucket

NOT_NAMED = "is not a candidate of the newest plan, or was live in a plan made meanwhile"
Row = dict[str, Any]


@dataclass(frozen=True)
class Stored:
    """An object of the plan or of a listing."""

    size: int = 10
    last_modified: datetime | None = OLD
    etag: str | None = "an-etag"


@dataclass(frozen=True)
class Case:
    """A planned object, the object that the store lists at its path, and its entry on a repeated page."""

    ends: str | None  # None: it is deleted
    stored: Stored | None = Stored()
    again: Stored | None = None
    planned: Stored = Stored()
    detail: str | None = None  # why the newest plan does not name it


CASES = {
    "nothing changed": Case(None),
    "it is gone": Case("missing", None),
    "it has another size": Case("skipped", Stored(11)),
    "it was written again": Case("skipped", replace(Stored(), last_modified=OLD + timedelta(microseconds=1))),
    "it has another ETag": Case("skipped", Stored(etag="another")),
    "it is listed twice": Case(None, again=Stored()),
    "it is listed twice, and differently": Case("skipped", again=replace(Stored(), last_modified=OLD + timedelta(1))),
    "its ETag was not known": Case(None, planned=Stored(etag=None)),
    "its ETag is not known any more": Case(None, Stored(etag=None)),
    "the newest plan does not name it": Case("skipped", detail=NOT_NAMED),
    "the newest plan does not name it, and it is gone": Case("missing", None, detail=NOT_NAMED),
}


def objects(cases: dict[str, Case]) -> pa.Table:
    rows = [
        {"address": name, **asdict(case.planned), "outcome": None, "detail": case.detail}
        for name, case in cases.items()
    ]
    return pa.Table.from_pylist(rows, OBJECTS)


def classified(*, keeps_missing: bool) -> dict[str, Row]:
    """Return each case's object after the check against a listing, which has other objects between them."""
    shown = [(name, one) for name, case in CASES.items() for one in (case.stored, case.again) if one]
    listed = [
        {"path": name, "last_modified": one.last_modified, "size": one.size, "e_tag": one.etag}
        for name, one in [("another", Stored()), *shown, ("yet another", Stored(11))]
    ]
    rows = compared(objects(CASES), pa.Table.from_pylist(listed, LISTING), keeps_missing=keeps_missing)
    assert rows.schema == OBJECTS
    assert rows["address"].to_pylist() == list(CASES)
    return {row["address"]: row for row in rows.to_pylist()}


@pytest.mark.parametrize("name", CASES)
def test_missing_and_changed_objects_are_not_processed(name: str) -> None:
    row = classified(keeps_missing=False)[name]
    assert row["outcome"] == CASES[name].ends
    details = {
        None: None,
        "missing": "was already gone",
        "skipped": CASES[name].detail or "changed since it was planned",
    }
    assert row["detail"] == details[CASES[name].ends]
    planned = CASES[name].planned
    assert (row["size"], row["last_modified"]) == (planned.size, planned.last_modified)
    assert row["etag"] == "an-etag"  # the planned one, or if the plan has none, the listed one


def test_an_object_that_is_exchanged_after_the_check_stays_although_the_plan_has_no_etag(bucket: Bucket) -> None:
    lake = bucket.access("lake", disable_bulk_delete="true")  # this test's server honours conditions of single requests
    preconditions, writer = Preconditions(lake), ObjectWriter(lake)
    for name in ("a", "b"):
        writer.put(f"data/{name}", name.encode() * 9)
    planned = Stored(9, last_modified=None, etag=None)
    rows = objects({f"data/{name}": Case(None, planned=planned) for name in ("a", "b")})
    checked = preconditions.classified(rows, preconditions.open())
    writer.put("data/a", b"z" * 9)
    results = Delete(lake).open(RateLimiter()).do(checked, "1", lambda: True)
    assert [one.outcome for one in results] == ["skipped", "deleted"]
    assert ObjectReader(lake).read("data/a") == b"z" * 9


def test_before_a_move_missing_objects_are_passed_on_to_the_action_except_those_that_must_stay() -> None:
    """Somebody may bring an object back between this check and the action, which would move the object."""
    before_deleting, before_moving = classified(keeps_missing=False), classified(keeps_missing=True)
    gone = {name: None for name, case in CASES.items() if case.stored is None and case.detail is None}
    assert {(before_moving[name]["outcome"], before_moving[name]["detail"]) for name in gone} == {(None, None)}
    assert {**before_moving, **gone} == {**before_deleting, **gone}


@pytest.mark.parametrize("keeps_missing", [False, True])
def test_objects_are_not_called_missing_where_the_directory_of_the_repository_is_not_mounted(
    tmp_path: Path, keeps_missing: bool
) -> None:
    """A mount point without its mount is an empty directory."""
    lake = tmp_path / "lake"
    lake.mkdir()
    check = Preconditions(StoreAccess(f"file://{lake}"), keeps_missing)
    planned = objects({"data/a": Case(None), "data/b": Case(None)})
    with pytest.raises(StoreError, match=r"the directory is empty on the machine .* Nothing was deleted\. Mount"):
        check.classified(planned, check.open())
    reader = check.open()
    lake.rmdir()
    with pytest.raises(StoreError, match=r"the directory cannot be listed \(No such file or directory\) on"):
        check.classified(planned, reader)
    (lake / "refs").mkdir(parents=True)
    rows = check.classified(planned, check.open())
    assert rows["outcome"].to_pylist() == [None if keeps_missing else "missing"] * 2


def test_a_missing_object_that_an_interrupted_sweep_may_have_moved_is_looked_up_where_that_sweep_moved_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "there").write_bytes(b"0123456789")
    seen, unseen = (QuarantineLocation.at(f"file://{tmp_path}/{name}/2026-11-01/ab", {}) for name in ("seen", "unseen"))
    for name in ("seen", "unseen"):
        (tmp_path / name).mkdir()
    for name, content in {"moved": b"0123456789", "part": b"01234"}.items():
        ObjectWriter(seen.access).put(seen.path(name), content)
    seen.write_manifest(objects({name: Case(None) for name in ("moved", "part", "neither")}), "1")
    targets = {
        "there": [seen.url],
        "moved": [unseen.url, seen.url],
        "part": [seen.url],
        "neither": [seen.url],
        "unknown": [unseen.url, seen.url],
        "no directory": [f"file://{tmp_path}/none/2026-11-01/ab"],
        "not attempted": None,
    }
    planned = objects({name: Case(None, planned=Stored(last_modified=None, etag=None)) for name in targets})
    planned = planned.set_column(
        planned.schema.get_field_index("earlier_targets"),
        "earlier_targets",
        pa.array(list(targets.values()), OBJECTS.field("earlier_targets").type),
    )
    check = Preconditions(StoreAccess(f"file://{tmp_path}/lake"))
    rows = check.classified(planned, check.open())
    assert rows.schema == OBJECTS
    found = {row["address"]: (row["outcome"], row["detail"]) for row in rows.to_pylist()}
    unknown, no_directory = found.pop("unknown"), found.pop("no directory")
    missing = ("missing", "was already gone")
    assert found == {
        "there": (None, None),
        "moved": ("quarantined", seen.describe("moved")),
        **dict.fromkeys(("part", "neither", "not attempted"), missing),
    }
    assert unknown[0] == no_directory[0] == "failed"
    assert f"may have been moved to {unseen.url} by an interrupted sweep: this plan has no files there" in unknown[1]
    assert "there is no such directory" in no_directory[1]
