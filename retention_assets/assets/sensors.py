"""The sensor that plans a day when its storage inventory has arrived completely. Source: Dagster facts 5."""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg
from dagster_aws.s3 import S3Resource

from retention_assets.assets.arrivals import arrivals, recent
from retention_assets.assets.repository_resource import RepositoryResource
from retention_assets.config.settings import FromEnvironment, InventorySettings, Text
from retention_assets.inventory.delivered import Inventory
from retention_assets.inventory.deliveries import Deliveries, S3Deliveries
from retention_assets.objectstore.access import StoreAccess

_EVERY = 300  # seconds between two ticks; inventories come daily or weekly


def s3_key(resource: RepositoryResource, place: int) -> str:
    """Return the key of the S3 resource of the inventory with index `place`."""
    return f"{resource.name}_inventory_{place}_s3"


def inventory_resources(resource: RepositoryResource) -> Mapping[str, S3Resource]:
    """Return the S3 resources of the repository's inventories. Secrets stay names of environment variables."""
    return {
        s3_key(resource, place): _s3_resource(resource.repository.settings.storage_options, inventory)
        for place, inventory in enumerate(resource.repository.lakefs.inventory)
        if inventory.url.startswith("s3")
    }


def inventory_sensor(resource: RepositoryResource, job: str) -> dg.SensorDefinition:
    """Return the sensor that starts `job` when inventories arrive. The sensor is off until somebody starts it."""

    @dg.sensor(
        name=f"{resource.name}_inventory",
        job_name=job,
        minimum_interval_seconds=_EVERY,
        required_resource_keys=set(inventory_resources(resource)),
        description=f"Plans {resource.name} for a day when a complete storage inventory of it has arrived.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        complete = [_complete(deliveries) for deliveries in _watched(context, resource)]
        found = arrivals(complete, context.cursor)
        if not found.days:
            return dg.SensorResult(skip_reason="no inventory has arrived since", cursor=found.cursor or None)
        requests = [
            dg.RunRequest(
                run_key=f"{resource.name}:{key}", partition_key=day.isoformat(), tags={"retention/inventory": key}
            )
            for day, key in found.days
        ]
        return dg.SensorResult(run_requests=requests, cursor=found.cursor)

    return sensor


def _watched(context: dg.SensorEvaluationContext, resource: RepositoryResource) -> Sequence[Deliveries]:
    """Return the inventories to watch: in S3 through Dagster's resource, elsewhere through the object store."""
    watched: list[Deliveries] = []
    for place, (_, url, options) in enumerate(resource.repository.inventories()):
        client = getattr(context.resources, s3_key(resource, place), None)  # Dagster passes the resource's client
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
