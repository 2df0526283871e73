"""`current_rules`: the rules of now beside what completed runs deleted. Worked example: seed 002."""

from collections.abc import Iterable
from datetime import date

import pytest

from retention_assets.policy.documents import join, read_document
from retention_assets.policy.table import CurrentRule, RuleRow, current_rules, policy_rows
from tests.policy.test_table import EXAMPLE

RULE_1 = '{"rule1": {"prefix": "foo/bar", "days": 10, "enabled": true, "branch_days": {"b1": 5, "b2": 8}}}'
SHORTER = '{"rule1": {"prefix": "foo/bar", "days": 3, "enabled": true}}'
LONGER = '{"rule1": {"prefix": "foo/bar", "days": 30, "enabled": true}}'
OTHER = '{"rule3": {"prefix": "foo/zoo", "days": 10, "enabled": true}}'


def january(day: int) -> date:
    return date(1998, 1, day)


def run(run_id: str, day: int, *documents: str) -> list[RuleRow]:
    """Return the lifecycle rows that a run on that day of January wrote."""
    policy = join([read_document(text, f"{place}.json") for place, text in enumerate(documents)])
    rows = policy_rows(policy, january(day), run_id).to_pylist()
    return [RuleRow(row["run_id"], row["prefix"], row["branch"], row["date_to_be_deleted"]) for row in rows]


def last_deleted(now: Iterable[RuleRow], history: Iterable[RuleRow], completed: set[str]) -> dict[str, date | None]:
    """Return what was last deleted under each rule of now, by `prefix@branch`."""
    rules = current_rules(now, history, completed)
    return {f"{rule.prefix}@{rule.branch}": rule.last_deleted for rule in rules}


def test_the_worked_example_gives_the_table_of_the_seed() -> None:
    # Except b2: the seed prints the 18th and the 17th, which its own 8 days before the 20th and 19th are not.
    before, now = run("1", 19, RULE_1), run("2", 20, EXAMPLE)
    assert current_rules(now, [*before, *now], {"1"}) == (
        CurrentRule("foo/bar", "", january(10), january(9)),
        CurrentRule("foo/bar", "b1", january(15), january(14)),
        CurrentRule("foo/bar", "b2", january(12), january(11)),
        CurrentRule("foo/zoo", "b1", january(15), None),
    )


def test_a_run_that_only_planned_or_failed_or_deleted_a_part_does_not_move_last_deleted() -> None:
    # Only a run that was noted as completed counts; every other way to end leaves its rows and no note.
    history = [*run("whole", 15, RULE_1), *run("planned", 17, RULE_1), *run("failed", 19, RULE_1)]
    now = run("now", 20, RULE_1)
    assert last_deleted(now, history, {"whole"})["foo/bar@"] == january(5)
    assert set(last_deleted(now, history, set()).values()) == {None}


def test_the_newest_completed_run_counts_in_whatever_order_the_history_is_read() -> None:
    history = [*run("b", 18, RULE_1), *run("c", 19, RULE_1), *run("a", 15, RULE_1)]
    for rows in (history, history[::-1]):
        assert last_deleted(run("now", 20, RULE_1), rows, {"a", "b"})["foo/bar@"] == january(8)


def test_the_run_of_now_does_not_count_itself_before_it_is_completed() -> None:
    now = run("now", 20, RULE_1)
    assert last_deleted(now, now, set())["foo/bar@"] is None
    assert last_deleted(now, now, {"now"})["foo/bar@"] == january(10)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        pytest.param(SHORTER, {"foo/bar@": january(9)}, id="shorter_keeps_what_the_longer_one_deleted"),
        pytest.param(LONGER, {"foo/bar@": january(9)}, id="longer_keeps_the_later_day"),
        pytest.param(OTHER, {"foo/zoo@": None}, id="another_prefix_was_never_deleted"),
    ],
)
def test_of_an_edited_policy_each_prefix_and_branch_keeps_its_own_day(
    policy: str, expected: dict[str, date | None]
) -> None:
    assert last_deleted(run("2", 20, policy), run("1", 19, RULE_1), {"1"}) == expected


def test_a_rule_that_was_removed_and_brought_back_goes_on_from_where_it_was() -> None:
    history = [*run("1", 12, RULE_1, OTHER), *run("2", 14, OTHER), *run("3", 16, OTHER)]
    found = last_deleted(run("4", 20, RULE_1, OTHER), history, {"1", "2", "3"})
    assert found["foo/bar@"] == january(2)
    assert found["foo/zoo@"] == january(6)


def test_under_another_id_it_is_the_same_rule() -> None:
    # The seed: "an ID provided by the user - has no influence".
    renamed = RULE_1.replace("rule1", "renamed")
    assert last_deleted(run("2", 20, renamed), run("1", 19, RULE_1), {"1"})["foo/bar@b1"] == january(14)


def test_of_two_rules_on_one_prefix_and_branch_the_later_date_counts() -> None:
    # Any rule that is due is enough. One that keeps for ever makes nothing due and takes nothing away.
    shorter, longer, never = (
        RuleRow("2", "p", "", january(15)),
        RuleRow("2", "p", "", january(3)),
        RuleRow("2", "p", "", None),
    )
    for rows in ([shorter, longer, never], [never, longer, shorter]):
        assert current_rules(rows, (), ()) == (CurrentRule("p", "", january(15), None),)


def test_a_branch_that_keeps_for_ever_stays_in_the_table_without_a_date() -> None:
    now, before = RuleRow("2", "p", "gold", None), RuleRow("1", "p", "gold", None)
    assert current_rules([now], [before], {"1"}) == (CurrentRule("p", "gold", None, None),)


def test_without_rules_there_is_nothing() -> None:
    assert current_rules([], run("1", 19, RULE_1), {"1"}) == ()
