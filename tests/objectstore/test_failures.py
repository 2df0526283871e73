"""Errors of a store: one line in the log with the remedy, without secrets, and without long retries."""

import pickle
import time
import traceback
from collections.abc import Callable
from dataclasses import replace

import pytest

from retention_assets.errors import AccessDenied, ObjectMissing, RetentionError, StoreError
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.failures import (
    READ,
    Kind,
    SettingNames,
    failure_of,
    failure_of_response,
    redacted,
    unreachable,
)
from retention_assets.objectstore.mutate.deletion import ObjectDeleter
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.objectstore.outcomes import Outcome
from tests.objectstore.s3 import Bucket
from tests.objectstore.servers import server_that_answers, server_that_hangs_up

WRONG = "wrong-secret/with+signs=="

Ask = Callable[[ObjectReader], object]


def list_all(reader: ObjectReader) -> object:
    return list(reader.list("data"))


def read_one(reader: ObjectReader) -> object:
    return reader.read("data/x")


def refusal(access: StoreAccess, ask: Ask) -> RetentionError:
    """Return the error of `ask`, after checks that apply to all errors."""
    started = time.monotonic()
    with pytest.raises(StoreError) as caught:
        ask(ObjectReader(access))
    error = caught.value
    assert time.monotonic() - started < 15
    assert "\n" not in str(error)
    assert len(str(error)) < 600
    assert str(error).startswith(f"{access.url}: cannot ")
    trace = "".join(traceback.format_exception(error))
    assert not [value for value in access.options.values() if value in str(error) or value in repr(error)]
    assert access.options["secret_access_key"] not in trace
    assert "Debug source" not in trace
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    return error


@pytest.mark.parametrize("ask", [list_all, read_one])
def test_a_wrong_secret_is_distinguished_from_a_denial(guarded: Bucket, ask: Ask) -> None:
    error = refusal(guarded.access(secret_access_key=WRONG), ask)
    assert isinstance(error, AccessDenied)
    assert "SignatureDoesNotMatch" in str(error)
    assert "Check the credentials in `storage_options`" in str(error)


def test_an_unknown_key_is_distinguished_from_a_denial(guarded: Bucket) -> None:
    error = refusal(guarded.access(access_key_id="AKIAUNKNOWNUNKNOWN00"), list_all)
    assert isinstance(error, AccessDenied)
    assert "InvalidAccessKeyId" in str(error)


def test_a_denied_listing_names_the_permission_that_is_missing(guarded: Bucket) -> None:
    error = refusal(guarded.access("ns"), list_all)
    assert isinstance(error, AccessDenied)
    assert "cannot list 'data': the store denied the request (AccessDenied). The listing was not used." in str(error)
    assert "s3:ListBucket" in str(error)


@pytest.mark.parametrize("ask", [list_all, read_one])
def test_a_missing_bucket_is_not_reported_as_a_missing_object(bucket: Bucket, ask: Ask) -> None:
    missing = Bucket(bucket.endpoint, "no-such-lake", bucket.access_key, bucket.secret_key)
    error = refusal(missing.access(), ask)
    assert type(error) is StoreError
    assert "the bucket does not exist (NoSuchBucket)" in str(error)


@pytest.mark.parametrize("ask", [list_all, read_one])
def test_an_unreachable_endpoint_is_reported(bucket: Bucket, ask: Ask) -> None:
    error = refusal(bucket.access(endpoint="http://127.0.0.1:1"), ask)
    assert "the store cannot be reached" in str(error)
    assert "Check `endpoint` in `storage_options`" in str(error)


def test_an_endpoint_that_closes_the_connection_is_reported(bucket: Bucket) -> None:
    with server_that_hangs_up() as endpoint:
        error = refusal(bucket.access(endpoint=endpoint), list_all)
    assert "the store cannot be reached" in str(error)


def test_a_store_that_repeats_the_secret_is_not_quoted(bucket: Bucket) -> None:
    words = f"<Error><Code>Odd</Code><Message>{WRONG} is no key of ours</Message></Error>"
    with server_that_answers(400, words.encode()) as endpoint:
        error = refusal(bucket.access(endpoint=endpoint, secret_access_key=WRONG), read_one)
    assert "the store failed (Odd): *** is no key of ours" in str(error)


def test_a_key_that_no_path_can_name_does_not_end_a_listing(bucket: Bucket) -> None:
    store = bucket.access("ns").open()
    for number in range(3):
        store.put(f"data/{number}", b"")
    bucket.client().put_object(Bucket=bucket.name, Key="ns/data//odd", Body=b"")
    listed = [path for rows in ObjectReader(bucket.access("ns")).list("data") for path in rows["path"].to_pylist()]
    assert sorted(listed) == ["data//odd", "data/0", "data/1", "data/2"]


class TestDeletion:
    def test_if_some_deletions_are_denied_each_object_has_its_own_result(self, guarded: Bucket) -> None:
        deletions = ObjectDeleter(guarded.access()).delete_all(["mine/1", "theirs/2", "mine/3", "mine/gone"])
        assert [done.outcome for done in deletions] == [
            Outcome.DELETED, Outcome.FAILED, Outcome.DELETED, Outcome.DELETED,
        ]  # fmt: skip
        assert deletions[1].detail == "the store denied the request (AccessDenied)"

    def test_a_deletion_in_a_missing_bucket_fails(self, bucket: Bucket) -> None:
        missing = Bucket(bucket.endpoint, "no-such-lake", bucket.access_key, bucket.secret_key)
        deletions = ObjectDeleter(missing.access()).delete_all(["a", "b"])
        assert [done.outcome for done in deletions] == [Outcome.FAILED, Outcome.FAILED]
        assert "the bucket does not exist" in str(deletions[0].detail)

    @pytest.mark.parametrize("bulk", ["true", "false"])
    def test_a_404_that_does_not_name_the_object_is_a_failure(self, bucket: Bucket, bulk: str) -> None:
        with server_that_answers(404) as endpoint:
            access = bucket.access(endpoint=endpoint, disable_bulk_delete=bulk)
            deletions = ObjectDeleter(access).delete_all(["a", "b"])
        assert [done.outcome for done in deletions] == [Outcome.FAILED, Outcome.FAILED]
        assert "without reporting that the object is missing" in str(deletions[0].detail)

    @pytest.mark.slow
    def test_requests_to_an_unreachable_store_fail_soon(self, bucket: Bucket) -> None:
        started = time.monotonic()
        paths = [f"data/{number}" for number in range(500)]
        deletions = ObjectDeleter(bucket.access(endpoint="http://127.0.0.1:1")).delete_all(paths)
        assert {done.outcome for done in deletions} == {Outcome.FAILED}
        assert "outcome is unknown" in str(deletions[-1].detail)
        assert time.monotonic() - started < 15

    def test_details_hold_no_secret(self, guarded: Bucket) -> None:
        (deletion,) = ObjectDeleter(guarded.access(secret_access_key=WRONG)).delete_all(["mine/1"])
        assert deletion.outcome is Outcome.FAILED
        assert WRONG not in str(deletion)


class TestRetryableFailures:
    """Which failures are retried, which lower the rate, and which leave the outcome ambiguous."""

    @pytest.mark.parametrize(
        ("code", "status", "throttled", "retryable", "ambiguous"),
        [
            pytest.param("SlowDown", 503, True, True, False, id="throttled"),
            pytest.param("SlowDown", None, True, True, False, id="one_key_throttled"),
            pytest.param("", 429, True, True, False, id="throttled_without_a_code"),
            pytest.param("503", 503, True, True, False, id="throttled_with_its_status_for_a_code"),
            pytest.param("InternalError", 500, False, True, True, id="broken"),
            pytest.param("InternalError", None, False, True, True, id="one_key_broken"),
            pytest.param("", 502, False, True, True, id="broken_on_the_way"),
            pytest.param("OperationAborted", 409, False, True, False, id="crossed_by_another_request"),
            pytest.param("RequestTimeout", 400, False, True, False, id="request_timeout"),
            pytest.param("NotImplemented", 501, False, False, False, id="not_implemented"),
            pytest.param("AccessDenied", 403, False, False, False, id="denied"),
            pytest.param("InvalidObjectState", 403, False, False, False, id="archived"),
            pytest.param("NoSuchBucket", 404, False, False, False, id="no_bucket"),
            pytest.param("PreconditionFailed", 412, False, False, False, id="another_object"),
        ],
    )
    def test_failures_are_classified_by_code_and_status(
        self, code: str, status: int | None, throttled: bool, retryable: bool, ambiguous: bool
    ) -> None:
        failure = failure_of_response(code, status, "words", ())
        assert (failure.throttled, failure.retryable, failure.ambiguous) == (throttled, retryable, ambiguous)

    def test_a_request_without_a_response_is_retryable_and_ambiguous(self) -> None:
        assert (unreachable().kind, unreachable().retryable, unreachable().ambiguous) == (Kind.UNREACHABLE, True, True)

    @pytest.mark.parametrize(("status", "throttled"), [(503, True), (500, False)], ids=str)
    def test_errors_of_obstore_are_classified_in_the_same_way(self, status: int, throttled: bool) -> None:
        failure = failure_of(ValueError(f"Server returned non-2xx status code: {status} Oh no: "), ())
        assert (failure.throttled, failure.retryable, failure.ambiguous) == (throttled, True, not throttled)

    @pytest.mark.parametrize(
        ("status", "kind", "throttled", "retryable", "ambiguous"),
        [
            pytest.param(503, Kind.OTHER, True, True, False, id="busy"),
            pytest.param(500, Kind.OTHER, False, True, True, id="broken"),
            pytest.param(403, Kind.DENIED, False, False, False, id="denied"),
            pytest.param(409, Kind.OTHER, False, False, False, id="snapshots"),
        ],
    )
    def test_the_status_of_one_blob_in_a_batch_of_azure_is_classified_like_that_of_a_response(
        self, status: int, kind: Kind, throttled: bool, retryable: bool, ambiguous: bool
    ) -> None:
        words = f"Generic MicrosoftAzure error: Bulk delete request failed for key a: Some reason. (code: {status})"
        failure = failure_of(ValueError(words), ())
        assert (failure.kind, failure.throttled) == (kind, throttled)
        assert (failure.retryable, failure.ambiguous) == (retryable, ambiguous)
        assert f"(status {status})" in failure.detail


class TestMessages:
    @pytest.mark.parametrize(
        ("code", "status", "detail"),
        [
            pytest.param("Odd", 400, "the store failed (Odd): words", id="a_code"),
            pytest.param("", 400, "the store failed (status 400): words", id="a_status"),
            pytest.param("400", 400, "the store failed (status 400): words", id="a_status_for_a_code"),
            pytest.param("NoSuchKey", 404, "the object is not in the store (NoSuchKey)", id="no_object"),
        ],
    )
    def test_a_response_in_parts_is_classified_like_a_complete_one(self, code: str, status: int, detail: str) -> None:
        assert failure_of_response(code, status, "words", ()).detail == detail

    def test_a_secret_at_the_end_of_a_shortened_message_is_hidden_completely(self) -> None:
        failure = failure_of_response("Odd", 400, "x" * 160 + WRONG, [WRONG])
        assert WRONG[:5] not in failure.detail

    def test_a_signed_url_in_a_stores_message_is_shortened(self) -> None:
        failure = failure_of(ValueError("Error performing GET https://a.example/c?sig=SIGNATURE&se=1 in 2ms"), ())
        assert failure.kind is Kind.OTHER
        assert "SIGNATURE" not in failure.detail

    def test_a_secret_is_hidden_plain_and_encoded(self) -> None:
        assert redacted("a wrong/key+= b wrong%2Fkey%2B%3D c", ["wrong/key+="]) == "a *** b *** c"

    def test_a_very_long_message_is_shortened(self) -> None:
        error = failure_of(ValueError("x" * 5_000), ()).as_error("s3://lake", "a", READ)
        assert len(str(error)) < 500

    def test_a_denial_by_the_machine_s_own_credentials_service_means_there_are_none(self) -> None:
        words = "Error performing PUT http://169.254.169.254/latest/api/token - status code: 403 Forbidden: "
        assert failure_of(ValueError(words), ()).kind is Kind.CREDENTIALS

    @pytest.mark.parametrize(
        ("words", "kind", "remedy"),
        [
            ("No space left on device (os error 28)", Kind.FULL, "Free space there"),
            ("Read-only file system (os error 30)", Kind.DENIED, "Let the credentials in `storage_options` read"),
        ],
    )
    def test_a_full_or_read_only_disk_has_its_own_remedy(self, words: str, kind: Kind, remedy: str) -> None:
        failure = failure_of(OSError(f"Generic LocalFileSystem error: Unable to copy data to file: {words}"), ())
        assert (failure.kind, failure.retryable, failure.ambiguous) == (kind, False, False)
        assert remedy in str(failure.as_error("file:///disk", "x", READ))

    @pytest.mark.parametrize("kind", Kind)
    def test_the_remedy_names_the_settings_of_the_store_that_failed(self, kind: Kind) -> None:
        settings = SettingNames("records.witness", "records.storage_options")
        text = str(replace(unreachable(), kind=kind).as_error("s3://other", "a", READ, settings))
        assert not [word for word in ("`storage`", "`storage_options`", "{") if word in text]
        assert ("`records." in text) == (kind is not Kind.FULL)

    def test_a_missing_file_is_object_missing(self) -> None:
        error = failure_of(FileNotFoundError("Object at location x not found"), ()).as_error("file:///l", "x", READ)
        assert isinstance(error, ObjectMissing)
