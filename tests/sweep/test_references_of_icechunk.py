"""References of another Icechunk repository, from the tables of its last plan and the cached rows of its manifests."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import icechunk as ic
import pyarrow as pa
import pytest
import yaml
import zarr
from pyspark.sql import SparkSession

from retention_assets.config.configuration import load_configuration
from retention_assets.core.liveness import Liveness
from retention_assets.errors import GuardRefused
from retention_assets.icechunk.source.opening import snapshot_policy
from retention_assets.icechunk.source.tables import manifest_chunks
from retention_assets.repositories.other_repositories import OtherRepositories
from retention_assets.spark.frames import from_arrow
from retention_assets.state.acknowledged import LOST, write_acknowledgement
from retention_assets.state.approval import planned_terms, terms_hash
from retention_assets.tables import REACHABLE_CHUNKS, REACHABLE_MANIFESTS, REPOSITORY_HISTORY
from retention_assets.warehouse.metadata import Details, PartitionMetadata
from retention_assets.warehouse.warehouse import METADATA, Warehouse
from tests.icechunk_repositories import create_repository, open_repository
from tests.objectstore.s3 import Bucket

pytestmark = pytest.mark.long

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
SHARED, OTHER = "chunks/000G40R40M30E209185G", "chunks/1CECHNKREP0F1RSTCMT0"


@dataclass(frozen=True)
class Pairing:
    """The repositories `here` and `there`. The only manifest of `there` refers to the object `SHARED` of `here`."""

    spark: SparkSession
    root: Path
    manifest: str

    @property
    def warehouse(self) -> Warehouse:
        return Warehouse(str(self.root / "warehouse"))

    def configure(self, **there: Any) -> None:
        entry = {"kind": "icechunk", "policy": "policy.yaml", "mode": "delete"}
        repositories = {name: {**entry, "storage": name} for name in ("here", "there")}
        repositories["there"].update(there)
        document = {"warehouse": "warehouse", "repositories": repositories}
        (self.root / "retention.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
        (self.root / "policy.yaml").write_text("snapshots: {default: {keep_newer: 30d}}", encoding="utf-8")

    def others(self) -> OtherRepositories:
        configuration = load_configuration(self.root / "retention.yaml")
        here, there = (configuration.repository(name) for name in ("here", "there"))
        return OtherRepositories(self.spark, self.warehouse, here, [there], "a-run", lambda: NOW)

    def plan(
        self,
        of_manifests: Mapping[str, Any] | None = None,
        of_chunks: Mapping[str, Any] | None = None,
        *,
        live: bool = True,
        at: datetime = NOW,
        manifests_at: datetime | None = None,
    ) -> None:
        """Write the tables of a plan of `there`, with these details. `live`: whether its manifest is live.

        `manifests_at`: when its manifests were read, if not at `at`.
        """
        manifest = {
            "manifest_id": self.manifest, "address": f"manifests/{self.manifest}", "size": 1, "chunk_refs": 1,
            "snapshots": 1, "live": live, "expired": not live, "rule_ids": [], "branches": [],
        }  # fmt: skip
        there = load_configuration(self.root / "retention.yaml").repository("there")
        known = {"policy_hash": snapshot_policy(there).policy_hash, "terms_hash": terms_hash(planned_terms(there))}
        for table, rows, details, read_at in (
            (REACHABLE_MANIFESTS, [manifest], of_manifests, manifests_at or at),
            (REACHABLE_CHUNKS, [], {"by_kind": {"virtual": 1}, **(of_chunks or {})}, at),
        ):
            frame = from_arrow(self.spark, pa.Table.from_pylist(rows, table.schema))
            frame.write.mode("overwrite").parquet(self.warehouse.partition("there", table.name, at.date()))
            metadata = PartitionMetadata(read_at, len(rows), "a-run", Details(**{**known, **(details or {})}))
            self.warehouse.write_metadata("there", table.name, at.date(), metadata)

    def kept(self) -> set[str]:
        """Return which of two objects here a liveness check keeps because of `there`."""
        objects = self.spark.createDataFrame([(SHARED,), (OTHER,)], "address string")
        none = objects.limit(0)
        return {row["address"] for row in self.others().extended(Liveness(none, none, NOW), objects).live.collect()}

    @property
    def file(self) -> Path:
        return self.root / "there" / "manifests" / self.manifest


@pytest.fixture
def pairing(spark: SparkSession, tmp_path: Path) -> Pairing:
    session = create_repository(tmp_path / "there").writable_session("main")
    zarr.create_array(session.store, name="a", shape=(2,), chunks=(1,), dtype="i4", compressors=None)
    chunk = ic.VirtualChunkSpec(index=[0], location=f"file://{tmp_path}/here/{SHARED}", offset=0, length=4)
    session.store.set_virtual_refs("a", [chunk], validate_containers=False)
    snapshot = session.commit("refers to another repository")
    (manifest,) = open_repository(tmp_path / "there").list_manifest_files(snapshot)
    made = Pairing(spark, tmp_path, manifest.id)
    made.configure()
    return made


def last_parts(pairing: Pairing) -> set[str]:
    parts = pairing.others().last_parts()
    assert parts is not None
    return {row["last_part"] for row in parts.collect()}


def refused_and_warned(pairing: Pairing, why: str) -> list[str]:
    """Require that a plan warns, and that a sweep is refused at its start and at a check. Return the refusals."""
    others, messages = pairing.others(), list[str]()
    (warning,) = others.for_plan().warnings  # a plan only warns
    assert f"A sweep will be refused. {why}" in warning
    for require in (others.require_known, pairing.kept):
        with pytest.raises(GuardRefused) as refused:
            require()
        assert "Nothing" in str(refused.value)
        messages.append(str(refused.value))
    return messages


def test_an_object_that_a_manifest_of_another_repository_references_is_kept(pairing: Pairing) -> None:
    pairing.plan()
    assert pairing.others().unknown() == []
    assert pairing.kept() == {SHARED}


def test_manifests_are_not_read_if_their_plan_counted_no_virtual_reference(pairing: Pairing) -> None:
    """Another run may have written the table of the manifests since: it did not count the references in them."""
    pairing.plan(of_chunks={"outside": 0})
    assert pairing.kept() == set()
    assert pairing.others().last_parts() is None
    for table, run_id in ((REACHABLE_MANIFESTS, "later"), (REACHABLE_CHUNKS, "a-run")):
        metadata = pairing.warehouse.metadata("there", table.name, NOW.date())
        pairing.warehouse.write_metadata("there", table.name, NOW.date(), replace(metadata, run_id=run_id))
    assert pairing.kept() == {SHARED}
    assert last_parts(pairing) == {SHARED.removeprefix("chunks/")}


@pytest.mark.parametrize("table", ["of_manifests", "of_chunks"])
def test_references_in_lost_files_that_no_run_has_read_are_unknown(pairing: Pairing, table: str) -> None:
    """Lost snapshots are counted with the manifests, and lost manifests with the chunks."""
    pairing.file.unlink()
    write_acknowledgement(pairing.warehouse, "there", [f"manifests/{pairing.manifest}"], LOST, "anna", NOW)
    pairing.plan(**{table: {"unread": 2}})
    for message in refused_and_warned(pairing, "there needs 2 lost files that no run has read"):
        assert "Restore the files, or delete the branches and tags that need them. In format 2, also" in message
        assert message.endswith("give them a rule first. Then plan it again: `retention plan there`.")


@pytest.mark.parametrize("table", ["of_manifests", "of_chunks"])
def test_references_of_a_newer_state_are_unknown_after_an_older_repo_object_was_put_in_its_place(
    pairing: Pairing, table: str
) -> None:
    pairing.plan(**{table: {"replaced": "the ops log is older. Restore the newer repo object."}})
    for message in refused_and_warned(pairing, "At its last plan, there was in an older state than before."):
        assert message.endswith("Restore the newer repo object. Then plan it again: `retention plan there`.")


def test_a_lost_manifest_that_an_earlier_run_read_still_keeps_what_it_refers_to(pairing: Pairing) -> None:
    pairing.plan()
    assert pairing.kept() == {SHARED}  # and puts the manifest into the cache
    pairing.file.unlink()
    write_acknowledgement(pairing.warehouse, "there", [f"manifests/{pairing.manifest}"], LOST, "anna", NOW)
    assert pairing.kept() == {SHARED}
    assert last_parts(pairing) == {SHARED.removeprefix("chunks/")}


def test_a_lost_manifest_that_is_no_longer_in_the_cache_is_not_taken_for_one_without_references(
    pairing: Pairing,
) -> None:
    pairing.plan()
    pairing.file.unlink()
    write_acknowledgement(pairing.warehouse, "there", [f"manifests/{pairing.manifest}"], LOST, "anna", NOW)
    asked: tuple[Callable[[], object], ...] = (pairing.kept, pairing.others().last_parts)
    for one in asked:
        with pytest.raises(GuardRefused, match="there needs 1 lost file that no run has read"):
            one()


def test_a_plan_whose_manifests_were_refused_is_not_complete(pairing: Pairing) -> None:
    pairing.plan(of_manifests={"refused": "metadata_exists"})
    (reason,) = pairing.others().unknown()
    assert "there has no complete plan yet" in reason
    assert pairing.others().last_parts() is None


def test_a_later_plan_that_a_guard_refused_has_unknown_references(pairing: Pairing) -> None:
    yesterday = NOW - timedelta(hours=23)
    for at, of_manifests in ((yesterday, {}), (NOW, {"refused": "metadata_exists"})):
        pairing.plan(of_manifests, at=at)
        history = pairing.root / "warehouse" / "there" / REPOSITORY_HISTORY.name / at.date().isoformat() / METADATA
        pairing.warehouse.write_metadata("there", REPOSITORY_HISTORY.name, at.date(), PartitionMetadata(at, 0, "a-run"))
        os.utime(history, (at.timestamp(), at.timestamp()))
    refused_and_warned(pairing, "A guard refused the last plan of there (metadata_exists), so its newest references")


def test_manifests_that_are_not_in_the_cache_are_read_with_the_other_repositorys_own_options(
    pairing: Pairing, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in (pairing.root / "there").rglob("*"):
        if path.is_file():
            key = path.relative_to(pairing.root).as_posix()
            bucket.client().put_object(Bucket=bucket.name, Key=key, Body=path.read_bytes())
    monkeypatch.setenv("THERE_SECRET", bucket.secret_key)
    options = {**bucket.access().options, "secret_access_key": {"env": "THERE_SECRET"}}
    pairing.configure(storage=bucket.access("there").url, storage_options=options)
    pairing.plan()
    assert pairing.kept() == {SHARED}


def test_the_store_of_the_other_repository_is_not_needed_while_its_manifests_are_in_the_cache(
    pairing: Pairing,
) -> None:
    pairing.plan()
    assert pairing.kept() == {SHARED}
    pairing.configure(storage_options={"region": {"env": "NOT_SET_HERE"}})
    pairing.file.unlink()
    assert pairing.kept() == {SHARED}


def test_references_at_another_location_are_unknown_until_a_plan_reads_them(pairing: Pairing) -> None:
    """The repository may refer to other objects there. The references at the old location still count."""
    pairing.plan()
    assert pairing.kept() == {SHARED}  # and puts the manifest into the cache
    (pairing.root / "moved").mkdir()
    pairing.configure(storage="moved")
    reasons = pairing.others().unknown()
    assert reasons == ["Settings of there are not those of its last plan. Plan it again: `retention plan there`."]
    assert pairing.kept() == {SHARED}


def test_the_references_are_as_old_as_the_manifests_if_another_run_wrote_the_chunks(pairing: Pairing) -> None:
    """Two runs planned the same day at the same time, and the older one was interrupted after it wrote manifests."""
    pairing.plan(manifests_at=NOW - timedelta(hours=30))
    assert pairing.others().unknown() == [
        "The last complete plan of there is of 2026-11-20 06:00 UTC, more than 1d ago. Plan it again: `retention plan "
        "there`."
    ]


@pytest.mark.parametrize("changed", ["policy_hash", "terms_hash"])
def test_every_manifest_counts_if_a_plan_under_another_policy_or_setting_was_interrupted(
    pairing: Pairing, changed: str
) -> None:
    """The interrupted plan wrote manifests, and the chunks are of the plan before. Then the policy was changed back."""
    pairing.plan(of_manifests={changed: "of another plan"}, live=False)
    reasons = pairing.others().unknown()
    assert reasons == [
        "The newest tables of there are of different plans, or an earlier version made them. Plan it again: "
        "`retention plan there`."
    ]
    assert pairing.kept() == {SHARED}
    pairing.plan(live=False)
    assert pairing.others().unknown() == []
    assert pairing.kept() == set()


def test_rows_that_a_check_fetches_have_another_batch_than_those_of_a_step_of_the_same_run(pairing: Pairing) -> None:
    """Steps of one run can run in several processes at the same time. One would replace the batch of the other."""
    pairing.plan()
    assert pairing.kept() == {SHARED}
    (batch,) = pairing.warehouse.directories("there", manifest_chunks().name)
    assert batch == "00000001-a-run-for-here"
