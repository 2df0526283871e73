"""One contract for every kind of store: this process's memory, local files, an S3 server over HTTP."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

from retention_assets.errors import ObjectMissing, StoreError
from retention_assets.stores.deletion import Deletion, ObjectDeleter, Outcome
from retention_assets.stores.objects import LISTING, ObjectReader, StoreAccess
from tests.stores.s3 import Bucket

NAMES = ["data/a,sig-nature_", "data/with space", "data/é", "data/100%25", "data/x/y", "database/z", "top"]


def rows(batches: Iterator[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def paths(batches: Iterator[pa.RecordBatch]) -> list[str]:
    return sorted(row["path"] for row in rows(batches))


def bytes_of(reader: ObjectReader, names: list[str]) -> dict[str, bytes]:
    return {name: reader.read(name) for name in names}


class StoreContract:
    """What every store must do. A subclass says which one `access` leads to."""

    @pytest.fixture
    def filled(self, access: StoreAccess) -> StoreAccess:
        store = access.open()
        for name in NAMES:
            store.put(name, name.encode())
        return access

    @pytest.fixture
    def reader(self, filled: StoreAccess) -> ObjectReader:
        return ObjectReader(filled)

    @pytest.fixture
    def deleter(self, filled: StoreAccess) -> ObjectDeleter:
        return ObjectDeleter(filled)

    def test_reads_an_object_whatever_its_name(self, reader: ObjectReader) -> None:
        assert bytes_of(reader, NAMES) == {name: name.encode() for name in NAMES}

    def test_lists_everything_with_size_time_and_etag(self, reader: ObjectReader) -> None:
        batches = list(reader.list())
        assert all(batch.schema.equals(LISTING) for batch in batches)
        listed = {row["path"]: row for row in rows(iter(batches))}
        assert {name: row["size"] for name, row in listed.items()} == {name: len(name.encode()) for name in NAMES}
        now = datetime.now(UTC)
        assert all(now - timedelta(minutes=5) < row["last_modified"] <= now for row in listed.values())
        assert all(row["e_tag"] and '"' not in row["e_tag"] for row in listed.values())

    @pytest.mark.parametrize("prefix", ["data", "data/"])
    def test_a_prefix_is_a_directory(self, reader: ObjectReader, prefix: str) -> None:
        assert paths(reader.list(prefix)) == sorted(name for name in NAMES if name.startswith("data/"))

    def test_an_empty_place_lists_nothing(self, reader: ObjectReader) -> None:
        assert rows(reader.list("nowhere")) == []
        assert not reader.holds_objects("nowhere")
        assert reader.holds_objects("data/x/")

    def test_one_level_gives_its_directories_and_its_own_objects(self, reader: ObjectReader) -> None:
        assert reader.prefixes() == ["data/", "database/"]
        assert reader.prefixes("data/") == ["data/x/"]
        assert paths(reader.list_direct()) == ["top"]
        assert "data/x/y" not in paths(reader.list_direct("data/"))

    def test_the_head_of_an_object_agrees_with_the_listing(self, reader: ObjectReader) -> None:
        facts = reader.head("data/x/y")
        listed = rows(reader.list("data/x"))[0]
        assert (facts.path, facts.size, facts.e_tag) == (listed["path"], listed["size"], listed["e_tag"])
        assert abs(facts.last_modified - listed["last_modified"]) < timedelta(seconds=1)

    def test_a_missing_object_is_named_with_its_place(self, reader: ObjectReader) -> None:
        for ask in (reader.read, reader.head):
            with pytest.raises(ObjectMissing, match="'data/gone': it is not in the store") as caught:
                ask("data/gone")
            assert reader.describe("").rstrip("/") in str(caught.value)
            assert "\n" not in str(caught.value)

    def test_a_path_that_no_store_takes_is_a_store_error(self, reader: ObjectReader) -> None:
        with pytest.raises(StoreError, match="empty path segment"):
            reader.read("data//x")

    def test_deletes_what_is_named_and_not_its_neighbours(self, reader: ObjectReader, deleter: ObjectDeleter) -> None:
        gone = ["data/a,sig-nature_", "data/with space", "data/é", "data/100%25"]
        assert [done.path for done in deleter.delete_all(gone)] == gone
        assert paths(reader.list()) == sorted(set(NAMES) - set(gone))

    def test_an_object_that_is_gone_is_a_success(self, reader: ObjectReader, deleter: ObjectDeleter) -> None:
        deletions = deleter.delete_all(["data/gone", "top"])
        assert deletions[0].outcome in (Outcome.MISSING, Outcome.DELETED)
        assert deletions[1] == Deletion("top", Outcome.DELETED)
        assert "top" not in paths(reader.list())

    @pytest.mark.parametrize("path", ["/top", "top/", "data//x", "data/../top", "./top", ""])
    def test_a_path_that_would_be_read_as_another_is_not_deleted(
        self, reader: ObjectReader, deleter: ObjectDeleter, path: str
    ) -> None:
        (deletion,) = deleter.delete_all([path])
        assert deletion.outcome is Outcome.FAILED
        assert paths(reader.list()) == sorted(NAMES)

    def test_each_path_has_its_answer_in_its_place(self, deleter: ObjectDeleter) -> None:
        deletions = deleter.delete_all(["top", "/bad", "database/z", "top"])
        assert [done.path for done in deletions] == ["top", "/bad", "database/z", "top"]
        assert [done.outcome is Outcome.FAILED for done in deletions] == [False, True, False, False]

    def test_no_paths_give_no_answers(self, deleter: ObjectDeleter) -> None:
        assert list(deleter.delete_all([])) == []


class TestMemory(StoreContract):
    @pytest.fixture
    def access(self) -> StoreAccess:
        return StoreAccess(f"memory://{uuid4()}")


class TestLocalFiles(StoreContract):
    @pytest.fixture
    def access(self, tmp_path: Path) -> StoreAccess:
        root = tmp_path / "a lake %20"
        root.mkdir()
        return StoreAccess(f"file://{root}")

    def test_says_which_objects_were_there(self, deleter: ObjectDeleter) -> None:
        deletions = deleter.delete_all(["data/gone", "top"])
        assert [done.outcome for done in deletions] == [Outcome.MISSING, Outcome.DELETED]

    def test_a_directory_that_is_not_there_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match="there is no such directory"):
            ObjectReader(StoreAccess(f"file://{tmp_path}/none"))


class TestS3(StoreContract):
    @pytest.fixture
    def access(self, bucket: Bucket) -> StoreAccess:
        return bucket.access("some/prefix")

    def test_what_lies_beside_the_prefix_is_not_seen(self, bucket: Bucket, reader: ObjectReader) -> None:
        bucket.client().put_object(Bucket=bucket.name, Key="some/prefixed", Body=b"")
        assert paths(reader.list()) == sorted(NAMES)

    def test_more_objects_than_one_page_or_one_bulk_request_holds(self, bucket: Bucket) -> None:
        store = bucket.access("many").open()
        names = [f"data/{number:04}" for number in range(1_005)]
        for name in names:
            store.put(name, b"")
        assert paths(ObjectReader(bucket.access("many")).list()) == names
        deletions = ObjectDeleter(bucket.access("many")).delete_all(names)
        assert {done.outcome for done in deletions} == {Outcome.DELETED}
        assert paths(ObjectReader(bucket.access("many")).list()) == []
