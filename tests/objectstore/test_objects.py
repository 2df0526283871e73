"""Reading objects: cases that are not in the contract of all stores."""

from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from retention_assets.errors import ObjectMissing, StoreError
from retention_assets.objectstore import objects
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.failures import SettingNames
from retention_assets.objectstore.mutate.writing import ObjectWriter
from retention_assets.objectstore.objects import ObjectReader
from tests.faulty_s3 import FaultyS3, Request
from tests.objectstore.s3 import Bucket


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"there is no such directory.* Correct `quarantine.url` in"):
        ObjectReader(StoreAccess(f"file://{tmp_path}/none", {}, SettingNames("quarantine.url")))


def test_the_errors_of_a_store_name_the_settings_of_its_access(bucket: Bucket, tmp_path: Path) -> None:
    settings = SettingNames("records.witness", "records.storage_options")
    missing = "Check that `records.witness` is the right URL"
    for access in (replace(bucket.access(), settings=settings), StoreAccess(f"file://{tmp_path}", {}, settings)):
        with pytest.raises(ObjectMissing, match=missing):
            ObjectReader(access).read("x")
    no_bucket = StoreAccess("s3://no-such-bucket-at-all", bucket.access().options, settings)
    for use in (lambda: list(ObjectReader(no_bucket).list("")), lambda: ObjectWriter(no_bucket).create("x", b"")):
        with pytest.raises(StoreError, match=r"Check the bucket's name in `records\.witness`"):
            use()


def test_a_bucket_with_a_longer_name_is_another_location(bucket: Bucket) -> None:
    bucket.client().put_object(Bucket=bucket.name, Key="some/prefixed", Body=b"")
    assert not ObjectReader(bucket.access("some/prefix")).holds_objects("")


class TestDigestOfALargeObject:
    """One request for a whole object could take longer than the time limit of a request. So no request reads more."""

    CONTENT = bytes(index % 251 for index in range(100_000))

    @pytest.fixture(autouse=True)
    def ranges(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(objects, "_RANGE", 30_000)

    @pytest.fixture
    def reader(self, bucket: Bucket, faulty: FaultyS3) -> ObjectReader:
        self.put(bucket, self.CONTENT)
        return ObjectReader(bucket.access(endpoint=faulty.endpoint))

    def put(self, bucket: Bucket, content: bytes) -> None:
        bucket.client().put_object(Bucket=bucket.name, Key="x", Body=content)

    def test_each_range_is_read_with_a_request_of_its_own(self, faulty: FaultyS3, reader: ObjectReader) -> None:
        assert reader.digest("x") == sha256(self.CONTENT).digest()
        ranges = [request.headers.get("range") for request in faulty.requests if request.method == "GET"]
        assert ranges == [None, "bytes=0-29999", "bytes=30000-59999", "bytes=60000-89999", "bytes=90000-99999"]

    @pytest.mark.parametrize("size", [0, 1, 29_999, 30_000, 30_001, 60_000])
    def test_objects_of_every_size_and_local_files_have_their_digest(self, tmp_path: Path, size: int) -> None:
        (tmp_path / "x").write_bytes(self.CONTENT[:size])
        digest = ObjectReader(StoreAccess(f"file://{tmp_path}")).digest("x")
        assert digest == sha256(self.CONTENT[:size]).digest()

    def test_an_object_that_changes_between_two_ranges_has_no_digest(
        self, bucket: Bucket, faulty: FaultyS3, reader: ObjectReader
    ) -> None:
        def change(request: Request) -> None:
            if request.headers.get("range") == "bytes=60000-89999":
                self.put(bucket, b"z" * 100_000)

        faulty.faults.before = change
        with pytest.raises(StoreError, match="cannot read 'x'"):
            reader.digest("x")
