import pickle
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from retention_assets.errors import CorruptFile, ObjectMissing
from retention_assets.inventory.delivered import Inventory, addresses_below
from retention_assets.objectstore.access import StoreAccess
from tests.inventories import MadeInventory, Row, listed_rows, make_inventory, with_manifest


def at(day: int, hour: int = 0, minute: int = 0) -> datetime:
    return datetime(2026, 11, day, hour, minute, tzinfo=UTC)


def incomplete(made: MadeInventory) -> MadeInventory:
    """Return the delivery without its checksum, which is written last."""
    checksum = f"{made.folder}/{made.delivery}/manifest.checksum"
    return replace(made, objects={key: content for key, content in made.objects.items() if key != checksum})


def delivered(directory: Path, *times: datetime, still_coming: tuple[datetime, ...] = (), **options) -> Inventory:
    """Return an inventory of the bucket `lake` whose scans began at `times`, written in this order."""
    rows = options.pop("rows", [Row("orchard/data/a")])
    for time in times:
        made = make_inventory(rows, "lake", time, "Parquet", files=1, **options)
        url = (incomplete(made) if time in still_coming else made).write_to(directory)
    return Inventory(StoreAccess(url))


def newest_of(*inventories: Inventory) -> list[tuple[Inventory, str]]:
    return [(inventory, delivery) for inventory in inventories if (delivery := inventory.newest_complete())]


def found_addresses(deliveries: list[tuple[Inventory, str]], namespace: str) -> list[str]:
    """Return the addresses in all files of the deliveries."""
    found = []
    for inventory, delivery in deliveries:
        manifest = inventory.load_manifest(delivery)
        for file in manifest.files:
            for batch in inventory.read(manifest, file):
                found += addresses_below(batch, namespace)["address"].to_pylist()
    return found


def test_deliveries_are_sorted_by_their_time_and_not_by_their_arrival(tmp_path):
    inventory = delivered(tmp_path, at(9), at(2, 13, 7), at(10), at(2))
    assert inventory.deliveries() == [
        "2026-11-02T00-00Z",
        "2026-11-02T13-07Z",
        "2026-11-09T00-00Z",
        "2026-11-10T00-00Z",
    ]


def test_other_files_beside_the_deliveries_are_ignored(tmp_path):
    inventory = delivered(tmp_path, at(2))
    folder = Path(inventory.url.removeprefix("file://"))
    assert sorted(entry.name for entry in folder.iterdir()) == ["2026-11-02T00-00Z", "data", "hive"]
    assert inventory.deliveries() == ["2026-11-02T00-00Z"]


def test_a_folder_without_deliveries_has_none(tmp_path):
    inventory = Inventory(StoreAccess(f"file://{tmp_path}"))
    assert (inventory.deliveries(), inventory.newest_complete()) == ([], None)


def test_a_delivery_without_its_checksum_is_not_complete(tmp_path):
    inventory = delivered(tmp_path, at(2), at(3), still_coming=(at(3),))
    assert [inventory.is_complete(name) for name in inventory.deliveries()] == [True, False]
    assert inventory.newest_complete() == "2026-11-02T00-00Z"
    with pytest.raises(ObjectMissing, match=r"2026-11-03T00-00Z/manifest\.checksum"):
        inventory.load_manifest("2026-11-03T00-00Z")


def test_a_delivery_is_complete_once_its_checksum_has_arrived(tmp_path):
    inventory = delivered(tmp_path, at(2), at(3), still_coming=(at(3),))
    delivered(tmp_path, at(3))
    assert inventory.newest_complete() == "2026-11-03T00-00Z"


def test_the_files_of_a_delivery_have_the_objects_of_the_listing(tmp_path):
    rows = listed_rows("orchard")
    inventory = delivered(tmp_path, at(2), rows=rows)
    expected = [row.key.removeprefix("orchard/") for row in rows if not row.key.startswith("orchard/_lakefs/")]
    assert found_addresses([(inventory, "2026-11-02T00-00Z")], "s3://lake/orchard") == expected


def test_an_access_that_was_sent_to_another_process_reads_the_same_rows(tmp_path):
    access = StoreAccess(delivered(tmp_path, at(2)).url)
    manifest = Inventory(access).load_manifest("2026-11-02T00-00Z")
    shipped, its_manifest = pickle.loads(pickle.dumps((access, manifest)))
    (batch,) = Inventory(shipped).read(its_manifest, its_manifest.files[0])
    assert batch["key"].to_pylist() == ["orchard/data/a"]


def test_an_inventory_is_read_from_a_store_of_objects():
    made = make_inventory([Row("orchard/data/a b")], "lake", at(2), "CSV")
    access = StoreAccess(f"memory://deliveries/{made.folder}")
    for key, content in made.objects.items():
        access.open().put(key.removeprefix(f"{made.folder}/"), content)
    inventory = Inventory(access)
    assert inventory.newest_complete() == made.delivery
    assert found_addresses([(inventory, made.delivery)], "s3://lake/orchard") == ["data/a b"]


def test_a_missing_file_is_named(tmp_path):
    inventory = delivered(tmp_path, at(2))
    manifest = inventory.load_manifest("2026-11-02T00-00Z")
    (tmp_path / manifest.files[0].key).unlink()
    lost = f"its file '{re.escape(manifest.files[0].key)}' is missing"
    with pytest.raises(ObjectMissing, match=rf"manifest\.json: {lost}\. Nothing was deleted\. Wait"):
        inventory.read(manifest, manifest.files[0])


def test_an_altered_manifest_is_refused_with_its_location(tmp_path):
    inventory = delivered(tmp_path, at(2))
    place = f"{inventory.url}/2026-11-02T00-00Z/manifest.json"
    Path(place.removeprefix("file://")).write_bytes(b"{}")
    with pytest.raises(CorruptFile, match=f"{place}: its MD5"):
        inventory.load_manifest("2026-11-02T00-00Z")


@pytest.mark.parametrize("key", ["elsewhere/lake/daily/data/a", "inventories/lake/daily/../../secret", "data/a"])
def test_a_file_outside_the_inventory_is_refused(tmp_path, key):
    made = make_inventory([Row("a")], "lake", at(2), "CSV")
    url = with_manifest(made, files=[{"key": key, "size": 1, "MD5checksum": "0" * 32}]).write_to(tmp_path / "bucket")
    inventory = Inventory(StoreAccess(url))
    manifest = inventory.load_manifest(made.delivery)
    with pytest.raises(CorruptFile, match="is not in the inventory's folder"):
        inventory.read(manifest, manifest.files[0])


def test_inventories_of_two_prefixes_are_read_together(tmp_path):
    data = delivered(tmp_path, at(2), rows=[Row("orchard/data/a")], config_id="data")
    rest = delivered(tmp_path, at(1), rows=[Row("orchard/b"), Row("orchards/c")], config_id="rest", prefix="other")
    deliveries = newest_of(data, rest)
    assert [delivery for _, delivery in deliveries] == ["2026-11-02T00-00Z", "2026-11-01T00-00Z"]
    assert found_addresses(deliveries, "s3://lake/orchard") == ["data/a", "b"]


def test_inventories_of_two_buckets_give_each_namespace_its_own(tmp_path):
    rows = {"lake": [Row("orchard/data/a")], "pond": [Row("orchard/data/b")]}
    urls = [make_inventory(rows[name], name, at(2), "ORC").write_to(tmp_path) for name in rows]
    deliveries = newest_of(*(Inventory(StoreAccess(url)) for url in urls))
    assert found_addresses(deliveries, "s3://lake/orchard") == ["data/a"]
    assert found_addresses(deliveries, "s3://pond/orchard") == ["data/b"]


def test_a_folder_named_like_an_impossible_time_is_not_a_complete_delivery(tmp_path):
    inventory = delivered(tmp_path, at(2))
    (Path(inventory.url.removeprefix("file://")) / "2026-13-01T00-00Z").mkdir()
    assert inventory.newest_complete() == "2026-11-02T00-00Z"
