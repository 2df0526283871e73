"""Rules for branches and tags whose names are spelled otherwise in the repository: they keep what they would keep."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from unicodedata import normalize

import pytest
import zarr

from retention_assets.policy.snapshots import Keep, SnapshotPolicy, SnapshotRule
from tests.icechunk.sweep.repositories import now, plan_and_sweep
from tests.icechunk_repositories import FORMATS, Commit, Format, build_history, open_repository, set_stored_at

LAST_YEAR = datetime(2025, 1, 1, tzinfo=UTC)
COMMITS = [
    Commit("a", None, LAST_YEAR),
    Commit("b", "a", LAST_YEAR + timedelta(days=1)),
    Commit("c", "b", LAST_YEAR + timedelta(days=2)),
]
COMPOSED, DECOMPOSED = (normalize(form, "größe") for form in ("NFC", "NFD"))


@pytest.mark.parametrize("spec_version", FORMATS, ids=["format_1", "format_2"])
def test_a_rule_for_a_tag_keeps_its_history_also_if_the_name_is_spelled_otherwise(
    tmp_path: Path, spec_version: Format
) -> None:
    """Format 1 percent-encodes the names in local files."""
    directory = tmp_path / "r"
    build_history(directory, spec_version, COMMITS, {"main": "c"}, {DECOMPOSED: "b"})
    set_stored_at(directory, LAST_YEAR)
    forever = SnapshotRule("sizes", "tag", COMPOSED, None)
    default = Keep("newest", timedelta(0), last=1)
    policy = SnapshotPolicy((forever,), default, delete_expired_tags=True)
    plan_and_sweep(directory, policy, now(), now() - timedelta(hours=1))
    repository = open_repository(directory)
    assert [one.message for one in repository.ancestry(tag=DECOMPOSED)][:2] == ["b", "a"]
    store = repository.readonly_session(tag=DECOMPOSED).store
    assert zarr.open_array(store, path="a", mode="r")[:3].tolist() == [1, 2, 0]
