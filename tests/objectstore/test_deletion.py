"""Deletion without faults, and refusals before the first request."""

from datetime import timedelta
from pathlib import Path
from threading import Barrier

import pytest

from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.mutate.deletion import AT_ONCE, ObjectDeleter, ObstoreDeletion
from retention_assets.objectstore.mutate.deletion_s3 import S3Deletion
from retention_assets.objectstore.outcomes import DELETED, DeleteTarget, MaySend, ObjectResult, Outcome
from retention_assets.objectstore.rate_limiter import RateLimiter, RetryPolicy
from retention_assets.state.lease import MARGIN
from tests.objectstore.fake_clock import FakeClock
from tests.objectstore.s3 import Bucket
from tests.objectstore.servers import server_of_blob_batches, server_that_answers

PATHS = ["data/a", "data/b", "data/c"]


@pytest.fixture
def local(tmp_path: Path) -> StoreAccess:
    access = StoreAccess(f"file://{tmp_path}")
    store = access.open()
    for path in PATHS:
        store.put(path, b"1")
    return access


def listed(access: StoreAccess) -> list[str]:
    return sorted(entry["path"] for batch in access.open().list() for entry in batch)


def azure(endpoint: str) -> StoreAccess:
    options = {"account_name": "acct", "account_key": "a2V5", "endpoint": endpoint, "allow_http": "true"}
    return StoreAccess("az://container/ns", options)


class TestSuspension:
    def test_no_thread_of_a_suspended_run_deletes_the_local_file_that_it_was_about_to_delete(
        self, tmp_path: Path
    ) -> None:
        """Each thread was allowed to delete before the suspension. Another run has the lease after it."""
        names = [f"data/{number}" for number in range(AT_ONCE)]
        access, clock, is_held = StoreAccess(f"file://{tmp_path}"), FakeClock(), [True]
        for name in names:
            access.open().put(name, b"1")
        deleter = ObjectDeleter(access, RateLimiter(clock=clock))
        delete_one = deleter._store.delete_one

        def suspended() -> None:
            clock.sleep(3600)
            is_held[0] = False

        all_ready = Barrier(AT_ONCE, suspended)

        def after_the_suspension(to_delete: DeleteTarget, may_send: MaySend) -> ObjectResult:
            all_ready.wait(10)
            return delete_one(to_delete, may_send)

        deleter._store.delete_one = after_the_suspension  # type: ignore[method-assign]
        results = deleter.delete_all(names, lambda: is_held[0])
        assert {one.outcome for one in results} == {Outcome.ATTEMPTED}
        assert listed(access) == sorted(names)


class TestDuplicatePathsAndVersions:
    def test_paths_and_objects_may_be_named_together(self, local: StoreAccess) -> None:
        deletions = ObjectDeleter(local).delete_all(["data/a", DeleteTarget("data/c")])
        assert deletions == [DELETED, DELETED]
        assert listed(local) == ["data/b"]

    def test_an_object_named_twice_is_deleted_once_and_has_two_results(self, local: StoreAccess) -> None:
        deletions = ObjectDeleter(local).delete_all(["data/a", DeleteTarget("data/a"), "data/a"])
        assert [done.outcome for done in deletions] == [Outcome.DELETED] * 3

    def test_one_path_with_two_etags_contradicts_itself_and_stays(self, local: StoreAccess) -> None:
        deletions = ObjectDeleter(local).delete_all(
            [DeleteTarget("data/a", "1"), DeleteTarget("data/a", "2"), DeleteTarget("data/b", "1")]
        )
        assert [done.outcome for done in deletions] == [Outcome.FAILED, Outcome.FAILED, Outcome.DELETED]
        assert "given twice" in str(deletions[0].detail)
        assert listed(local) == ["data/a", "data/c"]

    @pytest.mark.parametrize("path", ["data/a\n", "data/\x00a", "data/\x7fa"])
    def test_a_path_with_a_control_character_is_not_tried(self, local: StoreAccess, path: str) -> None:
        (deletion,) = ObjectDeleter(local).delete_all([path])
        assert str(deletion.detail).startswith("not tried: ")
        assert listed(local) == PATHS

    def test_a_version_of_a_store_that_is_not_s3_stays(self, local: StoreAccess) -> None:
        (deletion,) = ObjectDeleter(local).delete_all([DeleteTarget("data/a", version_id="1")])
        assert deletion == ObjectResult(Outcome.FAILED, "not tried: only S3's versions can be deleted by their id")
        assert listed(local) == PATHS

    def test_the_result_of_a_missing_object_is_missing(self, local: StoreAccess) -> None:
        assert ObjectDeleter(local).delete_all(["data/x"]) == [ObjectResult(Outcome.MISSING, "it was gone already")]


class TestS3:
    def test_objects_with_names_that_need_escaping_are_deleted_and_their_neighbours_stay(self, bucket: Bucket) -> None:
        names = ["a&b", "<c>", 'd"e', "f'g", "h%20i", "é\u0301", "j k", "l+m", "n,o=p", "日本"]
        access = bucket.access("a place/100%25")
        store = access.open()
        for name in names:
            store.put(f"data/{name}", b"1")
            store.put(f"data/{name}-kept", b"1")
        deletions = ObjectDeleter(access).delete_all([f"data/{name}" for name in names])
        assert {done.outcome for done in deletions} == {Outcome.DELETED}
        assert listed(access) == sorted(f"data/{name}-kept" for name in names)

    def test_a_version_is_deleted_and_the_current_object_stays(self, bucket: Bucket) -> None:
        client = bucket.client()
        client.put_bucket_versioning(Bucket=bucket.name, VersioningConfiguration={"Status": "Enabled"})
        old, middle, new = (
            client.put_object(Bucket=bucket.name, Key="ns/data/a", Body=content)["VersionId"]
            for content in (b"1", b"2", b"3")
        )
        to_delete = [DeleteTarget("data/a", version_id=version) for version in (old, middle)]
        deletions = ObjectDeleter(bucket.access("ns")).delete_all(to_delete)
        assert [done.outcome for done in deletions] == [Outcome.DELETED] * 2
        response = client.list_object_versions(Bucket=bucket.name)
        assert [entry["VersionId"] for entry in response["Versions"]] == [new]
        assert client.get_object(Bucket=bucket.name, Key="ns/data/a")["Body"].read() == b"3"

    def test_with_a_condition_only_the_planned_object_is_deleted(self, bucket: Bucket) -> None:
        access = bucket.access("ns", disable_bulk_delete="true")
        e_tags = [access.open().put(path, path.encode())["e_tag"] for path in PATHS]
        to_delete = [DeleteTarget(path, e_tag.strip('"')) for path, e_tag in zip(PATHS, e_tags, strict=True)]
        access.open().put("data/b", b"somebody wrote here")
        deletions = ObjectDeleter(access).delete_all(to_delete)
        assert [done.outcome for done in deletions] == [Outcome.DELETED, Outcome.SKIPPED, Outcome.DELETED]
        assert deletions[1].detail == "another object is there now (PreconditionFailed)"
        assert listed(access) == ["data/b"]

    def test_a_store_that_ignores_the_condition_deletes_any_object_at_the_path(self, bucket: Bucket) -> None:
        """MinIO ignores it, and moto ignores it in bulk requests. So a condition alone does not protect an object."""
        access = bucket.access("ns")
        access.open().put("data/a", b"1")
        (deletion,) = ObjectDeleter(access).delete_all([DeleteTarget("data/a", "0" * 32)])
        assert deletion.outcome is Outcome.DELETED
        assert listed(access) == []

    def test_a_request_has_no_more_objects_than_the_rate_allows_in_a_second(self, bucket: Bucket) -> None:
        clock = FakeClock()
        access = bucket.access("ns")
        paths = [f"data/{number}" for number in range(30)]
        ObjectDeleter(access, RateLimiter(10, clock=clock, sleep=clock.sleep)).delete_all(paths)
        assert clock() == pytest.approx(2)


class TestS3Timeouts:
    @pytest.mark.parametrize(("configured", "seconds"), [("10min", (60, 180)), ("30s", (30, 30))])
    def test_a_request_ends_before_another_run_can_take_the_lease(
        self, configured: str, seconds: tuple[int, int]
    ) -> None:
        timeouts = {"connect_timeout": configured, "read_timeout": configured}
        access = StoreAccess("s3://lake", {"endpoint": "http://127.0.0.1:9", **timeouts})
        config = S3Deletion(access, conditional=True, in_bulk=True, connections=1)._bucket.client.meta.config
        assert (config.connect_timeout, config.read_timeout) == seconds
        assert timedelta(seconds=sum(seconds)) < MARGIN


class TestRetriesOfTheClient:
    @pytest.mark.parametrize("store", ["azure", "gcs"])
    def test_a_deletion_that_fails_is_not_sent_again_before_the_deadline_is_checked(self, store: str) -> None:
        clock, checks = FakeClock(), list[bool]()

        def before_deadline() -> bool:
            clock.sleep(10)  # so that the next request checks again
            checks.append(not checks)
            return checks[-1]

        with server_that_answers(503, requests=(requests := list[str]())) as endpoint:
            gcs = StoreAccess("gs://bucket/ns", {"base_url": endpoint, "bearer_token": "any", "allow_http": "true"})
            deleter = ObjectDeleter(
                azure(endpoint) if store == "azure" else gcs, RateLimiter(clock=clock, sleep=clock.sleep)
            )
            (deletion,) = deleter.delete_all(["a"], before_deadline)
        assert deletion.outcome is Outcome.ATTEMPTED
        assert (len(requests), checks) == (1, [True, False])


class TestAzure:
    @pytest.mark.parametrize(("configured", "timeout"), [("15min", 240), ("30s", 30)])
    def test_a_request_ends_before_another_run_can_take_the_lease(self, configured: str, timeout: int) -> None:
        access = azure("http://127.0.0.1:9")
        store = ObstoreDeletion(StoreAccess(access.url, {**access.options, "timeout": configured}))._store
        assert store.client_options["timeout"] == f"{timeout}s"
        assert timedelta(seconds=timeout) < MARGIN

    @pytest.mark.parametrize(
        ("status", "detail"),
        [
            pytest.param(503, "the store failed (status 503)", id="throttled"),
            pytest.param(500, "the store failed (status 500)", id="broken"),
        ],
    )
    @pytest.mark.slow
    def test_a_retryable_failure_is_retried_and_then_final(self, status: int, detail: str) -> None:
        clock = FakeClock()
        rate_limiter = RateLimiter(clock=clock, sleep=clock.sleep)
        with server_that_answers(status) as endpoint:
            deleter = ObjectDeleter(azure(endpoint), rate_limiter, retry_policy=RetryPolicy(attempts=2, seconds=5))
            deletions = deleter.delete_all(["a", "b"])
        assert [done.outcome for done in deletions] == [Outcome.FAILED] * 2
        assert str(deletions[0].detail).startswith(detail)
        assert ("outcome is unknown" in str(deletions[0].detail)) is (status == 500)
        assert (rate_limiter.rate is not None) is (status == 503)

    @pytest.mark.parametrize(("status", "throttled"), [(503, True), (429, True), (500, False)], ids=str)
    @pytest.mark.parametrize("name", ["a", "b", "c"])
    def test_a_blob_that_a_batch_could_not_delete_is_requested_again(
        self, status: int, throttled: bool, name: str
    ) -> None:
        clock, requests = FakeClock(), list[list[str]]()
        rate_limiter = RateLimiter(clock=clock, sleep=clock.sleep)
        with server_of_blob_batches({name: (status, 3)}, requests) as endpoint:
            deletions = ObjectDeleter(azure(endpoint), rate_limiter).delete_all(["a", "b", "c"])
        assert deletions == [DELETED] * 3
        assert [request for request in requests if name in request] == [["a", "b", "c"], *[[name]] * 3]
        assert (rate_limiter.rate is not None) is throttled

    def test_one_blob_that_always_fails_does_not_make_the_others_of_its_batch_fail(self) -> None:
        clock = FakeClock()
        rate_limiter = RateLimiter(clock=clock, sleep=clock.sleep)
        with server_of_blob_batches({"a": (503, 1_000)}, []) as endpoint:
            deletions = ObjectDeleter(azure(endpoint), rate_limiter).delete_all(["a", "b", "c"])
        assert deletions[1:] == [DELETED] * 2
        assert deletions[0].outcome is Outcome.FAILED
        assert str(deletions[0].detail).startswith("the store failed (status 503): ")

    def test_after_the_deadline_the_result_of_a_batch_with_a_busy_blob_is_unknown(self) -> None:
        clock, answers = FakeClock(), iter([True])
        rate_limiter = RateLimiter(clock=clock, sleep=clock.sleep)

        def before_deadline() -> bool:
            clock.sleep(10)  # so that the next request polls again
            return next(answers, False)

        with server_of_blob_batches({"a": (503, 1_000)}, []) as endpoint:
            deletions = ObjectDeleter(azure(endpoint), rate_limiter).delete_all(["a", "b"], before_deadline)
        assert [done.outcome for done in deletions] == [Outcome.FAILED] * 2
        assert all("the outcome is unknown" in str(done.detail) for done in deletions)

    def test_a_blob_whose_deletion_is_denied_has_the_result_of_a_denial(self) -> None:
        with server_of_blob_batches({"a": (403, 1_000)}, []) as endpoint:
            deletions = ObjectDeleter(azure(endpoint)).delete_all(["a", "b"])
        assert deletions[1] == DELETED
        assert (deletions[0].outcome, deletions[0].detail) == (
            Outcome.FAILED, "the store denied the request (status 403)",
        )  # fmt: skip

    def test_a_deletion_in_a_missing_container_fails(self) -> None:
        with server_that_answers(404, b"<Error><Code>ContainerNotFound</Code></Error>") as endpoint:
            deletions = ObjectDeleter(azure(endpoint)).delete_all(["a", "b"])
        assert [done.outcome for done in deletions] == [Outcome.FAILED] * 2
        assert "the bucket does not exist" in str(deletions[0].detail)


@pytest.mark.parametrize("place", ["local", "s3"])
def test_a_deleter_may_be_used_again(place: str, local: StoreAccess, bucket: Bucket) -> None:
    access = local if place == "local" else bucket.access("ns")
    deleter = ObjectDeleter(access)
    for _ in range(2):
        access.open().put("data/z", b"1")
        assert deleter.delete_all(["data/z"]) == [DELETED]
