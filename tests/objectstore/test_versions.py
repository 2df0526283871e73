"""Versions of objects in a bucket, with a real S3 server and a proxy that can return wrong pages."""

from itertools import count
from pathlib import Path
from typing import Any

import pytest

from retention_assets.errors import AccessDenied, ConfigurationError, StoreError
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.versions import (
    ALL_VERSIONS,
    all_versions,
    keeps_versions,
    lists_versions,
)
from tests.faulty_s3 import Faults, FaultyS3
from tests.objectstore.s3 import Bucket
from tests.objectstore.servers import server_that_answers


def set_versioning(bucket: Bucket, status: str) -> None:
    bucket.client().put_bucket_versioning(Bucket=bucket.name, VersioningConfiguration={"Status": status})


def rows(access: StoreAccess, prefix: str = "") -> list[dict[str, Any]]:
    """Return the noncurrent versions."""
    found = [row for batch in all_versions(access, prefix) for row in batch.to_pylist()]
    return [row for row in found if not row.pop("is_current")]


class TestKeepsVersions:
    @pytest.mark.parametrize(
        ("statuses", "keeps"),
        [
            pytest.param([], False, id="versioning_never_enabled"),
            pytest.param(["Enabled"], True, id="enabled"),
            pytest.param(["Enabled", "Suspended"], True, id="suspended_with_versions_of_before"),
        ],
    )
    def test_the_versioning_status_of_a_bucket_is_read(self, bucket: Bucket, statuses: list[str], keeps: bool) -> None:
        for status in statuses:
            set_versioning(bucket, status)
        assert keeps_versions(bucket.access("ns")) is keeps

    def test_the_versioning_of_a_local_directory_is_unknown(self, tmp_path: Path) -> None:
        assert keeps_versions(StoreAccess(f"file://{tmp_path}")) is None

    @pytest.mark.parametrize("status", [403, 404, 405, 501, 503])
    def test_a_store_that_denies_its_versioning_status_may_keep_versions(self, bucket: Bucket, status: int) -> None:
        with server_that_answers(status) as endpoint:
            assert keeps_versions(bucket.access(endpoint=endpoint)) is None

    def test_an_unreachable_store_may_keep_versions(self, bucket: Bucket) -> None:
        assert keeps_versions(bucket.access(endpoint="http://127.0.0.1:1")) is None


@pytest.fixture
def written(bucket: Bucket) -> dict[str, list[str]]:
    """The versions of each path, newest first. `gone` has a delete marker on top, `back` was written after one."""
    set_versioning(bucket, "Enabled")
    client = bucket.client()
    versions: dict[str, list[str]] = {}

    def put(path: str, content: bytes) -> None:
        made = client.put_object(Bucket=bucket.name, Key=f"ns/{path}", Body=content)["VersionId"]
        versions.setdefault(path, []).insert(0, made)

    def delete(path: str) -> None:
        made = client.delete_object(Bucket=bucket.name, Key=f"ns/{path}")["VersionId"]
        versions.setdefault(path, []).insert(0, made)

    put("data/once", b"1")
    for content in (b"1", b"22", b"333"):
        put("data/over and over", content)
    put("data/gone", b"4444")
    delete("data/gone")
    put("data/back", b"1")
    delete("data/back")
    put("data/back", b"1")
    put("database/other", b"1")
    put("database/other", b"1")
    return versions


class TestAllVersions:
    def listed(self, bucket: Bucket, *arguments: Any) -> list[dict[str, Any]]:
        return [row for page in all_versions(bucket.access("ns"), *arguments) for row in page.to_pylist()]

    def test_all_versions_include_current_ones_and_delete_markers(
        self, bucket: Bucket, written: dict[str, list[str]]
    ) -> None:
        rows = self.listed(bucket)
        assert {(row["path"], row["version_id"]) for row in rows} == {
            (path, version) for path, versions in written.items() for version in versions
        }
        current = {row["path"]: (row["version_id"], row["is_delete_marker"]) for row in rows if row["is_current"]}
        assert current == {path: (versions[0], path == "data/gone") for path, versions in written.items()}

    def test_versions_between_two_paths_include_both_ends(self, bucket: Bucket, written: dict[str, list[str]]) -> None:
        rows = self.listed(bucket, "data/", ("data/gone", "data/once"))
        assert {row["path"] for row in rows} == {"data/gone", "data/once", "data/over and over"} - {
            "data/over and over"
        }
        assert len(rows) == len(written["data/gone"]) + len(written["data/once"])

    def test_paths_without_the_common_prefix_are_not_read(
        self, bucket: Bucket, proxy: FaultyS3, written: dict[str, list[str]]
    ) -> None:
        proxy.faults = Faults(page=1)
        proxy.requests.clear()
        access = bucket.access("ns", endpoint=proxy.endpoint)
        rows = [row for page in all_versions(access, "data/", ("data/gone", "data/gone")) for row in page.to_pylist()]
        assert len(rows) == len(written["data/gone"]) == len(proxy.requests)

    @pytest.mark.parametrize(("status", "lists"), [([], False), (["Enabled"], True)], ids=["no_versions", "versions"])
    def test_whether_versions_can_be_listed_is_known(self, bucket: Bucket, status: list[str], lists: bool) -> None:
        for one in status:
            set_versioning(bucket, one)
        assert lists_versions(bucket.access("ns")) is lists

    def test_versions_cannot_be_listed_if_the_store_denies_it(self, bucket: Bucket, tmp_path: Path) -> None:
        with server_that_answers(403) as endpoint:
            assert not lists_versions(bucket.access("ns", endpoint=endpoint))
        assert not lists_versions(StoreAccess(f"file://{tmp_path}"))


class TestNoncurrentVersions:
    def test_noncurrent_versions_are_all_but_the_newest_of_each_path(
        self, bucket: Bucket, written: dict[str, list[str]]
    ) -> None:
        listed = rows(bucket.access("ns"))
        expected = {(path, version) for path, versions in written.items() for version in versions[1:]}
        assert {(row["path"], row["version_id"]) for row in listed} == expected
        assert len(listed) == len(expected)

    def test_versions_have_their_size_and_delete_markers_are_marked(
        self, bucket: Bucket, written: dict[str, list[str]]
    ) -> None:
        sizes = {(row["path"], row["size"], row["is_delete_marker"]) for row in rows(bucket.access("ns"), "data")}
        assert sizes == {
            ("data/over and over", 1, False),
            ("data/over and over", 2, False),
            ("data/gone", 4, False),
            ("data/back", 0, True),
            ("data/back", 1, False),
        }

    @pytest.mark.parametrize("prefix", ["data", "data/"])
    def test_a_prefix_is_a_directory(self, bucket: Bucket, written: dict[str, list[str]], prefix: str) -> None:
        assert not {row["path"] for row in rows(bucket.access("ns"), prefix)} & {"database/other"}

    def test_batches_have_the_schema(self, bucket: Bucket, written: dict[str, list[str]]) -> None:
        assert all(batch.schema.equals(ALL_VERSIONS) for batch in all_versions(bucket.access("ns")))

    def test_an_empty_location_has_no_versions(self, bucket: Bucket) -> None:
        assert rows(bucket.access("ns")) == []

    @pytest.mark.parametrize("page", [1, 2, 3, 100])
    def test_many_pages_have_the_same_versions_as_one_page(
        self, bucket: Bucket, proxy: FaultyS3, written: dict[str, list[str]], page: int
    ) -> None:
        proxy.faults = Faults(page=page)
        proxy.requests.clear()
        paged, whole = rows(bucket.access("ns", endpoint=proxy.endpoint)), rows(bucket.access("ns"))
        assert sorted(paged, key=str) == sorted(whole, key=str)
        assert len(proxy.requests) == -(-11 // page)

    def test_a_page_that_the_store_throttles_is_requested_again(
        self, bucket: Bucket, proxy: FaultyS3, written: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("retention_assets.objectstore.s3.time.sleep", lambda seconds: None)
        numbers = count()
        proxy.answers.clear()
        proxy.faults = Faults(page=2, slow_down=1.0, applies=lambda request: next(numbers) in (1, 2, 4))
        paged, whole = rows(bucket.access("ns", endpoint=proxy.endpoint)), rows(bucket.access("ns"))
        assert sorted(paged, key=str) == sorted(whole, key=str)
        assert proxy.answers.count(503) == 3

    @pytest.mark.parametrize("page", [1, 2, 3])
    def test_a_repeated_page_is_an_error(
        self, bucket: Bucket, proxy: FaultyS3, written: dict[str, list[str]], page: int
    ) -> None:
        proxy.faults = Faults(page=page, repeats=True)
        with pytest.raises(StoreError, match=r"cannot list .* '': 'ns/.*' is listed twice\. The listing was not used"):
            rows(bucket.access("ns", endpoint=proxy.endpoint))

    @pytest.mark.parametrize(
        "page",
        [
            pytest.param(b"<IsTruncated>true</IsTruncated>", id="without_a_marker"),
            pytest.param(
                b"<IsTruncated>true</IsTruncated><NextKeyMarker>a</NextKeyMarker>"
                b"<NextVersionIdMarker>1</NextVersionIdMarker>",
                id="under_the_same_marker_for_ever",
            ),
        ],
    )
    def test_a_listing_without_progress_is_an_error(self, bucket: Bucket, page: bytes) -> None:
        with (
            server_that_answers(200, b"<ListVersionsResult>" + page + b"</ListVersionsResult>") as endpoint,
            pytest.raises(StoreError, match="does not say where the next page begins"),
        ):
            rows(bucket.access(endpoint=endpoint))

    def test_a_listing_that_goes_backwards_is_an_error(self, bucket: Bucket) -> None:
        at = "<LastModified>2026-11-01T00:00:00Z</LastModified>"
        version = f"<Version><Key>{{}}</Key><VersionId>1</VersionId>{at}<IsLatest>true</IsLatest></Version>"
        page = (
            f"<ListVersionsResult><IsTruncated>true</IsTruncated><NextKeyMarker>b</NextKeyMarker>"
            f"{version.format('a')}{version.format('b')}</ListVersionsResult>"
        )
        with (
            server_that_answers(200, page.encode()) as endpoint,
            pytest.raises(StoreError, match="'a' is listed twice"),
        ):
            rows(bucket.access(endpoint=endpoint))

    @pytest.mark.parametrize(
        ("status", "body", "error", "words"),
        [
            pytest.param(
                403, b"<Error><Code>AccessDenied</Code></Error>", AccessDenied, "s3:ListBucketVersions", id="denied"
            ),
            pytest.param(
                404, b"<Error><Code>NoSuchBucket</Code></Error>", StoreError, "does not exist", id="no_bucket"
            ),
            pytest.param(503, b"", StoreError, "status 503", id="busy"),
        ],
    )
    def test_a_failure_is_an_error_in_one_line(
        self,
        bucket: Bucket,
        monkeypatch: pytest.MonkeyPatch,
        status: int,
        body: bytes,
        error: type[StoreError],
        words: str,
    ) -> None:
        monkeypatch.setattr("retention_assets.objectstore.s3.time.sleep", lambda seconds: None)
        with server_that_answers(status, body) as endpoint:
            access = bucket.access("ns", endpoint=endpoint)
            with pytest.raises(error, match=words) as caught:
                rows(access, "data")
        assert "\n" not in str(caught.value)
        assert str(caught.value).startswith(f"{access.url}: cannot list the versions of 'data/': ")

    def test_a_store_that_is_not_s3_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match="on S3 only"):
            rows(StoreAccess(f"file://{tmp_path}"))
