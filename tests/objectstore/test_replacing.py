"""Objects are replaced and removed only if they are unchanged, in a bucket and on a disk."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest

from retention_assets.errors import ConfigurationError, StoreError
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.failures import failure_of_response, unreachable
from retention_assets.objectstore.mutate.deletion import ObstoreDeletion
from retention_assets.objectstore.mutate.writing import ObjectWriter
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.objectstore.outcomes import DeleteTarget, MaySend, ObjectResult
from tests.objectstore.s3 import Bucket


@pytest.fixture(params=["memory", "local", "s3"])
def access(request: pytest.FixtureRequest, tmp_path: Path) -> StoreAccess:
    if request.param == "s3":
        bucket: Bucket = request.getfixturevalue("bucket")
        return bucket.access("r")
    return StoreAccess(f"file://{tmp_path}" if request.param == "local" else f"memory://{tmp_path.name}")


def written(access: StoreAccess, content: bytes) -> str:
    ObjectWriter(access).put("a/b", content)
    return ObjectReader(access).head("a/b").e_tag or ""


def test_an_unchanged_object_is_replaced_and_a_changed_one_stays(access):
    first = written(access, b"1")
    assert ObjectWriter(access).replace("a/b", b"2", first)
    assert not ObjectWriter(access).replace("a/b", b"3", first)
    assert ObjectReader(access).read("a/b") == b"2"


def test_a_missing_object_is_not_created_by_a_replacement(access):
    first = written(access, b"1")
    assert ObjectWriter(access).remove("a/b", first)
    assert not ObjectWriter(access).replace("a/b", b"2", first)
    assert not ObjectReader(access).holds_objects("a")


def test_an_unchanged_object_is_removed_and_a_changed_one_stays(access):
    first = written(access, b"1")
    second = written(access, b"22")
    assert not ObjectWriter(access).remove("a/b", first)
    assert ObjectReader(access).read("a/b") == b"22"
    assert ObjectWriter(access).remove("a/b", second)
    assert ObjectWriter(access).remove("a/b", second)  # gone is a success


def test_concurrent_replacements_of_a_file_do_not_undo_each_other(tmp_path: Path):
    """Each writer appends one line to the content that it read, and reads again after a conflict."""
    access = StoreAccess(f"file://{tmp_path}")
    ObjectWriter(access).put("a", b"")

    def add(number: int) -> None:
        reader, writer = ObjectReader(access), ObjectWriter(access)
        while True:
            content, metadata = reader.read_with_metadata("a")
            if writer.replace("a", content + b"%d\n" % number, metadata.e_tag or ""):
                return

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(60)))
    assert sorted(map(int, ObjectReader(access).read("a").split())) == list(range(60))


def test_files_that_cannot_be_locked_are_not_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    access = StoreAccess(f"file://{tmp_path}")
    first = written(access, b"1")

    def fail(handle: int, operation: int) -> None:
        raise OSError("no locks available")

    monkeypatch.setattr("fcntl.flock", fail)
    for act in (
        lambda: ObjectWriter(access).replace("a/b", b"2", first),
        lambda: ObjectWriter(access).remove("a/b", first),
    ):
        with pytest.raises(StoreError, match=r"cannot be locked .no locks available.*Nothing was changed"):
            act()
    assert ObjectReader(access).read("a/b") == b"1"


def test_an_object_that_cannot_be_deleted_is_reported_and_stays(guarded: Bucket):
    access = guarded.access()
    e_tag = ObjectReader(access).head("theirs/2").e_tag or ""
    with pytest.raises(StoreError) as refused:
        ObjectWriter(access).remove("theirs/2", e_tag)
    assert str(refused.value).startswith(f"s3://{guarded.name}/theirs/2: it was not deleted: ")
    assert str(refused.value).endswith("Run the same command again.")
    assert ObjectReader(access).head("theirs/2").e_tag == e_tag


def test_an_endpoint_of_another_bucket_is_refused_before_the_first_conditional_write(bucket: Bucket):
    """obstore uses the bucket of the endpoint, whatever the bucket of the URL is."""
    options = {"endpoint": f"{bucket.endpoint}/{bucket.name}", "virtual_hosted_style_request": "true"}
    access = StoreAccess("s3://another/r", {**bucket.access().options, **options})
    ObjectWriter(access).put("a", b"1")
    assert ObjectReader(bucket.access("r")).read("a") == b"1"
    with pytest.raises(ConfigurationError, match=r"^s3://another/r: .*the endpoint begins with the bucket's name"):
        ObjectWriter(access).require_conditions()


@pytest.mark.parametrize("failure", ["throttled", "without_a_response"])
def test_an_object_that_changes_while_its_failed_removal_is_sent_again_stays(
    monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    """Azure and GCS delete any object at the path: without a check, a new commit on a branch would be lost."""
    access = StoreAccess(f"memory://{uuid4().hex}")
    writer = ObjectWriter(access)
    writer.put("ref.json", b"before")
    delete, requests = ObstoreDeletion.delete_one, list[str]()

    def fails_once(store: ObstoreDeletion, to_delete: DeleteTarget, may_send: MaySend) -> ObjectResult:
        requests.append(to_delete.path)
        if len(requests) > 1:
            return delete(store, to_delete, may_send)
        writer.put("ref.json", b"a new commit")
        is_throttled = failure == "throttled"
        return ObjectResult.failed(failure_of_response("SlowDown", 503, "", ()) if is_throttled else unreachable())

    monkeypatch.setattr(ObstoreDeletion, "delete_one", fails_once)
    assert not writer.remove("ref.json", ObjectReader(access).head("ref.json").e_tag or "")
    assert ObjectReader(access).read("ref.json") == b"a new commit"
    assert requests == ["ref.json"]


def test_the_error_of_a_removal_without_a_response_does_not_say_that_the_object_was_not_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    access = StoreAccess(f"memory://{uuid4().hex}")
    ObjectWriter(access).put("ref.json", b"1")
    monkeypatch.setattr(ObstoreDeletion, "delete_one", lambda *_: ObjectResult.failed(unreachable()))
    monkeypatch.setattr("retention_assets.objectstore.mutate.writing._MORE_TRIES", 0)
    with pytest.raises(StoreError, match=r"ref\.json: the store cannot be reached") as failed:
        ObjectWriter(access).remove("ref.json", ObjectReader(access).head("ref.json").e_tag or "")
    assert str(failed.value).endswith("Whether it was deleted is unknown. Run the same command again.")


def test_a_removal_that_failed_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    access = StoreAccess(f"memory://{uuid4().hex}")
    writer = ObjectWriter(access)
    writer.put("ref.json", b"1")
    answers = iter([ObjectResult.failed(unreachable()), ObjectResult.failed(unreachable())])
    delete = ObstoreDeletion.delete_one
    monkeypatch.setattr(ObstoreDeletion, "delete_one", lambda *arguments: next(answers, None) or delete(*arguments))
    assert writer.remove("ref.json", ObjectReader(access).head("ref.json").e_tag or "")
    assert ObjectReader(access).find("ref.json") is None
