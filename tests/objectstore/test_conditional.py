"""A conditional write whose response is lost: its effect is found out, or the caller gets an error."""

from collections.abc import Callable

import pytest

from retention_assets.errors import AccessDenied, GuardRefused, StoreError
from retention_assets.objectstore.conditional import Conditional, require_known
from retention_assets.objectstore.failures import Failure
from retention_assets.objectstore.mutate.writing import ObjectWriter
from tests.faulty_s3 import Faults, FaultyS3, Request
from tests.objectstore.s3 import Bucket
from tests.objectstore.servers import server_that_answers

Write = Callable[[Conditional], bool | Failure]


@pytest.fixture
def conditional(bucket: Bucket, faulty: FaultyS3) -> Conditional:
    """Conditional writes through the proxy, without the pauses."""
    return Conditional(bucket.access(endpoint=faulty.endpoint).open(retrying=False), sleep=lambda seconds: None)


def first(faulty: FaultyS3) -> Callable[[Request], bool]:
    """Return a condition that is true only for the first write."""
    return lambda request: request.method == "PUT" and puts(faulty) == 1


def every(request: Request) -> bool:
    return request.method == "PUT"


def puts(faulty: FaultyS3) -> int:
    return sum(request.method == "PUT" for request in faulty.requests)


def write_by_another(bucket: Bucket, content: bytes) -> str:
    """Write the object without the proxy, and return its ETag."""
    written = bucket.client().put_object(Bucket=bucket.name, Key="repo", Body=content)
    return str(written["ETag"]).strip('"')


def content(bucket: Bucket) -> bytes:
    found: bytes = bucket.client().get_object(Bucket=bucket.name, Key="repo")["Body"].read()
    return found


@pytest.mark.parametrize("fault", ["lost", "broken", "slow_down"])
@pytest.mark.parametrize("kind", ["create", "replace"])
def test_a_write_with_a_lost_response_is_recognized_as_ours(
    bucket: Bucket, faulty: FaultyS3, conditional: Conditional, kind: str, fault: str
) -> None:
    e_tag = write_by_another(bucket, b"first") if kind == "replace" else ""
    faulty.faults = Faults(**{fault: 1.0}, applies=first(faulty))
    written = conditional.replace("repo", b"ours", e_tag) if e_tag else conditional.create("repo", b"ours")
    assert written is True
    assert puts(faulty) == 2
    assert content(bucket) == b"ours"


@pytest.mark.parametrize("fault", ["lost", "broken"])
def test_an_object_of_another_writer_is_not_ours_although_our_response_was_lost(
    bucket: Bucket, faulty: FaultyS3, conditional: Conditional, fault: str
) -> None:
    e_tag = write_by_another(bucket, b"first")
    write_by_another(bucket, b"theirs")
    faulty.faults = Faults(**{fault: 1.0}, applies=first(faulty))
    assert conditional.create("repo", b"ours") is False
    faulty.requests.clear()
    assert conditional.replace("repo", b"ours", e_tag) is False
    assert content(bucket) == b"theirs"


def test_after_a_clear_refusal_the_object_is_not_read(
    bucket: Bucket, faulty: FaultyS3, conditional: Conditional
) -> None:
    e_tag = write_by_another(bucket, b"ours")
    assert conditional.create("repo", b"ours") is False
    assert conditional.replace("repo", b"ours", e_tag[::-1]) is False
    assert [request.method for request in faulty.requests] == ["PUT", "PUT"]


def test_without_any_response_the_object_itself_shows_the_result(
    bucket: Bucket, faulty: FaultyS3, conditional: Conditional
) -> None:
    faulty.faults = Faults(lost=1.0, applies=every)
    assert conditional.create("repo", b"ours") is True
    assert puts(faulty) == 4


@pytest.mark.parametrize("write", [
    pytest.param(lambda conditional: conditional.create("repo", b"ours"), id="create"),
    pytest.param(lambda conditional: conditional.replace("repo", b"ours", "0" * 32), id="replace"),
])  # fmt: skip
def test_a_write_whose_object_cannot_be_read_is_ambiguous(
    faulty: FaultyS3, conditional: Conditional, write: Write
) -> None:
    faulty.faults = Faults(lost=1.0, applies=lambda request: True)
    answer = write(conditional)
    assert isinstance(answer, Failure)
    assert answer.ambiguous
    with pytest.raises(StoreError, match=r"the store cannot be reached\. Whether it was written is unknown\."):
        require_known(answer, "s3://lake", "repo")


def test_a_store_that_keeps_throttling_has_written_nothing(
    bucket: Bucket, faulty: FaultyS3, conditional: Conditional
) -> None:
    faulty.faults = Faults(slow_down=1.0, applies=every)
    answer = conditional.create("repo", b"ours")
    assert isinstance(answer, Failure)
    assert "SlowDown" in answer.detail
    assert not answer.ambiguous
    assert "Contents" not in bucket.client().list_objects_v2(Bucket=bucket.name)


def test_a_conflict_with_a_write_in_progress_is_retried(bucket: Bucket) -> None:
    words = b"<Error><Code>ConditionalRequestConflict</Code><Message>try again</Message></Error>"
    with server_that_answers(409, words) as endpoint:
        store = bucket.access(endpoint=endpoint).open(retrying=False)
        answer = Conditional(store, sleep=lambda seconds: None).create("repo", b"ours")
    assert isinstance(answer, Failure)
    assert "ConditionalRequestConflict" in answer.detail


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        pytest.param(403, "AccessDenied", AccessDenied, id="denied"),
        pytest.param(404, "NoSuchBucket", StoreError, id="no_bucket"),
        pytest.param(404, "", StoreError, id="a_404_without_a_code"),
        pytest.param(501, "NotImplemented", StoreError, id="no_conditions"),
    ],
)
@pytest.mark.parametrize("kind", ["create", "replace"])
def test_a_refusal_for_another_reason_than_the_condition_is_an_error(
    bucket: Bucket, kind: str, status: int, code: str, error: type[StoreError]
) -> None:
    words = f"<Error><Code>{code}</Code></Error>".encode() if code else b""
    with server_that_answers(status, words) as endpoint:
        writer = ObjectWriter(bucket.access(endpoint=endpoint))
        with pytest.raises(error, match="cannot write 'repo'"):
            writer.create("repo", b"1") if kind == "create" else writer.replace("repo", b"1", "0" * 32)


# ---- stores that ignore conditions


@pytest.mark.parametrize(
    ("ignored", "message"),
    [
        pytest.param({"if-none-match"}, "ignored the condition If-None-Match", id="creates_an_existing_object"),
        pytest.param({"if-match"}, "ignored the condition If-Match", id="replaces_another"),
    ],
)
def test_a_store_that_ignores_a_condition_is_refused(
    bucket: Bucket, faulty: FaultyS3, ignored: set[str], message: str
) -> None:
    faulty.faults = Faults(ignores=frozenset(ignored))
    writer = ObjectWriter(bucket.access("lake", endpoint=faulty.endpoint))
    with pytest.raises(GuardRefused, match=message):
        writer.require_conditions()
    assert "Contents" not in bucket.client().list_objects_v2(Bucket=bucket.name)


def test_the_check_of_conditional_writes_fails_without_a_response(
    bucket: Bucket, faulty: FaultyS3, conditional: Conditional
) -> None:
    faulty.faults = Faults(slow_down=1.0, applies=every)
    with pytest.raises(StoreError, match="SlowDown"):
        conditional.require_honoured("scratch", "s3://lake")


@pytest.mark.parametrize("fault", ["lost", "broken"])
def test_a_lost_response_does_not_make_a_store_look_as_if_it_ignores_conditions(
    faulty: FaultyS3, conditional: Conditional, fault: str
) -> None:
    for number in range(3):
        asked = len(faulty.requests) + number

        def nth(request: Request, asked: int = asked) -> bool:
            return len(faulty.requests) == asked + 1

        faulty.faults = Faults(**{fault: 1.0}, applies=nth)
        conditional.require_honoured(f"scratch-{number}", "s3://lake")
