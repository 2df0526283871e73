"""The commits that may contain objects that came due."""

from datetime import UTC, date, datetime, timedelta

import pytest

from retention_assets.lakefs.rules.potential import BEGINNING, is_potential, thresholds
from retention_assets.policy.table import CurrentRule

BRANCHES = ("b1", "b2", "b3", "main")
MOMENT = timedelta(seconds=1)


def january(day: int) -> datetime:
    return datetime(1998, 1, day, tzinfo=UTC)


def rule(branch: str, last_deleted: int | None, prefix: str = "foo/bar") -> CurrentRule:
    day = None if last_deleted is None else date(1998, 1, last_deleted)
    return CurrentRule(prefix, branch, date(1998, 1, 20), day)


# The table of the proposal, with the third branch that it adds: all 9, b1 never (rule2 is new), b2 17, b3 5 January.
SEED = (rule("", 9), rule("b1", 14), rule("b1", None, "foo/zoo"), rule("b2", 17), rule("b3", 5))
SINCE = thresholds(SEED, BRANCHES)


def test_the_earliest_time_of_each_branch_is_used_and_never_deleted_counts_as_the_beginning() -> None:
    assert thresholds(SEED[1:], BRANCHES) == {"b1": BEGINNING, "b2": january(17), "b3": january(5)}


def test_the_rules_for_all_branches_bound_the_time_of_each_branch() -> None:
    # The proposal uses the 9th for b2 although its own day is the 17th, since b2 is one of all branches.
    assert dict(SINCE) == {"": january(9), "b1": BEGINNING, "b2": january(9), "b3": january(5), "main": january(9)}


@pytest.mark.parametrize(
    ("branches", "after"),
    [
        pytest.param(("b1",), BEGINNING, id="only_from_b1_all_commits"),
        pytest.param(("b3",), january(5), id="only_from_b3"),
        pytest.param(("b1", "b3"), january(5), id="from_b1_or_b3"),
        pytest.param(("b1", "b2", "b3"), january(9), id="from_b1_and_b3_and_b2"),
        pytest.param(("main",), january(9), id="from_a_branch_without_rules_of_its_own"),
        pytest.param((), january(9), id="from_no_branch"),
    ],
)
def test_a_commit_is_potential_if_it_is_newer_than_the_time_of_its_branches(
    branches: tuple[str, ...], after: datetime
) -> None:
    assert is_potential(after + MOMENT, branches, SINCE)
    assert not is_potential(after, branches, SINCE)


def test_without_a_rule_for_all_branches_only_commits_on_named_branches_are_potential() -> None:
    since = thresholds([rule("b1", 5)], BRANCHES)
    assert not is_potential(january(20), ("main",), since)
    assert not is_potential(january(20), (), since)
    assert is_potential(january(20), ("b1", "main"), since)


def test_a_rule_that_keeps_for_ever_makes_no_commit_potential() -> None:
    assert thresholds([CurrentRule("foo/bar", "gold", None, None)], ("gold",)) == {}


def test_a_glob_applies_to_every_branch_that_it_matches() -> None:
    rules = [rule("exp-*", 7), rule("exp-2", 3), rule("", 9)]
    since = thresholds(rules, ("exp-1", "exp-2", "main"))
    assert since == {"": january(9), "exp-1": january(7), "exp-2": january(3), "main": january(9)}


def test_a_policy_that_was_never_completed_makes_every_commit_of_its_branches_potential() -> None:
    since = thresholds([rule("", None)], BRANCHES)
    assert is_potential(BEGINNING + MOMENT, (), since)
    assert is_potential(january(1), BRANCHES, since)
