"""The stores of the servers. They list, age and delete objects without the code under test and without the server."""

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

from tests.objectstore.s3 import REGION
from tests.objectstore.store_servers import StoreServer

BUCKET = "lakefs"
_XID = re.compile(r"data/[0-9a-v]{20}/([0-9a-v]{20})(,[A-Za-z0-9_-]{43})?")
_SECRET = "LAKE_SECRET"  # the variable that the configuration names


class ObjectStore(Protocol):
    """The store of one server. `folder` is that of a repository, and addresses are relative to the folder."""

    def namespace(self, folder: str) -> str:
        """Return the storage namespace in the form that is passed to lakeFS."""
        ...

    def settings(self, folder: str) -> Mapping[str, Any]:
        """Return the settings `storage` and `storage_options` of retention.yaml."""
        ...

    def stored(self, folder: str) -> dict[str, int]:
        """Return the size of every object below the folder by address, without `_lakefs/`."""
        ...

    def put(self, folder: str, address: str, content: bytes) -> None:
        """Write an object, as a client does before it links the address."""
        ...

    def set_time(self, folder: str, address: str, at: datetime) -> None:
        """Set the modification time of an object."""
        ...

    def delete(self, folder: str, address: str) -> None:
        """Delete an object, as by accident."""
        ...


def issued_at(address: str) -> datetime | None:
    """Return when lakeFS issued an address, by its xid; None for other names."""
    match = _XID.fullmatch(address)
    if match is None:
        return None
    digits = [int(digit, 32) for digit in match[1][:7]]
    return datetime.fromtimestamp(sum(digit << 5 * (6 - folder) for folder, digit in enumerate(digits)) >> 3, UTC)


@dataclass(frozen=True, slots=True)
class FileStore:
    """The local blockstore: a directory for each namespace."""

    directory: Path

    def namespace(self, folder: str) -> str:
        return f"local://{folder}"

    def settings(self, folder: str) -> Mapping[str, Any]:
        return {"storage": str(self.directory / folder)}

    def stored(self, folder: str) -> dict[str, int]:
        root = self.directory / folder
        found = {str(file.relative_to(root)): file.stat().st_size for file in root.rglob("*") if file.is_file()}
        return {address: size for address, size in found.items() if not address.startswith("_lakefs/")}

    def put(self, folder: str, address: str, content: bytes) -> None:
        file = self.directory / folder / address
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)

    def set_time(self, folder: str, address: str, at: datetime) -> None:
        seconds = at.timestamp()
        os.utime(self.directory / folder / address, (seconds, seconds))

    def delete(self, folder: str, address: str) -> None:
        (self.directory / folder / address).unlink()


@dataclass(frozen=True, slots=True)
class S3Store:
    """A bucket of an S3 server. `set_key_time` changes the modification time of a key."""

    server: StoreServer
    set_key_time: Callable[[str, datetime], None]

    def namespace(self, folder: str) -> str:
        return f"s3://{BUCKET}/{folder}"

    def settings(self, folder: str) -> Mapping[str, Any]:
        """See `ObjectStore`. The secret is read from the environment, where `Retention` sets it."""
        options = {**self.server.options, "secret_access_key": {"env": _SECRET}}
        return {"storage": self.namespace(folder), "storage_options": options}

    def stored(self, folder: str) -> dict[str, int]:
        pages = self.client().get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{folder}/")
        found = {entry["Key"]: entry["Size"] for page in pages for entry in page.get("Contents", ())}
        relative = {key.removeprefix(f"{folder}/"): size for key, size in found.items()}
        return {address: size for address, size in relative.items() if not address.startswith("_lakefs/")}

    def put(self, folder: str, address: str, content: bytes) -> None:
        self.client().put_object(Bucket=BUCKET, Key=f"{folder}/{address}", Body=content)

    def set_time(self, folder: str, address: str, at: datetime) -> None:
        self.set_key_time(f"{folder}/{address}", at)

    def delete(self, folder: str, address: str) -> None:
        self.client().delete_object(Bucket=BUCKET, Key=f"{folder}/{address}")

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


def versitygw_store(server: StoreServer, objects: Path) -> S3Store:
    """Return an empty bucket of a running versitygw, which keeps its objects as files below `objects`."""

    def set_key_time(key: str, at: datetime) -> None:
        os.utime(objects / BUCKET / key, (at.timestamp(), at.timestamp()))

    return _with_bucket(S3Store(server, set_key_time))


def moto_store(server: StoreServer) -> S3Store:
    """Return an empty bucket of moto's server, which runs in this process."""

    def set_key_time(key: str, at: datetime) -> None:
        s3_backends[DEFAULT_ACCOUNT_ID]["aws"].get_object(BUCKET, key).last_modified = at.replace(tzinfo=None)

    return _with_bucket(S3Store(server, set_key_time))


def _with_bucket(store: S3Store) -> S3Store:
    store.client().create_bucket(Bucket=BUCKET)
    return store
