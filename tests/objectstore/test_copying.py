"""Faults during the copy of an object, and the result of the copy. `test_contract.py` tests each kind of store."""

import errno
import os
from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from obstore.store import LocalStore

from retention_assets.errors import ConfigurationError
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.mutate import copying
from retention_assets.objectstore.mutate.copying import OTHER_OBJECT, Copy, ObjectCopier, VerifiedCopy, copy_strategy
from retention_assets.objectstore.mutate.writing import ObjectWriter
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.objectstore.outcomes import ObjectResult, Outcome
from retention_assets.objectstore.rate_limiter import RateLimiter
from tests.faulty_s3 import Faults, FaultyS3, Request
from tests.objectstore.copies import copy_one
from tests.objectstore.s3 import Bucket, count_clients
from tests.objectstore.store_servers import StoreServer

MEBIBYTE = 1024**2


@pytest.fixture
def access(bucket: Bucket, faulty: FaultyS3) -> StoreAccess:
    """The bucket behind the proxy, with one object."""
    put(bucket, "x", b"ours")
    return bucket.access(endpoint=faulty.endpoint)


def put(bucket: Bucket, key: str, content: bytes, **more: str) -> None:
    """Write an object without the proxy."""
    bucket.client().put_object(Bucket=bucket.name, Key=key, Body=content, **more)


def is_copy(request: Request) -> bool:
    return any(name.lower() == "x-amz-copy-source" for name in request.headers)


def once(applies: Callable[[Request], bool], act: Callable[[], object]) -> Callable[[Request], None]:
    """Return a hook that calls `act` before the first request for which `applies` is true."""
    done: list[bool] = []

    def before(request: Request) -> None:
        if not done and applies(request):
            done.append(True)
            act()

    return before


def first_copies(number: int) -> Callable[[Request], bool]:
    """Return a condition that is true for the first copies."""
    numbers = count()
    return lambda request: is_copy(request) and next(numbers) < number


class TestCopiesInLocalFiles:
    @pytest.fixture
    def here(self, tmp_path: Path) -> Path:
        for name in ("lake", "quarantine"):
            (tmp_path / name).mkdir()
        return tmp_path

    def copied(self, here: Path, name: str, size: int) -> Path:
        places = (StoreAccess(f"file://{here}/{one}") for one in ("lake", "quarantine"))
        assert isinstance(copy_one(ObjectCopier(*places), name, f"copies/{name}", size), VerifiedCopy)
        return here / "quarantine" / "copies" / name

    @pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o444], ids=oct)
    @pytest.mark.parametrize("size", [4, 9 * MEBIBYTE])
    def test_a_copy_can_be_read_by_the_same_users_as_its_source(self, here: Path, size: int, mode: int) -> None:
        name = "a b%20#é"
        source = here / "lake" / name
        source.write_bytes(b"1" * size)
        source.chmod(mode)
        copy = self.copied(here, name, size)
        assert (copy.stat().st_mode & 0o777, copy.stat().st_size) == (mode, size)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can set the owner of a file")
    def test_a_copy_that_root_makes_has_the_owner_of_its_source(self, here: Path) -> None:
        source = here / "lake" / "x"
        source.write_bytes(b"1234")
        os.chown(source, 1234, 5678)
        copy = self.copied(here, "x", 4).stat()
        assert (copy.st_uid, copy.st_gid) == (1234, 5678)

    @pytest.mark.parametrize("code", [errno.EPERM, errno.EINVAL])  # EINVAL: ids that a rootless container does not map
    def test_a_file_system_that_refuses_owners_and_permissions_does_not_prevent_the_copy(
        self, here: Path, monkeypatch: pytest.MonkeyPatch, code: int
    ) -> None:
        def refuse(*_: object, **__: object) -> None:
            raise OSError(code, os.strerror(code))

        source = here / "lake" / "x"
        source.write_bytes(b"1234")
        source.chmod(0o600)
        if os.geteuid() == 0:
            os.chown(source, 1234, 5678)
        for name in ("chown", "chmod"):
            monkeypatch.setattr(os, name, refuse)
        assert self.copied(here, "x", 4).read_bytes() == b"1234"

    @pytest.mark.parametrize("size", [4, 9 * MEBIBYTE])
    def test_the_copies_are_complete_when_they_are_forced_to_disk(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
    ) -> None:
        synced: list[dict[str, int]] = []
        target = tmp_path / "quarantine"
        target.mkdir()
        monkeypatch.setattr(
            os, "sync", lambda: synced.append({one.name: one.stat().st_size for one in target.iterdir()})
        )
        (tmp_path / "lake").mkdir()
        for name in ("x", "y"):
            (tmp_path / "lake" / name).write_bytes(b"1" * size)
        copier = ObjectCopier(StoreAccess(f"file://{tmp_path}/lake"), StoreAccess(f"file://{target}"))
        copies = copier.copy_all([Copy(name, name, size) for name in ("x", "y")])
        assert all(isinstance(one, VerifiedCopy) for one in copies)
        assert synced == [{"x": size, "y": size}]


class TestVerificationOfTheCopy:
    def test_a_copy_that_differs_from_its_source_has_failed(
        self, bucket: Bucket, faulty: FaultyS3, access: StoreAccess
    ) -> None:
        requests_at_target = iter(range(2))  # the first one checks whether the path is free
        at_target = lambda request: request.method == "HEAD" and request.key == "kept" and next(requests_at_target) == 1  # noqa: E731
        faulty.faults.before = once(at_target, lambda: put(bucket, "kept", b"less"))
        done = copy_one(ObjectCopier(access, access), "x", "kept", 4)
        assert isinstance(done, ObjectResult), done
        assert done.outcome is Outcome.FAILED
        assert str(done.detail).startswith(
            "the copy is missing or differs: the source is an object of 4 bytes with ETag "
        )
        assert "and the target has an object of 4 bytes with ETag " in str(done.detail)

    def test_a_missing_copy_has_failed(self, bucket: Bucket, faulty: FaultyS3, access: StoreAccess) -> None:
        requests_at_target = iter(range(2))
        at_target = lambda request: request.method == "HEAD" and request.key == "kept" and next(requests_at_target) == 1  # noqa: E731
        remove = lambda: bucket.client().delete_object(Bucket=bucket.name, Key="kept")  # noqa: E731
        faulty.faults.before = once(at_target, remove)
        done = copy_one(ObjectCopier(access, access), "x", "kept", 4)
        assert done.outcome is Outcome.FAILED
        assert str(done.detail).endswith("and the target has no object")

    @pytest.mark.parametrize("encrypted", ["source", "target"])
    def test_the_etag_of_an_encrypted_object_is_not_compared(
        self, bucket: Bucket, access: StoreAccess, encrypted: str
    ) -> None:
        by_key = {"ServerSideEncryption": "aws:kms"}
        put(bucket, "x", b"ours", **(by_key if encrypted == "source" else {}))
        put(bucket, "kept", b"1234", **(by_key if encrypted == "target" else {}))
        assert isinstance(copy_one(ObjectCopier(access, access), "x", "kept", 4), VerifiedCopy)
        assert ObjectReader(access).read("kept") == b"ours"

    def test_a_copier_makes_one_client_for_each_of_its_stores(
        self, bucket: Bucket, access: StoreAccess, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clients = count_clients(monkeypatch)
        copier = ObjectCopier(access, access)
        for path in ("x", "y", "z"):
            put(bucket, path, b"ours", ServerSideEncryption="aws:kms")
            put(bucket, f"copies/{path}", b"1234")
            assert isinstance(copy_one(copier, path, f"copies/{path}", 4), VerifiedCopy)
        assert len(clients) <= 3, "of the source, of the target, and of the requests to copy"

    def test_without_encryption_another_etag_means_another_object(self, bucket: Bucket, access: StoreAccess) -> None:
        put(bucket, "kept", b"1234", ServerSideEncryption="AES256")
        done = copy_one(ObjectCopier(access, access), "x", "kept", 4)
        assert done.detail == "another object is at the target; it was not overwritten"


class TestChangedSource:
    def test_a_change_before_the_store_copies_the_object_invalidates_the_copy(
        self, bucket: Bucket, faulty: FaultyS3, access: StoreAccess
    ) -> None:
        faulty.faults.before = once(is_copy, lambda: put(bucket, "x", b"new!"))
        assert copy_one(ObjectCopier(access, access), "x", "kept", 4).outcome is Outcome.SKIPPED

    def test_a_server_that_takes_the_condition_refuses_the_copy(self, versitygw: StoreServer) -> None:
        place = versitygw.access(uuid4().hex)
        ObjectWriter(place).put("x", b"new!")
        planned = replace(ObjectReader(place).head("x"), e_tag="0123456789abcdef0123456789abcdef")
        assert copy_strategy(place, place, connections=1).copy_object("x", "kept", planned) is OTHER_OBJECT
        assert not ObjectReader(place).holds_objects("kept")

    def test_a_change_in_the_middle_of_a_copy_in_parts_ends_the_copy(
        self, bucket: Bucket, faulty: FaultyS3, access: StoreAccess
    ) -> None:
        """moto ignores the condition of each part, so the proxy refuses the third part as S3 does."""
        put(bucket, "x", bytes(11 * MEBIBYTE))
        way = copy_strategy(access, access, connections=2, one_request=5 * MEBIBYTE)
        planned = ObjectReader(access).head("x")
        changed = lambda request: "PreconditionFailed" if request.query.get("partNumber") == "3" else None  # noqa: E731
        faulty.faults.refuses = changed
        assert way.copy_object("x", "kept", planned) is OTHER_OBJECT
        conditions = [request.headers["x-amz-copy-source-if-match"] for request in faulty.requests if is_copy(request)]
        assert conditions == [f'"{planned.e_tag}"'] * 3
        assert not ObjectReader(access).holds_objects("kept")

    def test_a_change_in_the_middle_of_a_stream_ends_the_copy(
        self, bucket: Bucket, faulty: FaultyS3, access: StoreAccess, tmp_path: Path
    ) -> None:
        size = 9 * MEBIBYTE
        put(bucket, "x", bytes(size))
        reads = iter(range(100))
        second = lambda request: request.method == "GET" and next(reads) == 1  # noqa: E731
        faulty.faults.before = once(second, lambda: put(bucket, "x", b"1" * size))
        done = copy_one(ObjectCopier(access, StoreAccess(f"file://{tmp_path}")), "x", "kept", size)
        assert done.outcome is Outcome.SKIPPED
        assert list(tmp_path.rglob("kept*")) == []

    def test_a_change_after_the_object_was_read_invalidates_the_copy(self, tmp_path: Path) -> None:
        places = [StoreAccess(f"file://{tmp_path}/{name}") for name in ("here", "there")]
        for name in ("here", "there"):
            (tmp_path / name).mkdir()
        (tmp_path / "here" / "x").write_bytes(b"ours")
        copier = ObjectCopier(*places)
        copy_object = copier._copy_strategy.copy_object

        def copy_and_rewrite(*arguments: Any) -> Any:
            result = copy_object(*arguments)
            (tmp_path / "here" / "x").write_bytes(b"anew!")
            return result

        copier._copy_strategy.copy_object = copy_and_rewrite  # type: ignore[method-assign]
        assert copy_one(copier, "x", "kept", 4).outcome is Outcome.SKIPPED

    def test_an_object_that_is_deleted_during_the_copy_is_missing(
        self, bucket: Bucket, faulty: FaultyS3, access: StoreAccess
    ) -> None:
        remove = lambda: bucket.client().delete_object(Bucket=bucket.name, Key="x")  # noqa: E731
        faulty.faults.before = once(is_copy, remove)
        assert copy_one(ObjectCopier(access, access), "x", "kept", 4) == ObjectResult(Outcome.MISSING)
        assert sum(is_copy(request) for request in faulty.requests) == 1


def wants_no_object(request: Request) -> bool:
    return {name.lower(): value for name, value in request.headers.items()}.get("if-none-match") == "*"


class TestWithoutOverwriting:
    """The proxy refuses as Amazon S3 does; moto ignores the condition."""

    def refused(self, request: Request) -> str | None:
        return "PreconditionFailed" if wants_no_object(request) else None

    def test_an_object_that_is_written_during_the_copy_is_kept(
        self, bucket: Bucket, faulty: FaultyS3, access: StoreAccess
    ) -> None:
        faulty.faults.before = once(is_copy, lambda: put(bucket, "kept", b"another"))
        faulty.faults.refuses = self.refused
        done = copy_one(ObjectCopier(access, access, overwrites=False), "x", "kept", 4)
        assert done == ObjectResult(Outcome.FAILED, "another object is at the target; it was not overwritten")
        assert ObjectReader(access).read("kept") == b"another"

    def test_a_copy_whose_response_was_lost_is_accepted(
        self, bucket: Bucket, faulty: FaultyS3, access: StoreAccess
    ) -> None:
        faulty.faults.before = once(is_copy, lambda: put(bucket, "kept", b"ours"))
        faulty.faults.refuses = self.refused
        assert isinstance(copy_one(ObjectCopier(access, access, overwrites=False), "x", "kept", 4), VerifiedCopy)

    def test_a_source_that_was_changed_is_not_taken_for_an_object_at_the_target(
        self, faulty: FaultyS3, access: StoreAccess
    ) -> None:
        faulty.faults.refuses = self.refused
        done = copy_one(ObjectCopier(access, access, overwrites=False), "x", "kept", 4)
        assert done == ObjectResult(Outcome.SKIPPED, OTHER_OBJECT.detail)

    def test_a_server_without_this_condition_copies_without_it(self, faulty: FaultyS3, access: StoreAccess) -> None:
        faulty.faults.refuses = lambda request: "NotImplemented" if wants_no_object(request) else None
        assert isinstance(copy_one(ObjectCopier(access, access, overwrites=False), "x", "kept", 4), VerifiedCopy)
        assert sum(map(is_copy, faulty.requests)) == 2

    def test_a_client_that_does_not_know_the_condition_copies_without_it(
        self, faulty: FaultyS3, access: StoreAccess, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(copying, "_IF_FREE", {"IfAbsent": "*"})
        assert isinstance(copy_one(ObjectCopier(access, access, overwrites=False), "x", "kept", 4), VerifiedCopy)
        assert not any(map(wants_no_object, faulty.requests))

    @pytest.mark.parametrize("is_taken", [False, True], ids=["free", "taken"])
    @pytest.mark.parametrize(
        "error", [NotImplementedError("no such mode"), PermissionError("no hard links")], ids=["unknown", "no_links"]
    )
    def test_a_store_that_cannot_create_only_is_asked_for_the_object_once_more(
        self, tmp_path: Path, error: Exception, is_taken: bool
    ) -> None:
        for name in ("here", "there"):
            (tmp_path / name).mkdir()
        (tmp_path / "here" / "x").write_bytes(b"ours")
        copier = ObjectCopier(
            *(StoreAccess(f"file://{tmp_path}/{name}") for name in ("here", "there")), overwrites=False
        )
        strategy: Any = copier._copy_strategy
        target = strategy._target

        class WithoutCreation(LocalStore):
            def put(self, path: str, content: Any, *, attributes: Any = None, mode: str = "overwrite") -> Any:  # type: ignore[override]
                if mode == "create":
                    if is_taken:
                        (tmp_path / "there" / "kept").write_bytes(b"another")
                    raise error
                return target.put(path, content, attributes=attributes)

        strategy._target = WithoutCreation(tmp_path / "there")
        done = copy_one(copier, "x", "kept", 4)
        assert isinstance(done, VerifiedCopy) is not is_taken
        assert (tmp_path / "there" / "kept").read_bytes() == (b"another" if is_taken else b"ours")

    def test_an_object_of_the_same_size_may_be_the_copy_of_a_lost_response(self, tmp_path: Path) -> None:
        for name in ("here", "there"):
            (tmp_path / name).mkdir()
        (tmp_path / "here" / "x").write_bytes(b"ours")
        copier = ObjectCopier(
            *(StoreAccess(f"file://{tmp_path}/{name}") for name in ("here", "there")), overwrites=False
        )
        copy_object = copier._copy_strategy.copy_object

        def twice(*arguments: Any) -> Any:
            copy_object(*arguments)
            return copy_object(*arguments)

        copier._copy_strategy.copy_object = twice  # type: ignore[method-assign]
        done = copy_one(copier, "x", "kept", 4)
        assert "perhaps by this run" in str(done.detail)

    def test_the_request_that_ends_a_copy_in_parts_has_the_condition(
        self, bucket: Bucket, faulty: FaultyS3, access: StoreAccess
    ) -> None:
        put(bucket, "x", bytes(11 * MEBIBYTE))
        way = copy_strategy(access, access, connections=2, one_request=5 * MEBIBYTE, overwrites=False)
        faulty.faults.refuses = self.refused
        assert way.copy_object("x", "kept", ObjectReader(access).head("x")) is OTHER_OBJECT
        assert [request.method for request in faulty.requests if wants_no_object(request)] == ["POST"]
        assert not ObjectReader(access).holds_objects("kept")

    def test_a_copy_that_may_overwrite_has_no_condition(self, faulty: FaultyS3, access: StoreAccess) -> None:
        assert isinstance(copy_one(ObjectCopier(access, access), "x", "kept", 4), VerifiedCopy)
        assert not any(map(wants_no_object, faulty.requests))


class TestRetries:
    @pytest.mark.parametrize("fault", ["slow_down", "lost", "broken"])
    def test_a_retryable_failure_of_a_copy_is_retried(self, faulty: FaultyS3, access: StoreAccess, fault: str) -> None:
        rests: list[float] = []
        faulty.faults = Faults(**{fault: 1.0}, applies=first_copies(3))
        rate_limiter = RateLimiter(sleep=rests.append, clock=lambda: sum(rests))
        assert copy_one(ObjectCopier(access, access, rate_limiter), "x", "kept", 4).verified_by == "size and etag"
        assert len(rests) >= 3
        assert (rate_limiter.rate is not None) is (
            fault == "slow_down"
        )  # it has heard of throttles, and of no other fault
        assert sum(is_copy(request) for request in faulty.requests) == 4

    def test_a_failed_copy_is_not_sent_again_after_the_deadline(self, faulty: FaultyS3, access: StoreAccess) -> None:
        faulty.faults = Faults(slow_down=1.0, applies=is_copy)

        def before_deadline() -> bool:
            return not any(map(is_copy, faulty.requests))

        rate_limiter = RateLimiter(sleep=(rests := list[float]()).append, clock=lambda: sum(rests))
        (done,) = ObjectCopier(access, access, rate_limiter).copy_all([Copy("x", "kept", 4)], before_deadline)
        assert done == ObjectResult(Outcome.ATTEMPTED)
        assert sum(map(is_copy, faulty.requests)) == 1

    def test_a_lasting_failure_of_a_copy_ends_its_retries(self, faulty: FaultyS3, access: StoreAccess) -> None:
        rests: list[float] = []
        faulty.faults = Faults(slow_down=1.0, applies=is_copy)
        done = copy_one(
            ObjectCopier(access, access, RateLimiter(sleep=rests.append, clock=lambda: sum(rests))), "x", "kept", 4
        )
        assert done.outcome is Outcome.FAILED
        assert "SlowDown" in str(done.detail)
        assert 60 < sum(rests) < 60 + 60  # the time limit of the retry policy, and the last pause

    def test_after_a_failure_of_the_store_no_further_copy_starts(self, bucket: Bucket, faulty: FaultyS3) -> None:
        missing = Bucket(faulty.endpoint, "no-such-lake", bucket.access_key, bucket.secret_key).access()
        copies = [Copy(f"data/{number}", "kept", 4) for number in range(500)]
        results = ObjectCopier(missing, missing).copy_all(copies)
        assert {done.outcome for done in results} == {Outcome.FAILED}
        assert str(results[-1].detail).startswith("not tried: the bucket does not exist")
        assert len(faulty.requests) < 100


def sent_encryption(request: Request) -> dict[str, str]:
    """Return the headers of a request that say how its object is to be encrypted."""
    headers = {name.lower(): value for name, value in request.headers.items()}
    return {name: value for name, value in headers.items() if name.startswith("x-amz-server-side-encryption")}


class TestEncryption:
    @pytest.mark.parametrize(
        "options",
        [
            pytest.param({"server_side_encryption": "AES256"}, id="of_s3"),
            pytest.param({"aws_server_side_encryption": "aws:kms"}, id="kms"),
            pytest.param({"server_side_encryption": "aws:kms:dsse", "sse_kms_key_id": "a-key"}, id="kms_key"),
            pytest.param({"server_side_encryption": "aws:kms", "sse_bucket_key_enabled": "true"}, id="bucket_key"),
            pytest.param({"server_side_encryption": "aws:kms", "sse_bucket_key_enabled": "0"}, id="no_bucket_key"),
            pytest.param({"sse_kms_key_id": "a-key"}, id="a_key_alone"),
        ],
    )
    def test_s3_encrypts_a_copy_as_obstore_lets_it_encrypt_other_objects(
        self, bucket: Bucket, faulty: FaultyS3, access: StoreAccess, options: dict[str, str]
    ) -> None:
        encrypting = bucket.access(endpoint=faulty.endpoint, **options)
        encrypting.open().put("other", b"1")
        expected = sent_encryption(faulty.requests[-1])
        assert bool(expected) is (len(options) > 1 or "sse_kms_key_id" not in options)
        assert isinstance(copy_one(ObjectCopier(encrypting, encrypting), "x", "kept", 4), VerifiedCopy)
        (copied,) = filter(is_copy, faulty.requests)
        assert sent_encryption(copied) == expected

    def test_the_environment_may_name_the_encryption_of_copies(
        self, access: StoreAccess, faulty: FaultyS3, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_SERVER_SIDE_ENCRYPTION", "aws:kms")
        monkeypatch.setenv("AWS_SSE_KMS_KEY_ID", "a-key")
        assert isinstance(copy_one(ObjectCopier(access, access), "x", "kept", 4), VerifiedCopy)
        (copied,) = filter(is_copy, faulty.requests)
        assert sent_encryption(copied) == {
            "x-amz-server-side-encryption": "aws:kms",
            "x-amz-server-side-encryption-aws-kms-key-id": "a-key",
        }

    def test_a_copy_in_parts_is_encrypted(self, bucket: Bucket, faulty: FaultyS3, access: StoreAccess) -> None:
        put(bucket, "x", bytes(11 * MEBIBYTE))
        options = {"server_side_encryption": "aws:kms", "sse_kms_key_id": "a-key", "sse_bucket_key_enabled": "true"}
        encrypting = bucket.access(endpoint=faulty.endpoint, **options)
        way = copy_strategy(encrypting, encrypting, connections=2, one_request=5 * MEBIBYTE)
        assert way.copy_object("x", "kept", ObjectReader(access).head("x")) is None
        (created,) = (request for request in faulty.requests if "uploads" in request.query)
        assert sent_encryption(created) == {
            "x-amz-server-side-encryption": "aws:kms",
            "x-amz-server-side-encryption-aws-kms-key-id": "a-key",
        }

    @pytest.mark.parametrize("encrypted", ["source", "target"])
    def test_with_a_key_of_the_customer_nothing_can_be_copied(
        self, bucket: Bucket, tmp_path: Path, encrypted: str
    ) -> None:
        key = b64encode(b"0123456789abcdef" * 2).decode()
        options = {"server_side_encryption": "sse-c", "sse_customer_key_base64": key}
        stores = bucket.access("ns", **options), StoreAccess(f"file://{tmp_path}")
        with pytest.raises(
            ConfigurationError, match=r"Nothing was copied\. Write the objects again .* Or use `mode: delete`"
        ) as caught:
            ObjectCopier(*(stores if encrypted == "source" else reversed(stores)))
        assert key not in str(caught.value)


@pytest.mark.parametrize(
    ("to", "code"), [("bucket", "ObjectNotInActiveTierError"), ("files", "InvalidObjectState")], ids=["bucket", "files"]
)
def test_a_copy_of_an_archived_object_fails_with_what_can_be_done(
    bucket: Bucket, access: StoreAccess, tmp_path: Path, to: str, code: str
) -> None:
    put(bucket, "x", b"ours", StorageClass="GLACIER")
    done = copy_one(
        ObjectCopier(access, access if to == "bucket" else StoreAccess(f"file://{tmp_path}")), "x", "kept", 4
    )
    assert done == ObjectResult(
        Outcome.FAILED,
        f"the object is archived by its storage class ({code}), and S3 cannot read or copy it. Restore it in S3 "
        "(RestoreObject), then run the same command again",
    )


class TestKindsOfCopies:
    def test_s3_copies_by_itself(self, faulty: FaultyS3, access: StoreAccess) -> None:
        elsewhere = replace(access, url=f"{access.url}/elsewhere")
        assert isinstance(copy_one(ObjectCopier(access, elsewhere), "x", "kept", 4), VerifiedCopy)
        assert {request.method for request in faulty.requests} == {"HEAD", "PUT"}
        assert sum(is_copy(request) for request in faulty.requests) == 1

    def test_s3_copies_what_is_too_large_for_one_request_in_parts(
        self, bucket: Bucket, faulty: FaultyS3, access: StoreAccess
    ) -> None:
        content = bytes(range(256)) * 45_000  # 11 MB
        put(bucket, "x", content)
        way = copy_strategy(access, access, connections=2, one_request=5 * MEBIBYTE)
        assert way.copy_object("x", "kept", ObjectReader(access).head("x")) is None
        assert ObjectReader(access).read("kept") == content
        copied = [request for request in faulty.requests if is_copy(request)]
        assert sorted(request.query["partNumber"] for request in copied) == ["1", "2", "3"]

    @pytest.mark.parametrize("size", [0, 5, 9 * MEBIBYTE])
    def test_between_kinds_of_stores_the_bytes_pass_through_this_machine(
        self, access: StoreAccess, tmp_path: Path, size: int
    ) -> None:
        files = StoreAccess(f"file://{tmp_path}")
        content = bytes(index % 251 for index in range(size))
        ObjectWriter(files).put("there", content)
        assert copy_one(ObjectCopier(files, access), "there", "away/there", size).verified_by == "size"
        assert copy_one(ObjectCopier(access, files), "away/there", "back", size).verified_by == "size"
        assert ObjectReader(files).read("back") == content

    @pytest.mark.parametrize("size", [4, 9 * MEBIBYTE])
    def test_an_object_that_passes_through_this_machine_keeps_its_metadata(
        self, bucket: Bucket, access: StoreAccess, size: int
    ) -> None:
        client, content = (
            bucket.client(),
            {"ContentType": "text/csv", "ContentLanguage": "de", "CacheControl": "no-cache"},
        )
        metadata = {**content, "ContentDisposition": "inline", "Metadata": {"owner": "ada", "run": "7"}}
        client.put_object(Bucket=bucket.name, Key="x", Body=bytes(size), **metadata)
        target = bucket.access("other", access_key_id="another-key")
        assert isinstance(copy_one(ObjectCopier(access, target), "x", "kept", size), VerifiedCopy)
        found = client.head_object(Bucket=bucket.name, Key="other/kept")
        assert {name: found.get(name) for name in metadata} == metadata

    def test_stores_with_other_credentials_do_not_copy_by_themselves(
        self, bucket: Bucket, faulty: FaultyS3, access: StoreAccess
    ) -> None:
        target = bucket.access("other", access_key_id="another-key")
        assert copy_one(ObjectCopier(access, target), "x", "kept", 4).verified_by == "size and etag"
        assert "GET" in {request.method for request in faulty.requests}
