"""Copies objects within a store or through this machine, and verifies each copy."""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from math import ceil
from random import Random
from typing import Any, Protocol

import s3transfer.exceptions  # type: ignore[import-untyped]
from boto3.s3.transfer import TransferConfig  # type: ignore[import-untyped]
from obstore.exceptions import AlreadyExistsError, BaseError, NotSupportedError, PreconditionError
from obstore.store import AzureStore, GCSStore, LocalStore, MemoryStore

from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.failures import Failure, Kind, failure_of
from retention_assets.objectstore.objects import ObjectMetadata, OpenStore, is_resolved, metadata_of
from retention_assets.objectstore.outcomes import ObjectResult, Outcome
from retention_assets.objectstore.rate_limiter import RateLimiter, Retries, RetryPolicy
from retention_assets.objectstore.s3 import (
    S3_ERRORS,
    S3Bucket,
    failure_of_s3,
    is_encrypted,
    require_copyable,
    s3_bucket,
)

OTHER_OBJECT = Failure(Kind.OTHER, "another object was at its path when it was copied")

_MEBIBYTE = 1024**2
_CHUNK = 8 * _MEBIBYTE  # bytes that one request uploads
_MOST_PARTS = 9_000  # parts of one upload; S3 and GCS allow 10,000
_ONE_REQUEST = 5 * 1024**3  # bytes that S3 copies with one request; a larger object is copied in parts
_PART = 512 * _MEBIBYTE
_PERMISSIONS = 0o777  # bits of a file's mode
_SAME_OWNER = -1  # for chown
# s3transfer's error if the source changes during a copy in parts. Before s3transfer 0.15, S3's error is raised instead.
_CHANGED_DURING_COPY = getattr(s3transfer.exceptions, "S3CopyFailedError", ())
_PRECONDITION_CODES = ("PreconditionFailed", "412")
_NOT_IMPLEMENTED = "NotImplemented"
_IF_FREE = {"IfNoneMatch": "*"}
_OF_THE_BUCKET = ("bucket", "region", "default_region")


class _TargetTaken(Exception):
    """An object was written to the target during a copy that must not overwrite."""


class CopyStrategy(Protocol):
    """Copies objects between two stores."""

    def copy_object(self, path: str, to: str, found: ObjectMetadata) -> Failure | None:
        """Copy the object `found` at `path` to `to`, without retries; return the failure, or None for success.

        The failure is `OTHER_OBJECT` if the store refused because there is another object at `path` now or, for a
        strategy that does not overwrite, because there is an object at `to`. Not every store and server checks this.
        """
        ...


def copy_strategy(
    source: StoreAccess,
    target: StoreAccess,
    connections: int,
    one_request: int = _ONE_REQUEST,
    *,
    overwrites: bool = True,
) -> CopyStrategy:
    """Return the fastest strategy for two stores. Errors: as `StoreAccess.open`, `s3_bucket` and `require_copyable`.

    Args:
        source: the store to copy from.
        target: the store to copy to.
        connections: the number of threads that will use the strategy.
        one_request: the largest object in bytes that S3 copies with one request.
        overwrites: whether a copy may take the place of an object at the target.
    """
    require_copyable(source, target)
    here, there = source.open(retrying=False), target.open(retrying=False)
    if source.is_s3 and target.is_s3 and _service(here.config) == _service(there.config):
        return _ByS3(here, s3_bucket(target, connections), one_request, overwrites=overwrites)
    one_kind = type(here) is type(there) and isinstance(here, (AzureStore, GCSStore))
    if one_kind and here.config == there.config:
        return _WithinContainer(here, there, target, overwrites=overwrites)
    return _Streamed(here, there, source, target, overwrites=overwrites)


def _service(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options that identify the service and the credentials."""
    return {name: value for name, value in config.items() if name not in _OF_THE_BUCKET}


def _prefix(store: Any) -> str:
    return f"{store.prefix}/" if store.prefix else ""


class _ByS3:
    """Copies with S3's CopyObject, above 5 GiB in parts, on the condition that the source still has its ETag.

    Without `overwrites`, there is also the condition that no object is at the target. A server that does not implement
    this condition gets the request without it.
    """

    def __init__(self, source: Any, target: S3Bucket, one_request: int, *, overwrites: bool) -> None:
        self._bucket, self._from = source.config["bucket"], _prefix(source)
        self._target, self._one_request = target, one_request
        self._in_parts = TransferConfig(
            multipart_threshold=one_request, multipart_chunksize=min(_PART, one_request), max_concurrency=2
        )
        parameters = target.client.meta.service_model.operation_model("CopyObject").input_shape.members
        can_ask = not overwrites and _IF_FREE.keys() <= parameters.keys()  # not before botocore 1.41
        self._if_free = _IF_FREE if can_ask else {}
        # s3transfer does not pass this parameter on to the request that ends a copy in parts.
        target.client.meta.events.register(
            "provide-client-params.s3.CompleteMultipartUpload", lambda params, **_: {**params, **self._if_free}
        )

    def copy_object(self, path: str, to: str, found: ObjectMetadata) -> Failure | None:
        failure = self._requested(path, to, found)
        if failure and failure.code == _NOT_IMPLEMENTED and self._if_free:
            self._if_free = {}
            failure = self._requested(path, to, found)
        return failure

    def _requested(self, path: str, to: str, found: ObjectMetadata) -> Failure | None:
        origin = {"Bucket": self._bucket, "Key": self._from + path}
        key = self._target.key(to)
        extra = {**self._target.extra, **self._target.encryption}
        if found.e_tag:
            extra["CopySourceIfMatch"] = f'"{found.e_tag}"'
        try:
            if found.size <= self._one_request:
                one = {**extra, **self._if_free}
                self._target.client.copy_object(Bucket=self._target.name, Key=key, CopySource=origin, **one)
            else:
                extra.pop("BucketKeyEnabled", None)  # not a parameter of `copy`: the bucket's own setting counts
                self._target.client.copy(origin, self._target.name, key, ExtraArgs=extra, Config=self._in_parts)
        except _CHANGED_DURING_COPY:
            return OTHER_OBJECT
        except S3_ERRORS as error:
            failure = failure_of_s3(error, self._target.access)
            return OTHER_OBJECT if failure.code in _PRECONDITION_CODES else failure
        return None


class _WithinContainer:
    """Copies within a container of Azure or a bucket of GCS, without a condition on the ETag of the source."""

    def __init__(self, source: Any, target: Any, access: StoreAccess, *, overwrites: bool) -> None:
        self._overwrites = overwrites
        self._root = type(source)(
            config=source.config, client_options=source.client_options, retry_config=source.retry_config
        )
        self._from, self._to = _prefix(source), _prefix(target)
        self._access = access

    def copy_object(self, path: str, to: str, found: ObjectMetadata) -> Failure | None:
        try:
            self._root.copy(self._from + path, self._to + to, overwrite=self._overwrites)
        except AlreadyExistsError:
            return OTHER_OBJECT
        except (BaseError, OSError, ValueError) as error:
            return failure_of(error, self._access.options.values())
        return None


class _Streamed:
    """Copies through this machine, chunk by chunk. Each read requires that the source still has its ETag.

    An object of up to 8 MiB is in memory as a whole. A larger object has about four chunks in memory. A chunk has
    8 MiB, or a 9,000th of an object above 70 GiB. Ten concurrent copies took 580 MiB, including memory that malloc
    keeps.
    """

    def __init__(
        self, source: Any, target: Any, source_access: StoreAccess, target_access: StoreAccess, *, overwrites: bool
    ) -> None:
        self._source, self._target, self._overwrites = source, target, overwrites
        self._secrets = (*source_access.options.values(), *target_access.options.values())
        # Another kind of store may refuse the names of the metadata. Local files have none.
        self._keeps_attributes = type(source) is type(target) and not isinstance(target, LocalStore)
        self._are_local = source_access.is_local and target_access.is_local
        self._accesses = source_access, target_access

    def copy_object(self, path: str, to: str, found: ObjectMetadata) -> Failure | None:
        condition = {"if_match": f'"{found.e_tag}"'} if found.e_tag else {}
        try:
            if found.size <= _CHUNK:
                response = self._source.get(path, options=condition)
                self._put_whole(to, response.bytes(), self._attributes(response))
            else:
                # obstore's blocking calls cannot read a chunk while a write is in progress; its async calls can.
                asyncio.run(self._put(to, path, found.size, condition))
            if self._are_local:
                self._keep_permissions(path, to)
        except (PreconditionError, AlreadyExistsError, _TargetTaken):
            return OTHER_OBJECT
        except (BaseError, OSError, ValueError) as error:
            return failure_of(error, self._secrets)
        return None

    def _put_whole(self, to: str, content: Any, attributes: dict[str, str] | None) -> None:
        if not self._overwrites:
            try:
                self._target.put(to, content, attributes=attributes, mode="create")
                return
            except (BaseError, OSError, NotImplementedError) as error:
                if isinstance(error, AlreadyExistsError) or not self._cannot_create(error):
                    raise
            with suppress(FileNotFoundError):
                self._target.head(to)
                raise _TargetTaken(to)
        self._target.put(to, content, attributes=attributes)

    def _cannot_create(self, error: Exception) -> bool:
        """Return whether the write may have failed because the store cannot require that no object is at the target.

        A local file is created with a hard link, which some file systems do not have, such as exFAT.
        """
        return (
            isinstance(error, NotSupportedError | NotImplementedError)
            or isinstance(self._target, LocalStore)
            or failure_of(error, self._secrets).code == _NOT_IMPLEMENTED
        )

    async def _require_free(self, to: str) -> None:
        """Raise _TargetTaken if an object is at the target. No store has this condition for a stream of parts."""
        with suppress(FileNotFoundError):
            await self._target.head_async(to)
            raise _TargetTaken(to)

    async def _put(self, to: str, path: str, size: int, condition: Mapping[str, str]) -> None:
        chunk = max(_CHUNK, ceil(size / _MOST_PARTS))
        options = [{**condition, "range": (at, min(at + chunk, size))} for at in range(0, size, chunk)]
        first = await self._source.get_async(path, options=options[0])

        async def parts() -> AsyncIterator[Any]:
            yield await first.bytes_async()
            for one in options[1:]:
                content = await (await self._source.get_async(path, options=one)).bytes_async()
                if one is options[-1] and not self._overwrites:
                    await self._require_free(to)
                yield content

        attributes = self._attributes(first)
        await self._target.put_async(to, parts(), attributes=attributes, chunk_size=chunk, max_concurrency=2)

    def _attributes(self, response: Any) -> dict[str, str] | None:
        """Return the headers of the content, such as its type, and the metadata for the copy; None: it gets none."""
        return dict(response.attributes) if self._keeps_attributes else None

    def _keep_permissions(self, path: str, to: str) -> None:
        """Give a copied local file the owner, the group and the permissions of its source, as far as this user may."""
        source, target = (one.directory / name for one, name in zip(self._accesses, (path, to), strict=True))
        wanted, found = source.stat(), target.stat()
        if (wanted.st_uid, wanted.st_gid) != (found.st_uid, found.st_gid):
            for owner in (wanted.st_uid, _SAME_OWNER):  # only root may change the owner
                with suppress(OSError):
                    os.chown(target, owner, wanted.st_gid)
                    break
        if (wanted.st_mode ^ found.st_mode) & _PERMISSIONS:
            with suppress(OSError):  # a file system without permissions, such as exFAT, refuses the change
                target.chmod(wanted.st_mode & _PERMISSIONS)


_AT_ONCE = 10  # more concurrent requests made S3 return SlowDown. Source: lakeFS issue 5729
_RETRY_POLICY = RetryPolicy()
SIZE, SIZE_AND_ETAG = "size", "size and etag"  # how a copy was verified
_MAY_BE_MD5 = re.compile(r"[0-9a-f]{32}")  # ETags that may be the MD5 of the content; a multipart upload has another


@dataclass(frozen=True, slots=True)
class Copy:
    """One object to copy, as planned."""

    path: str  # relative to the source's URL
    to: str  # relative to the target's URL
    size: int  # bytes
    e_tag: str | None = None  # without the quotes of HTTP; None: any ETag


@dataclass(frozen=True, slots=True)
class VerifiedCopy:
    """A complete copy of the planned object."""

    size: int  # bytes, of both source and copy
    e_tag: str | None  # of the source, at the verification
    copy_e_tag: str | None
    verified_by: str = SIZE  # or `SIZE_AND_ETAG`


_PERHAPS_OWN = ObjectResult(
    Outcome.FAILED,
    "an object of the same size was written there meanwhile, perhaps by this run; it was not overwritten. Run again: "
    "then the bytes are compared",
)
_NOT_OVERWRITTEN = ObjectResult(Outcome.FAILED, "another object is at the target; it was not overwritten")


class ObjectCopier:
    """Copies objects between two stores. The caller is responsible for the plan, the guards and the liveness check.

    The store itself copies if both URLs use the same S3 endpoint and credentials, the same container of Azure or the
    same bucket of GCS. Otherwise, local files included, the bytes pass through this machine, a few chunks at a time.

    The object must have the planned size and ETag before the copy. The object is checked again after the copy, because
    not every store makes the ETag a condition of copying. The copy must have the object's size. If both ETags look like
    MD5 sums, they must be equal, unless S3 reports that one of the two objects is encrypted: the ETag of an encrypted
    object is not its MD5 sum.

    The copy has a new modification time. docs/stores.md lists what else differs. An existing object at the target is
    not overwritten if its size or its MD5 differs. If both are equal, the object is not copied again. If the sizes are
    equal and the ETags cannot be compared, the object is copied and overwrites the existing one, unless an earlier
    attempt verified this copy, or `overwrites` is False. An object that is written to the target between the check and
    the copy is overwritten too. If `overwrites` is False, the store is asked to write the copy only if no object is at
    the target. For a copy above 8 MiB that passes through this machine, the target is checked just before the last part
    is sent.
    """

    def __init__(
        self,
        source: StoreAccess,
        target: StoreAccess,
        rate_limiter: RateLimiter | None = None,
        *,
        overwrites: bool = True,
    ) -> None:
        """Open both stores. Errors: as `copy_strategy`."""
        self._overwrites = overwrites
        self._source, self._target = _CheckedStore(source), _CheckedStore(target)
        self._copy_strategy = copy_strategy(source, target, connections=_AT_ONCE, overwrites=overwrites)
        self._is_to_local_files = target.is_local
        self._rate_limiter, self._random = rate_limiter or RateLimiter(), Random()

    def copy_all(
        self,
        copies: Sequence[Copy],
        before_deadline: Callable[[], bool] = lambda: True,
        earlier: Callable[[], Mapping[str, VerifiedCopy]] = dict,
    ) -> Sequence[VerifiedCopy | ObjectResult]:
        """Copy objects, ten at a time. Return each verified copy, or the reason why there is none, in the order given.

        An object without a copy has one of these outcomes: `missing`; `skipped`: another object is at the path;
        `failed`; `attempted`: the deadline was exceeded before a request to copy succeeded. A store's error is not
        raised.

        After a failure of the store itself, no further copy starts. Copies in local files are on the disk when this
        returns, so that a power failure after the deletion of the originals does not lose them.

        Args:
            copies: the objects to copy.
            before_deadline: returns whether there is time left; once it returns False, no further copy starts, and
                no failed request is sent again.
            earlier: returns the copies that earlier attempts verified, by the path of their source. An object is not
                copied again while source and copy still have the recorded ETags. `earlier` is called only if a copy
                exists whose ETag cannot be compared with the ETag of its source.
        """
        broken: list[Failure] = []

        def copied(copy: Copy) -> VerifiedCopy | ObjectResult:
            if broken:
                return ObjectResult(Outcome.FAILED, f"not tried: {broken[0].detail}")
            if not before_deadline():
                return ObjectResult(Outcome.ATTEMPTED)
            result = self._copied(copy, earlier, before_deadline)
            if isinstance(result, Failure):
                if result.kind.is_of_store:
                    broken.append(result)
                return ObjectResult.failed(result)
            return result

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            results = list(pool.map(copied, copies))
        if self._is_to_local_files:
            os.sync()  # the library that writes the files does not force them to the disk
        return results

    def _copied(
        self, copy: Copy, earlier: Callable[[], Mapping[str, VerifiedCopy]], before_deadline: Callable[[], bool]
    ) -> VerifiedCopy | ObjectResult | Failure:
        if not (is_resolved(copy.path) and is_resolved(copy.to)):
            return ObjectResult(Outcome.FAILED, "not tried: a path has an empty part, `.` or `..`")
        found = self._source.head(copy.path)
        if found is None:
            return self._source.absent(copy.path) or ObjectResult(Outcome.MISSING)
        if isinstance(found, Failure):
            return found
        if found.size != copy.size or (copy.e_tag and found.e_tag != copy.e_tag):
            return ObjectResult(Outcome.SKIPPED, f"the object at its path is now {_described(found)}")
        there = self._target.head(copy.to)
        if isinstance(there, Failure):
            return there
        verified_by = self._same_content(copy, found, there) if there else SIZE
        if verified_by is None:
            return _NOT_OVERWRITTEN
        if there and (verified_by == SIZE_AND_ETAG or _verified_before(earlier().get(copy.path), found, there)):
            return VerifiedCopy(found.size, found.e_tag, there.e_tag, SIZE_AND_ETAG)
        if there and not self._overwrites:
            return _NOT_OVERWRITTEN
        return self._copy_object(copy, found, before_deadline) or self._verified(copy, found)

    def _copy_object(
        self, copy: Copy, found: ObjectMetadata, before_deadline: Callable[[], bool]
    ) -> ObjectResult | Failure | None:
        """Copy the object that was found. None means success."""
        failure = self._sent(copy, found, before_deadline)
        if isinstance(failure, ObjectResult):
            return failure
        if failure is OTHER_OBJECT and not self._overwrites and (there := self._target.head(copy.to)):
            if isinstance(there, Failure):
                return there
            # An object was written there meanwhile, perhaps by an earlier request whose response was lost.
            verified_by = self._same_content(copy, found, there)
            if verified_by == SIZE_AND_ETAG:
                return None
            return _PERHAPS_OWN if verified_by else _NOT_OVERWRITTEN
        if failure is OTHER_OBJECT:
            return ObjectResult(Outcome.SKIPPED, failure.detail)
        if failure and failure.kind is Kind.OBJECT_MISSING and self._source.head(copy.path) is None:
            return self._source.absent(copy.path) or ObjectResult(Outcome.MISSING)
        return failure

    def _sent(
        self, copy: Copy, found: ObjectMetadata, before_deadline: Callable[[], bool]
    ) -> ObjectResult | Failure | None:
        """Copy with retries. If the response to a copy request is lost, the object is copied again.

        After the deadline, no request is sent, and the outcome is `attempted`.
        """
        retries = Retries(_RETRY_POLICY, self._rate_limiter, self._random)
        while True:
            self._rate_limiter.wait_for(1)
            if not before_deadline():
                return ObjectResult(Outcome.ATTEMPTED)
            sent_at = self._rate_limiter.now()
            failure = self._copy_strategy.copy_object(copy.path, copy.to, found)
            if failure is None:
                self._rate_limiter.not_throttled(sent_at)
                return None
            if failure.throttled:
                self._rate_limiter.throttled(sent_at)
            if not (failure.retryable and retries.wait(throttled=failure.throttled)):
                return failure

    def _verified(self, copy: Copy, found: ObjectMetadata) -> VerifiedCopy | ObjectResult | Failure:
        again = self._source.head(copy.path)
        if isinstance(again, Failure):
            return again
        if again is None or (again.size, again.e_tag) != (found.size, found.e_tag):
            return ObjectResult(Outcome.SKIPPED, "it was changed or deleted while it was copied")
        there = self._target.head(copy.to)
        if isinstance(there, Failure):
            return there
        verified_by = self._same_content(copy, found, there) if there else None
        if there is None or verified_by is None:
            at_target = _described(there) if there else "no object"
            detail = (
                f"the copy is missing or differs: the source is {_described(found)}, and the target has {at_target}"
            )
            return ObjectResult(Outcome.FAILED, detail)
        return VerifiedCopy(found.size, found.e_tag, there.e_tag, verified_by)

    def _same_content(self, copy: Copy, found: ObjectMetadata, there: ObjectMetadata) -> str | None:
        """Return how the source `found` and the copy `there` were compared, or None if they differ."""
        if there.size != found.size:
            return None
        if not (_MAY_BE_MD5.fullmatch(found.e_tag or "") and _MAY_BE_MD5.fullmatch(there.e_tag or "")):
            return SIZE
        if have_same_md5(found, there):
            return SIZE_AND_ETAG
        encrypted = self._source.is_encrypted(copy.path) or self._target.is_encrypted(copy.to)
        return SIZE if encrypted else None


def have_same_md5(one: ObjectMetadata, other: ObjectMetadata) -> bool:
    """Return whether two objects have the same size, and equal ETags that look like MD5 sums."""
    return (one.size, one.e_tag) == (other.size, other.e_tag) and bool(_MAY_BE_MD5.fullmatch(one.e_tag or ""))


class _CheckedStore(OpenStore):
    """A store, with the checks that copying needs."""

    def head(self, path: str) -> ObjectMetadata | Failure | None:
        """Return the metadata of the object at `path`, None for a 404, or the failure of the request."""
        found = self._try(lambda: metadata_of(self._store.head(path)))
        return None if isinstance(found, Failure) and found.kind is Kind.OBJECT_MISSING else found

    def absent(self, path: str) -> Failure | None:
        """Return None if a 404 for `path` means a missing object, else the failure, such as a missing bucket."""
        if isinstance(self._store, (LocalStore, MemoryStore)):
            return None
        found = self._try(lambda: self._store.get(path))  # the response to a HEAD has no error text
        if not isinstance(found, Failure):
            return Failure(Kind.OTHER, "the object exists again")
        return None if found.names_object else found

    def is_encrypted(self, path: str) -> bool:
        """Return whether S3 reports an encryption with which the object's ETag is not its MD5 sum."""
        if not self._access.is_s3:
            return False
        try:
            return is_encrypted(self._bucket, path)
        except S3_ERRORS:
            return False  # then the copy counts as different, so its original is not deleted


def _verified_before(earlier: VerifiedCopy | None, found: ObjectMetadata, there: ObjectMetadata) -> bool:
    """Return whether an earlier attempt verified this same copy of this same object."""
    return earlier is not None and (earlier.size, earlier.e_tag, earlier.size, earlier.copy_e_tag) == (
        found.size,
        found.e_tag,
        there.size,
        there.e_tag,
    )


def _described(metadata: ObjectMetadata) -> str:
    return f"an object of {metadata.size:,} bytes with ETag {metadata.e_tag}"
