"""The tables of a repository belong to one location, and the tables of a location to one name."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

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
from retention_assets.state.binding import require_outside, require_same_location
from retention_assets.sweep.sweep_run import Sweep, planned_as_approved
from retention_assets.warehouse.warehouse import Warehouse
from tests.frames import NOW
from tests.sweep.small_world import a_plan


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


def configured(directory: Path, warehouse: str, storage: str, **others: str) -> tuple[Warehouse, Repository, list[str]]:
    """Return the warehouse, orchard, and the names of all repositories of a configuration with these locations."""
    common = {"kind": "lakefs", "namespace": "s3://lake/orchard", "source": {"dump": "d"}, "policy": "p"}
    storages = {"orchard": storage, **others}
    entries = {name: {**common, "namespace": f"s3://lake/{name}", "storage": one} for name, one in storages.items()}
    file = directory / "retention.yaml"
    file.write_text(yaml.safe_dump({"warehouse": warehouse, "repositories": entries}), encoding="utf-8")
    found = load_configuration(file)
    return Warehouse(found.warehouse, any_layout=True), found.repository("orchard"), list(found.repositories)


@pytest.mark.parametrize(
    ("warehouse", "storage"),
    [
        pytest.param("lake/tables", "lake", id="inside"),
        pytest.param("lake/data/deep/tables/", "lake/", id="deep, with slashes"),
        pytest.param("lake", "lake", id="the same"),
        pytest.param("other/../lake/tables", "./lake", id="dots"),
        pytest.param("lake/tables", "file://{here}/lake/", id="a storage with a scheme"),
        pytest.param("file://{here}/lake/tables", "lake", id="a warehouse with a scheme"),
        pytest.param("link/tables", "lake", id="a link to the storage"),
        pytest.param("lake/tables", "link", id="a storage that is a link"),
        pytest.param("chunks/tables", "linked", id="inside a directory that the storage links"),
        pytest.param(".", "orchard", id="tables around the storage"),
        pytest.param(".", "meadow", id="tables of another repository"),
        pytest.param("s3a://lake/orchard/tables", "s3://lake/orchard", id="a prefix"),
        pytest.param("s3://lake/orchard/tables/", "s3n://lake/orchard/", id="a prefix with slashes"),
        pytest.param("s3://lake/tables", "s3://lake", id="a whole bucket"),
        pytest.param("s3://lake/old%20orchard/tables", "s3://lake/old orchard", id="percent_encoding"),
    ],
)
def test_a_warehouse_inside_the_storage_is_refused_in_every_spelling(
    tmp_path: Path, warehouse: str, storage: str
) -> None:
    for name in ("lake", "linked", "chunks"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("lake")
    (tmp_path / "linked" / "chunks").symlink_to(tmp_path / "chunks")
    spelled = (text.format(here=tmp_path) for text in (warehouse, storage))
    found, orchard, names = configured(tmp_path, *spelled, meadow="grass")
    with pytest.raises(GuardRefused, match=r"plans would list the files of the warehouse.*Nothing was planned or del"):
        require_outside(found.root, orchard, names)


@pytest.mark.parametrize(
    ("warehouse", "storage"),
    [
        pytest.param("tables", "lake", id="side by side"),
        pytest.param("lake.tables", "lake", id="a longer name"),
        pytest.param(".", "lake", id="a storage beside the tables"),
        pytest.param("s3a://lake/tables", "s3://lake/orchard", id="prefixes of one bucket"),
        pytest.param("s3a://tables/orchard", "s3://lake/orchard", id="two buckets"),
        pytest.param("tables", "s3://lake/orchard", id="a directory and a bucket"),
    ],
)
def test_a_warehouse_beside_the_storage_is_accepted(tmp_path: Path, warehouse: str, storage: str) -> None:
    found, orchard, names = configured(tmp_path, warehouse, storage, meadow="grass")
    require_outside(found.root, orchard, names)


def test_a_sweep_is_refused_if_the_warehouse_is_inside_the_storage(tmp_path: Path) -> None:
    found, orchard, _ = configured(tmp_path, "lake/tables", "lake")
    opened, nothing = SimpleNamespace(repository=orchard), SimpleNamespace()
    sweep: Any = Sweep(nothing, found, opened, NOW.date(), "run", print, lambda: NOW)  # type: ignore[arg-type,type-var]
    with pytest.raises(GuardRefused, match="Move the warehouse to a location outside of file://"):
        planned_as_approved(sweep, a_plan(), "p")
