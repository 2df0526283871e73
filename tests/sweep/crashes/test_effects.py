"""`Effects` records every change of a store or file in its order, and a run can crash at each. Reads are no effects."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import boto3  # type: ignore[import-untyped]
import obstore
import pytest
from obstore.store import LocalStore

from tests.sweep.crashes.effects import Crash, Effects, Moment, Point, outside_the_run, points, watched
from tests.sweep.crashes.scenarios import SCENARIOS


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    store = LocalStore(tmp_path, mkdir=True)
    for name in ("a", "b", "c", "d"):
        store.put(name, b"bytes")
    return store


CHANGES: dict[str, Callable[[LocalStore, Path], object]] = {
    "put a": lambda store, _: store.put("a", b"others"),
    "put e": lambda store, _: obstore.put(store, "e", b"new"),
    "put_async f": lambda store, _: asyncio.run(store.put_async("f", b"new")),
    "delete b": lambda store, _: store.delete("b"),
    "delete c, d": lambda store, _: store.delete(["c", "d"]),
    "copy a, g": lambda store, _: store.copy("a", "g"),
    "rename a, h": lambda store, _: store.rename("a", "h"),
    "open_writer i": lambda store, _: obstore.open_writer(store, "i").close(),
    "write j": lambda _, root: (root / "j").write_text("new", encoding="utf-8"),
    "os.mkdir k": lambda _, root: (root / "k").mkdir(),
    "os.rmdir k": lambda _, root: (root / "k").rmdir(),
    "os.rename j": lambda _, root: (root / "j").replace(root / "l"),
    "os.link l": lambda _, root: os.link(root / "l", root / "m"),
    "os.remove m": lambda _, root: (root / "m").unlink(),
}


def test_every_change_is_detected_and_no_read(store: LocalStore, tmp_path: Path) -> None:
    with watched(Effects(tmp_path)) as effects:
        for change in CHANGES.values():
            change(store, tmp_path)
            store.get("h" if not (tmp_path / "a").exists() else "a").bytes()
            store.list().collect()
            [file.read_bytes() for file in tmp_path.iterdir() if file.is_file()]
        with outside_the_run():
            store.put("others", b"what others do is no effect of the run")
    store.put("later", b"nor what happens after it")
    assert [str(effect) for effect in effects.seen] == list(CHANGES)
    assert not effects.dead


def test_requests_that_change_something_are_detected_and_reads_are_not(tmp_path: Path) -> None:
    client = boto3.client("s3", endpoint_url="http://127.0.0.1:9", region_name="us-east-1")
    many = {"Objects": [{"Key": "a"}, {"Key": "b"}]}
    with watched(Effects(tmp_path, Point(2, Moment.BEFORE))) as effects:
        for read in (client.list_objects_v2, client.get_bucket_versioning):
            with pytest.raises(Exception, match=r"127\.0\.0\.1:9"):
                read(Bucket="lake")
        for change in (
            lambda: client.put_object(Bucket="lake", Key="a"),
            lambda: client.copy_object(Bucket="lake", Key="a", CopySource="lake/b"),
        ):
            with pytest.raises(Exception, match=r"127\.0\.0\.1:9"):
                change()
        client.delete_objects(Bucket="lake", Delete=many)
    assert [str(effect) for effect in effects.seen] == [
        "PutObject lake/a", "CopyObject lake/a", "DeleteObjects lake/a, b",
    ]  # fmt: skip
    assert [effect.divisible for effect in effects.seen] == [False, False, True]


@pytest.mark.parametrize(
    ("moment", "left"),
    [(Moment.BEFORE, {"a", "b", "c", "d"}), (Moment.DURING, {"b", "c", "d"}), (Moment.AFTER, {"c", "d"})],
)
def test_a_run_that_dies_does_nothing_more(store: LocalStore, tmp_path: Path, moment: Moment, left: set[str]) -> None:
    with watched(Effects(tmp_path, Point(0, moment))) as effects:
        try:
            store.delete(["a", "b"])
        finally:
            for act in (lambda: store.delete("c"), lambda: (tmp_path / "d").unlink()):
                with pytest.raises(Crash):
                    act()
    assert effects.dead
    assert {file.name for file in tmp_path.iterdir()} == left


@pytest.mark.parametrize(
    ("moment", "is_there"), [(Moment.BEFORE, False), (Moment.AFTER, True)], ids=lambda value: str(value)
)
def test_a_run_can_be_stopped_before_and_after_a_change_of_a_file(
    tmp_path: Path, moment: Moment, is_there: bool
) -> None:
    with watched(Effects(tmp_path, Point(0, moment))) as effects:
        (tmp_path / "made").mkdir()
        (tmp_path / "never").mkdir()
    assert effects.dead
    assert [file.name for file in tmp_path.iterdir()] == ["made"] * is_there


def test_a_half_written_local_file_has_another_name(store: LocalStore, tmp_path: Path) -> None:
    with watched(Effects(tmp_path, Point(0, Moment.DURING))) as effects:
        store.put("new/file", b"0123456789")
    assert effects.dead
    assert {file.name: file.read_bytes() for file in (tmp_path / "new").iterdir()} == {"file#1": b"01234"}
    assert store.list("new").collect() == []


# Some targets of each kind of run, which must be among the recorded effects.
KINDS = {
    "delete": {"approvals", "leases", "ledger", "records", "completed", "lake"},
    "quarantine": {"approvals", "leases", "ledger", "records", "lake", "manifest", "objects", "lake.quarantine"},
    "restore": {"leases", "ledger", "records", "lake", "objects"},
    "purge": {"leases", "ledger", "records", "completed", "objects"},
}


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("kind", SCENARIOS)
def test_runs_have_effects_of_these_kinds(kind: str, tmp_path: Path) -> None:
    scenario = SCENARIOS[kind]
    world = scenario.begin(tmp_path / "world")
    with watched(Effects(world.root)) as effects:
        scenario.run(world, "a-run")
    places = [effect.target.split("/") for effect in effects.seen]
    kinds = {_kind(parts) for parts in places}
    assert kinds >= KINDS[kind]
    assert len(points(effects.seen)) > 2 * len(effects.seen)


def _kind(parts: list[str]) -> str:
    """Return the kind of a target: the table for a path in the warehouse, else the directory that identifies it."""
    if parts[0] == "warehouse":
        return parts[min(2, len(parts) - 1)]
    return parts[3] if len(parts) > 3 and parts[0] != "lake" else parts[0]
