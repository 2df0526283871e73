import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import icechunk as ic
import pytest
import zstandard

from retention_assets.errors import CorruptFile
from retention_assets.icechunk.formats.envelope import FileType, seal
from retention_assets.icechunk.formats.flat_writer import Fields, Scalar, Structs, Value, write_flatbuffer
from retention_assets.icechunk.formats.ids import encode_id
from retention_assets.icechunk.formats.manifests import ManifestChunks, read_manifest_chunks
from retention_assets.icechunk.formats.snapshots import read_snapshot
from tests.icechunk.formats.conftest import Varied
from tests.icechunk.formats.sharing import sharing
from tests.icechunk_repositories import BUCKET, decoded, tables

KINDS = {1: "native", 2: "virtual", 3: "inline"}  # as icechunk's iterator numbers them

type Ref = tuple[str, str]  # kind, chunk id or location


def chunks_of(session: ic.Session, path: str) -> Counter[Ref]:
    """Every chunk of an array, as icechunk finds it."""

    async def gather() -> Counter[Ref]:
        found: Counter[Ref] = Counter()
        async for batch in session.store.array_chunk_iterator(path, batch_size=1000):
            _, kinds, places, *_ = batch
            found.update((KINDS[kind], place) for kind, place in zip(kinds, places, strict=True))
        return found

    return asyncio.run(gather())


def refs_of(manifests: Iterable[ManifestChunks]) -> Counter[Ref]:
    """The chunks of manifests, as we read them."""
    found: Counter[Ref] = Counter()
    for chunks in manifests:
        found.update(("native", encode_id(its_id)) for its_id in chunks.chunk_ids.to_pylist())
        found.update(("virtual", location) for location in chunks.locations.to_pylist())
        found.update([("inline", "")] * chunks.inline)
    return found


def test_manifests_have_the_chunks_that_icechunk_finds(varied: Varied) -> None:
    files = varied.files("manifests").items()
    manifests = {Path(name).name: read_manifest_chunks(content, name) for name, content in files}
    kinds = set()
    for branch in varied.repository.list_branches():
        for snapshot in varied.repository.ancestry(branch=branch):
            session = varied.repository.readonly_session(snapshot_id=snapshot.id)
            nodes = varied.repository.inspect_snapshot(snapshot.id)["nodes"]
            arrays = [node for node in nodes if node["node_type"] == "array"]
            expected = sum((chunks_of(session, node["path"]) for node in arrays), Counter[Ref]())
            used = {reference["id"] for node in arrays for reference in node["manifest_refs"]}
            assert refs_of(manifests[its_id] for its_id in used) == expected
            kinds |= {kind for kind, _ in expected}
    assert kinds == {"native", "virtual", "inline"}


def test_a_manifest_has_as_many_refs_as_its_snapshots_record(varied: Varied) -> None:
    manifests = varied.files("manifests")
    for name, content in varied.files("snapshots").items():
        for file in read_snapshot(content, name).manifests:
            path = f"manifests/{encode_id(file.id)}"
            chunks = read_manifest_chunks(manifests[path], path)
            assert chunks.manifest_id == file.id
            assert refs_in(chunks) == file.num_chunk_refs


def test_chunk_ids_are_the_names_of_the_stored_chunks(varied: Varied) -> None:
    names = {path.name for path in (varied.directory / "chunks").iterdir()}
    found = set()
    for name, content in varied.files("manifests").items():
        found |= {encode_id(raw) for raw in read_manifest_chunks(content, name).chunk_ids.to_pylist()}
    assert found == names


def test_the_compressed_locations_of_a_large_manifest_of_format_2_are_read(varied_2: Varied) -> None:
    virtual = [
        (content, chunks)
        for name, content in varied_2.files("manifests").items()
        if len((chunks := read_manifest_chunks(content, name)).locations)
    ]
    assert virtual
    for content, chunks in virtual:
        assert decoded(content).count(BUCKET.encode()) < 100  # those in the dictionary
        assert chunks.locations.to_pylist() == [f"{BUCKET}grid/é-{n % 7:03}.nc" for n in range(1200)]


def ref(**fields: Value) -> Fields:
    """A chunk ref with fields by their slots, such as `s4` for slot 4."""
    return {0: Structs(1, bytes(4)), **{int(slot[1:]): value for slot, value in fields.items()}}


def manifest_file(arrays: Mapping[bytes, list[Fields]], **changes: Value | None) -> bytes:
    """Return a manifest with refs by node. `changes` replace fields of the manifest."""
    fields: dict[int, Value] = {
        0: Scalar("12s", b"m" * 12),
        1: [{0: Scalar("8s", node), 1: refs} for node, refs in arrays.items()],
        3: Scalar("B", 0),
    }
    for slot, value in changes.items():
        fields.pop(int(slot[1:]), None)
        if value is not None:
            fields[int(slot[1:])] = value
    return seal(write_flatbuffer(fields), FileType.MANIFEST, spec_version=2)


NATIVE = ref(s4=Scalar("12s", b"c" * 12), s2=Scalar("Q", 5), s3=Scalar("Q", 10))
VIRTUAL = ref(s5="s3://x/é", s3=Scalar("Q", 3), s7=Scalar("I", 9), s6="etag")
INLINE = ref(s1=b"bytes")
EVERYTHING = ref(s1=b"bytes", s4=Scalar("12s", b"d" * 12), s5="s3://x/y", s8=b"no frame")


def refs_in(chunks: ManifestChunks) -> int:
    """Return the number of refs of all kinds."""
    return len(chunks.chunk_ids) + len(chunks.locations) + chunks.inline


def refs(content: bytes) -> tuple[list[bytes], list[str], int]:
    """Ids of native chunks, locations of virtual ones, and the number of inline ones."""
    chunks = read_manifest_chunks(content, "x")
    chunks.chunk_ids.validate(full=True)
    chunks.locations.validate(full=True)
    return chunks.chunk_ids.to_pylist(), chunks.locations.to_pylist(), chunks.inline


def test_refs_of_several_arrays_come_in_the_order_of_the_file() -> None:
    content = manifest_file({b"a" * 8: [EVERYTHING, VIRTUAL], b"b" * 8: [], b"c" * 8: [INLINE, NATIVE, ref(s5="s")]})
    assert refs(content) == ([b"d" * 12, b"c" * 12], ["s3://x/é", "s"], 1)


def compressed(text: bytes, dictionary: bytes = b"", **settings: Any) -> bytes:
    shared = zstandard.ZstdCompressionDict(dictionary) if dictionary else None
    return zstandard.ZstdCompressor(dict_data=shared, **settings).compress(text)


DICTIONARY = b"s3://bucket/prefix/" * 20


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param(EVERYTHING, ([b"d" * 12], [], 0), id="a_chunk_of_our_own_before_all"),
        pytest.param(
            ref(s1=b"bytes", s5="plain", s8=compressed(b"s3://bucket/prefix/a", DICTIONARY)),
            ([], ["s3://bucket/prefix/a"], 0),
            id="a_compressed_location_before_a_plain_one",
        ),
        pytest.param(ref(s1=b"bytes", s5="plain"), ([], ["plain"], 0), id="a_location_before_bytes"),
        pytest.param(ref(s1=b""), ([], [], 1), id="no_bytes_at_all_are_bytes_too"),
        pytest.param(ref(s5=""), ([], [""], 0), id="an_empty_location_is_a_location"),
    ],
)
def test_the_kind_of_a_ref_is_decided_in_icechunks_order(
    fields: Fields, expected: tuple[list[bytes], list[str], int]
) -> None:
    assert refs(manifest_file({b"a" * 8: [fields]}, s2=DICTIONARY, s3=None)) == expected


def test_compressed_and_plain_locations_of_one_manifest_are_all_read() -> None:
    packed = ref(s8=compressed(b"s3://bucket/prefix/a", DICTIONARY))
    content = manifest_file({b"a" * 8: [VIRTUAL, packed, NATIVE, ref(s5="")]}, s2=DICTIONARY, s3=None)
    assert refs(content) == ([b"c" * 12], ["s3://x/é", "s3://bucket/prefix/a", ""], 0)


def test_an_empty_manifest_has_no_chunks() -> None:
    assert refs(manifest_file({})) == ([], [], 0)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        pytest.param(
            manifest_file({b"a" * 8: [NATIVE, ref()]}), "ref 1 is neither native nor virtual nor inline", id="no_kind"
        ),
        pytest.param(manifest_file({b"a" * 8: [ref(s10="new")]}), "a chunk ref in it has fields", id="a_newer_ref"),
        pytest.param(manifest_file({}, s5="new"), "the manifest in it has fields", id="a_newer_manifest"),
        pytest.param(manifest_file({}, s0=None), "its id is missing", id="no_id"),
        pytest.param(manifest_file({}, s1=None), "its arrays are missing", id="no_arrays"),
        pytest.param(manifest_file({}, s1=[{0: Scalar("8s", b"a" * 8)}]), "list of an array's refs", id="no_refs"),
        pytest.param(
            manifest_file({b"a" * 8: [ref(s8=compressed(b"x", DICTIONARY))]}, s2=DICTIONARY),
            "names another compression than zstd, or has no dictionary",
            id="compressed_but_marked_as_uncompressed",
        ),
        pytest.param(
            manifest_file({b"a" * 8: [ref(s8=compressed(b"x", DICTIONARY))]}, s3=None),
            "names another compression than zstd, or has no dictionary",
            id="no_dictionary",
        ),
        pytest.param(
            manifest_file({b"a" * 8: [ref(s8=b"no frame")]}, s2=DICTIONARY, s3=None),
            "does not decompress",
            id="no_frame",
        ),
        pytest.param(
            manifest_file({b"a" * 8: [ref(s8=compressed(b"x") + b"more")]}, s2=DICTIONARY, s3=None),
            "does not decompress",
            id="bytes_after_the_frame",
        ),
        pytest.param(
            manifest_file({b"a" * 8: [ref(s8=compressed(b"\xff\xfe"))]}, s2=DICTIONARY, s3=None),
            "does not decompress to a text",
            id="no_text_in_the_frame",
        ),
        pytest.param(
            manifest_file({b"a" * 8: [ref(s8=compressed(bytes(1025)))]}, s2=DICTIONARY, s3=None),
            "is longer than 1,024 bytes",
            id="a_location_that_promises_too_much",
        ),
        pytest.param(
            manifest_file(
                {b"a" * 8: [ref(s8=compressed(bytes(1025), write_content_size=False))]}, s2=DICTIONARY, s3=None
            ),
            "does not decompress",
            id="a_location_that_is_too_long_without_saying_so",
        ),
    ],
)
def test_a_manifest_that_is_not_understood_is_refused(content: bytes, what: str) -> None:
    with pytest.raises(CorruptFile, match=what):
        read_manifest_chunks(content, "x")


def test_a_location_that_is_not_text_is_refused() -> None:
    body = write_flatbuffer({0: Scalar("12s", b"m" * 12), 1: [{0: Scalar("8s", b"a" * 8), 1: [ref(s5=b"\xff\xfe")]}]})
    with pytest.raises(CorruptFile, match="a chunk's location is not UTF-8"):
        read_manifest_chunks(seal(body, FileType.MANIFEST, 1), "x")


def test_a_file_with_the_name_of_another_file_is_refused(varied: Varied) -> None:
    (_, content), (other, _) = list(varied.files("manifests").items())[:2]
    with pytest.raises(CorruptFile, match="not the id in its name"):
        read_manifest_chunks(content, other)


def with_one_list_of_refs(content: bytes) -> bytes:
    return sharing(content, lambda manifest: tables(manifest, 1), 1)


def with_one_location(content: bytes) -> bytes:
    return sharing(content, lambda manifest: tables(tables(manifest, 1)[0], 1), 5)


def test_refs_that_two_arrays_share_are_read_for_both() -> None:
    content = with_one_list_of_refs(manifest_file({b"a" * 8: [INLINE], b"b" * 8: [NATIVE]}))
    assert refs(content) == ([b"c" * 12] * 2, [], 0)


def test_a_manifest_that_shares_its_refs_too_often_is_refused() -> None:
    arrays: dict[bytes, list[Fields]] = {n.to_bytes(8, "big"): [] for n in range(2000)}
    content = with_one_list_of_refs(manifest_file({**arrays, b"z" * 8: [NATIVE] * 2000}))
    with pytest.raises(CorruptFile, match="used more than once"):
        read_manifest_chunks(content, "x")


def test_a_location_that_many_refs_share_is_read_for_each() -> None:
    content = with_one_location(manifest_file({b"a" * 8: [ref(s5=""), ref(s5="s3://x/y")]}))
    assert read_manifest_chunks(content, "x").locations.to_pylist() == ["s3://x/y"] * 2


def test_a_manifest_that_shares_a_long_location_too_often_is_refused() -> None:
    content = with_one_location(manifest_file({b"a" * 8: [ref(s5="")] * 2000 + [ref(s5="long" * 10_000)]}))
    with pytest.raises(CorruptFile, match="its texts are used too often"):
        read_manifest_chunks(content, "x")
