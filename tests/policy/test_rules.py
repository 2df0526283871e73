from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest

from retention_assets.errors import ConfigurationError
from retention_assets.policy.rules import (
    BranchRetention,
    CommittedRetention,
    Hold,
    Kept,
    LifecycleRule,
    Policy,
    due_since,
)

AS_OF = datetime(2026, 11, 1, tzinfo=UTC)


def days(number: int) -> timedelta:
    return timedelta(days=number)


RETENTION = CommittedRetention(
    rules=(
        BranchRetention("main", "main", days(45)),
        BranchRetention("short", "exp-gold", days(1)),
        BranchRetention("experiments", "exp-*", days(7)),
        BranchRetention("numbered", "exp-1*", days(20)),
        BranchRetention("kept", "exp-*-keep", None),
    ),
    default=days(30),
    has_default=True,
)


@pytest.mark.parametrize(
    ("branch", "kept"),
    [
        pytest.param("main", Kept(days(45), "main"), id="exact"),
        pytest.param("exp-gold", Kept(days(1), "short"), id="exact_beats_a_longer_glob"),
        pytest.param("exp-2", Kept(days(7), "experiments"), id="glob"),
        pytest.param("exp-12", Kept(days(20), "numbered"), id="longest_glob"),
        pytest.param("exp-12-keep", Kept(None, "kept"), id="for_ever_is_longest"),
        pytest.param("dev", Kept(days(30), "default"), id="default"),
        pytest.param("Main", Kept(days(30), "default"), id="names_have_case"),
    ],
)
def test_exact_names_beat_globs_and_the_longest_glob_beats_the_default(branch, kept):
    assert RETENTION.duration_for(branch) == kept


def test_the_order_of_rules_does_not_matter():
    backwards = replace(RETENTION, rules=RETENTION.rules[::-1])
    assert [backwards.duration_for(b) for b in ("exp-12", "exp-12-keep")] == [
        RETENTION.duration_for(b) for b in ("exp-12", "exp-12-keep")
    ]


@pytest.mark.parametrize(
    ("default", "kept"),
    [(days(30), Kept(days(30), "default")), (days(1), Kept(days(7), "experiments")), (None, Kept(None, "default"))],
)
def test_across_a_slash_a_glob_can_keep_longer_than_the_default_and_never_shorter(default, kept):
    """lakeFS allows no `/` in the names of branches, so this matters only if a later version does."""
    assert replace(RETENTION, default=default).duration_for("exp-2/a") == kept
    rule = LifecycleRule("r", "", default, {"exp-*": days(7)})
    assert rule.duration_for("exp-2/a") == kept.duration
    assert rule.duration_for("exp-2") == days(7)


def test_a_default_that_is_longer_does_not_count_where_a_rule_names_the_branch():
    longer = replace(RETENTION, default=None)
    assert longer.duration_for("exp-2") == Kept(days(7), "experiments")


def test_without_a_default_an_unnamed_branch_is_kept_for_ever_by_no_rule():
    assert CommittedRetention(RETENTION.rules).duration_for("dev") == Kept(None, None)


def test_if_two_globs_have_equal_durations_the_lower_id_is_named():
    rules = (BranchRetention("b", "e*", days(7)), BranchRetention("a", "*x", days(7)))
    assert CommittedRetention(rules).duration_for("ex").rule_id == "a"
    assert CommittedRetention(rules[::-1]).duration_for("ex").rule_id == "a"


def test_a_default_without_has_default_is_refused():
    with pytest.raises(ConfigurationError, match="has_default"):
        CommittedRetention((), days(3))


@pytest.mark.parametrize(
    ("day", "in_force"), [(date(2026, 12, 31), True), (date(2027, 1, 1), True), (date(2027, 1, 2), False)]
)
def test_a_hold_ends_after_its_last_day(day, in_force):
    assert Hold("audit", "prefix", "reference", "yearly audit", date(2027, 1, 1)).in_force(day) is in_force


def test_a_hold_without_an_end_never_ends():
    assert Hold("audit", "tag", "v1", "audit").in_force(date.max)


def test_a_policy_names_the_prefixes_of_holds_in_force() -> None:
    last = date(2026, 10, 31)
    holds = (
        Hold("a", "prefix", "audit", "r"),
        Hold("b", "prefix", "ended", "r", last - timedelta(days=1)),
        Hold("c", "prefix", "last day", "r", last),
        Hold("d", "branch", "main", "r"),
    )
    assert Policy(None, (), holds).held_prefixes(last) == ["audit", "last day"]


def test_only_a_hold_on_a_prefix_covers_paths():
    assert Hold("audit", "prefix", "reference", "audit").covers("reference/a")
    assert not Hold("audit", "prefix", "reference", "audit").covers("referenced")
    assert not Hold("audit", "branch", "reference", "audit").covers("reference/a")


@pytest.mark.parametrize("path", ["reference/\ufffdff", "elsewhere/\ufffdff"])
def test_every_hold_on_a_prefix_and_no_lifecycle_rule_covers_a_path_that_is_not_text(path):
    assert Hold("audit", "prefix", "reference", "audit").covers(path)
    assert not Hold("audit", "branch", "reference", "audit").covers(path)
    assert not replace(RULE, prefix="").covers(path)
    assert not replace(RULE, prefix="", glob="**").covers(path)


RULE = LifecycleRule("rule1", "foo/bar", days(10), {"b1": days(5), "gold": None, "exp-*": days(7), "exp-1*": days(20)})


@pytest.mark.parametrize(
    ("branches", "age", "is_due"),
    [
        pytest.param({"main", "b1"}, 9, False, id="shorter_branch_does_not_decide"),
        pytest.param({"main", "b1"}, 10, True, id="the_limit_itself_is_due"),
        pytest.param({"main", "b1"}, 11, True, id="past_the_longest"),
        pytest.param({"b1"}, 4, False, id="own_days_not_yet"),
        pytest.param({"b1"}, 6, True, id="own_days"),
        pytest.param({"b1", "gold"}, 9999, False, id="a_branch_that_keeps_for_ever_wins"),
        pytest.param({"exp-2"}, 7, True, id="glob"),
        pytest.param({"exp-12"}, 19, False, id="longest_glob"),
        pytest.param({"exp-12"}, 20, True, id="longest_glob_is_over"),
        pytest.param((), 9, False, id="no_branch_before_the_default"),
        pytest.param((), 10, True, id="no_branch_takes_the_default"),
    ],
)
def test_the_longest_retention_of_the_branches_of_a_pair_decides(branches, age, is_due):
    due = due_since(RULE, AS_OF - days(age), branches)
    assert (due is not None and due <= AS_OF) is is_due


def test_without_a_default_other_branches_and_no_branch_keep_for_ever():
    rule = replace(RULE, default=None)
    assert due_since(rule, AS_OF, {"b1", "main"}) is None
    assert due_since(rule, AS_OF, ()) is None
    assert due_since(rule, AS_OF, {"b1"}) == AS_OF + days(5)


def test_an_exact_name_beats_a_longer_glob():
    rule = replace(RULE, per_branch={"exp-*": None, "exp-1": days(2)})
    assert due_since(rule, AS_OF, {"exp-1"}) == AS_OF + days(2)


def test_a_disabled_rule_makes_nothing_due():
    assert due_since(replace(RULE, enabled=False), AS_OF - days(9999), {"b1"}) is None


def test_a_rule_with_a_glob_covers_the_paths_that_the_glob_matches():
    rule = replace(RULE, prefix="", glob="tmp/*.csv")
    assert rule.covers("tmp/a.csv")
    assert not rule.covers("raw/a.csv")
    assert RULE.covers("foo/bar/a.csv")


def test_a_huge_duration_keeps_instead_of_failing():
    due = due_since(replace(RULE, default=timedelta.max), AS_OF, ())
    assert due is not None
    assert due > AS_OF


HOLDS = (Hold("a", "tag", "v1", "audit", date(2027, 1, 1)), Hold("b", "prefix", "raw", "law"))
OTHER_RULE = LifecycleRule("rule2", "raw", None, {"dev": days(14)})
POLICY = Policy(RETENTION, (RULE, OTHER_RULE), HOLDS)


def test_the_hash_does_not_depend_on_the_order_of_rules_and_branches():
    shuffled = Policy(
        replace(RETENTION, rules=RETENTION.rules[::-1]),
        (OTHER_RULE, replace(RULE, per_branch=dict(reversed(RULE.per_branch.items())))),
        HOLDS[::-1],
    )
    assert shuffled.policy_hash == POLICY.policy_hash
    assert len(POLICY.policy_hash) == 64


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(replace(POLICY, retention=None), id="no_retention"),
        pytest.param(replace(POLICY, retention=replace(RETENTION, default=days(31))), id="another_default"),
        pytest.param(replace(POLICY, retention=replace(RETENTION, rules=RETENTION.rules[1:])), id="a_rule_less"),
        pytest.param(replace(POLICY, lifecycle=(RULE, replace(OTHER_RULE, enabled=False))), id="disabled"),
        pytest.param(replace(POLICY, lifecycle=(RULE, replace(OTHER_RULE, default=days(1)))), id="other_days"),
        pytest.param(replace(POLICY, lifecycle=(RULE, replace(OTHER_RULE, per_branch={}))), id="no_branch_days"),
        pytest.param(replace(POLICY, lifecycle=(RULE, replace(OTHER_RULE, glob="raw"))), id="glob_not_prefix"),
        pytest.param(replace(POLICY, holds=(replace(HOLDS[0], until=None), HOLDS[1])), id="a_hold_without_end"),
        pytest.param(replace(POLICY, holds=(replace(HOLDS[0], kind="branch"), HOLDS[1])), id="another_kind_of_hold"),
    ],
)
def test_the_hash_changes_with_any_rule(other):
    assert other.policy_hash != POLICY.policy_hash
