from datetime import date, timedelta

import pytest

from retention_assets.policy.rules import Hold
from retention_assets.policy.snapshots import (
    NO_RULE,
    NOT_BY_AGE,
    Keep,
    SnapshotPolicy,
    SnapshotRule,
    holds_by_name,
    keep_of,
)
from tests.models.policies import everything_older


def days(number: int) -> timedelta:
    return timedelta(days=number)


MAIN = SnapshotRule("main", "branch", "main", days(90), 3)
EXPERIMENTS = SnapshotRule("experiments", "branch", "exp-*", days(7))
ENDING_IN_2 = SnapshotRule("two", "branch", "*-2", NOT_BY_AGE, 5)
RELEASES = SnapshotRule("releases", "tag", "v*", None)
DEFAULT = Keep("default", days(30))
POLICY = SnapshotPolicy((MAIN, EXPERIMENTS, ENDING_IN_2, RELEASES), DEFAULT)


@pytest.mark.parametrize(
    ("kind", "name", "keeps"),
    [
        pytest.param("branch", "main", [MAIN.keep], id="exact"),
        pytest.param("branch", "exp-1", [EXPERIMENTS.keep], id="glob"),
        pytest.param("branch", "exp-2", [EXPERIMENTS.keep, ENDING_IN_2.keep], id="all_globs_count"),
        pytest.param("branch", "dev", [DEFAULT], id="the_default_where_nothing_names_it"),
        pytest.param("tag", "v1", [RELEASES.keep], id="tag"),
        pytest.param("tag", "main", [DEFAULT], id="a_rule_for_branches_names_no_tag"),
        pytest.param("branch", "v1", [DEFAULT], id="a_rule_for_tags_names_no_branch"),
        pytest.param("branch", "exp-1/a", [EXPERIMENTS.keep, DEFAULT], id="across_a_slash_the_default_too"),
        pytest.param("tag", "v1/a", [RELEASES.keep, DEFAULT], id="a_rule_that_keeps_longer_misses_no_slash"),
    ],
)
def test_a_reference_is_kept_by_the_rules_that_name_it(kind, name, keeps):
    assert list(POLICY.keeps_for(kind, name)) == keeps


def test_an_exact_name_beats_globs_even_when_it_keeps_less():
    exact = SnapshotRule("short", "branch", "exp-2", days(1))
    policy = SnapshotPolicy((*POLICY.rules, exact), DEFAULT)
    assert list(policy.keeps_for("branch", "exp-2")) == [exact.keep]


def test_two_stars_match_a_slash_without_the_default():
    rule = SnapshotRule("deep", "branch", "exp-**", days(7))
    assert list(SnapshotPolicy((rule,), DEFAULT).keeps_for("branch", "exp-1/a")) == [rule.keep]
    both = SnapshotPolicy((rule, EXPERIMENTS), DEFAULT)
    assert list(both.keeps_for("branch", "exp-1/a")) == [rule.keep, EXPERIMENTS.keep]


@pytest.mark.parametrize(
    ("keep", "other", "covers"),
    [
        ((7, 0), (7, 0), True),
        ((8, 0), (7, 0), True),
        ((6, 0), (7, 0), False),
        ((None, 0), (7, 3), True),
        ((7, 0), (None, 0), False),
        ((7, 2), (7, 3), False),
        ((7, 3), (7, 3), True),
    ],
)
def test_a_condition_covers_another_that_keeps_no_more(keep, other, covers):
    one, two = (Keep("r", None if newer is None else days(newer), last) for newer, last in (keep, other))
    assert one.covers(two) is covers


def test_a_reference_without_a_rule_and_a_default_is_kept_for_ever():
    assert list(SnapshotPolicy((MAIN,)).keeps_for("branch", "dev")) == [NO_RULE]
    assert NO_RULE.newer is None


@pytest.mark.parametrize(
    ("keep", "keeps_tip"),
    [
        pytest.param(Keep("r", None), True, id="for_ever"),
        pytest.param(Keep("r", NOT_BY_AGE, 1), True, id="the_newest"),
        pytest.param(Keep("r", days(1)), False, id="by_age"),
    ],
)
def test_a_rule_that_always_keeps_the_newest_snapshot_keeps_the_reference(keep, keeps_tip):
    assert keep.keeps_tip is keeps_tip


def test_references_are_deleted_only_if_the_policy_enables_it():
    assert not SnapshotPolicy().deletes("branch")
    assert not SnapshotPolicy().deletes("tag")
    assert everything_older(delete_expired_tags=True).deletes("tag")
    assert not everything_older(delete_expired_tags=True).deletes("branch")


def test_the_hash_does_not_depend_on_the_order_of_rules_and_holds():
    holds = (Hold("a", "snapshot", "x", "r"), Hold("b", "tag", "v1", "r", date(2027, 1, 1)))
    one = SnapshotPolicy(POLICY.rules, DEFAULT, holds)
    other = SnapshotPolicy(POLICY.rules[::-1], DEFAULT, holds[::-1])
    assert one.policy_hash == other.policy_hash


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(SnapshotPolicy(POLICY.rules[1:], DEFAULT), id="a_rule_less"),
        pytest.param(SnapshotPolicy(POLICY.rules, None), id="no_default"),
        pytest.param(SnapshotPolicy(POLICY.rules, Keep("default", None)), id="default_for_ever"),
        pytest.param(SnapshotPolicy(POLICY.rules, Keep("default", days(30), 1)), id="default_by_number"),
        pytest.param(SnapshotPolicy(POLICY.rules, DEFAULT, (Hold("a", "tag", "v1", "r"),)), id="a_hold"),
        pytest.param(SnapshotPolicy(POLICY.rules, DEFAULT, delete_expired_tags=True), id="tags_go"),
        pytest.param(SnapshotPolicy(POLICY.rules, DEFAULT, delete_expired_branches=True), id="branches_go"),
    ],
)
def test_another_policy_has_another_hash(changed):
    assert changed.policy_hash != POLICY.policy_hash


def test_holds_are_in_force_up_to_their_last_day_and_found_by_what_they_name():
    audit = Hold("audit", "tag", "v1", "audit", date(2026, 11, 1))
    policy = SnapshotPolicy(holds=(Hold("z", "branch", "dev", "r"), audit))
    assert [hold.hold_id for hold in policy.holds_in_force(date(2026, 11, 1))] == ["audit", "z"]
    assert [hold.hold_id for hold in policy.holds_in_force(date(2026, 11, 2))] == ["z"]
    assert holds_by_name(policy.holds, "tag") == {"v1": audit}
    assert keep_of(audit) == Keep("hold:audit", None)
