"""`current_rules`: the rules in force with the history of completed runs."""

from collections.abc import Sequence
from datetime import date

import pyarrow as pa
import pytest

from retention_assets.policy.documents import join, read_document
from retention_assets.policy.table import CurrentRule, current_rules, policy_rows
from retention_assets.state.policies import current_rules_of
from retention_assets.tables import CURRENT_RULES, POLICY_TABLE
from tests.policy.test_table import EXAMPLE

RULE_1 = '{"rule1": {"prefix": "foo/bar", "days": 10, "enabled": true, "branch_days": {"b1": 5, "b2": 8}}}'
SHORTER = '{"rule1": {"prefix": "foo/bar", "days": 3, "enabled": true}}'
LONGER = '{"rule1": {"prefix": "foo/bar", "days": 30, "enabled": true}}'
OTHER = '{"rule3": {"prefix": "foo/zoo", "days": 10, "enabled": true}}'


def january(day: int) -> date:
    return date(1998, 1, day)


def run(run_id: str, day: int, *documents: str) -> pa.Table:
    """Return the rows that a run on that day of January wrote."""
    policy = join([read_document(text, f"{place}.json") for place, text in enumerate(documents)])
    return policy_rows(policy, january(day), run_id)


def rows(run_id: str, *rules: tuple[str, str, date | None]) -> pa.Table:
    """Return the rows of a run with these prefixes, branches and dates."""
    columns = ("prefix", "branch", "date_to_be_deleted")
    written = [
        {"run_id": run_id, "rule_id": f"r{number}", **dict(zip(columns, rule, strict=True)), "policy_hash": "h"}
        for number, rule in enumerate(rules)
    ]
    return pa.Table.from_pylist(written, POLICY_TABLE.schema)


def current(history: Sequence[pa.Table], run_id: str, completed: set[str]) -> list[CurrentRule]:
    """Return the rules in force, with the history of the runs in any order."""
    found = current_rules(pa.concat_tables(history), run_id, completed)
    assert found.schema == CURRENT_RULES.schema
    assert found == current_rules(pa.concat_tables(history[::-1]), run_id, completed)
    return current_rules_of(found)


def last_deleted(history: Sequence[pa.Table], run_id: str, completed: set[str]) -> dict[str, date | None]:
    """Return `last_deleted` of each rule of the run, by `prefix@branch`."""
    return {f"{rule.prefix}@{rule.branch}": rule.last_deleted for rule in current(history, run_id, completed)}


def test_current_rules_have_the_date_of_the_run_and_of_the_last_deletion() -> None:
    # The proposal prints the 18th and the 17th for b2, but 8 days before the 20th and 19th are the 12th and 11th.
    before, now = run("1", 19, RULE_1), run("2", 20, EXAMPLE)
    assert current([before, now], "2", {"1"}) == [
        CurrentRule("foo/bar", "", january(10), january(9)),
        CurrentRule("foo/bar", "b1", january(15), january(14)),
        CurrentRule("foo/bar", "b2", january(12), january(11)),
        CurrentRule("foo/zoo", "b1", january(15), None),
    ]


def test_an_incomplete_run_does_not_advance_last_deleted() -> None:
    # Only a run that was noted as completed counts; every other way to end leaves its rows and no note.
    history = [run("whole", 15, RULE_1), run("planned", 17, RULE_1), run("failed", 19, RULE_1), run("now", 20, RULE_1)]
    assert last_deleted(history, "now", {"whole"})["foo/bar@"] == january(5)
    assert set(last_deleted(history, "now", set()).values()) == {None}


def test_the_newest_completed_run_is_used_whatever_the_order_of_the_history() -> None:
    history = [run("b", 18, RULE_1), run("c", 19, RULE_1), run("a", 15, RULE_1), run("now", 20, RULE_1)]
    assert last_deleted(history, "now", {"a", "b"})["foo/bar@"] == january(8)


def test_the_current_run_does_not_count_before_it_is_completed() -> None:
    now = run("now", 20, RULE_1)
    assert last_deleted([now], "now", set())["foo/bar@"] is None
    assert last_deleted([now], "now", {"now"})["foo/bar@"] == january(10)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        pytest.param(SHORTER, {"foo/bar@": january(9)}, id="shorter_keeps_what_the_longer_one_deleted"),
        pytest.param(LONGER, {"foo/bar@": january(9)}, id="longer_keeps_the_later_day"),
        pytest.param(OTHER, {"foo/zoo@": None}, id="another_prefix_was_never_deleted"),
    ],
)
def test_after_an_edit_of_the_policy_each_prefix_and_branch_keeps_its_own_date(
    policy: str, expected: dict[str, date | None]
) -> None:
    assert last_deleted([run("1", 19, RULE_1), run("2", 20, policy)], "2", {"1"}) == expected


def test_a_rule_that_was_removed_and_added_again_keeps_its_last_date() -> None:
    history = [run("1", 12, RULE_1, OTHER), run("2", 14, OTHER), run("3", 16, OTHER), run("4", 20, RULE_1, OTHER)]
    found = last_deleted(history, "4", {"1", "2", "3"})
    assert found["foo/bar@"] == january(2)
    assert found["foo/zoo@"] == january(6)


def test_a_rule_with_another_id_keeps_its_last_date() -> None:
    # The proposal: "an ID provided by the user - has no influence".
    renamed = RULE_1.replace("rule1", "renamed")
    assert last_deleted([run("1", 19, RULE_1), run("2", 20, renamed)], "2", {"1"})["foo/bar@b1"] == january(14)


def test_the_later_date_of_two_rules_on_one_prefix_and_branch_is_used() -> None:
    # Any rule that is due is enough. One that keeps for ever makes nothing due and takes nothing away.
    shorter, longer, never = ("p", "", january(15)), ("p", "", january(3)), ("p", "", None)
    for rules in ([shorter, longer, never], [never, longer, shorter]):
        assert current([rows("2", *rules)], "2", set()) == [CurrentRule("p", "", january(15), None)]


def test_a_branch_that_keeps_for_ever_stays_in_the_table_without_a_date() -> None:
    history = [rows(run_id, ("p", "gold", None)) for run_id in ("1", "2")]
    assert current(history, "2", {"1"}) == [CurrentRule("p", "gold", None, None)]


def test_current_rules_do_not_contain_committed_rules_and_holds() -> None:
    other = "retention: {default: 3d}\nholds: [{id: h, prefix: x, reason: r}]"
    history = [run("1", 19, other, OTHER), run("2", 20, other, OTHER)]
    assert last_deleted(history, "2", {"1"}) == {"foo/zoo@": january(9)}


def test_without_rules_the_table_of_current_rules_is_empty() -> None:
    assert current([run("1", 19, RULE_1)], "2", {"1"}) == []
