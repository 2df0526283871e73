"""The stored list of missing live objects: which checks replace it, and which checks end it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from retention_assets.errors import ConfigurationError
from retention_assets.state.acknowledged import _require_known, missing_addresses, noticed_as_lost, record_missing
from retention_assets.tables import ADDRESSES
from retention_assets.warehouse.warehouse import Warehouse

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    warehouse = Warehouse(str(tmp_path))
    record_missing(warehouse, "orchard", "live_exist", ["data/a", "data/b"], NOW)
    return warehouse


def test_the_list_of_missing_objects_ends_when_the_same_check_finds_all_objects(warehouse: Warehouse) -> None:
    record_missing(warehouse, "orchard", "live_exist", [], LATER)
    assert missing_addresses(warehouse, "orchard") == []
    # A base inventory may be of the time when they were missing: their slices are listed again.
    assert noticed_as_lost(warehouse, "orchard", NOW) == {"data/a", "data/b"}
    record_missing(warehouse, "orchard", "live_exist", ["data/b"], LATER)
    assert missing_addresses(warehouse, "orchard") == ["data/b"]


def test_a_plan_that_finds_all_objects_does_not_end_the_list_of_a_verification(warehouse: Warehouse) -> None:
    record_missing(warehouse, "orchard", "live_listed", [], LATER)
    assert missing_addresses(warehouse, "orchard") == ["data/a", "data/b"]


def test_a_check_that_finds_all_objects_stores_no_list(tmp_path: Path) -> None:
    record_missing(Warehouse(str(tmp_path)), "orchard", "live_exist", [], NOW)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_plan_of_a_newer_day_does_not_hide_the_objects_of_the_last_one(warehouse: Warehouse) -> None:
    orchard: Any = SimpleNamespace(name="orchard", is_icechunk=False)
    warehouse.write_table(pa.table({"address": ["data/c"]}), "orchard", ADDRESSES.name, "2026-11-01")
    warehouse.mark_complete("orchard", ADDRESSES.name, "2026-11-01")
    warehouse.write_text("", "orchard", ADDRESSES.name, "2026-11-02", "_temporary", "file")
    _require_known(warehouse, orchard, ["data/a", "data/c"])
    with pytest.raises(ConfigurationError, match="data/d is not the address of a known object"):
        _require_known(warehouse, orchard, ["data/c", "data/d"])
