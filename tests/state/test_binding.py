"""The tables of a repository belong to one location, and the tables of a location to one name."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from retention_assets.config.configuration import Repository, load_configuration
from retention_assets.errors import GuardRefused
from retention_assets.state.binding import require_same_location
from retention_assets.warehouse.warehouse import Warehouse


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
    """Its plan memory and ledgers would not count, and two leases would allow two sweeps at once."""
    require_same_location(warehouse, orchard)
    other = {"namespace": "storage", "storage": "namespace"}[same]
    renamed = replace(orchard, name="grove", **{other: "s3://lake/grove"})
    with pytest.raises(GuardRefused, match=r"tables of s3://lake/orchard, .* under the name orchard"):
        require_same_location(warehouse, renamed)
    require_same_location(warehouse, orchard)
    require_same_location(warehouse, replace(renamed, **{same: "s3://lake/grove"}))


def test_a_renamed_repository_can_start_once_the_tables_under_its_old_name_are_moved_away(
    warehouse: Warehouse, orchard: Repository
) -> None:
    require_same_location(warehouse, orchard)
    Path(warehouse.location("orchard")).rename(Path(warehouse.root).with_name("before"))
    require_same_location(warehouse, replace(orchard, name="grove"))
    with pytest.raises(GuardRefused, match="under the name grove"):
        require_same_location(warehouse, orchard)
