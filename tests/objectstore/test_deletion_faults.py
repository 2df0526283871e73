"""Deletion on a faulty S3 server: the result of each object is true, and no other object is deleted."""

from collections import Counter
from collections.abc import Sequence
from http.client import HTTPConnection
from random import Random

import pytest
from botocore.signers import RequestSigner  # type: ignore[import-untyped]

from retention_assets.errors import StoreError
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.mutate.deletion import ObjectDeleter
from retention_assets.objectstore.outcomes import DELETED, DeleteTarget, ObjectResult, Outcome
from retention_assets.objectstore.rate_limiter import RateLimiter, RetryPolicy
from tests.faulty_s3 import Faults, FaultyS3, Request
from tests.objectstore.fake_clock import FakeClock
from tests.objectstore.s3 import Bucket

UNKNOWN = "the outcome is unknown"
KEPT = ["data/kept-1", "data/kept-2"]


class World:
    """A bucket behind the faulty proxy, with objects that must stay. Only `sleep` moves its clock."""

    def __init__(self, bucket: Bucket, proxy: FaultyS3) -> None:
        self.bucket, self.proxy, self.clock, self.client = bucket, proxy, FakeClock(), bucket.client()
        self.access = bucket.access("ns", endpoint=proxy.endpoint)
        self.rate_limiter = RateLimiter(clock=self.clock, sleep=self.clock.sleep)
        self.put(*KEPT)

    def put(self, *paths: str, content: bytes = b"1") -> None:
        for path in paths:
            self.client.put_object(Bucket=self.bucket.name, Key=f"ns/{path}", Body=content)

    def to_delete(self, objects: int) -> list[str]:
        paths = [f"data/{number:03}" for number in range(objects)]
        self.put(*paths)
        return paths

    def options(self, **changes: str) -> None:
        self.access = StoreAccess(self.access.url, {**self.access.options, **changes})

    def left(self) -> set[str]:
        response = self.client.list_objects_v2(Bucket=self.bucket.name, Prefix="ns/")
        return {entry["Key"].removeprefix("ns/") for entry in response.get("Contents", ())}

    def e_tag(self, path: str) -> str:
        e_tag: str = self.client.head_object(Bucket=self.bucket.name, Key=f"ns/{path}")["ETag"]
        return e_tag.strip('"')

    def deleter(self, *, conditional: bool = True, retry_policy: RetryPolicy | None = None) -> ObjectDeleter:
        return ObjectDeleter(
            self.access,
            self.rate_limiter,
            conditional=conditional,
            retry_policy=retry_policy or RetryPolicy(),
            random=Random(0),
        )

    def delete(self, to_delete: Sequence[DeleteTarget | str]) -> dict[str, ObjectResult]:
        return by_path(to_delete, self.deleter().delete_all(to_delete))

    def require_honest(self, deletions: dict[str, ObjectResult]) -> None:
        """Require that deleted objects are gone, failed ones exist or are ambiguous, and all others exist."""
        left = self.left()
        assert left >= set(KEPT)
        for path, done in deletions.items():
            assert done.outcome in (Outcome.DELETED, Outcome.FAILED)
            if done.outcome is Outcome.DELETED:
                assert path not in left
            else:
                assert path in left or UNKNOWN in str(done.detail), done


@pytest.fixture
def world(bucket: Bucket, proxy: FaultyS3) -> World:
    proxy.reset()
    return World(bucket, proxy)


def by_path(to_delete: Sequence[DeleteTarget | str], results: Sequence[ObjectResult]) -> dict[str, ObjectResult]:
    paths = [one if isinstance(one, str) else one.path for one in to_delete]
    return dict(zip(paths, results, strict=True))


def outcomes(deletions: dict[str, ObjectResult]) -> Counter[Outcome]:
    return Counter(done.outcome for done in deletions.values())


class TestThrottling:
    @pytest.mark.parametrize("share", [0.0, 0.05, 0.2, 0.5])
    def test_at_any_share_of_503_every_object_is_deleted_or_reported_as_failed(
        self, world: World, share: float
    ) -> None:
        to_delete = world.to_delete(40)
        world.proxy.faults = Faults(slow_down=share)
        deleter = world.deleter()
        deletions = {path: done for path in to_delete for done in deleter.delete_all([path])}
        world.require_honest(deletions)
        throttled = world.proxy.answers.count(503)
        assert (throttled > 0) is (share > 0)
        assert outcomes(deletions) == {Outcome.DELETED: 40}
        assert len(world.clock.slept) >= throttled

    def test_a_throttle_stops_every_thread_and_slows_the_next_requests(self, world: World) -> None:
        to_delete = world.to_delete(20)
        world.proxy.faults = Faults(errors_once={f"ns/{path}": "SlowDown" for path in to_delete})
        assert outcomes(world.delete(to_delete)) == {Outcome.DELETED: 20}
        assert world.rate_limiter.rate is not None
        assert world.clock() >= 0.25

    def test_an_endless_throttle_fails_when_the_retry_policy_is_exhausted_and_nothing_is_deleted(
        self, world: World
    ) -> None:
        to_delete = world.to_delete(3)
        world.proxy.faults = Faults(slow_down=1.0)
        deletions = world.delete(to_delete)
        assert outcomes(deletions) == {Outcome.FAILED: 3}
        assert {done.detail for done in deletions.values()} == {"the store failed (SlowDown): said the test"}
        assert 60 < world.clock() < 60 + 60  # the last one waits for the quiet to end
        assert 5 < len(world.proxy.deletions) < 60
        assert world.left() >= set(to_delete)

    def test_a_busy_store_deletes_all_objects_in_parts(self, world: World) -> None:
        to_delete = world.to_delete(200)
        world.proxy.faults = Faults(slow_down=1.0, applies=lambda request: len(request.deletes) > 20)
        assert outcomes(world.delete(to_delete)) == {Outcome.DELETED: 200}


class TestLostResponses:
    def test_a_deletion_without_a_response_is_requested_again(self, world: World) -> None:
        to_delete = world.to_delete(10)
        world.proxy.faults = Faults(before=_once(lambda: setattr(world.proxy.faults, "lost", 0.0)), lost=1.0)
        deletions = world.delete(to_delete)
        assert world.proxy.answers == [None, 200]
        assert outcomes(deletions) == {Outcome.DELETED: 10}
        world.require_honest(deletions)

    @pytest.mark.parametrize("fault", ["lost", "hanging", "broken"])
    def test_an_object_without_any_response_is_never_called_deleted(self, world: World, fault: str) -> None:
        to_delete = world.to_delete(4)
        world.options(read_timeout="500ms")
        world.proxy.faults = Faults(**{fault: 1.0})
        deletions = world.delete(to_delete)
        assert world.left() == set(KEPT)  # it was deleted, but no response said so
        assert outcomes(deletions) == {Outcome.FAILED: 4}
        assert all(UNKNOWN in str(done.detail) for done in deletions.values())

    @pytest.mark.parametrize("fault", ["lost", pytest.param("hanging", marks=pytest.mark.slow), "broken"])
    def test_a_share_of_unanswered_requests_loses_nothing(self, world: World, fault: str) -> None:
        to_delete = world.to_delete(30)
        world.options(read_timeout="500ms")
        world.proxy.faults = Faults(**{fault: 0.5})
        deleter = world.deleter()
        results = [done for start in range(0, 30, 3) for done in deleter.delete_all(to_delete[start:][:3])]
        deletions = by_path(to_delete, results)
        world.require_honest(deletions)
        assert len(world.proxy.deletions) > 10
        assert outcomes(deletions)[Outcome.DELETED] >= 24

    def test_with_conditions_an_object_that_a_lost_request_deleted_counts_as_deleted(self, world: World) -> None:
        (path,) = world.to_delete(1)
        lost = Faults(lost=1.0, conditions="kept", before=_once(lambda: setattr(world.proxy.faults, "lost", 0.0)))
        world.proxy.faults = lost
        deletions = world.delete([DeleteTarget(path, world.e_tag(path))])
        assert world.proxy.answers == [None, 200]
        assert deletions[path] == DELETED

    def test_an_object_that_a_bulk_response_omits_does_not_count_as_deleted(self, world: World) -> None:
        to_delete = world.to_delete(5)
        world.proxy.faults = Faults(unnamed={f"ns/{to_delete[2]}"})
        deletions = world.delete(to_delete)
        assert outcomes(deletions) == {Outcome.DELETED: 4, Outcome.FAILED: 1}
        assert str(deletions[to_delete[2]].detail).startswith(
            "the store's response to a deletion in bulk does not name"
        )
        assert UNKNOWN in str(deletions[to_delete[2]].detail)
        assert [len(request.deletes) for request in world.proxy.deletions] == [5, 1, 1, 1, 1]


class TestErrorsOfSingleKeys:
    def test_only_the_failed_keys_are_requested_again(self, world: World) -> None:
        to_delete = world.to_delete(6)
        busy, broken = f"ns/{to_delete[1]}", f"ns/{to_delete[4]}"
        world.proxy.faults = Faults(errors_once={busy: "SlowDown", broken: "InternalError"})
        assert outcomes(world.delete(to_delete)) == {Outcome.DELETED: 6}
        again = [named.key for request in world.proxy.deletions[1:] for named in request.deletes]
        assert sorted(again) == [busy, broken]
        assert len(world.proxy.deletions) == 2
        assert world.left() == set(KEPT)

    def test_each_key_that_keeps_failing_has_the_code_of_the_store(self, world: World) -> None:
        to_delete = world.to_delete(6)
        codes = {to_delete[0]: "AccessDenied", to_delete[2]: "InternalError", to_delete[5]: "SlowDown"}
        world.proxy.faults = Faults(errors={f"ns/{path}": code for path, code in codes.items()})
        deletions = world.delete(to_delete)
        assert {path for path, done in deletions.items() if done.outcome is Outcome.FAILED} == set(codes)
        assert all(f"({code})" in str(deletions[path].detail) for path, code in codes.items())
        assert UNKNOWN in str(deletions[to_delete[2]].detail)
        assert UNKNOWN not in str(deletions[to_delete[0]].detail)
        assert world.left() == {*KEPT, *codes}

    def test_a_denied_request_is_not_retried(self, world: World) -> None:
        to_delete = world.to_delete(3)
        world.proxy.faults = Faults(errors={f"ns/{to_delete[1]}": "AccessDenied"})
        assert world.delete(to_delete)[to_delete[1]].detail == "the store denied the request (AccessDenied)"
        assert len(world.proxy.deletions) == 1
        assert world.clock.slept == []

    def test_each_of_two_versions_of_one_key_has_its_own_result(self, world: World) -> None:
        world.client.put_bucket_versioning(Bucket=world.bucket.name, VersioningConfiguration={"Status": "Enabled"})
        versions = [
            world.client.put_object(Bucket=world.bucket.name, Key="ns/data/1", Body=b"1")["VersionId"] for _ in range(3)
        ]
        world.proxy.faults = Faults(errors={versions[1]: "AccessDenied"})
        deletions = world.deleter().delete_all([DeleteTarget("data/1", version_id=version) for version in versions[:2]])
        assert [done.outcome for done in deletions] == [Outcome.DELETED, Outcome.FAILED]

    @pytest.mark.parametrize("code", ["AccessDenied", "NotImplemented", "MalformedXML"])
    def test_if_a_bulk_request_is_refused_each_object_is_requested_singly(self, world: World, code: str) -> None:
        to_delete = world.to_delete(4)
        world.proxy.faults = Faults(refuses_bulk=code, errors={f"ns/{to_delete[3]}": "AccessDenied"})
        deletions = world.delete(to_delete)
        assert outcomes(deletions) == {Outcome.DELETED: 3, Outcome.FAILED: 1}
        assert [request.method for request in world.proxy.deletions] == ["POST", *["DELETE"] * 4]
        assert world.left() == {*KEPT, to_delete[3]}


class TestConditions:
    def test_an_object_that_was_overwritten_stays(self, world: World) -> None:
        to_delete = [DeleteTarget(path, world.e_tag(path)) for path in world.to_delete(3)]
        overwritten = to_delete[1].path
        world.proxy.faults = Faults(
            conditions="kept", before=_once(lambda: world.put(overwritten, content=b"somebody wrote here"))
        )
        deletions = world.delete(to_delete)
        assert [done.outcome for done in deletions.values()] == [Outcome.DELETED, Outcome.SKIPPED, Outcome.DELETED]
        assert "PreconditionFailed" in str(deletions[overwritten].detail)
        assert world.left() == {*KEPT, overwritten}
        assert len(world.proxy.deletions) == 1

    def test_an_object_that_is_gone_is_missing(self, world: World) -> None:
        world.proxy.faults = Faults(conditions="kept")
        deletions = world.delete([DeleteTarget("data/gone", "0" * 32), DeleteTarget("data/gone-too")])
        assert [done.outcome for done in deletions.values()] == [Outcome.MISSING, Outcome.DELETED]
        assert deletions["data/gone"].detail == "it was gone already"

    def test_a_single_deletion_has_a_condition_too(self, world: World) -> None:
        paths = world.to_delete(2)
        to_delete = [DeleteTarget(paths[0], world.e_tag(paths[0])), DeleteTarget(paths[1], "0" * 32)]
        world.proxy.faults = Faults(conditions="kept", refuses_bulk="AccessDenied")
        deletions = world.delete(to_delete)
        assert [done.outcome for done in deletions.values()] == [Outcome.DELETED, Outcome.SKIPPED]
        assert world.left() == {*KEPT, paths[1]}

    def test_a_version_is_deleted_without_an_etag_because_s3_accepts_only_one_of_them(self, world: World) -> None:
        world.delete([DeleteTarget("data/1", "0" * 32, "some-version"), DeleteTarget("data/2", "1" * 32)])
        (request,) = world.proxy.deletions
        assert [(named.e_tag, named.version_id) for named in request.deletes] == [
            (None, "some-version"), ("1" * 32, None),
        ]  # fmt: skip

    def test_no_condition_is_sent_when_none_is_wanted(self, world: World) -> None:
        (path,) = world.to_delete(1)
        world.proxy.faults = Faults(conditions="kept")
        (done,) = world.deleter(conditional=False).delete_all([DeleteTarget(path, "0" * 32)])
        assert done.outcome is Outcome.DELETED
        assert [named.e_tag for named in world.proxy.deletions[0].deletes] == [None]

    @pytest.mark.parametrize("code", ["NotImplemented", "MalformedXML"])
    @pytest.mark.parametrize("bulk", ["in_bulk", "alone"])
    def test_after_a_store_rejects_conditions_requests_are_sent_without_them(
        self, world: World, code: str, bulk: str
    ) -> None:
        to_delete = [DeleteTarget(path, world.e_tag(path)) for path in world.to_delete(4)]
        world.proxy.faults = Faults(conditions=code)
        world.options(disable_bulk_delete=str(bulk == "alone").lower())
        deleter = world.deleter()
        deletions = [*deleter.delete_all(to_delete[:1]), *deleter.delete_all(to_delete[1:2])]
        assert {done.outcome for done in deletions} == {Outcome.DELETED}
        sent = [[bool(named.e_tag) for named in request.deletes] for request in world.proxy.deletions]
        assert sent == [[True], [False], [False]]

    @pytest.mark.parametrize("bulk", ["in_bulk", "alone"])
    def test_after_the_deadline_no_request_without_conditions_follows_a_rejected_one(
        self, world: World, bulk: str
    ) -> None:
        to_delete = [DeleteTarget(path, world.e_tag(path)) for path in world.to_delete(1)]
        world.proxy.faults = Faults(conditions="NotImplemented", before=lambda _: world.clock.sleep(10))
        world.options(disable_bulk_delete=str(bulk == "alone").lower())
        (done,) = world.deleter().delete_all(to_delete, lambda: not world.proxy.deletions)
        assert done == ObjectResult(Outcome.ATTEMPTED)
        assert world.left() == {*KEPT, to_delete[0].path}

    @pytest.mark.parametrize("bulk", ["in_bulk", "alone"])
    def test_a_request_that_was_signed_before_a_suspension_is_not_sent_after_the_lease_is_lost(
        self, world: World, bulk: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Preparing a request of 1,000 keys takes long. When the process continues, another run has the lease."""
        to_delete = world.to_delete(3)
        world.options(disable_bulk_delete=str(bulk == "alone").lower())
        with monkeypatch.context() as patched:
            signed = suspended_after_signing(patched, world, 1)
            deletions = world.deleter().delete_all(to_delete, lambda: not signed)
        assert set(deletions) == {ObjectResult(Outcome.ATTEMPTED)}
        assert world.proxy.deletions == []
        assert world.left() == {*KEPT, *to_delete}

    def test_a_request_whose_headers_were_sent_before_a_suspension_is_not_completed_after_the_lease_is_lost(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        to_delete = world.to_delete(3)
        with monkeypatch.context() as patched:
            sent = suspended_after_headers(patched, world)
            deletions = world.deleter().delete_all(to_delete, lambda: not sent)
        assert set(deletions) == {ObjectResult(Outcome.ATTEMPTED)}
        assert sent == [True]
        assert world.left() == {*KEPT, *to_delete}

    def test_an_error_of_the_deadline_check_during_a_request_is_raised(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        to_delete = world.to_delete(3)
        with monkeypatch.context() as patched, pytest.raises(StoreError, match="the warehouse does not answer"):
            sent = suspended_after_headers(patched, world)

            def before_deadline() -> bool:
                if sent:
                    raise StoreError("the warehouse does not answer")
                return True

            world.deleter().delete_all(to_delete, before_deadline)
        assert world.left() == {*KEPT, *to_delete}

    def test_objects_whose_request_is_not_sent_again_after_a_suspension_keep_their_unknown_result(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        to_delete = world.to_delete(3)
        world.proxy.faults = Faults(lost=1.0)
        signed = suspended_after_signing(monkeypatch, world, 2)
        deletions = world.deleter().delete_all(to_delete, lambda: len(signed) < 2)
        assert {done.outcome for done in deletions} == {Outcome.FAILED}
        assert all(UNKNOWN in str(done.detail) for done in deletions)
        assert len(world.proxy.deletions) == 1

    def test_a_bulk_request_that_fails_with_and_without_conditions_keeps_conditions_on(self, world: World) -> None:
        paths = world.to_delete(2)
        to_delete = [DeleteTarget(paths[0], world.e_tag(paths[0])), DeleteTarget(paths[1], "0" * 32)]
        world.proxy.faults = Faults(conditions="kept", refuses_bulk="MalformedXML")
        assert [done.outcome for done in world.delete(to_delete).values()] == [Outcome.DELETED, Outcome.SKIPPED]


class TestBrokenStore:
    def test_after_the_network_fails_no_more_requests_are_sent(self, world: World) -> None:
        access = world.bucket.access("ns", endpoint="http://127.0.0.1:1", disable_bulk_delete="true")
        deleter = ObjectDeleter(access, world.rate_limiter, retry_policy=RetryPolicy(attempts=2))
        deletions = deleter.delete_all([f"data/{number}" for number in range(100)])
        not_tried = [done for done in deletions if str(done.detail).startswith("not tried: ")]
        assert {done.outcome for done in deletions} == {Outcome.FAILED}
        assert len(not_tried) >= 90
        assert not any(UNKNOWN in str(done.detail) for done in not_tried)

    def test_one_hanging_request_does_not_stop_the_others(self, world: World) -> None:
        to_delete = world.to_delete(30)
        stuck = f"ns/{to_delete[0]}"
        world.options(disable_bulk_delete="true", read_timeout="1s")
        world.proxy.faults = Faults(hanging=1.0, applies=lambda request: request.key == stuck)
        deletions = by_path(to_delete, world.deleter(retry_policy=RetryPolicy(attempts=2)).delete_all(to_delete))
        assert outcomes(deletions) == {Outcome.DELETED: 29, Outcome.FAILED: 1}
        assert UNKNOWN in str(deletions[to_delete[0]].detail)


def _once(act):  # type: ignore[no-untyped-def]
    """Return a hook that calls `act` only before the first deletion."""
    acted: list[bool] = []

    def before(request: Request) -> None:
        if request.deletes and not acted:
            acted.append(True)
            act()

    return before


def suspended_after_signing(patched: pytest.MonkeyPatch, world: World, at: int) -> list[bool]:
    """Suspend the process for an hour after it signed its request number `at`. The list has an entry a request."""
    sign, signed = RequestSigner.sign, list[bool]()

    def signs(*arguments: object, **named: object) -> None:
        sign(*arguments, **named)
        signed.append(True)
        if len(signed) == at:
            world.clock.sleep(3600)

    patched.setattr(RequestSigner, "sign", signs)
    return signed


def suspended_after_headers(patched: pytest.MonkeyPatch, world: World) -> list[bool]:
    """Suspend the process for an hour after it sent the headers of a request. The list has an entry a request."""
    send_headers, sent = HTTPConnection.endheaders, list[bool]()

    def sends(connection: HTTPConnection, *arguments: object, **named: object) -> None:
        send_headers(connection, *arguments, **named)  # type: ignore[arg-type]
        sent.append(True)
        world.clock.sleep(3600)

    patched.setattr(HTTPConnection, "endheaders", sends)
    return sent
