"""The Icechunk repository of the demo: icechunk reads it, and an existing one is not overwritten."""

from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

from retention_assets.demo import field as sample_field
from retention_assets.demo.field import can_make_field, make_field
from retention_assets.errors import StoreError
from tests.icechunk_repositories import open_repository

GRACE_ENDS = datetime(2026, 11, 1, tzinfo=UTC).timestamp()


@pytest.fixture(scope="module")
def field(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("demo") / "field"
    make_field(target)
    return target


def test_the_snapshots_of_the_sample_are_a_week_apart_whenever_it_is_made(field: Path) -> None:
    line = list(open_repository(field).ancestry(branch="main"))
    days = [one.written_at for one in line[:-1]]
    assert (days[-1], days[0]) == (datetime(2026, 5, 3, 6, tzinfo=UTC), datetime(2026, 10, 25, 6, tzinfo=UTC))
    assert {(newer - older).days for newer, older in pairwise(days)} == {7}
    assert open_repository(field).list_branches() == {"main", "recalibration"}
    assert open_repository(field).list_tags() == {"summer"}


def test_the_files_of_the_sample_are_older_than_the_grace_period(field: Path) -> None:
    files = [path for kind in ("snapshots", "manifests", "chunks") for path in (field / kind).iterdir()]
    assert len(files) > 100
    assert all(path.stat().st_mtime < GRACE_ENDS for path in files)


def test_the_ops_log_has_the_days_of_the_history_so_the_branch_is_old_enough_to_be_deleted(field: Path) -> None:
    log = list(open_repository(field).ops_log())
    days = [one.updated_at for one in log]
    assert days == sorted(days, reverse=True)
    assert max(days).timestamp() < GRACE_ENDS
    assert [f"{one.updated_at:%Y-%m-%d}" for one in log if "BranchCreated" in str(one.kind)] == ["2026-06-28"]


def test_an_existing_sample_is_not_changed(field: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in field.rglob("*")}
    make_field(field)
    assert {path: path.stat().st_mtime_ns for path in field.rglob("*")} == before


def test_files_of_others_are_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "somebodys").write_text("work", encoding="utf-8")
    with pytest.raises(StoreError, match="not an Icechunk repository"):
        make_field(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["somebodys"]


def test_the_sample_can_be_made_only_if_all_needed_libraries_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert can_make_field()
    monkeypatch.setattr(sample_field, "NEEDED", ("icechunk", "no_such_library"))
    assert not can_make_field()
