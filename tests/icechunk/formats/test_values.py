import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import pytest
from flatbuffers import flexbuffers
from hypothesis import given
from hypothesis import strategies as st

from retention_assets.errors import CorruptFile
from retention_assets.icechunk.formats.repo_reader import read_repo
from retention_assets.icechunk.formats.repo_writer import write_repo
from retention_assets.icechunk.formats.values import (
    MAX_DEPTH,
    Json,
    read_flexbuffer,
    upgraded_configuration,
    upgraded_metadata,
    write_flexbuffer,
)
from tests.icechunk_repositories import METADATA, create_repository, open_repository

TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=12
)


def typed(value: Any) -> Any:
    """Return the value with its types, since 1, 1.0 and True are equal. -0.0 and 0.0 differ."""
    if isinstance(value, list):
        return [typed(item) for item in value]
    if isinstance(value, dict):
        return {key: typed(item) for key, item in value.items()}
    return type(value).__name__, repr(value)


def test_icechunk_reads_the_values_that_we_write(tmp_path: Path) -> None:
    directory = tmp_path / "repository"
    create_repository(directory)
    limits = {"u64": 2**64 - 1, "": "empty name", "whole": 3.0, "tiny": 5e-324, "depth": nested(60)}
    values: dict[str, Any] = {**METADATA, **limits}
    written = {key: write_flexbuffer(value) for key, value in values.items()}
    repo = replace(read_repo((directory / "repo").read_bytes(), "repo"), metadata=written)
    (directory / "repo").write_bytes(write_repo(repo))
    assert typed(open_repository(directory).metadata) == typed(values)


def test_we_read_the_values_that_icechunk_writes(tmp_path: Path) -> None:
    directory = tmp_path / "repository"
    repository = create_repository(directory)
    values = {**METADATA, "": "empty name", "whole": 3.0, "depth": nested(60)}
    repository.set_metadata(values)
    metadata = read_repo((directory / "repo").read_bytes(), "repo").metadata
    assert typed({key: read_flexbuffer(value, key) for key, value in metadata.items()}) == typed(values)


def nested(depth: int) -> Json:
    value: Json = "bottom"
    for level in range(depth):
        value = [value] if level % 2 else {"in": value}
    return value


@given(VALUES)
def test_a_value_in_flexbuffers_is_read_back(value: Json) -> None:
    assert typed(read_flexbuffer(write_flexbuffer(value), "x")) == typed(value)


@pytest.fixture(scope="module")
def repository_2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("icechunk") / "values"
    create_repository(directory)
    return directory


@given(metadata=st.dictionaries(TEXTS, VALUES, max_size=3))
def test_icechunk_and_we_read_each_others_values(repository_2: Path, metadata: dict[str, Json]) -> None:
    path = repository_2 / "repo"
    written = {key: write_flexbuffer(value) for key, value in metadata.items()}
    path.write_bytes(write_repo(replace(read_repo(path.read_bytes(), "repo"), metadata=written)))
    repository = open_repository(repository_2)
    assert typed(repository.metadata) == typed(metadata)
    repository.set_metadata(metadata)
    theirs = read_repo(path.read_bytes(), "repo").metadata
    assert typed({key: read_flexbuffer(value, key) for key, value in theirs.items()}) == typed(metadata)


@given(st.dictionaries(TEXTS, VALUES, max_size=3))
def test_metadata_keeps_its_values_in_an_upgrade(metadata: dict[str, Json]) -> None:
    packed = {key: msgpack.packb(value) for key, value in metadata.items()}
    upgraded = upgraded_metadata(packed, "snapshots/X")
    for key, value in metadata.items():
        assert typed(read_flexbuffer(upgraded[key], key)) == typed(value)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(math.nan, id="not_a_number"),
        pytest.param(math.inf, id="infinity"),
        pytest.param(1 << 64, id="too_large_a_number"),
        pytest.param(-(1 << 63) - 1, id="too_small_a_number"),
        pytest.param(b"bytes", id="bytes"),
        pytest.param({"a\0b": 1}, id="a_name_with_a_zero_byte"),
        pytest.param({1: 1}, id="a_name_that_is_a_number"),
        pytest.param([(1,)], id="a_tuple"),
        pytest.param(nested(MAX_DEPTH + 1), id="too_deep"),
    ],
)
def test_a_value_that_is_not_json_is_not_written(value: Any) -> None:
    with pytest.raises(ValueError, match=r"is not a JSON value|cannot be a name|deep"):
        write_flexbuffer(value)


@pytest.mark.parametrize(
    ("packed", "what"),
    [
        pytest.param(b"", "not a value in MessagePack", id="nothing"),
        pytest.param(b"\xc1", "not a value in MessagePack", id="a_byte_that_is_not_used"),
        pytest.param(b"\x01\x02", "not a value in MessagePack", id="two_values"),
        pytest.param(b"\xa2a", "not a value in MessagePack", id="cut"),
        pytest.param(b"\xa1\xff", "not a value in MessagePack", id="not_utf_8"),
        pytest.param(b"\xdd\xff\xff\xff\xff", "not a value in MessagePack", id="a_giant_list"),
        pytest.param(b"\x91" * 5000 + b"\xc0", "not a value in MessagePack", id="bottomless"),
        pytest.param(b"\x91" * 500 + b"\xc0", "cannot be upgraded .*deep", id="too_deep"),
        pytest.param(b"\xc4\x01a", "cannot be upgraded .*not a JSON value", id="bytes"),
        pytest.param(b"\xd4\x05a", "cannot be upgraded .*not a JSON value", id="an_extension"),
        pytest.param(b"\xcb\x7f\xf8" + bytes(6), "cannot be upgraded .*not a JSON value", id="not_a_number"),
        pytest.param(b"\x81\x01\x02", "not a value in MessagePack", id="a_number_as_name"),
    ],
)
def test_metadata_that_is_damaged_or_no_json_is_not_upgraded(packed: bytes, what: str) -> None:
    with pytest.raises(CorruptFile, match=rf"^snapshots/X, metadata 'author': .*{what}"):
        upgraded_metadata({"author": packed}, "snapshots/X")


def test_values_in_rare_flexbuffers_types_are_read() -> None:
    builder = flexbuffers.Builder()
    with builder.Vector():
        builder.IndirectInt(-7)
        builder.IndirectUInt(2**40)
        builder.IndirectFloat(0.5)
        builder.Key("name")
        builder.TypedVectorFromElements([1, 2, 3, 4, 5], flexbuffers.Type.UINT)
        builder.FixedTypedVectorFromElements([1.5, 2.5], flexbuffers.Type.FLOAT)
        builder.TypedVectorFromElements([True, False])
    assert read_flexbuffer(bytes(builder.Finish()), "x") == [
        -7,
        2**40,
        0.5,
        "name",
        [1, 2, 3, 4, 5],
        [1.5, 2.5],
        [True, False],
    ]


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"\x01\x00\x03", id="an_invalid_width"),
        pytest.param(b"\x00\x3c" + bytes([3 << 2 | 1, 2]), id="half_a_float"),
        pytest.param(b"\x01a\x01" + bytes([25 << 2, 1]), id="a_blob"),
        pytest.param(b"ab\x02" + bytes([4 << 2, 1]), id="a_key_without_an_end"),
    ],
)
def test_types_that_are_not_in_json_or_that_icechunk_never_writes_are_refused(content: bytes) -> None:
    with pytest.raises(CorruptFile, match="not a value in FlexBuffers"):
        read_flexbuffer(content, "x")


@given(VALUES.map(write_flexbuffer), st.data())
def test_damaged_flexbuffers_are_refused_or_read_as_some_value(content: bytes, data: st.DataObject) -> None:
    damaged = bytearray(content)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    require_value_or_refusal(bytes(damaged))


@given(st.binary(max_size=40))
def test_any_bytes_are_refused_or_read_as_some_value(content: bytes) -> None:
    require_value_or_refusal(content)


def require_value_or_refusal(content: bytes) -> None:
    try:
        value = read_flexbuffer(content, "x")
    except CorruptFile as error:
        assert str(error).startswith("x: it is not a value in FlexBuffers")
    else:
        assert isinstance(value, bool | int | float | str | list | dict | None)


def test_a_value_that_contains_itself_is_refused() -> None:
    loop = bytes([1, 0, 10 << 2]) + bytes([10 << 2, 1])  # a list of one item, at distance zero
    with pytest.raises(CorruptFile):
        read_flexbuffer(loop, "x")


def lists_in_lists(levels: int, width: int) -> bytes:
    """Return nested lists. Each list has the next one `width` times, so a level takes 1 + 2 * width bytes."""
    content, inner = bytearray([1, 5, 1 << 2]), 1
    for _ in range(levels):
        start = len(content) + 1
        content += bytes([width, *(start + n - inner for n in range(width)), *([10 << 2] * width)])
        inner = start
    return bytes(content) + bytes([len(content) - inner, 10 << 2, 1])


def test_a_value_that_shares_nested_lists_too_often_is_refused() -> None:
    assert read_flexbuffer(lists_in_lists(levels=1, width=8), "x") == [[5]] * 8
    with pytest.raises(CorruptFile):
        read_flexbuffer(lists_in_lists(levels=30, width=8), "x")


def test_values_are_read_and_written_to_the_same_depth() -> None:
    value: Json = [5]
    for _ in range(MAX_DEPTH - 2):
        value = [value]
    assert read_flexbuffer(lists_in_lists(levels=MAX_DEPTH - 2, width=1), "x") == value
    assert read_flexbuffer(write_flexbuffer(value), "x") == value
    for levels in (MAX_DEPTH - 1, 5000):
        with pytest.raises(CorruptFile):
            read_flexbuffer(lists_in_lists(levels, width=1), "x")


def upgraded_from_yaml(text: str) -> Json:
    return read_flexbuffer(upgraded_configuration(text.encode(), "config.yaml"), "config.yaml")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("a: 1\nb: null\nc: [true, 0.5]\n", {"a": 1, "b": None, "c": [True, 0.5]}, id="plain"),
        pytest.param("store: !s3\n  region: x\n", {"store": {"s3": {"region": "x"}}}, id="variant_of_a_mapping"),
        pytest.param("if: !or\n- 'true'\n- 'false'\n", {"if": {"or": ["true", "false"]}}, id="variant_of_a_list"),
        pytest.param("size: !bytes 7\n", {"size": {"bytes": 7}}, id="variant_of_a_number"),
        pytest.param("a: !or\n- !name\n  regex: b\n", {"a": {"or": [{"name": {"regex": "b"}}]}}, id="variants_within"),
    ],
)
def test_an_upgraded_configuration_has_the_same_mapping(text: str, value: Json) -> None:
    assert upgraded_from_yaml(text) == value


@pytest.mark.parametrize(
    "text",
    ["", "- a\n", "a: [", "a: !!python/object:os.system x\n", "a: .nan\n", "? [1, 2]\n: 3\n", "a: 2026-01-01\n"],
    ids=["empty", "list", "cut", "python", "not_a_number", "odd_key", "date"],
)
def test_a_file_that_is_not_a_configuration_is_refused(text: str) -> None:
    with pytest.raises(CorruptFile, match=r"config\.yaml: .*[Nn]othing"):
        upgraded_from_yaml(text)


def test_a_configuration_that_is_not_text_is_refused() -> None:
    with pytest.raises(CorruptFile, match=r"config\.yaml: it is not a configuration"):
        upgraded_configuration(b"\xff\xfe", "config.yaml")
