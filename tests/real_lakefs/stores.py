"""Where a server keeps its objects: listed, aged and read without the code under test and without the server."""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import boto3  # type: ignore[import-untyped]
from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends

from tests.objectstore.places import Place
from tests.objectstore.s3 import REGION

BUCKET = "lakefs"
_XID = re.compile(r"data/[0-9a-v]{20}/([0-9a-v]{20})(,[A-Za-z0-9_-]{43})?")
_SECRET = "LAKE_SECRET"  # the variable that the configuration names


class ObjectStore(Protocol):
    """The store of one server; `place` is a repository's folder in it, and addresses are relative to that."""

    def namespace(self, place: str) -> str:
        """Return the storage namespace as lakeFS is told it."""
        ...

    def settings(self, place: str) -> Mapping[str, Any]:
        """Return `storage` and `storage_options` as retention.yaml has them."""
        ...

    def stored(self, place: str) -> dict[str, int]:
        """Return the bytes of every object below the folder by address, lakeFS's own `_lakefs/` left out."""
        ...

    def put(self, place: str, address: str, content: bytes) -> None:
        """Write an object, as a client does that was given the address to link it."""
        ...

    def set_time(self, place: str, address: str, at: datetime) -> None:
        """Let an object have been written at `at`."""
        ...

    def delete(self, place: str, address: str) -> None:
        """Take an object away, as an accident does."""
        ...


def issued_at(address: str) -> datetime | None:
    """Return when lakeFS issued an address, by the xid in it; None for other names."""
    match = _XID.fullmatch(address)
    if match is None:
        return None
    digits = [int(digit, 32) for digit in match[1][:7]]
    return datetime.fromtimestamp(sum(digit << 5 * (6 - place) for place, digit in enumerate(digits)) >> 3, UTC)


@dataclass(frozen=True, slots=True)
class FileStore:
    """The local blockstore: a directory for each namespace."""

    directory: Path

    def namespace(self, place: str) -> str:
        return f"local://{place}"

    def settings(self, place: str) -> Mapping[str, Any]:
        return {"storage": str(self.directory / place)}

    def stored(self, place: str) -> dict[str, int]:
        root = self.directory / place
        found = {str(file.relative_to(root)): file.stat().st_size for file in root.rglob("*") if file.is_file()}
        return {address: size for address, size in found.items() if not address.startswith("_lakefs/")}

    def put(self, place: str, address: str, content: bytes) -> None:
        file = self.directory / place / address
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)

    def set_time(self, place: str, address: str, at: datetime) -> None:
        seconds = at.timestamp()
        os.utime(self.directory / place / address, (seconds, seconds))

    def delete(self, place: str, address: str) -> None:
        (self.directory / place / address).unlink()


@dataclass(frozen=True, slots=True)
class S3Store:
    """A bucket of an S3 server, made by whoever runs it. `set_key_time` changes when a key was written."""

    server: Place
    set_key_time: Callable[[str, datetime], None]

    def namespace(self, place: str) -> str:
        return f"s3://{BUCKET}/{place}"

    def settings(self, place: str) -> Mapping[str, Any]:
        """See `ObjectStore`. The secret is read from the environment, where `Retention` sets it."""
        options = {**self.server.options, "secret_access_key": {"env": _SECRET}}
        return {"storage": self.namespace(place), "storage_options": options}

    def stored(self, place: str) -> dict[str, int]:
        pages = self.client().get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{place}/")
        found = {entry["Key"]: entry["Size"] for page in pages for entry in page.get("Contents", ())}
        relative = {key.removeprefix(f"{place}/"): size for key, size in found.items()}
        return {address: size for address, size in relative.items() if not address.startswith("_lakefs/")}

    def put(self, place: str, address: str, content: bytes) -> None:
        self.client().put_object(Bucket=BUCKET, Key=f"{place}/{address}", Body=content)

    def set_time(self, place: str, address: str, at: datetime) -> None:
        self.set_key_time(f"{place}/{address}", at)

    def delete(self, place: str, address: str) -> None:
        self.client().delete_object(Bucket=BUCKET, Key=f"{place}/{address}")

    def client(self) -> Any:
        """Return boto3's client."""
        options = self.server.options
        return boto3.client(
            "s3",
            endpoint_url=options["endpoint"],
            aws_access_key_id=options["access_key_id"],
            aws_secret_access_key=options["secret_access_key"],
            region_name=REGION,
        )


def versitygw_store(server: Place, objects: Path) -> S3Store:
    """Return an empty bucket of a running versitygw, which keeps its objects as files below `objects`."""

    def set_key_time(key: str, at: datetime) -> None:
        os.utime(objects / BUCKET / key, (at.timestamp(), at.timestamp()))

    return _with_bucket(S3Store(server, set_key_time))


def moto_store(server: Place) -> S3Store:
    """Return an empty bucket of moto's server, which runs in this process."""

    def set_key_time(key: str, at: datetime) -> None:
        s3_backends[DEFAULT_ACCOUNT_ID]["aws"].get_object(BUCKET, key).last_modified = at.replace(tzinfo=None)

    return _with_bucket(S3Store(server, set_key_time))


def _with_bucket(store: S3Store) -> S3Store:
    store.client().create_bucket(Bucket=BUCKET)
    return store
