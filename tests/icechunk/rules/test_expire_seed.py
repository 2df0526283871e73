"""The design document's history under the four combinations of flags.

Source: docs/icechunk-formats.md, "Expiration".
"""

from datetime import UTC, datetime

import pytest

from retention_assets.icechunk.rules.expiration import edited, expiration_v1
from retention_assets.icechunk.rules.snapshots import history_of, reachable
from retention_assets.icechunk.rules.updates import Stamp
from tests.icechunk.rules.edits import expire_v2
from tests.icechunk.rules.graphs import SEED, SEED_THRESHOLD, branch_line, line, names
from tests.icechunk.rules.icechunk_files import repo_of
from tests.models.policies import everything_older

STAMP = Stamp(datetime(2026, 1, 1, tzinfo=UTC), "repo.before")
ALL_EXPIRED = set("1234567")
SHORT_MAIN = ["14", "13", "12", "0"]


def flags(*, branches: bool = False, tags: bool = False):
    return everything_older(delete_expired_branches=branches, delete_expired_tags=tags)


@pytest.mark.parametrize(
    ("policy", "released", "main", "branches", "tags"),
    [
        pytest.param(
            flags(),
            set("1267"),
            ["14", "13", "12", "5", "4", "0"],
            {"main", "develop", "test", "qa", "old"},
            {"tag1", "tag2"},
            id="no_flag",
        ),
        pytest.param(
            flags(tags=True), set("123567"), SHORT_MAIN, {"main", "develop", "test", "qa", "old"}, set(), id="tags"
        ),
        pytest.param(
            flags(branches=True),
            set("12467"),
            ["14", "13", "12", "5", "0"],
            {"main", "develop", "test", "qa"},
            {"tag1", "tag2"},
            id="branches",
        ),
        pytest.param(
            flags(branches=True, tags=True),
            ALL_EXPIRED,
            SHORT_MAIN,
            {"main", "develop", "test", "qa"},
            set(),
            id="both",
        ),
    ],
)
def test_format_2_releases_snapshots_without_a_remaining_reference(policy, released, main, branches, tags):
    repo, expiration = expire_v2(repo_of(SEED), policy, SEED_THRESHOLD, STAMP)
    after = history_of(repo)
    assert names(expiration.released) == released
    assert names(repo.snapshots) == {str(number) for number in range(15)} - released
    assert branch_line(after) == main
    assert (set(repo.branches), set(repo.tags)) == (branches, tags)
    assert repo.deleted_tags == {"tag1", "tag2"} - tags


@pytest.mark.parametrize(
    ("policy", "released", "left"),
    [
        pytest.param(flags(), set("1267"), {"tag tag1", "tag tag2", "branch old"}, id="no_flag"),
        pytest.param(flags(tags=True), set("123567"), {"branch old"}, id="tags"),
        pytest.param(flags(branches=True), set("12467"), {"tag tag1", "tag tag2"}, id="branches"),
        pytest.param(flags(branches=True, tags=True), ALL_EXPIRED, set(), id="both"),
    ],
)
def test_format_1_releases_unreachable_snapshots(policy, released, left):
    expiration = expiration_v1(SEED, policy, SEED_THRESHOLD)
    after = edited(SEED, expiration.edits)
    assert names(expiration.released) == released
    assert branch_line(after) == SHORT_MAIN
    assert {name: branch_line(after, name) for name in ("develop", "test", "qa")} == {
        "develop": ["11", "10", "0"],
        "test": ["9", "0"],
        "qa": ["8", "0"],
    }
    others = [one for one in after.references() if one.name not in ("main", "develop", "test", "qa")]
    assert {str(one) for one in others} == left
    assert all(line(after, one.tip)[1:] == ["0"] for one in others)
    assert names(reachable(after, after.tips())) == {str(number) for number in range(15)} - released


def test_an_expired_history_has_nothing_more_to_expire():
    once = expiration_v1(SEED, flags(tags=True), SEED_THRESHOLD)
    twice = expiration_v1(edited(SEED, once.edits), flags(tags=True), SEED_THRESHOLD)
    assert (twice.edits, twice.released) == ((), frozenset())
    repo, _ = expire_v2(repo_of(SEED), flags(tags=True), SEED_THRESHOLD, STAMP)
    again, expiration = expire_v2(repo, flags(tags=True), SEED_THRESHOLD, STAMP)
    assert again is repo
    assert expiration.edits == ()
