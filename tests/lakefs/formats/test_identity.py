import hashlib

import pytest

from retention_assets.lakefs.formats.identity import commit_id
from retention_assets.lakefs.formats.lakefs_pb2 import Entry
from tests.lakefs.formats.tables import read_table, real
from tests.lakefs_tables import entry_identity

FIRST = "fac53a04432b2e6e7185f3ac8314a874c556b2557adf3aa8d5b1df985cf96566"


@pytest.mark.parametrize(
    ("created_seconds", "parents", "expected"),
    [
        pytest.param(1_606_834_800, [], FIRST, id="first"),
        pytest.param(1_606_834_801, [FIRST], "ebbd6899", id="second"),
        pytest.param(
            -62_135_596_800,
            ["deadbeef1", "deadbeef12"],
            "2277b5abd2d3ba6b4d35c48a0e358b0c4bcf5cd6d891c67437fb4c4af0d2fd4b",
            id="merge_without_a_time",
        ),
    ],
)
def test_a_commit_has_the_id_that_lakefs_gives_it(created_seconds: int, parents: list[str], expected: str) -> None:
    found = commit_id(
        committer="user1",
        message="message1",
        metarange_id="deadbeef123",
        created_seconds=created_seconds,
        metadata={"foo": "bar"},
        parents=parents,
    )
    assert found.startswith(expected)
    assert len(found) == 64


def test_metadata_is_hashed_in_the_order_of_its_keys() -> None:
    first = entry_identity(size=1, etag="e", metadata={"a": "1", "b": "2"}, content_type="")
    assert first == entry_identity(size=1, etag="e", metadata={"b": "2", "a": "1"}, content_type="")
    assert first != entry_identity(size=1, etag="e", metadata={"a": "2", "b": "1"}, content_type="")


@pytest.mark.parametrize("file", ["range.sst", "56569996.sst"])
def test_entries_of_real_ranges_have_the_identity_that_is_recorded(file: str) -> None:
    table = read_table(real(file), file)
    for identity, content in zip(table.identities.to_pylist(), table.values.to_pylist(), strict=True):
        entry = Entry.FromString(content)
        assert identity == entry_identity(
            size=entry.size, etag=entry.e_tag, metadata=entry.metadata, content_type=entry.content_type
        )


def test_an_identity_is_a_sha256_of_tagged_lengths() -> None:
    written = "0208" + "0" * 15 + "5" + "010208" + "0" * 15 + "1" + "65" + "04" + "0208" + "0" * 16
    expected = hashlib.sha256(bytes.fromhex(written)).digest()
    assert entry_identity(size=5, etag="e", metadata={}, content_type="") == expected
