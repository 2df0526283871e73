"""The picture of the store: listed whole, or listed where it can have changed since an older picture.

An older picture is the repository's last inventory table (an optimized run, seed 001) or an inventory that the store
itself delivered. Of it only slices count into which nothing can have been written since; all others are listed now.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from retention_assets.stores.inventories import delivered_inventory
from retention_assets.stores.listing import Prefixes, list_objects, place_of, prefixes
from retention_assets.stores.objects import ObjectReader
from retention_assets.stores.repositories import Clock, OpenRepository
from retention_assets.stores.slices import is_closed
from retention_assets.stores.warehouse import Warehouse
from retention_assets.tables import STORAGE_INVENTORY

_CLEAN_AT, _STORAGE, FELL_BACK = "clean_at", "storage", "fell_back"


@dataclass(frozen=True, slots=True)
class Older:
    """An older picture. `clean_at`: when the store was last listed whole; `judged_at`: how new the rows count."""

    frame: DataFrame
    taken_at: datetime
    judged_at: datetime
    clean_at: datetime


@dataclass(frozen=True, slots=True)
class StoragePicture:
    """What lies in the namespace. `places` are all that the store names; `notes` go beside the rows."""

    frame: DataFrame
    taken_at: datetime  # the picture is no older than this
    places: Prefixes
    listed: int  # places that were listed now
    notes: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Studio:
    """Where a picture is taken: the repository, its earlier tables, the addresses that sweeps of ours removed."""

    spark: SparkSession
    opened: OpenRepository
    warehouse: Warehouse
    day: date
    clock: Clock
    collected: DataFrame


def take_picture(studio: Studio) -> StoragePicture:
    """Return the picture of now, as the repository's settings ask for it; an optimized run falls back and says so."""
    settings = studio.opened.repository.settings
    now = studio.clock()
    if settings.inventory:
        delivered = delivered_inventory(studio.spark, studio.opened.repository)
        older = Older(delivered.frame, delivered.created_at, delivered.created_at, delivered.created_at)
        return _completed(studio, older, now, {})
    if settings.listing == "clean":
        return _completed(studio, None, now, {})
    found = _last_picture(studio, now, settings.clean_every)
    if isinstance(found, str):
        return _completed(studio, None, now, {FELL_BACK: found})
    return _completed(studio, found, now, {})


def _completed(studio: Studio, older: Older | None, now: datetime, notes: Mapping[str, str]) -> StoragePicture:
    places = prefixes(ObjectReader(studio.opened.access))
    closed = [place for place in places.deep if older and is_closed(_name(place), older.taken_at)]
    known = set(closed)
    fresh = Prefixes(tuple(place for place in places.deep if place not in known), places.flat)
    frame = list_objects(studio.spark, studio.opened.access, fresh)
    if older:
        frame = frame.unionByName(_carried(studio, older.frame, closed))
    clean_at = older.clean_at if older else now
    notes = {**notes, _CLEAN_AT: clean_at.isoformat(), _STORAGE: studio.opened.repository.storage}
    return StoragePicture(frame, older.judged_at if older else now, places, len(fresh.deep), notes)


def _carried(studio: Studio, frame: DataFrame, closed: Sequence[str]) -> DataFrame:
    """Return the older rows of closed slices that are still there, without what our sweeps removed since."""
    kept = studio.spark.createDataFrame(pa.table({"place": pa.array(closed, pa.string())}))
    return (
        frame.withColumn("place", place_of(F.col("address")))
        .join(kept, on="place", how="left_semi")
        .join(studio.collected, on="address", how="left_anti")
        .select(*STORAGE_INVENTORY.schema.names)
    )


def _last_picture(studio: Studio, now: datetime, most: timedelta) -> Older | str:
    """Return the last picture of another day, or why it cannot be built upon.

    Not the day's own: its table is overwritten while this one is written.
    """
    name, table = studio.opened.repository.name, STORAGE_INVENTORY.name
    days = [date.fromisoformat(day) for day in studio.warehouse.directories(name, table)]
    whole = [day for day in days if day != studio.day and studio.warehouse.is_complete(name, table, day.isoformat())]
    if not whole:
        return "there is no inventory of an earlier run"
    rows = max((studio.warehouse.rows(studio.spark, name, table, day) for day in whole), key=lambda rows: rows.taken_at)
    if rows.notes.get(_STORAGE) != studio.opened.repository.storage:
        return "the last inventory is of another storage"
    clean_at = datetime.fromisoformat(rows.notes[_CLEAN_AT])
    if now - clean_at > most:
        return f"the store was last listed whole at {clean_at:%Y-%m-%d %H:%M} UTC, too long ago"
    return Older(rows.frame, rows.taken_at, now, clean_at)


def _name(place: str) -> str:
    return place.rstrip("/").rpartition("/")[2]
