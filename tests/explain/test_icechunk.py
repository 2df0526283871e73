"""`explain` is right for every file of an Icechunk repository, compared with icechunk's collection on later days."""

import shutil
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import icechunk as ic
import pytest
import zarr

from retention_assets.explain.explaining import explain
from retention_assets.explain.explanations import ObjectExplanation
from retention_assets.icechunk.formats.paths import backup_written_at
from tests.assets.icechunk_lake import (
    AS_OF,
    COMMITS,
    DAY,
    LONG_AGO,
    NAME,
    IcechunkLake,
    files_of,
    new_icechunk_lake,
)
from tests.end_to_end.command import run
from tests.explain.objects import explain_objects
from tests.icechunk_repositories import Format, open_repository, set_stored_at

pytestmark = pytest.mark.usefixtures("spark", "forgetful")

ORPHAN, YOUNG, FOREIGN = "manifests/0123456789ABCDEFGHJ0", "chunks/0123456789ABCDEFGHJ0", "chunks/notes.txt"
FAR = 3000  # days


@dataclass(frozen=True)
class Case:
    """A policy that icechunk's own expiration supports: one duration for all references."""

    days: int
    spec_version: Format
    delete_branches: bool = False

    @property
    def policy(self) -> dict[str, Any]:
        return {
            "snapshots": {
                "default": {"keep_newer": f"{self.days}d"},
                "delete_expired_branches": self.delete_branches,
            }
        }


ALWAYS = Case(10, 2)
CASES = (ALWAYS, Case(10, 1), Case(7, 1), Case(7, 2), Case(28, 1), Case(28, 2, True))


@dataclass(frozen=True)
class Explained:
    """A planned repository with the answers for all its files."""

    case: Case
    lake: IcechunkLake
    ids: Mapping[str, str]
    answers: Mapping[str, ObjectExplanation]

    def collected(self, days: int, copy: Path) -> set[str]:
        """Return the files that icechunk's expiration and collection delete from a copy so many days later."""
        shutil.copytree(self.lake.directory, copy)
        now = AS_OF + timedelta(days=days)
        repository = open_repository(copy)
        repository.expire_snapshots(
            now - timedelta(days=self.case.days), delete_expired_branches=self.case.delete_branches
        )
        open_repository(copy).garbage_collect(AS_OF - timedelta(days=1))  # every file but one is older
        return files_of(self.lake.directory) - files_of(copy)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(
            case, id=f"{case.days}d-format_{case.spec_version}", marks=[] if case == ALWAYS else pytest.mark.slow
        )
        for case in CASES
    ],
)
def explained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Explained:
    case: Case = request.param
    root = tmp_path_factory.mktemp(NAME)
    lake, ids = new_icechunk_lake(root, case.spec_version, COMMITS, {"main": "e", "side": "x"}, {"v1": "a"})
    lake.configure(case.policy)
    for name in (ORPHAN, YOUNG, FOREIGN):
        (lake.directory / name).write_bytes(b"?")
        # The day may end during the tests: then it is the day after AS_OF.
        set_stored_at(lake.directory, AS_OF + timedelta(hours=23) if name == YOUNG else LONG_AGO, [name])
    made = lake.plan()
    assert made.success, made.errors
    answers = explain_objects(lake.configuration(), NAME, lake.files())
    return Explained(case, lake, ids, {one.address: one for one in answers})


def test_explain_and_the_plan_count_the_same_states_of_files(explained: Explained) -> None:
    document = explained.lake.plan_document()
    assert document is not None
    counted = {state: amount["objects"] for state, amount in document["totals"].items() if amount["objects"]}
    assert Counter(one.state for one in explained.answers.values()) == counted


def test_the_candidates_are_the_files_that_icechunk_would_collect(explained: Explained, tmp_path: Path) -> None:
    found = {one.address for one in explained.answers.values() if one.state == "candidate"}
    assert found == explained.collected(0, tmp_path / "copy")
    assert ORPHAN in found


def test_each_file_is_due_on_the_first_day_on_which_icechunk_would_collect_it(
    explained: Explained, tmp_path: Path
) -> None:
    by_day: defaultdict[int, set[str]] = defaultdict(set)
    for one in explained.answers.values():
        if one.state == "kept" and not one.address.startswith("overwritten/"):  # icechunk never collects backups
            by_day[(one.goes_on - DAY).days if one.goes_on else FAR].add(one.address)
    assert len(by_day) > 1
    for days, addresses in by_day.items():
        collected = explained.collected(days, tmp_path / f"on-{days}")
        if days == FAR:
            assert not addresses & collected
            continue
        assert addresses <= collected
        assert not addresses & explained.collected(days - 1, tmp_path / f"before-{days}")


def test_a_backup_is_due_after_collect_overwritten_and_the_grace_period(explained: Explained) -> None:
    settings = explained.lake.configuration().repository(NAME).icechunk
    assert settings.collect_overwritten is not None
    backups = [one for one in explained.answers.values() if one.address.startswith("overwritten/")]
    assert bool(backups) is (explained.case.spec_version == 2)
    for one in backups:
        made = backup_written_at(one.address.removeprefix("overwritten/"))
        assert made is not None
        written = datetime.fromtimestamp(made / 1000, UTC)
        assert one.goes_on == (written + settings.collect_overwritten + settings.grace).date()


def test_young_and_foreign_files_are_distinguished(explained: Explained) -> None:
    assert explained.answers[YOUNG].state == "young"
    assert isinstance(explained.answers[YOUNG].goes_on, date)
    assert explained.answers[FOREIGN].state == "foreign"
    assert explained.answers[FOREIGN].goes_on is None


def test_a_chunk_is_kept_by_the_snapshots_that_need_it(explained: Explained) -> None:
    tip = explained.ids["e"]
    chunks = [one for one in explained.answers.values() if one.address.startswith("chunks/") and one.state == "kept"]
    assert any([keeper.name for keeper in one.kept_by] == [tip] for one in chunks)


def test_a_snapshot_is_explained_with_its_files_and_its_decision(explained: Explained) -> None:
    answer = explain(explained.lake.configuration(), NAME, explained.ids["d"])
    assert answer.kind == "snapshot"
    assert answer.snapshot is not None
    assert answer.snapshot["decision"] == "kept"
    assert {one.address.partition("/")[0] for one in answer.objects} == {"snapshots", "transactions"}


def test_explain_accepts_the_id_of_a_chunk(explained: Explained) -> None:
    one = next(one for name, one in explained.answers.items() if name.startswith("chunks/") and one.state == "kept")
    command = ["--config", explained.lake.root / "retention.yaml", "explain", NAME, one.address.removeprefix("chunks/")]
    text, document = run(*command), run(*command, "--json").document()
    assert text.status == 0, text.err
    assert "is kept" in text.out
    assert document["kind"] == "chunk"
    assert document["objects"][0]["address"] == one.address


@pytest.mark.long
@pytest.mark.parametrize("location", ["{}/", "copies%2F{}"], ids=["slash", "escaped"])
def test_a_chunk_that_only_a_url_names_is_kept_by_the_snapshot_with_the_url(tmp_path: Path, location: str) -> None:
    """Both spellings of the URL end with the id of the chunk once they are decoded and resolved."""
    lake, _ = new_icechunk_lake(tmp_path, 2, COMMITS[:1], {"main": COMMITS[0].name})
    (lake.directory / YOUNG).write_bytes(b"?")
    session = open_repository(lake.directory).writable_session("main")
    zarr.create_array(session.store, name="virtual", shape=(1,), chunks=(1,), dtype="i4", compressors=None)
    url = "s3://attic/chunks/" + location.format(YOUNG.removeprefix("chunks/"))
    spec = ic.VirtualChunkSpec(index=[0], location=url, offset=0, length=1)
    session.store.set_virtual_refs("virtual", [spec], validate_containers=False)
    tip = session.commit("virtual")
    set_stored_at(lake.directory, LONG_AGO)
    made = lake.plan()
    assert made.success, made.errors
    (one,) = explain_objects(lake.configuration(), NAME, [YOUNG])
    assert (one.state, [keeper.name for keeper in one.kept_by]) == ("kept", [tip])
