"""The tables of manifests and chunks, compared with what icechunk reports."""

from pathlib import Path

import pytest

from retention_assets.icechunk.source.tables import manifest_chunks, snapshot_manifests
from retention_assets.warehouse.table_cache import Kind
from tests.icechunk_repositories import BUCKET, FORMATS, Format, build_varied, open_repository


def rows_of(kind: Kind, directory: Path, name: str) -> list[dict]:
    file = directory / kind.folder / name
    return kind.decode(file.read_bytes(), f"{kind.folder}/{name}", name).to_pylist()


@pytest.mark.parametrize("spec_version", FORMATS)
def test_every_manifest_of_a_snapshot_is_named_with_its_size_and_refs(tmp_path: Path, spec_version: Format) -> None:
    repository = build_varied(tmp_path / "r", spec_version)
    named = 0
    for info in repository.ancestry(branch="main"):
        rows = rows_of(snapshot_manifests(), tmp_path / "r", info.id)
        listed = {(one.id, one.size_bytes, one.num_chunk_refs) for one in repository.list_manifest_files(info.id)}
        assert {(row["manifest_id"], row["size"], row["chunk_refs"]) for row in rows} == listed
        assert sum(row["file_bytes"] for row in rows) in (0, (tmp_path / "r/snapshots" / info.id).stat().st_size)
        named += len(rows)
    assert named


@pytest.mark.parametrize("spec_version", FORMATS)
def test_every_chunk_and_location_of_a_manifest_is_named_once_with_counts(tmp_path: Path, spec_version: Format) -> None:
    directory = tmp_path / "r"
    repository = build_varied(directory, spec_version)
    tip = next(iter(repository.ancestry(branch="main"))).id
    chunks: set[str] = set()
    locations: set[str] = set()
    for one in open_repository(directory).list_manifest_files(tip):
        rows = rows_of(manifest_chunks(), directory, one.id)
        counted = {kind: sum(row[kind] for row in rows) for kind in ("native", "virtual", "inline")}
        assert sum(counted.values()) == one.num_chunk_refs
        named = [(row["chunk_id"], row["location"]) for row in rows]
        assert len(named) == len(set(named)) >= 1
        chunks |= {chunk for chunk, _ in named if chunk}
        locations |= {location for _, location in named if location}
    assert chunks <= {path.name for path in (directory / "chunks").iterdir()}
    assert len(chunks) == 10
    assert locations == {f"{BUCKET}grid/é-{n:03}.nc" for n in range(7)}
