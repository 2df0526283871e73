"""Finds the deliveries of an inventory with a boto3 client, fast enough for a sensor, which has one minute."""

from typing import Any, Protocol

from botocore.exceptions import BotoCoreError, ClientError

from retention_assets.errors import StoreError, brief
from retention_assets.inventory.delivered import is_delivery

_ABSENT = ("404", "NoSuchKey", "NotFound")


class Deliveries(Protocol):
    """The deliveries that arrive in an inventory's folder."""

    def deliveries(self) -> list[str]:
        """Return the names of all deliveries, complete or not, oldest first."""
        ...

    def is_complete(self, delivery: str) -> bool:
        """Return whether the delivery is complete."""
        ...


class S3Deliveries:
    """The deliveries in the inventory's folder `s3://bucket/prefix`. Errors: StoreError with the URL and the remedy."""

    def __init__(self, client: Any, url: str) -> None:
        self._client = client
        self._url = url.rstrip("/")
        self._bucket, _, self._prefix = self._url.removeprefix("s3://").partition("/")

    def deliveries(self) -> list[str]:
        """Return the names of all deliveries, complete or not, oldest first."""
        pages = self._client.get_paginator("list_objects_v2")
        prefix = f"{self._prefix}/" if self._prefix else ""
        try:
            found = [
                entry["Prefix"].rstrip("/").rpartition("/")[2]
                for page in pages.paginate(Bucket=self._bucket, Prefix=prefix, Delimiter="/")
                for entry in page.get("CommonPrefixes", [])
            ]
        except (ClientError, BotoCoreError) as error:
            raise self._failed(error) from None
        return sorted(name for name in found if is_delivery(name))

    def is_complete(self, delivery: str) -> bool:
        """Return whether the delivery is complete: S3 writes `manifest.checksum` last."""
        prefix = f"{self._prefix}/" if self._prefix else ""
        try:
            self._client.head_object(Bucket=self._bucket, Key=f"{prefix}{delivery}/manifest.checksum")
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in _ABSENT:
                return False
            raise self._failed(error) from None
        except BotoCoreError as error:
            raise self._failed(error) from None
        return True

    def _failed(self, error: Exception) -> StoreError:
        return StoreError(
            f"{self._url}: the inventory's folder cannot be read ({brief(error)}). No run was started. Check the "
            "credentials and the endpoint of the inventory's storage_options."
        )
