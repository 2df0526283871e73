"""The configuration file of format 1 as the repo object of format 2 holds it; real ones are compared with icechunk."""

import pytest

from retention_assets.errors import CorruptFile
from retention_assets.formats.icechunk.configuration import (
    prefixes_in_file,
    prefixes_in_object,
    upgraded_configuration,
)
from retention_assets.formats.icechunk.flexbuffer import Json, read_flexbuffer


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


def test_the_named_containers_of_virtual_chunks_are_told():
    text = """
    virtual_chunk_containers:
      s3://raw/: {name: raw, url_prefix: s3://raw/, store: !s3_compatible {region: x}}
      s3://old/: {name: null, url_prefix: s3://old/, store: !s3_compatible {region: x}}
    """
    found = {"raw": "s3://raw/"}
    assert prefixes_in_file(text.encode(), "config.yaml") == found
    assert prefixes_in_object(upgraded_configuration(text.encode(), "config.yaml"), "repo") == found


@pytest.mark.parametrize("text", ["a: 1\n", "virtual_chunk_containers: null\n", "virtual_chunk_containers: {}\n"])
def test_there_may_be_no_containers(text: str):
    assert prefixes_in_file(text.encode(), "config.yaml") == {}
    assert prefixes_in_object(None, "repo") == {}


@pytest.mark.parametrize("containers", ["{a: {name: a}}", "{a: {name: a, url_prefix: 1}}", "{a: 1}", "7"])
def test_containers_of_another_form_are_refused(containers: str):
    with pytest.raises(CorruptFile, match="virtual_chunk_containers has no url_prefix"):
        prefixes_in_file(f"virtual_chunk_containers: {containers}\n".encode(), "config.yaml")
