"""Quarantine, restore and purge: each object is copied once, nothing is copied or deleted after the deadline."""

import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
import yaml
from pyspark import cloudpickle

from retention_assets.config.configuration import load_configuration
from retention_assets.errors import AccessDenied, ConfigurationError, StoreError
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.mutate.deletion import ObjectDeleter
from retention_assets.objectstore.mutate.writing import ObjectWriter
from retention_assets.objectstore.objects import ObjectMetadata, ObjectReader
from retention_assets.objectstore.outcomes import DeleteTarget, ObjectResult, Outcome
from retention_assets.objectstore.rate_limiter import RateLimiter
from retention_assets.objectstore.versions import all_versions
from retention_assets.state.quarantine import QuarantineLocation, quarantine_url
from retention_assets.sweep import actions, purges
from retention_assets.sweep.actions import Delete, Quarantine, Restore
from retention_assets.sweep.purges import Purge, PurgeCompared
from retention_assets.sweep.worker import OBJECTS, chunks
from tests.faulty_s3 import FaultyS3
from tests.objectstore.s3 import Bucket

MEBIBYTE = 1024**2


def objects(access: StoreAccess, *addresses: str) -> pa.Table:
    """Return rows of `OBJECTS` as in a plan, which has no ETags of local files."""
    heads = [ObjectReader(access).head(address) for address in addresses]
    plain = {"last_modified": None, "outcome": None, "detail": None}
    rows = [
        {"address": one.path, "size": one.size, "etag": None if access.is_local else one.e_tag, **plain}
        for one in heads
    ]
    return pa.Table.from_pylist(rows, OBJECTS)


def move(
    action: Quarantine, rows: pa.Table, name: str, before_deadline: Callable[[], bool] = lambda: True
) -> list[str]:
    return [one.outcome for one in action.open(RateLimiter()).do(rows, name, before_deadline)]


def never() -> bool:
    return False


@pytest.fixture
def on_disk(tmp_path: Path) -> Quarantine:
    for name in ("lake", "attic"):
        (tmp_path / name).mkdir()
    here, there = (StoreAccess(f"file://{tmp_path}/{name}") for name in ("lake", "attic"))
    for name in ("a", "b", "c"):
        ObjectWriter(here).put(f"data/{name}", name.encode() * 9)
    (tmp_path / "lake" / "kept").touch()  # a repository always has files that no plan deletes
    return Quarantine(here, QuarantineLocation(there, "2026-11-01/abc"))


def inodes(action: Quarantine) -> dict[str, str | None]:
    """Return the ETag of each copy on disk. It contains the inode, so each new copy has a new one."""
    reader = ObjectReader(action.location.access)
    copies = [path for page in reader.list(action.location.path("")) for path in page["path"].to_pylist()]
    return {path: reader.head(path).e_tag for path in copies}


def asked(*answers: bool) -> Callable[[], bool]:
    """Return a function that returns these answers one after the other, then always the last one."""
    left: Iterator[bool] = iter(answers)
    return lambda: next(left, answers[-1])


def late_after_copying() -> Callable[[], bool]:
    return asked(True, False)


def test_a_verified_copy_is_not_made_again_if_etags_are_no_hashes(on_disk: Quarantine) -> None:
    rows = objects(on_disk.access, "data/a", "data/b", "data/c")
    assert move(on_disk, rows, "1", late_after_copying()) == ["attempted"] * 3
    made = inodes(on_disk)
    assert len(made) == 3
    assert move(on_disk, rows, "2", late_after_copying()) == ["attempted"] * 3
    assert move(on_disk, rows, "3") == ["quarantined"] * 3
    assert inodes(on_disk) == made
    assert not ObjectReader(on_disk.access).holds_objects("data")


def test_a_copy_that_was_replaced_after_its_verification_is_made_again(on_disk: Quarantine) -> None:
    rows = objects(on_disk.access, "data/a")
    move(on_disk, rows, "1", late_after_copying())
    ObjectWriter(on_disk.location.access).put(on_disk.location.path("data/a"), b"x" * 9)
    assert move(on_disk, rows, "2") == ["quarantined"]
    assert ObjectReader(on_disk.location.access).read(on_disk.location.path("data/a")) == b"a" * 9


def test_an_original_that_was_replaced_after_its_copy_is_copied_again(on_disk: Quarantine) -> None:
    rows = objects(on_disk.access, "data/a")
    move(on_disk, rows, "1", late_after_copying())
    ObjectWriter(on_disk.access).put("data/a", b"z" * 9)
    assert move(on_disk, rows, "2") == ["quarantined"]
    assert ObjectReader(on_disk.location.access).read(on_disk.location.path("data/a")) == b"z" * 9


def test_unreadable_manifests_of_verified_copies_only_cost_another_copy(on_disk: Quarantine, tmp_path: Path) -> None:
    rows = objects(on_disk.access, "data/a")
    move(on_disk, rows, "1", late_after_copying())
    (manifest,) = (tmp_path / "attic").rglob("*-copied.json")
    manifest.write_text("{", encoding="utf-8")
    assert move(on_disk, rows, "2") == ["quarantined"]


def test_a_sweep_with_the_number_of_an_earlier_one_overwrites_no_manifest(on_disk: Quarantine, tmp_path: Path) -> None:
    """The warehouse was restored from a backup, so its leases have the same numbers again."""
    for address in ("data/a", "data/b"):
        assert move(on_disk, objects(on_disk.access, address), "1") == ["quarantined"]
    written = [json.loads(file.read_bytes())["objects"] for file in (tmp_path / "attic").rglob("manifest/*.json")]
    assert sorted(row["address"] for (row,) in written) == ["data/a", "data/b"]


def test_nothing_is_copied_after_the_deadline(on_disk: Quarantine) -> None:
    rows = objects(on_disk.access, "data/a", "data/b")
    assert move(on_disk, rows, "1", never) == ["attempted"] * 2
    assert inodes(on_disk) == {}


def test_objects_copied_before_the_deadline_are_moved_although_the_rest_of_the_chunk_is_late(
    on_disk: Quarantine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without this, a chunk that takes longer than the window would be copied and never moved."""
    monkeypatch.setattr(actions, "_STEP_OBJECTS", 1)
    monkeypatch.setattr(actions, "_POLL_SECONDS", -1)
    rows = objects(on_disk.access, "data/a", "data/b", "data/c")
    before_deadline = asked(True, True, True, True, True, False)
    assert move(on_disk, rows, "1", before_deadline) == ["quarantined", "attempted", "attempted"]


def moved(action: Quarantine, *addresses: str) -> pa.Table:
    """Move objects to quarantine, and return their rows."""
    rows = objects(action.access, *addresses)
    assert move(action, rows, "1") == ["quarantined"] * len(addresses)
    return rows


def restored(action: Quarantine, rows: pa.Table, before_deadline: Callable[[], bool]) -> list[tuple[str, str | None]]:
    """Restore moved objects, and return their outcomes with the details."""
    restore = Restore(action.access, action.location).open(RateLimiter())
    results = restore.do(rows, "2", before_deadline)
    return [(one.outcome, one.detail) for one in restore.clean_up(rows, results, before_deadline)]


def test_nothing_is_restored_after_the_deadline(on_disk: Quarantine) -> None:
    rows = moved(on_disk, "data/a", "data/b", "data/c")
    ObjectWriter(on_disk.access).put("data/c", b"z" * 9)
    assert restored(on_disk, rows, never) == [("attempted", None)] * 3
    assert not ObjectReader(on_disk.access).holds_objects("data/a")
    assert len(inodes(on_disk)) == 3


def test_objects_restored_before_the_deadline_are_recorded_although_the_rest_of_the_chunk_is_late(
    on_disk: Quarantine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without this, a restore that is slower than its window would never end."""
    monkeypatch.setattr(actions, "_STEP_OBJECTS", 1)
    monkeypatch.setattr(actions, "_POLL_SECONDS", -1)
    rows = moved(on_disk, "data/a", "data/b", "data/c")
    checked, copied, sent = True, True, True
    restore = Restore(on_disk.access, on_disk.location).open(RateLimiter())
    results = restore.do(rows, "2", asked(checked, copied, sent, checked, copied, sent, False))
    assert [one.outcome for one in results] == ["restored", "restored", "attempted"]
    assert len(inodes(on_disk)) == 3  # the ledger does not have the results yet
    stays = "its copy in quarantine stays until a purge: the deadline had passed, or the lease was lost"
    after = restore.clean_up(rows, results, never)
    assert [(one.outcome, one.detail) for one in after] == [*[("restored", stays)] * 2, ("attempted", None)]
    assert len(inodes(on_disk)) == 3
    assert ObjectReader(on_disk.access).read("data/b") == b"b" * 9
    assert restored(on_disk, rows, lambda: True) == [("restored", None)] * 3
    assert inodes(on_disk) == {}


def test_a_restore_forces_local_files_to_the_disk_once_for_all_objects_of_a_step(
    on_disk: Quarantine, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = moved(on_disk, "data/a", "data/b", "data/c")
    calls: list[str] = []
    monkeypatch.setattr(os, "sync", lambda: calls.append("sync"))
    assert restored(on_disk, rows, lambda: True) == [("restored", None)] * 3
    assert calls == ["sync"]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([5] * 2_500, [(0, 1_000), (1_000, 1_000), (2_000, 500)], id="small_ones_by_number"),
        pytest.param([1024**3] * 25, [(0, 10), (10, 10), (20, 5)], id="large_ones_as_many_as_are_copied_at_once"),
    ],
)
def test_a_chunk_is_moved_in_steps(sizes: list[int], expected: list[tuple[int, int]]) -> None:
    assert list(chunks(sizes, actions._STEP_OBJECTS, actions._STEP_BYTES, fewest=actions.AT_ONCE)) == expected


# ---- S3


def in_parts(bucket: Bucket, key: str, content: bytes) -> None:
    """Upload an object in parts, so that its ETag is no MD5 sum."""
    client, named = bucket.client(), {"Bucket": bucket.name, "Key": key}
    upload = client.create_multipart_upload(**named)["UploadId"]
    part = client.upload_part(**named, UploadId=upload, PartNumber=1, Body=content)
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    client.complete_multipart_upload(**named, UploadId=upload, MultipartUpload=parts)


def test_an_object_uploaded_in_parts_is_copied_once_over_three_attempts(bucket: Bucket, faulty: FaultyS3) -> None:
    in_parts(bucket, "lake/data/parts", b"p" * 5 * MEBIBYTE)
    lake = bucket.access("lake", endpoint=faulty.endpoint)
    attic = bucket.access(f"attic-{uuid4().hex}", endpoint=faulty.endpoint)
    action = Quarantine(lake, QuarantineLocation(attic, "2026-11-01/abc"))
    rows = objects(lake, "data/parts")
    assert str(rows["etag"][0]).endswith("-1")
    results: list[ObjectResult | str] = []
    for number in range(2):
        results += move(action, rows, str(number), late_after_copying())
    results += move(action, rows, "2")
    assert results == ["attempted", "attempted", "quarantined"]
    copies = [one for one in faulty.requests if "x-amz-copy-source" in {name.lower() for name in one.headers}]
    assert len(copies) == 1


def test_an_object_that_is_exchanged_after_its_copy_stays_although_the_plan_has_no_etag(bucket: Bucket) -> None:
    lake = bucket.access("lake", disable_bulk_delete="true")  # this test's server honours conditions of single requests
    action = Quarantine(lake, QuarantineLocation(bucket.access(f"attic-{uuid4().hex}"), "2026-11-01/abc"))
    writer = ObjectWriter(lake)
    for name in ("a", "b"):
        writer.put(f"data/{name}", name.encode() * 9)
    rows = objects(lake, "data/a", "data/b")
    without_etags = rows.set_column(rows.schema.get_field_index("etag"), "etag", pa.nulls(2, pa.string()))
    calls = iter([lambda: None, lambda: writer.put("data/a", b"z" * 9)])  # the second call comes after the copies

    def before_deadline() -> bool:
        next(calls, lambda: None)()
        return True

    assert move(action, without_etags, "1", before_deadline) == ["skipped", "quarantined"]
    assert ObjectReader(lake).read("data/a") == b"z" * 9


def test_a_restore_does_not_overwrite_an_object_that_appears_while_it_works(
    on_disk: Quarantine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The object has the size of the copy. ETags of local files do not show whether the content is equal."""
    location, rows = on_disk.location, objects(on_disk.access, "data/a")
    assert move(on_disk, rows, "1") == ["quarantined"]
    restore, found = Restore(on_disk.access, location).open(RateLimiter()), Restore._found
    other = b"z" * rows["size"][0].as_py()

    def found_before_it_appears(self: Restore, *arguments: Any) -> ObjectResult | None:
        there = found(self, *arguments)
        ObjectWriter(on_disk.access).put("data/a", other)
        return there

    monkeypatch.setattr(Restore, "_found", found_before_it_appears)
    (done,) = restore.do(rows, "2", lambda: True)
    detail = "not restored: another object is at the target; it was not overwritten"
    assert (done.outcome, done.detail) == (Outcome.FAILED, detail)
    assert ObjectReader(on_disk.access).read("data/a") == other
    assert ObjectReader(location.access).head(location.path("data/a")).size == len(other)


@pytest.mark.parametrize("outcome", [one for one in Outcome if one not in (Outcome.DELETED, Outcome.MISSING)])
def test_a_copy_that_may_still_exist_is_not_called_purged(
    on_disk: Quarantine, monkeypatch: pytest.MonkeyPatch, outcome: Outcome
) -> None:
    """A store can answer 412 to an unconditional request, for example for an object under a legal hold."""
    rows, answer = objects(on_disk.access, "data/a", "data/b"), ObjectResult(outcome, "refused")
    monkeypatch.setattr(ObjectDeleter, "delete_all", lambda *_: [ObjectResult(Outcome.DELETED), answer])
    on_disk.location.write_manifest(rows, "1")
    done = Purge(on_disk.location).open(RateLimiter()).do(rows, "1", lambda: True)
    assert [one.outcome for one in done] == [Outcome.PURGED, outcome]


def test_an_object_that_vanishes_while_a_restore_compares_it_is_not_restored(
    on_disk: Quarantine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the only copy would be deleted."""
    location, rows = on_disk.location, objects(on_disk.access, "data/a")
    before = ObjectReader(on_disk.access).head("data/a")
    assert move(on_disk, rows, "1") == ["quarantined"]
    opened = Restore(on_disk.access, location).open(RateLimiter())
    monkeypatch.setattr(opened.reader, "find", lambda _: before)  # a moment ago, it was at its path
    (done,) = opened.do(rows, "2", lambda: True)
    assert done.outcome == Outcome.FAILED
    assert ObjectReader(location.access).head(location.path("data/a")).size == rows["size"][0].as_py()


def with_copies(on_disk: Quarantine, *addresses: str) -> pa.Table:
    """Lay copies of these objects in quarantine, and return the rows of the objects."""
    rows = objects(on_disk.access, *addresses)
    on_disk.location.write_manifest(rows, "1")
    for address in addresses:
        content = ObjectReader(on_disk.access).read(address)
        ObjectWriter(on_disk.location.access).put(on_disk.location.path(address), content)
    return rows


def test_surplus_copies_are_compared_and_purged_until_the_deadline(on_disk: Quarantine) -> None:
    location, rows = on_disk.location, with_copies(on_disk, "data/a", "data/b")
    ObjectWriter(on_disk.access).put("data/b", b"z" * rows["size"][1].as_py())
    action = PurgeCompared(location, originals=on_disk.access)
    late, purged = (action.open(RateLimiter()).do(rows, "1", poll) for poll in (lambda: False, lambda: True))
    assert [one.outcome for one in late] == [Outcome.ATTEMPTED] * 2
    assert [one.outcome for one in purged] == [Outcome.PURGED, Outcome.SKIPPED]
    assert ObjectReader(location.access).head(location.path("data/b")).size == rows["size"][1].as_py()


def test_a_copy_whose_comparison_takes_longer_than_the_window_fails(on_disk: Quarantine) -> None:
    """The next pass would take as long. Without an outcome, no purge would ever get past this copy."""
    rows, answers = with_copies(on_disk, "data/a"), iter([True])
    action = PurgeCompared(on_disk.location, originals=on_disk.access).open(RateLimiter())
    (done,) = action.do(rows, "1", lambda: next(answers, False))
    assert done.outcome == Outcome.FAILED
    assert str(done.detail).endswith("raise sweep.window")
    assert ObjectReader(on_disk.location.access).head(on_disk.location.path("data/a"))
    (done,) = action.do(rows, "2", lambda: True)
    assert done.outcome == Outcome.PURGED


def test_a_copy_to_which_the_path_of_its_object_is_a_link_is_not_purged(on_disk: Quarantine) -> None:
    rows = with_copies(on_disk, "data/a")
    urls = (f"{on_disk.access.url}/data/a", on_disk.location.describe("data/a"))
    original, copy = (Path(url.removeprefix("file://")) for url in urls)
    original.unlink()
    original.symlink_to(copy)
    (done,) = PurgeCompared(on_disk.location, originals=on_disk.access).open(RateLimiter()).do(rows, "1", lambda: True)
    assert done.outcome == Outcome.SKIPPED
    assert copy.is_file()


def test_a_copy_stays_if_its_original_changes_while_the_other_copies_are_compared(
    on_disk: Quarantine, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, digest = with_copies(on_disk, "data/a", "data/b"), ObjectReader.digest

    def change_a(reader: ObjectReader, path: str, **options: Any) -> bytes:
        if path.endswith("data/b"):
            ObjectWriter(on_disk.access).put("data/a", b"z" * 9)
        return digest(reader, path, **options)

    monkeypatch.setattr(purges, "AT_ONCE", 1)
    monkeypatch.setattr(ObjectReader, "digest", change_a)
    done = PurgeCompared(on_disk.location, originals=on_disk.access).open(RateLimiter()).do(rows, "1", lambda: True)
    assert [one.outcome for one in done] == [Outcome.ATTEMPTED, Outcome.PURGED]  # the next pass compares it again
    assert ObjectReader(on_disk.location.access).read(on_disk.location.path("data/a")) == b"a" * 9


@pytest.fixture
def in_bucket(bucket: Bucket) -> Quarantine:
    """Objects in a bucket that keeps versions, with their quarantine."""
    bucket.client().put_bucket_versioning(Bucket=bucket.name, VersioningConfiguration={"Status": "Enabled"})
    for name in ("a", "b"):
        ObjectWriter(bucket.access("lake")).put(f"data/{name}", name.encode() * 9)
    return Quarantine(bucket.access("lake"), QuarantineLocation(bucket.access("attic"), "2026-11-01/abc"))


@pytest.mark.parametrize(
    ("copies", "outcome"),
    [
        pytest.param((b"a" * 9, b"a" * 9), Outcome.PURGED, id="the_same"),
        pytest.param((b"a" * 9, None), Outcome.PURGED, id="the_same_below_a_delete_marker"),
        pytest.param((None,), Outcome.PURGED, id="only_a_delete_marker"),
        pytest.param((b"x" * 9, b"a" * 9), Outcome.SKIPPED, id="an_older_version_differs"),
        pytest.param((b"x" * 9, None), Outcome.SKIPPED, id="another_below_a_delete_marker"),
        pytest.param((b"a" * 8, b"a" * 9), Outcome.SKIPPED, id="an_older_version_has_another_size"),
    ],
)
def test_each_version_of_a_copy_is_compared_with_the_original(
    in_bucket: Quarantine, copies: tuple[bytes | None, ...], outcome: Outcome
) -> None:
    location = in_bucket.location
    path = location.path("data/a")
    for content in copies:
        if content is None:
            ObjectDeleter(location.access, conditional=False).delete_all([DeleteTarget(path)])
        else:
            ObjectWriter(location.access).put(path, content)
    before = [row for page in all_versions(location.access) for row in page.to_pylist()]
    action = PurgeCompared(location, keeps_versions=True, originals=in_bucket.access).open(RateLimiter())
    (done,) = action.do(objects(in_bucket.access, "data/a"), "1", lambda: True)
    assert done.outcome == outcome
    left = [row for page in all_versions(location.access) for row in page.to_pylist()]
    assert left == ([] if outcome == Outcome.PURGED else before)


def test_versions_whose_etags_are_no_md5_are_read_and_compared(
    in_bucket: Quarantine, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = in_bucket.location
    for name in ("a", "b"):
        for content in (name.encode() * 9, b"a" * 9):
            ObjectWriter(location.access).put(location.path(f"data/{name}"), content)
    monkeypatch.setattr(actions, "have_same_md5", lambda *_: False)
    action = PurgeCompared(location, keeps_versions=True, originals=in_bucket.access).open(RateLimiter())
    done = action.do(objects(in_bucket.access, "data/a", "data/b"), "1", lambda: True)
    assert [one.outcome for one in done] == [Outcome.PURGED, Outcome.SKIPPED]


def test_a_version_that_is_written_after_the_listing_stays(
    in_bucket: Quarantine, monkeypatch: pytest.MonkeyPatch
) -> None:
    location, head = in_bucket.location, ObjectReader.head
    path = location.path("data/a")
    ObjectWriter(location.access).put(path, b"a" * 9)
    rows = objects(in_bucket.access, "data/a")

    def write_and_look_up(reader: ObjectReader, name: str) -> ObjectMetadata:
        ObjectWriter(location.access).put(path, b"y" * 9)
        return head(reader, name)

    action = PurgeCompared(location, keeps_versions=True, originals=in_bucket.access).open(RateLimiter())
    with monkeypatch.context() as patch:
        patch.setattr(ObjectReader, "head", write_and_look_up)
        (done,) = action.do(rows, "1", lambda: True)
    assert done.outcome == Outcome.PURGED
    assert ObjectReader(location.access).read(path) == b"y" * 9


def test_copies_whose_versions_cannot_be_listed_stay(in_bucket: Quarantine, monkeypatch: pytest.MonkeyPatch) -> None:
    location, path = in_bucket.location, in_bucket.location.path("data/a")
    ObjectWriter(location.access).put(path, b"a" * 9)

    def denied(*_: Any) -> Iterator[pa.RecordBatch]:
        raise AccessDenied("s3://attic: the versions cannot be listed. Nothing was deleted. Allow it.")
        yield

    monkeypatch.setattr(purges, "all_versions", denied)
    action = PurgeCompared(location, keeps_versions=True, originals=in_bucket.access).open(RateLimiter())
    rows = objects(in_bucket.access, "data/a")
    (late,) = action.do(rows, "1", never)
    assert late.outcome == Outcome.ATTEMPTED  # nothing is listed after the deadline
    (done,) = action.do(rows, "2", lambda: True)
    assert (done.outcome, "cannot be listed" in str(done.detail)) == (Outcome.FAILED, True)
    assert ObjectReader(location.access).head(path)


def test_a_version_that_may_not_be_read_stays_and_the_permission_is_named(bucket: Bucket, faulty: FaultyS3) -> None:
    bucket.client().put_bucket_versioning(Bucket=bucket.name, VersioningConfiguration={"Status": "Enabled"})
    lake, attic = (bucket.access(name, endpoint=faulty.endpoint) for name in ("lake", "attic"))
    location = QuarantineLocation(attic, "2026-11-01/abc")
    ObjectWriter(lake).put("data/a", b"a" * 9)
    ObjectWriter(attic).put(location.path("data/a"), b"x" * 9)
    rows = objects(lake, "data/a")
    faulty.faults.refuses = lambda request: "AccessDenied" if "versionId" in request.query else None
    action = PurgeCompared(location, keeps_versions=True, originals=lake).open(RateLimiter())
    (done,) = action.do(rows, "1", lambda: True)
    assert done.outcome == Outcome.FAILED
    assert re.search(r"cannot read a version of .*s3:GetObjectVersion", str(done.detail))
    assert ObjectReader(attic).head(location.path("data/a"))


def test_a_copy_that_is_removed_while_it_is_compared_counts_as_purged(
    on_disk: Quarantine, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, digest = with_copies(on_disk, "data/a"), ObjectReader.digest
    path = on_disk.location.path("data/a")

    def remove(reader: ObjectReader, name: str, **options: Any) -> bytes:
        if name == path:
            ObjectDeleter(on_disk.location.access, conditional=False).delete_all([DeleteTarget(path)])
        return digest(reader, name, **options)

    monkeypatch.setattr(ObjectReader, "digest", remove)
    (done,) = PurgeCompared(on_disk.location, originals=on_disk.access).open(RateLimiter()).do(rows, "1", lambda: True)
    assert done.outcome == Outcome.PURGED
    assert ObjectReader(on_disk.access).read("data/a") == b"a" * 9


def test_a_purge_is_refused_on_a_machine_that_does_not_see_the_quarantine(on_disk: Quarantine, tmp_path: Path) -> None:
    elsewhere = replace(on_disk.location, access=StoreAccess(f"file://{tmp_path}/detached"))
    with pytest.raises(StoreError, match="sees neither copies nor manifests there"):
        Purge(elsewhere).open(RateLimiter())
    assert not (tmp_path / "detached").exists()


@pytest.mark.parametrize(
    ("storage", "quarantine", "named"),
    [
        pytest.param("s3://lake/orchard", "s3://lake/orchard/attic", "s3://lake/orchard/attic", id="inside"),
        pytest.param("s3://lake/orchard", "s3://lake", "s3://lake", id="around"),
        pytest.param("s3://lake/orchard", "s3://lake/orchard", "s3://lake/orchard", id="the_same"),
        ("s3://me@lake/orchard", "s3://lake/orchard/attic", "s3://lake/orchard/attic"),
        ("s3://lake/an orchard", "s3a://lake/an%20orchard/attic", "s3://lake/an%20orchard/attic"),
    ],
)
def test_a_quarantine_inside_or_around_the_repository_is_refused(
    tmp_path: Path, storage: str, quarantine: str, named: str
) -> None:
    entry: dict[str, object] = {"kind": "lakefs", "namespace": storage, "source": {"dump": "d"}, "policy": "p"}
    entry["quarantine"] = {"url": quarantine}
    file = tmp_path / "retention.yaml"
    file.write_text(yaml.safe_dump({"warehouse": "w", "repositories": {"orchard": entry}}), encoding="utf-8")
    with pytest.raises(ConfigurationError) as refused:
        quarantine_url(load_configuration(file).repository("orchard"))
    message = str(refused.value)
    assert f"repositories.orchard.quarantine.url: {named} is not outside of {storage}. Nothing was moved" in message
    assert message.endswith("Set a URL outside of the storage, such as another bucket.")


@pytest.mark.parametrize(
    "storage", ["s3://lake", "https://a.blob.core.windows.net/lake", "abfss://lake@a.dfs.core.windows.net"]
)
def test_a_whole_bucket_has_no_default_quarantine(tmp_path: Path, storage: str) -> None:
    entry = {"kind": "lakefs", "namespace": storage, "source": {"dump": "d"}, "policy": "p"}
    file = tmp_path / "retention.yaml"
    file.write_text(yaml.safe_dump({"warehouse": "w", "repositories": {"orchard": entry}}), encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"quarantine\.url is not set, .* Nothing was moved\. Set a URL"):
        quarantine_url(load_configuration(file).repository("orchard"))


def test_an_action_can_be_pickled_until_it_is_opened(on_disk: Quarantine) -> None:
    """Spark sends the action to executors, which open its clients."""
    location = on_disk.location
    location.write_manifest(objects(on_disk.access, "data/a"), "1")
    for action in (Delete(on_disk.access), on_disk, Restore(on_disk.access, location), Purge(location, True)):
        sent = cloudpickle.loads(cloudpickle.dumps(action))
        assert type(sent) is type(action)
        assert sent.open(RateLimiter()) is not sent
        assert cloudpickle.dumps(sent)  # opening returns another action, and leaves this one as it was


def test_a_restored_object_is_recognized_by_its_md5_without_reading_it(bucket: Bucket, faulty: FaultyS3) -> None:
    lake, attic = (bucket.access(name, endpoint=faulty.endpoint) for name in ("lake", "attic"))
    location = QuarantineLocation(attic, "2026-11-01/abc")
    for name, content in {"same": b"1234", "other": b"5678"}.items():
        ObjectWriter(lake).put(name, content)
        ObjectWriter(attic).put(location.path(name), b"1234")
    rows = objects(lake, "same", "other")
    faulty.requests.clear()
    results = Restore(lake, location).open(RateLimiter()).do(rows, "1", lambda: True)
    assert [one.outcome for one in results] == ["restored", "skipped"]
    read = [request.key for request in faulty.requests if request.method == "GET" and request.key]
    assert read == [f"attic/{location.path('other')}", "lake/other"]
