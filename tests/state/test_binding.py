"""The tables of a repository belong to one location, and the tables of a location to one name."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from retention_assets.config.configuration import Repository, load_configuration
from retention_assets.errors import GuardRefused
from retention_assets.state.acknowledged import (
    LOST,
    known_addresses,
    missing_addresses,
    record_missing,
    write_acknowledgement,
)
from retention_assets.state.binding import require_same_location
from retention_assets.warehouse.warehouse import Warehouse
from tests.frames import NOW


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(str(tmp_path / "warehouse"))


@pytest.fixture
def orchard(tmp_path: Path) -> Repository:
    entry = {"kind": "lakefs", "namespace": "s3://lake/orchard", "source": {"dump": "d"}, "policy": "p"}
    file = tmp_path / "retention.yaml"
    file.write_text(yaml.safe_dump({"warehouse": "warehouse", "repositories": {"orchard": entry}}), encoding="utf-8")
    return load_configuration(file).repository("orchard")


@pytest.mark.parametrize("same", ["namespace", "storage"])
def test_a_repository_that_is_renamed_does_not_begin_without_its_tables(
    warehouse: Warehouse, orchard: Repository, same: str
) -> None:
    """The plan memory and ledgers at the old location would not count, and two leases would allow two sweeps."""
    require_same_location(warehouse, orchard)
    other = {"namespace": "storage", "storage": "namespace"}[same]
    renamed = replace(orchard, name="grove", **{other: "s3://lake/grove"})
    with pytest.raises(GuardRefused, match=r"tables of s3://lake/orchard, .* under the name orchard"):
        require_same_location(warehouse, renamed)
    require_same_location(warehouse, orchard)
    require_same_location(warehouse, replace(renamed, **{same: "s3://lake/grove"}))


@pytest.mark.parametrize(
    ("bound", "spelled"),
    [
        pytest.param("az://lake/orchard", "abfss://lake@grower.dfs.core.windows.net/orchard", id="azure_with_account"),
        pytest.param(
            "https://grower.blob.core.windows.net/lake/orchard",
            "abfss://lake@GROWER.dfs.core.windows.net/orchard",
            id="upper_case_of_the_account",
        ),
        pytest.param("s3://lake/old%20orchard", "s3://lake/old orchard", id="percent_encoding"),
        pytest.param("s3://lake/orchard", "s3://lake/orchard/young", id="inside"),
        pytest.param("s3://lake/orchard", "s3://lake", id="around"),
    ],
)
def test_a_location_in_another_spelling_has_only_one_name(
    warehouse: Warehouse, orchard: Repository, bound: str, spelled: str
) -> None:
    """The other name may be in another configuration file, so no guard of the plan compares the two."""
    require_same_location(warehouse, replace(orchard, namespace=bound, storage=bound))
    grove = replace(orchard, name="grove", namespace=spelled, storage=spelled)
    with pytest.raises(GuardRefused, match=r"under the name orchard.*Nothing was planned or deleted"):
        require_same_location(warehouse, grove)
    require_same_location(warehouse, replace(grove, namespace="s3://field/grove", storage="s3://field/grove"))


def test_a_renamed_repository_can_start_once_the_tables_under_its_old_name_are_moved_away(
    warehouse: Warehouse, orchard: Repository
) -> None:
    require_same_location(warehouse, orchard)
    Path(warehouse.location("orchard")).rename(Path(warehouse.root).with_name("before"))
    require_same_location(warehouse, replace(orchard, name="grove"))
    with pytest.raises(GuardRefused, match="under the name grove"):
        require_same_location(warehouse, orchard)


def test_objects_that_were_lost_at_another_location_are_not_acknowledged_at_the_new_one(
    warehouse: Warehouse, orchard: Repository
) -> None:
    require_same_location(warehouse, orchard)
    write_acknowledgement(warehouse, "orchard", ["data/a"], LOST, "anna", NOW)
    record_missing(warehouse, "orchard", "live_listed", ["data/b"], NOW)
    require_same_location(warehouse, orchard)
    assert known_addresses(warehouse, "orchard") == {"data/a"}
    assert missing_addresses(warehouse, "orchard") == ["data/b"]
    require_same_location(warehouse, replace(orchard, namespace="s3://lake/new", storage="s3://lake/new"))
    assert known_addresses(warehouse, "orchard") == set()
    assert missing_addresses(warehouse, "orchard") == []
    assert len(warehouse.files("orchard", "acknowledged")) == 2, "the entry of the person remains"
