"""The sensor that plans a day when its storage inventory has arrived completely.

`arrivals` decides which days to plan. Its inputs are names and a cursor; it uses no store and no clock. `S3Deliveries`
finds the deliveries with a boto3 client, fast enough for a sensor, which has one minute.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Protocol

import dagster as dg
from botocore.exceptions import BotoCoreError, ClientError
from dagster_aws.s3 import S3Resource

from retention_assets.config.configuration import Repository
from retention_assets.config.settings import FromEnvironment, InventorySettings, Text
from retention_assets.errors import StoreError, brief
from retention_assets.inventory.delivered import Inventory, is_delivery
from retention_assets.objectstore.access import StoreAccess

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


WINDOW = timedelta(days=31)  # an inventory starts nothing if it is older than the newest one by more than this
_AT_ONCE = 5  # the most days that start in one tick
_DAY = slice(0, 10)  # deliveries are named YYYY-MM-DDTHH-MMZ


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The days to start, each with a unique run key, and the cursor for the next tick."""

    days: tuple[tuple[date, str], ...]
    cursor: str


def arrivals(complete: Sequence[Sequence[str]], cursor: str | None) -> Arrivals:
    """Return the days for which every inventory has a complete delivery that was not started yet.

    `complete` has, for each inventory, the names of its complete deliveries. The cursor has the names of the started
    deliveries of the last `WINDOW`. So a delivery that arrives late, or after a newer one, starts its day too, and no
    delivery starts a day twice. Without a cursor only the newest day starts: years of old inventories are not planned.
    """
    newest_of_day = [{name[_DAY]: name for name in sorted(names)} for names in complete]
    common = sorted(set.intersection(*(set(by_day) for by_day in newest_of_day))) if newest_of_day else []
    started = set(json.loads(cursor)["started"]) if cursor else None
    if not common:
        return Arrivals((), _cursor(started or set()) if cursor else "")
    keys = {day: "+".join(by_day[day] for by_day in newest_of_day) for day in common}
    floor = (date.fromisoformat(common[-1]) - WINDOW).isoformat()
    if started is None:
        return Arrivals(((date.fromisoformat(common[-1]), keys[common[-1]]),), _cursor(_since(floor, keys.values())))
    fresh = [day for day in common if day >= floor and keys[day] not in started][:_AT_ONCE]
    remembered = _since(floor, {*started, *(keys[day] for day in fresh)})
    return Arrivals(tuple((date.fromisoformat(day), keys[day]) for day in fresh), _cursor(remembered))


def recent(names: Sequence[str]) -> list[str]:
    """Return the names within `WINDOW` of the newest one. Older deliveries start nothing and are not read."""
    if not names:
        return []
    floor = (date.fromisoformat(max(names)[_DAY]) - WINDOW).isoformat()
    return [name for name in names if name[_DAY] >= floor]


def _since(floor: str, keys: Iterable[str]) -> set[str]:
    return {key for key in keys if key[_DAY] >= floor}


def _cursor(started: set[str]) -> str:
    return json.dumps({"started": sorted(started)})


_EVERY = 300  # seconds between two ticks; inventories come daily or weekly


def s3_key(repository: Repository, index: int) -> str:
    """Return the key of the S3 resource of the inventory with this index."""
    return f"{repository.name}_inventory_{index}_s3"


def inventory_resources(repository: Repository) -> Mapping[str, S3Resource]:
    """Return the S3 resources of the repository's inventories. Secrets stay names of environment variables."""
    return {
        s3_key(repository, index): _s3_resource(repository.settings.storage_options, inventory)
        for index, inventory in enumerate(repository.lakefs.inventory)
        if inventory.url.startswith("s3")
    }


def inventory_sensor(repository: Repository, job: str) -> dg.SensorDefinition:
    """Return the sensor that starts `job` when inventories arrive. The sensor is off until somebody starts it."""

    @dg.sensor(
        name=f"{repository.name}_inventory",
        job_name=job,
        minimum_interval_seconds=_EVERY,
        required_resource_keys=set(inventory_resources(repository)),
        description=f"Plans {repository.name} for a day when its storage inventory of that day has arrived completely.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        complete = [_complete(deliveries) for deliveries in _watched(context, repository)]
        found = arrivals(complete, context.cursor)
        if not found.days:
            return dg.SensorResult(skip_reason="no new inventory has arrived", cursor=found.cursor or None)
        requests = [
            dg.RunRequest(
                run_key=f"{repository.name}:{key}", partition_key=day.isoformat(), tags={"retention/inventory": key}
            )
            for day, key in found.days
        ]
        return dg.SensorResult(run_requests=requests, cursor=found.cursor)

    return sensor


def _watched(context: dg.SensorEvaluationContext, repository: Repository) -> Sequence[Deliveries]:
    """Return the inventories to watch: in S3 through Dagster's resource, elsewhere through the object store."""
    watched: list[Deliveries] = []
    for index, (_, url, options) in enumerate(repository.inventories()):
        client = getattr(context.resources, s3_key(repository, index), None)  # Dagster passes the resource's client
        watched.append(S3Deliveries(client, url) if client else Inventory(StoreAccess(url, options)))
    return watched


def _complete(deliveries: Deliveries) -> list[str]:
    return [name for name in recent(deliveries.deliveries()) if deliveries.is_complete(name)]


def _s3_resource(repository_options: Mapping[str, Text], inventory: InventorySettings) -> S3Resource:
    options = repository_options if inventory.storage_options is None else inventory.storage_options
    names = {
        "endpoint_url": ("endpoint", "endpoint_url", "aws_endpoint"),
        "region_name": ("region", "region_name", "aws_region"),
        "aws_access_key_id": ("access_key_id", "aws_access_key_id"),
        "aws_secret_access_key": ("secret_access_key", "aws_secret_access_key"),
        "aws_session_token": ("session_token", "token", "aws_session_token"),
    }
    found: dict[str, Any] = {
        field: _value(options[name]) for field, known in names.items() for name in known if name in options
    }
    return S3Resource(**found)


def _value(option: Text) -> str | dg.EnvVar:
    return dg.EnvVar(option.env) if isinstance(option, FromEnvironment) else option
