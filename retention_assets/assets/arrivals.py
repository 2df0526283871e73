"""The sensor that plans a day when its storage inventory has arrived completely.

`arrivals` decides which days to plan. Its inputs are names and a cursor; it uses no store and no clock.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Any, override

import dagster as dg
from dagster_aws.s3 import S3Resource
from pydantic import Field

from retention_assets.assets.runs import plan_job
from retention_assets.config.configuration import Repository, canonical_namespace
from retention_assets.inventory.delivered import Inventory, inventory_accesses
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.objectstore.s3 import level_exactly, s3_bucket

WINDOW = timedelta(days=31)  # a delivery that is older than the newest one by more than this starts no plan
_AT_ONCE = 5  # the most days that start in one tick
_DAY = slice(0, 10)  # deliveries are named YYYY-MM-DDTHH-MMZ


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The days to start, each with a unique run key, and the cursor for the next tick."""

    days: tuple[tuple[date, str], ...]
    cursor: str


def arrivals(complete: Sequence[Sequence[str]], cursor: str | None, inventories: str = "") -> Arrivals:
    """Return the days for which every inventory has a complete delivery that was not started yet.

    `complete` has the names of the complete deliveries of each inventory. A run key joins one name of each inventory.
    The cursor has the run keys of the last `WINDOW` that were started or left out. So a delivery that arrives late, or
    after a newer one, still starts its day, and no delivery starts a day twice. A tick starts at most `_AT_ONCE` days.

    Without a cursor, only the newest day starts, so that years of old inventories are not planned. The new cursor has
    the keys of the older days too. A cursor of other inventories, or of another number of inventories, is not
    used. `inventories`: a digest of the inventories.
    """
    newest_of_day = [{name[_DAY]: name for name in sorted(names)} for names in complete]
    common = sorted(set.intersection(*(set(by_day) for by_day in newest_of_day))) if newest_of_day else []
    written = json.loads(cursor) if cursor else {}
    is_same = written.get("inventories", inventories) == inventories  # earlier versions did not write it
    started = set(written["started"]) if written and is_same else None
    if not common:
        return Arrivals((), cursor or "")
    if started and all(key.count("+") + 1 != len(complete) for key in started):
        started = None
    keys = {day: "+".join(by_day[day] for by_day in newest_of_day) for day in common}
    floor = (date.fromisoformat(common[-1]) - WINDOW).isoformat()
    if started is None:
        return Arrivals(
            ((date.fromisoformat(common[-1]), keys[common[-1]]),), _cursor(_since(floor, keys.values()), inventories)
        )
    fresh = [day for day in common if day >= floor and keys[day] not in started][:_AT_ONCE]
    remembered = _since(floor, {*started, *(keys[day] for day in fresh)})
    return Arrivals(tuple((date.fromisoformat(day), keys[day]) for day in fresh), _cursor(remembered, inventories))


def recent(names: Sequence[str]) -> list[str]:
    """Return the names of deliveries within `WINDOW` of the newest one. The sensor does not read older deliveries."""
    if not names:
        return []
    floor = (date.fromisoformat(max(names)[_DAY]) - WINDOW).isoformat()
    return [name for name in names if name[_DAY] >= floor]


def _since(floor: str, keys: Iterable[str]) -> set[str]:
    return {key for key in keys if key[_DAY] >= floor}


def _cursor(started: set[str], inventories: str) -> str:
    return json.dumps({"started": sorted(started), "inventories": inventories})


_EVERY = 300  # seconds between two ticks; inventories come daily or weekly


class InventoryS3Resource(S3Resource):
    """Dagster's S3 resource for one inventory. Its client uses all of the inventory's `storage_options`.

    S3Resource does not have all of these options, and its client also reads AWS profiles and configuration files.
    """

    number: int = Field(description="The index of the inventory in the repository's `inventory` list, from 0.")
    configured: dg.ResourceDependency[Repository]

    def get_client(self) -> Any:
        """Return the boto3 client. Errors: ConfigurationError if an option is invalid or a variable is not set."""
        return s3_bucket(_access(self.configured, self.number)).client


def s3_key(repository: Repository, number: int) -> str:
    """Return the key of the S3 resource of the inventory with this number."""
    return f"{repository.name}_inventory_{number}_s3"


def inventory_resources(repository: Repository) -> Mapping[str, InventoryS3Resource]:
    """Return the resources of the inventories in S3. A secret stays the name of its environment variable."""
    return {
        s3_key(repository, number): InventoryS3Resource(number=number, configured=repository)
        for number, inventory in enumerate(repository.lakefs.inventory)
        if canonical_namespace(inventory.url).startswith("s3://")
    }


def inventory_sensor(repository: Repository) -> dg.SensorDefinition:
    """Return the sensor that starts the plan job when inventories arrive. It is off until somebody starts it."""

    @dg.sensor(
        name=f"{repository.name}_inventory",
        job_name=plan_job(repository.name),
        minimum_interval_seconds=_EVERY,
        required_resource_keys=set(inventory_resources(repository)),
        description=f"Plans {repository.name} for a day when its storage inventory of that day has arrived completely.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        inventories = [_opened(context, repository, number) for number in range(len(repository.lakefs.inventory))]
        complete = [[name for name in recent(one.deliveries()) if one.is_complete(name)] for one in inventories]
        urls = "\n".join(one.url for one in repository.lakefs.inventory)
        found = arrivals(complete, context.cursor, hashlib.sha256(urls.encode()).hexdigest())
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


class _ClientReader(ObjectReader):
    """Lists directories with the client of Dagster's S3 resource."""

    def __init__(self, access: StoreAccess, client: Any) -> None:
        super().__init__(access)
        self._s3 = replace(s3_bucket(access), client=client)

    @override
    def level(self, prefix: str) -> Mapping[str, Any]:
        """See `ObjectReader`."""
        return level_exactly(self._s3, prefix)


def _opened(context: dg.SensorEvaluationContext, repository: Repository, number: int) -> Inventory:
    """Return an inventory of the repository: in S3 through Dagster's resource, elsewhere through the object store."""
    access = _access(repository, number)
    client = getattr(context.resources, s3_key(repository, number), None)  # Dagster passes the resource's client
    return Inventory(access, _ClientReader(access, client) if client else None)


def _access(repository: Repository, number: int) -> StoreAccess:
    access, _ = inventory_accesses(repository)[number]
    return access
