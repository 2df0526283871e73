"""A repository that icechunk 1.1 wrote, read by this package and by the installed icechunk."""

import tarfile
from collections import Counter
from pathlib import Path

import pytest

from retention_assets.icechunk.formats.envelope import FileType, open_file
from retention_assets.icechunk.formats.ids import encode_id
from retention_assets.icechunk.formats.manifests import read_manifest_chunks
from retention_assets.icechunk.formats.model import Snapshot
from retention_assets.icechunk.formats.paths import read_reference, reference_file
from retention_assets.icechunk.formats.snapshots import read_snapshot, with_parent
from retention_assets.icechunk.formats.values import read_flexbuffer, upgraded_metadata
from tests.icechunk_repositories import INITIAL_SNAPSHOT, open_repository

ARCHIVE = Path(__file__).parents[2] / "data" / "icechunk" / "repo-1.1.tar.xz"


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "repo-1.1"


def snapshots(directory: Path) -> dict[str, Snapshot]:
    return {path.name: read_snapshot(path.read_bytes(), str(path)) for path in (directory / "snapshots").iterdir()}


def test_history_and_references_are_those_that_icechunk_finds(saved: Path) -> None:
    repository, found = open_repository(saved), snapshots(saved)
    tips = {
        reference_file(path.relative_to(saved).as_posix()).name: encode_id(read_reference(path.read_bytes(), str(path)))
        for path in saved.glob("refs/*/ref.json")
    }
    assert set(tips) == {"main", "dev", "v1", "withdrawn"}
    for name in ("main", "dev", "v1"):
        where = {"tag": name} if name == "v1" else {"branch": name}
        line, its_id = [], tips[name]
        while its_id is not None:
            line.append(its_id)
            parent_id = found[its_id].parent_id
            its_id = encode_id(parent_id) if parent_id else None
        assert line == [snapshot.id for snapshot in repository.ancestry(**where)]
        assert line[-1] == encode_id(INITIAL_SNAPSHOT)


def test_upgraded_metadata_has_the_values_that_icechunk_reads(saved: Path) -> None:
    repository = open_repository(saved)
    for name, snapshot in snapshots(saved).items():
        expected = repository.inspect_snapshot(name)["metadata"]
        upgraded = upgraded_metadata(snapshot.metadata, name)
        assert {key: read_flexbuffer(value, key) for key, value in upgraded.items()} == expected


def test_every_manifest_is_read(saved: Path) -> None:
    listed = {file.id: file for snapshot in snapshots(saved).values() for file in snapshot.manifests}
    kinds: Counter[str] = Counter()
    chunks = set()
    for path in (saved / "manifests").iterdir():
        content = path.read_bytes()
        assert open_file(content, FileType.MANIFEST, path.name)[0].written_by == "ic-0.3.24"
        manifest = read_manifest_chunks(content, str(path))
        file = listed.pop(manifest.manifest_id)
        refs = len(manifest.chunk_ids) + len(manifest.locations) + manifest.inline
        assert (refs, len(content)) == (file.num_chunk_refs, file.size_bytes)
        chunks |= {encode_id(its_id) for its_id in manifest.chunk_ids.to_pylist()}
        kinds.update(native=len(manifest.chunk_ids), virtual=len(manifest.locations), inline=manifest.inline)
    assert not listed
    assert chunks == {path.name for path in (saved / "chunks").iterdir()}
    assert min(kinds.values()) > 0


def test_the_parent_of_a_snapshot_of_icechunk_0_3_can_be_changed(saved: Path) -> None:
    tip = open_repository(saved).lookup_branch("main")
    path = saved / "snapshots" / tip
    path.write_bytes(with_parent(path.read_bytes(), INITIAL_SNAPSHOT, str(path)))
    line = [snapshot.id for snapshot in open_repository(saved).ancestry(branch="main")]
    assert line == [tip, encode_id(INITIAL_SNAPSHOT)]
