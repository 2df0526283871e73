"""Takes the inventory snapshot: a full listing of the store, or a base inventory with some prefixes listed again.

The base inventory is the repository's last inventory table (an optimized run) or an inventory that the store delivered.
A slice is a folder directly below `data/`. It is closed when no client is expected to write to it any more. Rows of the
base inventory are used only for slices that were closed when that inventory was taken. All other prefixes are listed
now. Source: docs/uncommitted.md, "What is listed".

The name of a slice contains the time at which lakeFS created the slice. It is an xid with an inverted time, so that the
newest slice is listed first. Source: docs/lakefs-formats.md, "Slices".
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from retention_assets.config.configuration import INTERNAL
from retention_assets.config.timestamps import Clock
from retention_assets.errors import TableContractError
from retention_assets.inventory.delivered import delivered_inventory
from retention_assets.lakefs.names.generated import DATA, XID, xid_seconds
from retention_assets.lakefs.source.opening import OpenRepository
from retention_assets.objectstore.listing import Prefixes, list_objects
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.objectstore.outcomes import Outcome
from retention_assets.spark.frames import collect_together, from_arrow
from retention_assets.state.acknowledged import noticed_as_lost
from retention_assets.state.ledger import all_collected_addresses, recorded_since
from retention_assets.tables import STORAGE_INVENTORY
from retention_assets.warehouse.metadata import Details, needed
from retention_assets.warehouse.warehouse import Warehouse

# A sweep records `attempted` before it deletes the object, and a listing in between still has the object. The time is
# longer than the longest `sweep.window`.
STILL_LISTED = timedelta(hours=2)


@dataclass(frozen=True, slots=True)
class BaseInventory:
    """An older inventory.

    `rows_taken_at`: the latest time at which the rows of closed slices are known to match the store. It becomes the
    `taken_at` of a snapshot with these rows. `clean_at`: the time of the last full listing.
    """

    frame: DataFrame
    taken_at: datetime
    rows_taken_at: datetime
    clean_at: datetime
    delivered: bool  # by the store; if it misses a whole slice, the guard `listing_complete` refuses the snapshot


@dataclass(frozen=True, slots=True)
class InventorySnapshot:
    """The inventory snapshot of a namespace.

    `prefixes`: all prefixes that the store lists. `details`: metadata that is stored with the rows.
    """

    frame: DataFrame
    taken_at: datetime  # the rows show the store at this time or later
    prefixes: Prefixes
    listed: int  # prefixes that were listed now
    details: Details


@dataclass(frozen=True, slots=True)
class InventoryContext:
    """Inputs of a snapshot: the repository, and the warehouse with its earlier tables and its ledgers."""

    spark: SparkSession
    opened: OpenRepository
    warehouse: Warehouse
    day: date
    clock: Clock


def take_snapshot(context: InventoryContext) -> InventorySnapshot:
    """Return a snapshot of the store. The repository's settings decide what is listed, and which inventory is used.

    If an optimized run has no usable base inventory, the whole store is listed. The reason is `fell_back` of
    `details`.
    """
    settings = context.opened.repository.lakefs
    now = context.clock()
    if settings.inventory:
        delivered = delivered_inventory(context.spark, context.opened.repository)
        at = delivered.created_at
        base = BaseInventory(delivered.frame, taken_at=at, rows_taken_at=at, clean_at=at, delivered=True)
        return _snapshot_from(context, base, now)
    if settings.listing == "clean":
        return _snapshot_from(context, None, now)
    found = _last_inventory(context, now, settings.clean_every)
    if isinstance(found, str):
        return _snapshot_from(context, None, now, fell_back=found)
    return _snapshot_from(context, found, now)


def _snapshot_from(
    context: InventoryContext, base: BaseInventory | None, now: datetime, fell_back: str | None = None
) -> InventorySnapshot:
    """Return a snapshot with the rows of the unchanged slices of `base`. All other prefixes are listed now."""
    all_prefixes = prefixes(ObjectReader(context.opened.access))
    closed = _unchanged(context, base, all_prefixes) if base else frozenset()
    fresh = Prefixes(tuple(prefix for prefix in all_prefixes.deep if prefix not in closed), all_prefixes.flat)
    frame = list_objects(context.spark, context.opened.access, fresh)
    if base:
        frame = frame.unionByName(_reused_rows(context, base, sorted(closed)))
    clean_at = base.clean_at if base else now
    details = Details(fell_back=fell_back, clean_at=clean_at, storage=context.opened.repository.storage)
    return InventorySnapshot(frame, base.rows_taken_at if base else now, all_prefixes, len(fresh.deep), details)


def _unchanged(context: InventoryContext, base: BaseInventory, all_prefixes: Prefixes) -> frozenset[str]:
    """Return the closed slices whose rows are taken from the base inventory. All others are listed again.

    A closed slice is listed again in four cases:

    - An object of the slice is acknowledged as lost, or a plan or verification did not find it since the last full
      listing. The base inventory may still have it, and somebody may have put it back.
    - An object was restored into the slice since the last full listing.
    - The base inventory is our own, and a sweep worked on the slice since the last full listing. Someone may have put
      back an object that the sweep removed.
    - The base inventory is our own, and has no rows of the slice. Someone put such a slice back, perhaps from a backup.
    """
    token_life = context.opened.repository.lakefs.token_life
    closed = frozenset(prefix for prefix in all_prefixes.deep if is_closed(_name(prefix), base.taken_at, token_life))
    if not closed:
        return closed
    since = base.clean_at - STILL_LISTED
    changed = recorded_since(context.spark, context.warehouse, context.opened.repository.name, since)
    if base.delivered:
        changed = changed.where(F.col("outcome") == Outcome.RESTORED)
    queries = {"changed": _prefixes_of(changed)}
    if not base.delivered:
        queries["with_rows"] = _prefixes_of(_reused_rows(context, base, sorted(closed)))
    found = {name: {row["prefix"] for row in rows} for name, rows in collect_together(queries).items()}
    lost = noticed_as_lost(context.warehouse, context.opened.repository.name, since)
    return (closed & found.get("with_rows", closed)) - found["changed"] - {_prefix_of(one) for one in lost}


def _prefixes_of(objects: DataFrame) -> DataFrame:
    return objects.select(directory_prefix(F.col("address")).alias("prefix")).distinct()


def _removed_since(context: InventoryContext, taken_at: datetime) -> DataFrame:
    """Return the objects that our sweeps removed after `taken_at`, or at most `STILL_LISTED` before `taken_at`.

    An inventory taken at `taken_at` may still list all of these objects. If it lists an object that was removed even
    earlier, someone put the object back.
    """
    collected = all_collected_addresses(context.spark, context.warehouse, context.opened.repository.name)
    return collected.where(F.col("at") > F.lit(taken_at - STILL_LISTED)).select("address")


def _reused_rows(context: InventoryContext, base: BaseInventory, closed: Sequence[str]) -> DataFrame:
    """Return the base inventory's rows of the slices `closed`, without the objects that our sweeps removed since."""
    kept = from_arrow(context.spark, pa.table({"prefix": pa.array(closed, pa.string())}))
    return (
        base.frame.withColumn("prefix", directory_prefix(F.col("address")))
        .join(kept, on="prefix", how="left_semi")
        .join(_removed_since(context, base.taken_at), on="address", how="left_anti")
        .select(*STORAGE_INVENTORY.schema.names)
    )


def _last_inventory(context: InventoryContext, now: datetime, max_age: timedelta) -> BaseInventory | str:
    """Return the last inventory of another day, or the reason why it cannot be used.

    `max_age`: the longest time since the last full listing.

    The inventory of the same day is not used, because the new inventory overwrites its table.
    """
    name, table = context.opened.repository.name, STORAGE_INVENTORY.name
    days = [date.fromisoformat(day) for day in context.warehouse.directories(name, table)]
    taken = {
        day: context.warehouse.metadata(name, table, day).taken_at
        for day in days
        if day != context.day and is_usable(context.warehouse, name, table, day.isoformat())
    }
    if not taken:
        return "there is no usable inventory of another day"
    try:
        rows = context.warehouse.rows(context.spark, name, table, max(taken, key=lambda day: taken[day]))
    except TableContractError:  # its rows are not the rows that were written
        return "the last inventory is not complete"
    if rows.details.storage != context.opened.repository.storage:
        return "the last inventory is of another storage"
    clean_at = needed(rows.details.clean_at, STORAGE_INVENTORY.name, "clean_at")
    if max(clean_at, rows.taken_at) > now:
        return f"the last inventory is of {rows.taken_at:%Y-%m-%d %H:%M} UTC, in the future: a clock is or was wrong"
    if now - clean_at > max_age:
        return f"the last full listing of the store was at {clean_at:%Y-%m-%d %H:%M} UTC, longer ago than `clean_every`"
    return BaseInventory(rows.frame, rows.taken_at, rows_taken_at=now, clean_at=clean_at, delivered=False)


def is_usable(warehouse: Warehouse, name: str, table: str, day: str) -> bool:
    """Return whether an inventory has its rows and its metadata, and no guard refused it.

    An inventory without metadata was interrupted while it was written.
    """
    metadata = warehouse.metadata_if_there(name, table, day) if warehouse.is_complete(name, table, day) else None
    return metadata is not None and metadata.details.refused is None


def _name(prefix: str) -> str:
    return prefix.rstrip("/").rpartition("/")[2]


def prefixes(reader: ObjectReader) -> Prefixes:
    """Return the prefixes that together contain every object of the namespace except `_lakefs/`."""
    top = [name for name in reader.prefixes("") if name != f"{INTERNAL}/"]
    slices = reader.prefixes(DATA) if DATA in top else ()
    flat = ("", DATA) if DATA in top else ("",)
    return Prefixes((*(name for name in top if name != DATA), *slices), flat)


def directory_prefix(address: Column) -> Column:
    """Return the prefix that contains `address`: the top-level folder or, below `data/`, the slice."""
    top = F.substring_index(address, "/", 1)
    within = F.when(F.concat(top, F.lit("/")) == DATA, F.substring_index(address, "/", 2)).otherwise(top)
    return F.concat(within, F.lit("/"))


def _prefix_of(address: str) -> str:
    """Return the prefix that `directory_prefix` returns, for a Python string."""
    top, slash, rest = address.partition("/")
    return f"{DATA}{rest.partition('/')[0]}/" if slash and top + slash == DATA else f"{top}/"


_BACKWARDS_FROM = 3_931_046_656  # 4000-01-01 in unix seconds, modulo 2**32

# The server issues addresses in a slice for one hour. A client is expected to write to an address before its token
# expires. One more day is added for clocks that differ and for multipart uploads.
_SLICE_LIFE = timedelta(hours=1)
_TOKEN_LIFE = timedelta(hours=24)  # the default of lakeFS; a shorter `token_life` in the settings is not used
_ALLOWANCE = timedelta(hours=24)


def slice_began(name: str) -> datetime | None:
    """Return the time (UTC) when the slice was created; None if `name` is not the name of a slice."""
    if re.fullmatch(XID, name) is None:
        return None
    return datetime.fromtimestamp(_BACKWARDS_FROM - xid_seconds(name), UTC)


def is_closed(name: str, at: datetime, token_life: timedelta) -> bool:
    """Return whether no client is expected to write to the slice `name` after `at`. False if it is not a slice."""
    began = slice_began(name)
    return began is not None and began + _SLICE_LIFE + max(token_life, _TOKEN_LIFE) + _ALLOWANCE < at
