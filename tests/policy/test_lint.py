from datetime import date, timedelta

import pytest

from retention_assets.policy.lint import Finding, lint
from retention_assets.policy.rules import BranchRetention, CommittedRetention, Hold, LifecycleRule, Policy

DAY = date(2026, 11, 1)
BRANCHES = ("main", "dev", "exp-1", "exp-2")


def days(number: int) -> timedelta:
    return timedelta(days=number)


def retention(*rules: BranchRetention, default: int = 30) -> Policy:
    return Policy(CommittedRetention(rules, days(default), has_default=True), (), ())


def lifecycle(*rules: LifecycleRule) -> Policy:
    return Policy(None, rules, ())


def holding(*holds: Hold) -> Policy:
    return Policy(None, (), holds)


def found(policy: Policy, server_rules=None) -> list[Finding]:
    return lint(policy, BRANCHES, ("v1",), ("c1",), server_rules, DAY)


def test_a_policy_that_fits_the_repository_has_no_findings():
    policy = Policy(
        CommittedRetention(
            (BranchRetention("main", "main", days(45)), BranchRetention("exp", "exp-*", days(7))), days(30), True
        ),
        (
            LifecycleRule("raw", "raw", days(60), {"dev": days(14), "exp-*": None}),
            LifecycleRule("rawest", "rawest", days(60), {}),
            LifecycleRule("tmp", "", days(7), {}, glob="tmp/*.csv"),
        ),
        (Hold("audit", "prefix", "x", "audit", DAY), Hold("v1", "tag", "v1", "r"), Hold("c", "commit", "c1", "r")),
    )
    server = (30, {"main": 45, "exp-1": 7, "exp-2": 7})
    assert lint(policy, BRANCHES, ("v1",), ("c1",), server, DAY) == []


@pytest.mark.parametrize(
    ("branch", "message"),
    [
        ("mian", "there is no branch 'mian' (did you mean 'main'?); the rule has no effect"),
        ("old-*", "the glob 'old-*' matches no branch"),
    ],
)
def test_a_rule_for_a_missing_branch_is_reported(branch, message):
    (finding,) = found(retention(BranchRetention("rule", branch, days(7))))
    assert (finding.severity, finding.rule_id) == ("warning", "rule")
    assert finding.message.startswith(message)


def test_globs_that_match_the_same_branch_are_reported_with_the_glob_that_applies():
    policy = retention(BranchRetention("a", "exp-*", days(7)), BranchRetention("b", "*-2", days(9)))
    (finding,) = found(policy)
    assert finding.rule_id == "a"
    assert "(rule b) both match exp-2; for exp-2 the longest duration counts: 9d of rule b" in finding.message


def test_globs_overlap_only_where_no_exact_rule_decides():
    rules = (BranchRetention("a", "exp-*", days(7)), BranchRetention("b", "*-2", days(9)))
    assert found(retention(*rules, BranchRetention("c", "exp-2", days(1)))) == []


def test_differences_from_the_server_are_found_for_the_default_and_each_branch():
    policy = retention(BranchRetention("main", "main", days(45)), BranchRetention("exp", "exp-*", days(7)))
    findings = found(policy, (31, {"main": 40, "exp-1": 7, "gone": 3}))
    assert [(finding.rule_id, finding.message) for finding in findings] == [
        ("default", "branch 'gone' is kept 30d by the policy and 3d by the server's rules"),
        ("default", "the default is 30d in the policy and 31d on the server"),
        ("exp", "branch 'exp-2' is kept 7d by the policy and 31d by the server's rules"),
        ("main", "branch 'main' is kept 45d by the policy and 40d by the server's rules"),
    ]


def test_server_rules_without_rules_in_the_policy_are_reported():
    (finding,) = found(Policy(None, (), ()), (30, {}))
    assert "every commit is kept" in finding.message


def test_days_of_the_server_beyond_the_calendar_are_compared_without_a_crash():
    assert [finding.rule_id for finding in found(retention(), (2**31 - 1, {}))] == ["default"]


@pytest.mark.parametrize(
    ("kind", "value"), [("branch", "mian"), ("tag", "v2"), ("commit", "c"), ("branch", "v1"), ("tag", "main")]
)
def test_a_hold_on_a_missing_name_is_an_error(kind, value):
    (finding,) = found(holding(Hold("h", kind, value, "r", DAY)))
    assert finding.severity == "error"
    assert f"the {kind} {value!r}, which does not exist" in finding.message


def test_an_expired_hold_is_a_warning_whatever_it_names():
    (finding,) = found(holding(Hold("h", "branch", "gone", "r", date(2026, 10, 31))))
    assert (finding.severity, finding.rule_id) == ("warning", "h")
    assert "expired on 2026-10-31" in finding.message


@pytest.mark.parametrize(
    ("one", "other", "overlaps"),
    [
        ("raw", "raw/2024", True),
        ("", "raw", True),
        ("raw", "raw", True),
        ("raw", "rawest", False),
        ("raw/a", "raw/b", False),
    ],
)
def test_lifecycle_rules_overlap_when_one_prefix_is_inside_another(one, other, overlaps):
    findings = found(lifecycle(LifecycleRule("a", one, days(1), {}), LifecycleRule("b", other, days(1), {})))
    assert [finding.rule_id for finding in findings] == (["a"] if overlaps else [])


def test_a_glob_may_overlap_a_prefix():
    (finding,) = found(
        lifecycle(LifecycleRule("a", "tmp", days(1), {}), LifecycleRule("b", "", days(1), {}, glob="tmp/*.csv"))
    )
    assert "the prefix 'tmp' and the glob 'tmp/*.csv' (rule b) may overlap" in finding.message


@pytest.mark.parametrize(
    ("rule", "messages"),
    [
        pytest.param(
            LifecycleRule("r", "raw", days(1), {}, enabled=False),
            ["the rule is disabled: it deletes nothing"],
            id="off",
        ),
        pytest.param(
            LifecycleRule("r", "raw", None, {}),
            ["the rule has no duration, or only `forever`: it deletes nothing"],
            id="no_days",
        ),
        pytest.param(
            LifecycleRule("r", "raw", None, {"dev": None}),
            ["the rule has no duration, or only `forever`: it deletes nothing"],
            id="only_for_ever",
        ),
        pytest.param(
            LifecycleRule("r", "raw", None, {"gone": days(1)}),
            [
                "the rule has durations only for branches that do not exist: it deletes nothing",
                "there is no branch 'gone'; its duration has no effect",
            ],
            id="only_unknown_branches",
        ),
        pytest.param(
            LifecycleRule("r", "raw", days(3), {"mian": days(90)}),
            ["there is no branch 'mian' (did you mean 'main'?); its duration has no effect"],
            id="a_misspelled_name_with_a_default",
        ),
    ],
)
def test_lifecycle_rules_that_never_match_are_found(rule, messages):
    assert [finding.message for finding in found(lifecycle(rule))] == messages


def test_a_disabled_rule_overlaps_nothing():
    rules = (LifecycleRule("a", "raw", days(1), {}), LifecycleRule("b", "raw", days(1), {}, enabled=False))
    assert [finding.rule_id for finding in found(lifecycle(*rules))] == ["b"]


@pytest.mark.parametrize(
    ("policy", "rules"),
    [
        (retention(BranchRetention("dev", "dev", timedelta(minutes=18))), ["dev"]),
        (lifecycle(LifecycleRule("raw", "raw", timedelta(minutes=90), {"dev": None})), ["raw"]),
        (lifecycle(LifecycleRule("raw", "raw", None, {"dev": timedelta(hours=2)})), ["raw"]),
        (retention(BranchRetention("dev", "dev", timedelta(hours=3))), []),
    ],
)
def test_a_duration_of_minutes_is_found(policy, rules):
    assert [finding.rule_id for finding in found(policy) if "the unit m is minutes" in finding.message] == rules


def test_errors_come_first():
    policy = Policy(CommittedRetention((BranchRetention("a", "gone", days(1)),)), (), (Hold("z", "tag", "v9", "r"),))
    assert [finding.severity for finding in found(policy)] == ["error", "warning"]


@pytest.mark.parametrize("pattern", ["caf\u00e9", "caf\u00e9*"], ids=["name", "glob"])
def test_a_lifecycle_duration_for_another_spelling_of_a_branch_has_an_effect(pattern):
    branch = "cafe\u0301"  # with a combining accent
    rule = LifecycleRule("r", "raw", days(3), {pattern: days(90)})
    assert rule.duration_for(branch) == days(90)
    (finding,) = lint(lifecycle(rule), ("main", branch), (), (), None, DAY)
    assert finding.message == (
        f"{pattern!r} is another spelling of the branch {branch!r}, so the default counts too, and the "
        "longest duration wins. To apply only the duration of the branch, copy the name from the repository"
    )
