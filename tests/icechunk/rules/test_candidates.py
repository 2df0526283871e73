"""Candidates from snapshots, manifests and chunks on small frames: files of retained snapshots are never candidates."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import icechunk as ic
import pyarrow as pa
import pytest
import zarr
from pyspark.sql import DataFrame, SparkSession

from retention_assets.core.age import AgeCutoff, no_issue_time
from retention_assets.core.remedies import INCOMPLETE_LISTING, REMEDIES
from retention_assets.core.settle import candidates
from retention_assets.icechunk.formats.paths import CONFIG, REPO, backup_name
from retention_assets.icechunk.rules.candidates import classified, due, holding_of, unchanged_until
from retention_assets.icechunk.rules.reach import chunks_of, manifests_of, refs_of
from retention_assets.icechunk.source.tables import MANIFEST_CHUNKS, SNAPSHOT_MANIFESTS
from retention_assets.icechunk.sweep.guards import incomplete_manifests, manifests_complete, referenced_exist
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.mutate.writing import ObjectWriter
from retention_assets.tables import STORAGE_INVENTORY, STRINGS, TIMESTAMP

CUTOFF = datetime(2026, 11, 1, tzinfo=UTC)
MICROSECOND, SECOND, DAY = timedelta(microseconds=1), timedelta(seconds=1), timedelta(days=1)
OLD = CUTOFF - 100 * DAY
STORAGE = "s3://lake/field"
SNAPSHOTS = pa.schema(
    [
        ("snapshot_id", pa.string()),
        ("live", pa.bool_()),
        ("expired", pa.bool_()),
        ("rule_ids", STRINGS),
        ("branches", STRINGS),
        ("due_since", TIMESTAMP),
        ("flushed_at", TIMESTAMP),
    ]
)


def id_of(letter: str) -> str:
    return letter * 19 + "0"


def frame(spark: SparkSession, rows: Sequence[dict[str, Any]], schema: pa.Schema) -> DataFrame:
    return spark.createDataFrame(pa.Table.from_pylist(list(rows), schema=schema))


def snapshot(letter: str, days: int, *, live: bool) -> dict[str, Any]:
    named = {} if live else {"rule_ids": [f"rule {letter}"], "branches": ["main"], "due_since": CUTOFF - days * DAY}
    columns = {"snapshot_id": id_of(letter), "live": live, "expired": not live, "flushed_at": OLD - days * DAY}
    return {"rule_ids": [], "branches": [], **columns, **named}


def listed_manifest(snapshot_letter: str, letter: str, refs: int = 1) -> dict[str, Any]:
    return {"snapshot_id": id_of(snapshot_letter), "manifest_id": id_of(letter), "size": 9, "chunk_refs": refs}


def named(manifest: str, chunk: str | None = None, location: str | None = None) -> dict[str, Any]:
    counts = {"native": int(chunk is not None), "virtual": int(location is not None), "inline": 0}
    return {"manifest_id": id_of(manifest), "chunk_id": chunk and id_of(chunk), "location": location, **counts}


@pytest.fixture(scope="module")
def manifests(spark: SparkSession) -> DataFrame:
    """Snapshot A stays, B and C have expired. Manifest M belongs to A and B, N to B and C."""
    snapshots = [snapshot("A", 1, live=True), snapshot("B", 2, live=False), snapshot("C", 3, live=False)]
    files = [listed_manifest(*pair) for pair in ("AM", "BM", "BN", "CN")]
    found = manifests_of(frame(spark, snapshots, SNAPSHOTS), frame(spark, files, SNAPSHOT_MANIFESTS))
    return found.cache()


def by_address(found: DataFrame) -> dict[str, dict[str, Any]]:
    return {row["address"]: row.asDict() for row in found.collect()}


def test_a_manifest_is_live_if_a_retained_snapshot_has_it(manifests: DataFrame) -> None:
    rows = by_address(manifests)
    kept, gone = rows[f"manifests/{id_of('M')}"], rows[f"manifests/{id_of('N')}"]
    assert (kept["live"], kept["expired"], kept["rule_ids"], kept["due_since"]) == (True, False, [], None)
    assert (gone["live"], gone["expired"], gone["rule_ids"]) == (False, True, ["rule B", "rule C"])
    assert gone["due_since"].astimezone(UTC) == CUTOFF - 2 * DAY  # the time of the last reference counts
    assert (kept["snapshots"], gone["snapshots"]) == (2, 2)


def test_chunks_follow_their_manifests_and_virtual_references_into_this_repository_are_roots(
    spark: SparkSession, manifests: DataFrame
) -> None:
    rows = [
        named("M", "0"),
        named("N", "0"),  # shared with a manifest that stays
        named("N", "1"),
        named("M", location=f"{STORAGE}/chunks/{id_of('2')}"),
        named("M", location=f"https://endpoint/field/chunks/{id_of('3')}"),  # perhaps this place by another name
        named("M", location=f"vcc://own/chunks/{id_of('4')}"),
        named("M", location=f"vcc://chunks-of-field/{id_of('5')}"),
        named("M", location=f"{STORAGE}/ch%75nks/{id_of('6')}?versionId=1#part"),
        named("M", location=f"{STORAGE}/chunks/{id_of('7')}/"),  # some stores ignore the slash
        named("M", location=f"vcc://own/./chunks/x/../{id_of('8')}%2F"),
        named("M", location=f"vcc://own/{id_of('0')}"),  # a chunk that is named natively too
        named("M", location=f"{STORAGE}/exports/a.nc"),
        named("M", location=f"{STORAGE}er/chunks/a.nc"),
        named("M", location="s3://elsewhere/a.nc"),
        {**named("M"), "inline": 1},
    ]
    found = by_address(chunks_of(manifests, frame(spark, rows, MANIFEST_CHUNKS), STORAGE))
    live = {address for address, row in found.items() if row["live"]}
    assert live == {*(f"chunks/{id_of(letter)}" for letter in "02345678"), "exports/a.nc"}
    assert found.keys() - live == {f"chunks/{id_of('1')}"}
    uncertain = {address for address, row in found.items() if not row["certain"]}
    assert uncertain == {f"chunks/{id_of(letter)}" for letter in "3458"}  # otherwise a plan would request them in vain
    assert found[f"chunks/{id_of('1')}"]["rule_ids"] == ["rule B", "rule C"]


@pytest.mark.parametrize("end", ["/", "/.", "%2F", "?part", "#part"])
def test_a_chunk_that_icechunk_reads_by_a_virtual_reference_is_a_root(
    spark: SparkSession, manifests: DataFrame, tmp_path: Path, end: str
) -> None:
    url, config = f"file://{tmp_path}/", ic.RepositoryConfig.default()
    config.inline_chunk_threshold_bytes = 0
    config.set_virtual_chunk_container(ic.VirtualChunkContainer(url, ic.local_filesystem_store(str(tmp_path))))
    storage, access = ic.local_filesystem_storage(str(tmp_path)), {url: ic.credentials.LocalFileSystemAccess}
    session = ic.Repository.create(storage, config, authorize_virtual_chunk_access=access).writable_session("main")
    array = zarr.create_array(session.store, name="a", shape=(2,), chunks=(1,), dtype="i4", compressors=None)
    array[0] = 7
    (chunk,) = (tmp_path / "chunks").iterdir()
    session.store.set_virtual_ref("a/c/1", f"{url}chunks/{chunk.name}{end}", offset=0, length=4)
    assert list(zarr.open_array(session.store, path="a", mode="r")[:]) == [7, 7]
    (location,) = session.all_virtual_chunk_locations()
    rows = frame(spark, [named("M", location=location)], MANIFEST_CHUNKS)
    found = by_address(chunks_of(manifests, rows, url.rstrip("/")))
    assert [address for address, row in found.items() if row["live"]] == [f"chunks/{chunk.name}"]


def test_a_live_manifest_with_missing_refs_is_refused(spark: SparkSession, manifests: DataFrame) -> None:
    whole, short = (refs_of(frame(spark, [named(one, "0")], MANIFEST_CHUNKS)) for one in "MN")
    (of_all,), (of_short,) = (incomplete_manifests(manifests, refs).collect() for refs in (whole, short))
    assert manifests_complete(of_all.asDict()).passed  # N leaves
    check_result = manifests_complete(of_short.asDict())
    assert not check_result.passed
    assert id_of("M") in check_result.detail


@pytest.mark.parametrize(
    ("is_there", "listed_at", "violation"),
    [
        pytest.param(
            False, CUTOFF, "1 referenced object is missing: chunks/b. No directory is missing completely", id="missing"
        ),
        pytest.param(
            True, CUTOFF + 100_000 * DAY, "1 object, chunks/b, is in the store and older than", id="overlooked"
        ),
        pytest.param(True, OLD - 10_000 * DAY, "", id="written_after_the_listing"),
    ],
)
@pytest.mark.parametrize("guard", ["metadata_exists", "chunks_exist"])
def test_a_referenced_file_that_is_not_listed_is_refused_unless_it_is_new(
    spark: SparkSession, tmp_path: Path, guard: str, is_there: bool, listed_at: datetime, violation: str
) -> None:
    access, age_cutoff = StoreAccess(f"file://{tmp_path}"), AgeCutoff(listed_at, timedelta(0), issued=no_issue_time)
    for name in ("a", "b") if is_there else ("a",):
        ObjectWriter(access).put(f"chunks/{name}", b"1")
    listed, live, none = (
        spark.createDataFrame([(f"chunks/{one}",) for one in names], "address string") for names in ("a", "ab", "")
    )
    check_result = referenced_exist(guard, live, listed, access, age_cutoff, none).check_result
    assert (check_result.guard, check_result.passed) == (guard, not violation)
    assert violation in check_result.message
    remedy = INCOMPLETE_LISTING if is_there else REMEDIES[guard]
    assert check_result.message.endswith(remedy) is bool(violation)


def backup(made: datetime, original: str = REPO) -> str:
    return "overwritten/" + backup_name(int(made.timestamp() * 1000), bytes(12), original)


# address, time, and state when backups older than 30 days are deleted
JUDGED = [
    ("repo", OLD, "kept"),
    ("config.yaml", OLD, "kept"),
    ("refs/branch.main/ref.json", OLD, "kept"),
    (f"manifests/{id_of('M')}", OLD, "kept"),
    (f"manifests/{id_of('N')}", OLD, "candidate"),
    (f"snapshots/{id_of('A')}", OLD, "kept"),
    (f"snapshots/{id_of('B')}", OLD, "candidate"),
    (f"transactions/{id_of('B')}", OLD, "kept"),  # its log is still needed
    (f"transactions/{id_of('C')}", OLD, "candidate"),
    (f"chunks/{id_of('7')}", OLD, "candidate"),
    (f"chunks/{id_of('8')}", CUTOFF - SECOND, "young"),  # a whole second counts as its end
    (f"chunks/{id_of('9')}", CUTOFF - SECOND - MICROSECOND, "candidate"),
    (f"chunks/{id_of('7')}\n", OLD, "foreign"),
    (f"chunks/{id_of('7')[:-1]}1", OLD, "foreign"),
    (f"chunks/{id_of('A').lower()}", OLD, "foreign"),
    (f"attributes/{id_of('7')}", OLD, "foreign"),
    (f"x/chunks/{id_of('7')}", OLD, "foreign"),
    (backup(CUTOFF - 31 * DAY), CUTOFF - 31 * DAY, "candidate"),
    (backup(CUTOFF - 32 * DAY, CONFIG), CUTOFF - 31 * DAY, "candidate"),
    (backup(CUTOFF - 29 * DAY), CUTOFF - 31 * DAY, "kept"),  # young by its name
    (backup(CUTOFF - 33 * DAY), CUTOFF - 29 * DAY, "kept"),  # young by the store
    ("overwritten/notes.txt", OLD, "foreign"),
]


def kept_by_age(spark: SparkSession, cutoff: datetime, collect: timedelta | None) -> dict[str, tuple[str, datetime]]:
    """Return the state of each object without a reference, and when its age may change the state."""
    listed = [
        {"address": address, "size": 1, "last_modified": written, "etag": None, "source": "listing"}
        for address, written, _ in JUDGED
    ]
    nothing = spark.createDataFrame(pa.table({"address": pa.array([], pa.string())}))
    holding = nothing.selectExpr(
        "address",
        "true live",
        "false expired",
        "array('') rule_ids",
        "array('') branches",
        "timestamp '2026-01-01' due_since",
        "timestamp '2026-01-01' first_held_at",
        "timestamp '2026-01-01' last_held_at",
    )
    age_cutoff = AgeCutoff(cutoff, timedelta(0), issued=no_issue_time)
    objects = classified(frame(spark, listed, STORAGE_INVENTORY.schema), holding, age_cutoff, collect)
    rows = objects.select("address", "state", unchanged_until(age_cutoff, collect).alias("until")).collect()
    never = datetime.max.replace(tzinfo=UTC)
    return {
        one["address"]: (
            one["state"],
            never if one["until"] is None else datetime(1970, 1, 1, tzinfo=UTC) + one["until"] * MICROSECOND,
        )
        for one in rows
    }


@pytest.mark.parametrize("collect", [30 * DAY, None], ids=["backups_go", "backups_stay"])
def test_age_changes_no_state_before_the_time_at_which_it_may(spark: SparkSession, collect: timedelta | None) -> None:
    now = kept_by_age(spark, CUTOFF, collect)
    cutoffs = sorted({until + SECOND + MICROSECOND for _, until in now.values() if until < CUTOFF + 99 * DAY})
    assert len(cutoffs) == (2 if collect else 1)  # the two young backups change at the same time
    for cutoff in cutoffs:
        changed = {name for name, (state, _) in kept_by_age(spark, cutoff, collect).items() if state != now[name][0]}
        assert changed == {name for name, (_, until) in now.items() if until < cutoff}


@pytest.mark.parametrize("collect", [30 * DAY, None], ids=["backups_go", "backups_stay"])
def test_every_listed_object_has_one_state(
    spark: SparkSession, manifests: DataFrame, collect: timedelta | None
) -> None:
    listed = [
        {"address": address, "size": 1, "last_modified": written, "etag": None, "source": "listing"}
        for address, written, _ in JUDGED
    ]
    stay = pa.table({"address": [f"snapshots/{id_of('A')}", f"transactions/{id_of('B')}"]})
    leaving = frame(spark, [snapshot("B", 2, live=False), snapshot("C", 3, live=False)], SNAPSHOTS)
    chunks = manifests.where("false")
    holding = holding_of(manifests, chunks, spark.createDataFrame(stay), leaving)
    inventory = frame(spark, listed, STORAGE_INVENTORY.schema)
    objects = classified(inventory, holding, AgeCutoff(CUTOFF, timedelta(0), issued=no_issue_time), collect).cache()
    states = {row["address"]: row["state"] for row in objects.select("address", "state").collect()}
    expected = {address: state for address, _, state in JUDGED}
    if collect is None:
        expected |= {name: "kept" for name in expected if name.startswith("overwritten/repo.")}
        expected |= {name: "kept" for name in expected if name.startswith("overwritten/config.yaml.")}
    assert states == expected
    rows = by_address(candidates(due(objects)))
    assert rows.keys() == {address for address, state in expected.items() if state == "candidate"}
    assert rows[f"snapshots/{id_of('B')}"]["reason"] == "expired"
    assert rows[f"manifests/{id_of('N')}"]["rule_ids"] == ["rule B", "rule C"]
    assert rows[f"chunks/{id_of('7')}"]["reason"] == "unreferenced"
    objects.unpersist()
