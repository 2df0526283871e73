"""A bucket on the test's S3 server."""

import json
from dataclasses import dataclass
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest

from retention_assets.objectstore import s3
from retention_assets.objectstore.access import StoreAccess

REGION = "us-east-1"


def statement(effect: str, actions: list[str], resource: str, **more: str) -> str:
    """Return a policy of one statement."""
    allowed = {"Effect": effect, "Action": actions, "Resource": resource, **more}
    return json.dumps({"Version": "2012-10-17", "Statement": [allowed]})


def count_clients(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list that gets the session of each client that the package creates from now on."""
    sessions: list[Any] = []
    make = s3._session
    monkeypatch.setattr(s3, "_session", lambda: sessions.append(make()) or sessions[-1])
    return sessions


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket: its endpoint, its name, and the credentials of the client."""

    endpoint: str
    name: str
    access_key: str
    secret_key: str

    def access(self, prefix: str = "", **options: str) -> StoreAccess:
        """Return access to `prefix` in the bucket. `options` replace the default ones."""
        fitting = {
            "endpoint": self.endpoint,
            "region": REGION,
            "access_key_id": self.access_key,
            "secret_access_key": self.secret_key,
        }
        return StoreAccess(f"s3://{self.name}/{prefix}", fitting | options)

    def client(self) -> Any:
        """Return a boto3 client, to write and read without the code under test."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name=REGION,
        )
