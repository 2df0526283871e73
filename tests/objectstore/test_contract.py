"""The contract for every store of a repository, tested with a real server of each kind."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

from retention_assets.errors import ObjectMissing, StoreError
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.clock import store_time
from retention_assets.objectstore.mutate.copying import Copy, ObjectCopier, VerifiedCopy
from retention_assets.objectstore.mutate.deletion import ObjectDeleter
from retention_assets.objectstore.mutate.writing import ObjectWriter
from retention_assets.objectstore.objects import LISTING, ObjectReader
from retention_assets.objectstore.outcomes import DELETED, DeleteTarget, ObjectResult, Outcome
from retention_assets.sweep.preconditions import Preconditions
from retention_assets.sweep.worker import OBJECTS
from tests.objectstore.copies import copy_one
from tests.objectstore.store_servers import ANOTHER_BUCKET, KINDS, LOCAL, MEMORY, Kind, StoreServer

IN_DATA = [
    "data/a,sig-nature_", "data/with space", "data/é", "data/100%25", "data/a+b&c=d;e", "data/it's (1)!@$", "data/x/y",
]  # fmt: skip
NAMES = [*IN_DATA, "database/z", "top"]
MANY = [f"data/{number:04}" for number in range(1_005)]  # more than fit on one page or in one bulk request
ABSENT_E_TAG = "0123456789abcdef0123456789abcdef"


@dataclass(frozen=True, slots=True)
class Lake:
    """An empty prefix for one test, and another one next to it."""

    kind: Kind
    access: StoreAccess
    beside: StoreAccess  # in the same bucket
    elsewhere: StoreAccess  # in another one

    @property
    def reader(self) -> ObjectReader:
        return ObjectReader(self.access)

    @property
    def writer(self) -> ObjectWriter:
        return ObjectWriter(self.access)

    @property
    def deleter(self) -> ObjectDeleter:
        return ObjectDeleter(self.access)


def each(holds: Callable[[Kind], bool] = lambda kind: True) -> list[Any]:
    """Return the kinds for which `applies` is true, as parameters."""
    return [pytest.param(kind, id=kind.name) for kind in KINDS if holds(kind)]


with_buckets = pytest.mark.parametrize("lake", each(lambda kind: kind.has_buckets), indirect=True)


@pytest.fixture(params=each())
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    kind: Kind = request.param
    unique = uuid4().hex
    if kind is MEMORY:
        return Lake(kind, *(StoreAccess(f"memory://{unique}-{name}") for name in ("a", "b", "c")))
    if kind is LOCAL:
        for name in ("a lake %20", "b", "c"):
            (tmp_path / name).mkdir()
        return Lake(kind, *(StoreAccess(f"file://{tmp_path}/{name}") for name in ("a lake %20", "b", "c")))
    place: StoreServer = request.getfixturevalue(kind.name)
    return Lake(
        kind,
        place.access(f"{unique}/some/prefix"),
        place.access(f"{unique}/beside"),
        place.access(unique, ANOTHER_BUCKET),
    )


@pytest.fixture
def filled(lake: Lake) -> Lake:
    fill(lake.access, NAMES)
    return lake


def fill(access: StoreAccess, names: Sequence[str]) -> None:
    """Write objects with their names as content."""
    writer = ObjectWriter(access)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: writer.put(name, name.encode()), names))


def rows(batches: Iterator[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def paths(batches: Iterator[pa.RecordBatch]) -> list[str]:
    return sorted(row["path"] for row in rows(batches))


class TestReading:
    def test_an_object_is_read_whatever_its_name(self, filled: Lake) -> None:
        assert {name: filled.reader.read(name) for name in NAMES} == {name: name.encode() for name in NAMES}

    def test_all_objects_are_listed_with_size_time_and_etag(self, filled: Lake) -> None:
        batches = list(filled.reader.list())
        assert all(batch.schema.equals(LISTING) for batch in batches)
        listed = {row["path"]: row for row in rows(iter(batches))}
        assert {name: row["size"] for name, row in listed.items()} == {name: len(name.encode()) for name in NAMES}
        now = datetime.now(UTC)
        assert all(now - timedelta(minutes=5) < row["last_modified"] <= now for row in listed.values())
        assert all(row["e_tag"] and '"' not in row["e_tag"] for row in listed.values())

    @pytest.mark.parametrize("prefix", ["data", "data/"])
    def test_a_prefix_is_a_directory(self, filled: Lake, prefix: str) -> None:
        assert paths(filled.reader.list(prefix)) == sorted(IN_DATA)

    def test_objects_beside_the_location_are_not_listed(self, filled: Lake) -> None:
        fill(filled.beside, ["x"])
        assert paths(filled.reader.list()) == sorted(NAMES)

    def test_an_empty_location_lists_nothing(self, filled: Lake) -> None:
        assert rows(filled.reader.list("nowhere")) == []
        assert not filled.reader.holds_objects("nowhere")
        assert filled.reader.holds_objects("data/x/")

    def test_one_level_gives_its_directories_and_its_own_objects(self, filled: Lake) -> None:
        assert filled.reader.prefixes() == ["data/", "database/"]
        assert filled.reader.prefixes("data/") == ["data/x/"]
        assert paths(filled.reader.list_direct()) == ["top"]
        assert paths(filled.reader.list_direct("data/")) == sorted(set(IN_DATA) - {"data/x/y"})

    def test_the_error_for_a_missing_object_has_its_url(self, filled: Lake) -> None:
        for ask in (filled.reader.read, filled.reader.head):
            with pytest.raises(ObjectMissing, match="'data/gone': the object is not in the store") as caught:
                ask("data/gone")
            assert filled.access.url in str(caught.value)
            assert "\n" not in str(caught.value)

    def test_a_path_that_no_store_takes_is_a_store_error(self, filled: Lake) -> None:
        with pytest.raises(StoreError, match="empty path segment"):
            filled.reader.read("data//x")

    @with_buckets
    def test_a_missing_location_is_an_error_and_not_an_empty_listing(self, lake: Lake) -> None:
        missing = not_there(lake)
        with pytest.raises(StoreError, match="the bucket does not exist"):
            list(ObjectReader(missing).list())
        with pytest.raises(StoreError, match="the bucket does not exist"):
            ObjectReader(missing).read("x")


def not_there(lake: Lake) -> StoreAccess:
    """Return a bucket that does not exist."""
    scheme, _, _ = lake.access.url.partition("://")
    return StoreAccess(f"{scheme}://no-such-{uuid4().hex}", lake.access.options)


class TestTimesAndETags:
    """Times and ETags, by which the package recognizes a replaced object and its age."""

    def test_the_head_of_an_object_agrees_with_the_listing(self, filled: Lake) -> None:
        attributes = filled.reader.head("data/x/y")
        (listed,) = rows(filled.reader.list("data/x"))
        assert (attributes.path, attributes.size, attributes.e_tag) == (listed["path"], listed["size"], listed["e_tag"])
        assert abs(attributes.last_modified - listed["last_modified"]) < timedelta(seconds=1)

    def test_the_store_lists_times_with_the_expected_precision(self, filled: Lake) -> None:
        fractions = {row["last_modified"].microsecond for row in rows(filled.reader.list())}
        assert (fractions == {0}) is filled.kind.lists_whole_seconds

    def test_a_successor_of_the_same_size_has_another_etag(self, lake: Lake) -> None:
        lake.writer.put("x", b"1")
        before = lake.reader.head("x")
        lake.writer.put("x", b"2")
        after = lake.reader.head("x")
        assert after.e_tag != before.e_tag
        assert after.last_modified >= before.last_modified

    def test_only_an_etag_that_is_a_hash_is_the_same_for_the_same_bytes(self, lake: Lake) -> None:
        lake.writer.put("x", b"1")
        lake.writer.put("y", b"1")
        same = lake.reader.head("x").e_tag == lake.reader.head("y").e_tag
        assert same is lake.kind.hashes_content

    def test_the_store_s_clock_is_this_machine_s_and_never_ahead_of_it(self, lake: Lake) -> None:
        before = datetime.now(UTC)
        time_of_store = store_time(lake.access)
        assert time_of_store is not None
        assert before - timedelta(seconds=5) < time_of_store <= datetime.now(UTC)


class TestWriting:
    def test_put_overwrites_an_existing_object(self, lake: Lake) -> None:
        lake.writer.put("data/x", b"first")
        lake.writer.put("data/x", b"second")
        assert lake.reader.read("data/x") == b"second"

    def test_an_existing_object_is_not_created_again(self, lake: Lake) -> None:
        assert lake.writer.create("data/x", b"first") is True
        assert lake.writer.create("data/x", b"second") is False
        assert lake.writer.create("data/x", b"first") is False
        assert lake.reader.read("data/x") == b"first"

    def test_of_several_that_create_at_once_one_succeeds(self, lake: Lake) -> None:
        with ThreadPoolExecutor(8) as pool:
            done = list(pool.map(lambda number: lake.writer.create("lease", str(number).encode()), range(8)))
        assert done.count(True) == 1
        assert lake.reader.read("lease") == str(done.index(True)).encode()

    def test_an_object_is_replaced_as_long_as_it_is_the_same(self, lake: Lake) -> None:
        lake.writer.put("repo", b"first")
        e_tag = str(lake.reader.head("repo").e_tag)
        assert lake.writer.replace("repo", b"second", e_tag) is True
        assert lake.writer.replace("repo", b"third", e_tag) is False
        assert lake.writer.replace("repo", b"third", ABSENT_E_TAG) is False
        assert lake.reader.read("repo") == b"second"

    def test_a_store_that_honours_conditions_is_not_refused_and_nothing_is_left_in_it(self, lake: Lake) -> None:
        lake.writer.require_conditions()
        assert list(lake.reader.list()) == []

    def test_an_object_that_is_gone_is_not_replaced(self, lake: Lake) -> None:
        assert lake.writer.replace("gone", b"1", ABSENT_E_TAG) is False
        assert not lake.reader.holds_objects("")

    def test_of_several_that_replace_at_once_one_succeeds(self, lake: Lake) -> None:
        lake.writer.put("repo", b"first")
        e_tag = str(lake.reader.head("repo").e_tag)
        with ThreadPoolExecutor(8) as pool:
            done = list(pool.map(lambda number: lake.writer.replace("repo", str(number).encode(), e_tag), range(8)))
        assert done.count(True) == 1
        assert lake.reader.read("repo") == str(done.index(True)).encode()

    @with_buckets
    def test_in_a_missing_bucket_no_write_counts_as_refused(self, lake: Lake) -> None:
        missing = not_there(lake)
        writer = ObjectWriter(missing)
        for write in (lambda: writer.create("x", b"1"), lambda: writer.replace("x", b"1", ABSENT_E_TAG)):
            with pytest.raises(StoreError, match="the bucket does not exist"):
                write()


class TestCopying:
    @pytest.fixture(params=["beside", "elsewhere"])
    def target(self, request: pytest.FixtureRequest, lake: Lake) -> StoreAccess:
        found: StoreAccess = getattr(lake, request.param)
        return found

    def test_objects_of_any_name_are_copied_and_the_comparison_is_reported(
        self, filled: Lake, target: StoreAccess
    ) -> None:
        planned = [
            Copy(row["path"], f"kept/{row['path']}", row["size"], row["e_tag"]) for row in rows(filled.reader.list())
        ]
        results = ObjectCopier(filled.access, target).copy_all(planned)
        by = "size and etag" if filled.kind.hashes_content else "size"
        assert all(isinstance(result, VerifiedCopy) for result in results)
        assert [(result.size, result.verified_by) for result in results] == [(copy.size, by) for copy in planned]
        kept = ObjectReader(target)
        assert paths(kept.list()) == sorted(f"kept/{name}" for name in NAMES)
        assert {name: kept.read(f"kept/{name}") for name in NAMES} == {name: name.encode() for name in NAMES}
        assert paths(filled.reader.list()) == sorted(NAMES)

    def test_a_copy_has_a_new_modification_time(self, lake: Lake, target: StoreAccess) -> None:
        lake.writer.put("x", b"1")
        before = lake.reader.head("x").last_modified
        ObjectWriter(target).put("mark", b"")
        assert isinstance(copy_one(ObjectCopier(lake.access, target), "x", "y", 1), VerifiedCopy)
        kept = ObjectReader(target)
        assert kept.head("y").last_modified >= kept.head("mark").last_modified
        assert lake.reader.head("x").last_modified == before

    def test_an_object_larger_than_one_request_is_copied_completely(self, lake: Lake, target: StoreAccess) -> None:
        content = bytes(range(256)) * 36_000  # 9 MB
        lake.writer.put("x", content)
        done = copy_one(ObjectCopier(lake.access, target), "x", "y", len(content), lake.reader.head("x").e_tag)
        assert isinstance(done, VerifiedCopy)
        assert ObjectReader(target).read("y") == content

    def test_an_existing_equal_copy_is_accepted(self, filled: Lake, target: StoreAccess) -> None:
        copier = ObjectCopier(filled.access, target)
        first, again = (copy_one(copier, "top", "kept", 3) for _ in range(2))
        assert isinstance(first, VerifiedCopy)
        assert replace(again, copy_e_tag=None) == replace(first, copy_e_tag=None)  # some stores write it again

    def test_another_object_at_the_target_is_not_overwritten(self, filled: Lake, target: StoreAccess) -> None:
        ObjectWriter(target).put("kept", b"another")
        done = copy_one(ObjectCopier(filled.access, target), "top", "kept", 3)
        assert isinstance(done, ObjectResult)
        assert done.outcome is Outcome.FAILED
        assert done.detail == "another object is at the target; it was not overwritten"
        assert ObjectReader(target).read("kept") == b"another"

    @pytest.mark.parametrize("size", [3, 9 * 1024**2], ids=["one_request", "in_parts"])
    def test_an_object_that_is_written_to_the_target_meanwhile_is_kept_where_the_store_can_do_this(
        self, lake: Lake, target: StoreAccess, size: int
    ) -> None:
        if not lake.kind.copies_conditionally:
            pytest.skip(f"{lake.kind.name} ignores the condition of a copy")
        lake.writer.put("x", b"1" * size)
        copier = ObjectCopier(lake.access, target, overwrites=False)
        copy_object = copier._copy_strategy.copy_object

        def after_another_write(*arguments: Any) -> Any:
            ObjectWriter(target).put("kept", b"another")
            return copy_object(*arguments)

        copier._copy_strategy.copy_object = after_another_write  # type: ignore[method-assign]
        done = copy_one(copier, "x", "kept", size)
        assert done == ObjectResult(Outcome.FAILED, "another object is at the target; it was not overwritten")
        assert ObjectReader(target).read("kept") == b"another"

    def test_an_object_that_is_not_the_planned_one_is_not_copied(self, filled: Lake, target: StoreAccess) -> None:
        copier = ObjectCopier(filled.access, target)
        for size, e_tag in ((4, filled.reader.head("top").e_tag), (3, ABSENT_E_TAG)):
            done = copy_one(copier, "top", "kept", size, e_tag)
            assert isinstance(done, ObjectResult)
            assert done.outcome is Outcome.SKIPPED
            assert "an object of 3 bytes" in str(done.detail)
        assert paths(ObjectReader(target).list()) == []

    def test_an_object_that_is_gone_is_missing(self, filled: Lake, target: StoreAccess) -> None:
        done = copy_one(ObjectCopier(filled.access, target), "data/gone", "kept", 3)
        assert done == ObjectResult(Outcome.MISSING)

    @pytest.mark.parametrize("end", ["source", "target"])
    @with_buckets
    def test_in_a_missing_bucket_nothing_is_missing_or_copied(self, filled: Lake, end: str) -> None:
        missing = not_there(filled)
        places = (missing, filled.beside) if end == "source" else (filled.access, missing)
        done = copy_one(ObjectCopier(*places), "top", "kept", 3)
        assert isinstance(done, ObjectResult)
        assert done.outcome is Outcome.FAILED
        assert "the bucket does not exist" in str(done.detail)

    def test_a_path_that_would_be_read_as_another_is_not_copied(self, filled: Lake) -> None:
        odd = [("/top", "kept"), ("top", "kept//"), ("data/../top", "kept"), ("top", "")]
        results = ObjectCopier(filled.access, filled.beside).copy_all([Copy(path, to, 3) for path, to in odd])
        assert [isinstance(done, ObjectResult) and done.outcome for done in results] == [Outcome.FAILED] * len(odd)
        assert paths(ObjectReader(filled.beside).list()) == []


def test_a_local_directory_that_becomes_empty_is_deleted_too(tmp_path: Path) -> None:
    for path in ("lake/data/slice/one", "lake/data/slice/two", "lake/data/other/three"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(b"1")
    deleter = ObjectDeleter(StoreAccess(f"file://{tmp_path}/lake"))
    deleter.delete_all(["data/slice/one"])
    assert (tmp_path / "lake/data/slice").is_dir()
    deleter.delete_all(["data/slice/two"])
    assert [path.name for path in (tmp_path / "lake/data").iterdir()] == ["other"]
    deleter.delete_all(["data/other/three"])
    assert list((tmp_path / "lake").iterdir()) == []


class TestDeleting:
    def test_only_the_named_objects_are_deleted_and_not_their_neighbours(self, filled: Lake) -> None:
        gone = IN_DATA[:-1]
        assert filled.deleter.delete_all(gone) == [DELETED] * len(gone)
        assert paths(filled.reader.list()) == sorted(set(NAMES) - set(gone))

    def test_an_object_that_is_gone_is_a_success(self, filled: Lake) -> None:
        gone, there = filled.deleter.delete_all(["data/gone", "top"])
        assert gone.outcome in (Outcome.MISSING, Outcome.DELETED)
        assert there.outcome is Outcome.DELETED
        assert "top" not in paths(filled.reader.list())

    def test_a_path_that_would_be_read_as_another_is_not_deleted(self, filled: Lake) -> None:
        odd = ["/top", "top/", "data//x", "data/../top", "./top", ""]
        assert [done.outcome for done in filled.deleter.delete_all(odd)] == [Outcome.FAILED] * len(odd)
        assert paths(filled.reader.list()) == sorted(NAMES)

    def test_results_are_in_the_order_of_the_paths(self, filled: Lake) -> None:
        deletions = filled.deleter.delete_all(["top", "/bad", "database/z", "top"])
        assert [done.outcome is Outcome.FAILED for done in deletions] == [False, True, False, False]

    def test_no_paths_give_no_results(self, lake: Lake) -> None:
        assert list(lake.deleter.delete_all([])) == []

    def test_an_object_with_the_planned_etag_is_deleted(self, filled: Lake) -> None:
        (done,) = filled.deleter.delete_all([DeleteTarget("top", filled.reader.head("top").e_tag)])
        assert done.outcome is Outcome.DELETED
        assert "top" not in paths(filled.reader.list())

    def test_whether_a_changed_object_survives_is_as_documented(self, filled: Lake) -> None:
        (done,) = filled.deleter.delete_all([DeleteTarget("top", ABSENT_E_TAG)])
        survives = filled.kind.deletes_on_condition
        assert done.outcome is (Outcome.SKIPPED if survives else Outcome.DELETED)
        assert ("top" in paths(filled.reader.list())) is survives

    @with_buckets
    def test_a_deletion_in_a_missing_bucket_fails(self, lake: Lake) -> None:
        missing = not_there(lake)
        deletions = ObjectDeleter(missing).delete_all(["a", "b"])
        assert [done.outcome for done in deletions] == [Outcome.FAILED, Outcome.FAILED]


@pytest.mark.long
def test_more_objects_than_one_page_or_one_bulk_request_are_listed_and_deleted(lake: Lake) -> None:
    fill(lake.access, MANY)
    assert paths(lake.reader.list()) == MANY
    assert {done.outcome for done in lake.deleter.delete_all(MANY)} == {Outcome.DELETED}
    assert paths(lake.reader.list()) == []


def planned(lake: Lake, **changed: Any) -> pa.Table:
    """Return rows of `OBJECTS` for all listed objects, each with the values of `changed`."""
    listed = [
        {"address": row["path"], "size": row["size"], "last_modified": row["last_modified"], "etag": row["e_tag"]}
        for row in rows(lake.reader.list())
    ]
    etag = {"etag": None} if lake.kind is LOCAL else {}
    return pa.Table.from_pylist([{**row, **etag, **changed} for row in listed], OBJECTS)


def outcomes(lake: Lake, objects: pa.Table) -> dict[str, str | None]:
    preconditions = Preconditions(lake.access)
    classified = preconditions.classified(objects, preconditions.open())
    return dict(zip(classified["address"].to_pylist(), classified["outcome"].to_pylist(), strict=True))


class TestPreconditions:
    """The checks of a sweep's worker just before it deletes or moves objects."""

    def test_an_unchanged_object_passes_the_precondition_whatever_its_name(self, filled: Lake) -> None:
        objects = planned(filled)
        fill(filled.access, ["data/a", "data/x/z", "data/êx", "tope"])  # next to them, and in no plan
        assert outcomes(filled, objects) == dict.fromkeys(NAMES)

    @pytest.mark.parametrize("changed", [{"size": 99}, {"last_modified": datetime(2020, 1, 1, tzinfo=UTC)}], ids=str)
    def test_a_changed_object_fails_the_precondition(self, filled: Lake, changed: dict[str, Any]) -> None:
        assert outcomes(filled, planned(filled, **changed)) == dict.fromkeys(NAMES, "skipped")

    def test_a_missing_object_fails_the_precondition(self, filled: Lake) -> None:
        objects = planned(filled)
        filled.deleter.delete_all(["data/é", "top", "data/x/y"])
        expected = {name: "missing" if name in ("data/é", "top", "data/x/y") else None for name in NAMES}
        assert outcomes(filled, objects) == expected

    @pytest.mark.long
    def test_many_objects_are_checked_in_pages(self, lake: Lake) -> None:
        fill(lake.access, MANY)
        names = [*MANY[3:-2], f"{MANY[-1]}-gone"]
        rows = [{"address": name} for name in names]
        expected = {name: "missing" if name.endswith("gone") else None for name in names}
        assert outcomes(lake, pa.Table.from_pylist(rows, OBJECTS)) == expected


def test_a_precondition_check_that_fails_raises_an_error(moto: StoreServer) -> None:
    access = StoreAccess("s3://no-such-bucket/x", moto.options)
    preconditions = Preconditions(access)
    with pytest.raises(StoreError, match="no-such-bucket"):
        preconditions.classified(pa.Table.from_pylist([{"address": "data/a"}], OBJECTS), preconditions.open())
