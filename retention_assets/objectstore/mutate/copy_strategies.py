"""Strategies for copying one object: within the store, or through this machine."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from math import ceil
from typing import Any, Protocol

from boto3.s3.transfer import TransferConfig  # type: ignore[import-untyped]
from obstore.exceptions import BaseError, PreconditionError
from obstore.store import AzureStore, GCSStore

from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.failures import Failure, Kind, failure_of
from retention_assets.objectstore.objects import ObjectMetadata
from retention_assets.objectstore.s3 import S3_ERRORS, S3Bucket, failure_of_s3, is_s3, s3_bucket

OTHER_OBJECT = Failure(Kind.OTHER, "another object was there by the time of the copy")

_MEBIBYTE = 1024**2
_CHUNK = 8 * _MEBIBYTE  # bytes that one request uploads; a copy holds at most two chunks
_MOST_PARTS = 9_000  # parts of one upload; S3 and GCS allow 10,000
_ONE_REQUEST = 5 * 1024**3  # bytes that S3 copies with one request; a larger object is copied in parts
_PART = 512 * _MEBIBYTE
_PRECONDITION_CODES = ("PreconditionFailed", "412")
_OF_THE_BUCKET = ("bucket", "region", "default_region")


class CopyStrategy(Protocol):
    """Copies objects between two stores."""

    def copy_object(self, path: str, to: str, found: ObjectMetadata) -> Failure | None:
        """Copy the object `found` at `path` to `to`, without retries; return the failure, or None for success.

        The failure is `OTHER_OBJECT` if the store refused because there is another object at `path` now. Not every
        store and server checks this.
        """
        ...


def copy_strategy(
    source: StoreAccess, target: StoreAccess, connections: int, one_request: int = _ONE_REQUEST
) -> CopyStrategy:
    """Return the fastest strategy for two stores. Errors: as `StoreAccess.open` and `s3_bucket`.

    Args:
        source: the store to copy from.
        target: the store to copy to.
        connections: the number of threads that will use the strategy.
        one_request: the largest object in bytes that S3 copies with one request.
    """
    here, there = source.open(retrying=False), target.open(retrying=False)
    if is_s3(source) and is_s3(target) and _service(here.config) == _service(there.config):
        return _ByS3(here, s3_bucket(target, connections), target, one_request)
    one_kind = type(here) is type(there) and isinstance(here, (AzureStore, GCSStore))
    if one_kind and here.config == there.config:
        return _WithinContainer(here, there, target)
    return _Streamed(here, there, source, target)


def _service(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options that identify the service and the credentials."""
    return {name: value for name, value in config.items() if name not in _OF_THE_BUCKET}


def _prefix(store: Any) -> str:
    return f"{store.prefix}/" if store.prefix else ""


class _ByS3:
    """Copies with S3's CopyObject, above 5 GiB in parts, on the condition that the source still has its ETag."""

    def __init__(self, source: Any, target: S3Bucket, access: StoreAccess, one_request: int) -> None:
        self._bucket, self._from = source.config["bucket"], _prefix(source)
        self._target, self._access, self._one_request = target, access, one_request
        self._in_parts = TransferConfig(
            multipart_threshold=one_request, multipart_chunksize=min(_PART, one_request), max_concurrency=2
        )

    def copy_object(self, path: str, to: str, found: ObjectMetadata) -> Failure | None:
        origin = {"Bucket": self._bucket, "Key": self._from + path}
        key = self._target.key(to)
        extra = dict(self._target.extra)
        if found.e_tag:
            extra["CopySourceIfMatch"] = f'"{found.e_tag}"'
        try:
            if found.size <= self._one_request:
                self._target.client.copy_object(Bucket=self._target.name, Key=key, CopySource=origin, **extra)
            else:
                self._target.client.copy(origin, self._target.name, key, ExtraArgs=extra, Config=self._in_parts)
        except S3_ERRORS as error:
            failure = failure_of_s3(error, self._access)
            return OTHER_OBJECT if failure.code in _PRECONDITION_CODES else failure
        return None


class _WithinContainer:
    """Copies within a container of Azure or a bucket of GCS, whichever object is at the source path at that moment."""

    def __init__(self, source: Any, target: Any, access: StoreAccess) -> None:
        self._root = type(source)(
            config=source.config, client_options=source.client_options, retry_config=source.retry_config
        )
        self._from, self._to = _prefix(source), _prefix(target)
        self._access = access

    def copy_object(self, path: str, to: str, found: ObjectMetadata) -> Failure | None:
        try:
            self._root.copy(self._from + path, self._to + to)
        except (BaseError, OSError, ValueError) as error:
            return failure_of(error, self._access.options.values())
        return None


class _Streamed:
    """Copies through this machine, chunk by chunk. Each read requires that the source still has its ETag.

    Memory: the whole object up to 8 MiB; about four chunks of a larger object, whatever its size. Measured: 580
    MiB for ten concurrent copies, including memory that malloc keeps. A chunk has 8 MiB, or a 9,000th of an object
    above 70 GiB.
    """

    def __init__(self, source: Any, target: Any, source_access: StoreAccess, target_access: StoreAccess) -> None:
        self._source, self._target = source, target
        self._secrets = (*source_access.options.values(), *target_access.options.values())

    def copy_object(self, path: str, to: str, found: ObjectMetadata) -> Failure | None:
        condition = {"if_match": f'"{found.e_tag}"'} if found.e_tag else {}
        try:
            if found.size <= _CHUNK:
                self._target.put(to, self._source.get(path, options=condition).bytes())
            else:
                # obstore's blocking calls cannot read a chunk while a write is in progress; its async calls can.
                asyncio.run(self._put(to, path, found.size, condition))
        except PreconditionError:
            return OTHER_OBJECT
        except (BaseError, OSError, ValueError) as error:
            return failure_of(error, self._secrets)
        return None

    async def _put(self, to: str, path: str, size: int, condition: Mapping[str, str]) -> None:
        chunk = max(_CHUNK, ceil(size / _MOST_PARTS))
        parts = self._parts(path, size, chunk, condition)
        await self._target.put_async(to, parts, chunk_size=chunk, max_concurrency=2)

    async def _parts(self, path: str, size: int, chunk: int, condition: Mapping[str, str]) -> AsyncIterator[Any]:
        for start in range(0, size, chunk):
            options = {**condition, "range": (start, min(start + chunk, size))}
            yield await (await self._source.get_async(path, options=options)).bytes_async()
