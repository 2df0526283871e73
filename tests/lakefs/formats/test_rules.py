import pytest

from retention_assets.errors import CorruptFile
from retention_assets.lakefs.formats.lakefs_pb2 import GarbageCollectionRules
from retention_assets.lakefs.formats.references import read_gc_rules
from tests.saved_repositories import REPOSITORIES, api, namespace

CONFIG = "_lakefs/retention/gc/rules/config.json"


@pytest.mark.parametrize("name", REPOSITORIES)
def test_the_rules_in_a_repository_equal_the_response_of_the_server(name: str) -> None:
    answer = api(name)["gc_rules"]
    branches = {rule["branch_id"]: rule["retention_days"] for rule in answer["branches"]}
    assert read_gc_rules((namespace(name) / CONFIG).read_bytes(), CONFIG) == (
        answer["default_retention_days"],
        branches,
    )


def test_a_deleted_document_means_no_rules() -> None:
    assert read_gc_rules(b"", CONFIG) is None


def test_a_default_of_zero_days_without_branches_reads_as_no_rules() -> None:
    nothing = GarbageCollectionRules(default_retention_days=0)
    assert read_gc_rules(nothing.SerializeToString(), CONFIG) is None


def test_negative_days_are_read_as_they_are() -> None:
    rules = GarbageCollectionRules(default_retention_days=-1, branch_retention_days={"main": 0})
    assert read_gc_rules(rules.SerializeToString(), CONFIG) == (-1, {"main": 0})


@pytest.mark.parametrize("content", [b'{"default_retention_days": 30}', b"\x08", b"\x12\x7f"])
def test_an_invalid_rules_document_is_refused(content: bytes) -> None:
    with pytest.raises(CorruptFile, match=f"^{CONFIG}: it is not a valid GarbageCollectionRules message"):
        read_gc_rules(content, CONFIG)
