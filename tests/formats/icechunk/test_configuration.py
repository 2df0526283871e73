"""The configuration file of format 1 as the repo object of format 2 holds it; real ones are compared with icechunk."""

import pytest

from retention_assets.errors import CorruptFile
from retention_assets.icechunk.formats.configuration import (
    upgraded_configuration,
)
from retention_assets.icechunk.formats.flexbuffer import Json, read_flexbuffer


def upgraded(text: str) -> Json:
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
def test_the_same_mapping_comes_out(text: str, value: Json):
    assert upgraded(text) == value


@pytest.mark.parametrize(
    "text",
    ["", "- a\n", "a: [", "a: !!python/object:os.system x\n", "a: .nan\n", "? [1, 2]\n: 3\n", "a: 2026-01-01\n"],
    ids=["empty", "list", "cut", "python", "not_a_number", "odd_key", "date"],
)
def test_what_is_no_configuration_is_refused(text: str):
    with pytest.raises(CorruptFile, match=r"config\.yaml: .*[Nn]othing"):
        upgraded(text)


def test_bytes_that_are_no_text_are_refused():
    with pytest.raises(CorruptFile, match=r"config\.yaml: it is no configuration"):
        upgraded_configuration(b"\xff\xfe", "config.yaml")
