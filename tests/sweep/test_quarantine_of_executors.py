"""A quarantine to which no object can be moved, or from which none could be restored, is refused before the sweep."""

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from socket import gethostname
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from retention_assets.config.configuration import Repository
from retention_assets.config.settings import LakeFSSettings, SourceSettings
from retention_assets.errors import ConfigurationError, GuardRefused, StoreError
from retention_assets.objectstore.access import open_store
from retention_assets.objectstore.outcomes import Outcome
from retention_assets.objectstore.rate_limiter import RateLimiter
from retention_assets.state.quarantine import prepare_directory
from retention_assets.state.records import record_without_plan, write_record
from retention_assets.sweep.actions import Quarantine
from retention_assets.sweep.sweep_run import action_of
from retention_assets.sweep.worker import OBJECTS, Action
from retention_assets.warehouse.warehouse import Warehouse
from tests.sweep.small_world import a_plan


def action(directory: Path, storage: str, quarantine: str, master: str) -> Action:
    settings = LakeFSSettings.model_validate(
        {
            "kind": "lakefs",
            "namespace": "s3://lake/orchard",
            "source": SourceSettings(dump="dump.json"),
            "policy": ["policy.json"],
            "quarantine": {"url": quarantine},
        }
    )
    file = directory / "retention.yaml"
    repository = Repository("orchard", "s3://lake/orchard", storage, settings, directory, file)
    spark = SimpleNamespace(sparkContext=SimpleNamespace(master=master))
    opened = SimpleNamespace(repository=repository, access=open_store(repository))
    warehouse = Warehouse(str(directory / "warehouse"))
    sweep: Any = SimpleNamespace(opened=opened, spark=spark, name="orchard", day="2026-11-01", warehouse=warehouse)
    return action_of(sweep, a_plan(), "quarantine")


def prepared(directory: Path, quarantine: Path) -> Quarantine:
    """Return the action of a sweep of a repository of files, after the sweep made its quarantine ready."""
    moving = action(directory, f"file://{directory}/lake", str(quarantine), "local[*]")
    assert isinstance(moving, Quarantine)
    assert moving.marker is not None
    prepare_directory(Warehouse(str(directory / "warehouse")), "orchard", moving.location.access, moving.marker)
    return moving


def test_a_directory_is_no_quarantine_of_a_bucket_if_executors_run_on_other_machines(tmp_path: Path) -> None:
    with pytest.raises(GuardRefused, match=r"the executors of spark://head:7077 run on other machines.* Nothing was"):
        action(tmp_path, "s3://lake/orchard", "attic", "spark://head:7077")


@pytest.mark.parametrize(
    ("storage", "quarantine", "master"),
    [
        pytest.param("s3://lake/orchard", "attic", "local[*]", id="one_machine"),
        pytest.param("s3://lake/orchard", "s3://attic/orchard", "spark://head:7077", id="a_bucket"),
        pytest.param("file:///mounted/orchard", "attic", "spark://head:7077", id="a_shared_directory"),
    ],
)
def test_a_quarantine_that_a_restore_can_read_is_used(
    tmp_path: Path, storage: str, quarantine: str, master: str
) -> None:
    assert isinstance(action(tmp_path, storage, quarantine, master), Quarantine)


def planned(lake: Path) -> pa.Table:
    """Return the plan's one object, after it was written to the directory of the repository."""
    lake.mkdir()
    (lake / "x").write_bytes(b"abc")
    return pa.Table.from_pylist([{"address": "x", "size": 3}], OBJECTS)


NOT_SEEN = (
    r"attic: the machine {} does not see the file \.retention-quarantine-[0-9a-f]{{32}}, by which sweeps recognize"
)


def follow_the_remedy(error: StoreError) -> None:
    """Run the command that the error names."""
    subprocess.run(["sh", "-c", str(error).split("`")[1]], check=True)


def moved(moving: Quarantine, objects: pa.Table) -> list[str]:
    return [one.outcome for one in moving.open(RateLimiter()).do(objects, "1", lambda: True)]


def test_a_machine_that_does_not_see_the_quarantine_of_the_driver_moves_nothing(tmp_path: Path) -> None:
    """Otherwise each executor moves objects to its own disk, and a retried task records them as `missing`."""
    objects, lake, attic = planned(tmp_path / "lake"), tmp_path / "lake", tmp_path / "attic"
    moving = prepared(tmp_path, attic)
    attic.rename(tmp_path / "on the driver")  # this machine has the lake, and not the quarantine
    for is_directory in (False, True):
        if is_directory:
            attic.mkdir()
        with pytest.raises(StoreError, match=NOT_SEEN.format(gethostname())):
            moving.open(RateLimiter())
    assert list(attic.iterdir()) == []
    assert (lake / "x").read_bytes() == b"abc"
    attic.rmdir()
    (tmp_path / "on the driver").rename(attic)
    assert moved(moving, objects) == [Outcome.QUARANTINED]


@pytest.mark.parametrize("is_there", [pytest.param(True, id="an_empty_mount_point"), pytest.param(False, id="nothing")])
def test_a_sweep_moves_nothing_below_the_mount_point_of_its_quarantine(tmp_path: Path, is_there: bool) -> None:
    """Otherwise the objects are hidden when the volume is mounted again, or lost with the disk of a container."""
    objects, attic = planned(tmp_path / "lake"), tmp_path / "attic"
    prepared(tmp_path, attic)
    attic.rename(tmp_path / "volume")
    if is_there:
        attic.mkdir()
    with pytest.raises(StoreError, match=NOT_SEEN.format(gethostname())) as refused:
        prepared(tmp_path, attic)
    assert not list(attic.glob("*"))
    assert attic.exists() is is_there
    if is_there:
        attic.rmdir()
    (tmp_path / "volume").rename(attic)
    assert moved(prepared(tmp_path, attic), objects) == [Outcome.QUARANTINED]

    (tmp_path / "lake" / "x").write_bytes(b"abc")
    attic.rename(tmp_path / "volume")  # a new disk, at first without this directory
    follow_the_remedy(refused.value)
    assert moved(prepared(tmp_path, attic), objects) == [Outcome.QUARANTINED]


def test_each_url_of_a_quarantine_has_its_own_marker(tmp_path: Path) -> None:
    planned(tmp_path / "lake")
    first, second = prepared(tmp_path, tmp_path / "attic"), prepared(tmp_path, tmp_path / "cellar")
    assert first.marker != second.marker
    assert prepared(tmp_path, tmp_path / "attic").marker == first.marker
    assert first.marker not in [file.name for file in (tmp_path / "cellar").iterdir()]


@pytest.mark.parametrize(
    ("names", "swept_to", "left", "is_used"),
    [
        pytest.param(("2026-10-01",), "attic", 1, True, id="with_files"),
        pytest.param((), "attic", 0, True, id="after_a_purge"),
        pytest.param((), "cellar", 1, True, id="of_another_location"),
        pytest.param((), "attic", 1, False, id="not_mounted"),
        pytest.param((), None, 1, False, id="not_mounted_and_no_record_of_the_location"),
    ],
)
def test_a_quarantine_of_a_version_without_markers_is_not_used_if_it_lacks_the_moved_objects(
    tmp_path: Path, names: Sequence[str], swept_to: str | None, left: int, is_used: bool
) -> None:
    """A record says that objects are there. So a directory without any file is not the quarantine, or not mounted."""
    attic, warehouse = tmp_path / "the attic", Warehouse(str(tmp_path / "warehouse"))
    attic.mkdir()
    for name in names:
        (attic / name).mkdir()
    prepared(tmp_path, tmp_path / "another")  # a sweep to another location, which has a marker
    at = datetime(2026, 10, 1, tzinfo=UTC)
    swept = replace(record_without_plan("sweep", "orchard", "ann", at, at, "run", {}), plan_hash="ab")
    terms = {"quarantine.url": f"file://{tmp_path}/the {swept_to}"} if swept_to else None
    write_record(warehouse, replace(swept, mode="quarantine", terms=terms, in_quarantine={"objects": 1, "bytes": 3}))
    write_record(warehouse, replace(swept, kind="purge", in_quarantine={"objects": left, "bytes": 3 * left}))
    if is_used:
        assert prepared(tmp_path, attic).marker in [file.name for file in attic.iterdir()]
        return
    for _ in range(2):  # the refusal names the same file each time
        with pytest.raises(StoreError, match=NOT_SEEN.format(gethostname())) as refused:
            prepared(tmp_path, attic)
    assert list(attic.iterdir()) == []
    follow_the_remedy(refused.value)
    prepared(tmp_path, attic)


def test_a_quarantine_without_its_parent_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"the directory cannot be created: .* create or mount the directory above"):
        prepared(tmp_path, tmp_path / "mnt" / "attic")
    assert not (tmp_path / "mnt").exists()


def test_a_quarantine_that_cannot_be_listed_is_refused(tmp_path: Path) -> None:
    (tmp_path / "attic").write_bytes(b"a file")
    with pytest.raises(StoreError, match=r"attic: the directory cannot be read: .*Nothing was moved\."):
        prepared(tmp_path, tmp_path / "attic")


def test_a_quarantine_is_refused_if_a_key_of_the_customer_encrypts_the_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SERVER_SIDE_ENCRYPTION", "sse-c")
    monkeypatch.setenv("AWS_SSE_CUSTOMER_KEY_BASE64", "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=")
    with pytest.raises(ConfigurationError, match="objects that are encrypted with a key of the customer"):
        action(tmp_path, "s3://lake/orchard", "s3://attic/orchard", "local[*]")
