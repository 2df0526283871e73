from datetime import date, timedelta

import pytest

from retention_assets.policy.lint import Finding, lint_snapshots
from retention_assets.policy.rules import Hold
from retention_assets.policy.snapshots import NOT_BY_AGE, Keep, SnapshotPolicy, SnapshotRule

DAY = date(2026, 11, 1)
ROOT = "1CECHNKREP0F1RSTCMT0"
MONTH = timedelta(days=30)
DEFAULT = Keep("default", MONTH)


def found(policy: SnapshotPolicy) -> list[Finding]:
    return lint_snapshots(policy, ("main", "dev", "exp-1", "exp-2"), ("v1",), (ROOT,), DAY)


def messages(policy: SnapshotPolicy) -> list[tuple[str, str]]:
    return [(finding.rule_id, finding.message) for finding in found(policy)]


def rule(rule_id: str, pattern: str, kind: str = "branch", newer: timedelta | None = MONTH, last: int = 0):
    return SnapshotRule(rule_id, kind, pattern, newer, last)


def test_a_policy_that_fits_the_repository_has_no_findings():
    holds = (Hold("a", "snapshot", ROOT, "r", DAY), Hold("b", "branch", "dev", "r"), Hold("c", "tag", "v1", "r"))
    rules = (rule("main", "main"), rule("exp", "exp-*"), rule("v", "v*", "tag"))
    policy = SnapshotPolicy(rules, DEFAULT, holds, delete_expired_branches=True, delete_expired_tags=True)
    assert found(policy) == []


@pytest.mark.parametrize(
    ("kind", "pattern", "message"),
    [
        ("branch", "mian", "there is no branch 'mian' (did you mean 'main'?); the rule has no effect"),
        ("branch", "old-*", "the glob 'old-*' matches no branch; the rule has no effect"),
        ("tag", "main", "there is no tag 'main'; the rule has no effect"),
        ("tag", "exp-*", "the glob 'exp-*' matches no tag; the rule has no effect"),
    ],
)
def test_a_rule_that_matches_no_branch_or_tag_is_reported(kind, pattern, message):
    assert found(SnapshotPolicy((rule("r", pattern, kind),), DEFAULT)) == [Finding("warning", "r", message)]


def test_a_rule_that_matches_only_another_spelling_of_a_name_is_reported():
    policy = SnapshotPolicy((rule("a", "gr\u00f6\u00dfe", "tag"),), DEFAULT)
    (finding,) = lint_snapshots(policy, ("main",), ("gr%C3%B6%C3%9Fe",), (ROOT,), DAY)
    assert finding.message.startswith(
        "'größe' is another spelling of the tag 'gr%C3%B6%C3%9Fe', so the default counts too, and the longest duration"
    )


def test_globs_that_match_the_same_branch_are_reported():
    policy = SnapshotPolicy((rule("a", "exp-*"), rule("b", "*-2")), DEFAULT)
    message = "'exp-*' and '*-2' (rule b) both match exp-2; a snapshot stays if either rule keeps it"
    assert messages(policy) == [("a", message)]


def test_globs_that_match_only_across_a_slash_are_found_where_the_default_keeps_more():
    names = ("main", "exp-1", "exp-1/a", "exp-2/b")
    policy = SnapshotPolicy((rule("a", "exp-*", newer=timedelta(days=7)), rule("b", "*", "tag", newer=None)), DEFAULT)
    (finding,) = lint_snapshots(policy, names, ("release/1.0",), (ROOT,), DAY)
    assert finding.rule_id == "a"
    assert finding.message.startswith(
        "the glob 'exp-*' matches exp-1/a, exp-2/b only across `/`, so the default counts"
    )
    assert finding.message.endswith("To apply only the rule, write `**` instead of `*`")
    deep = SnapshotPolicy((rule("a", "exp-**", newer=timedelta(days=7)),), DEFAULT)
    assert lint_snapshots(deep, names, (), (ROOT,), DAY) == []


def test_globs_overlap_only_where_no_exact_rule_decides_and_only_of_one_kind():
    exact = SnapshotPolicy((rule("a", "exp-*"), rule("b", "*-2"), rule("c", "exp-2")), DEFAULT)
    assert found(exact) == []
    assert found(SnapshotPolicy((rule("a", "*"), rule("b", "*", "tag")), DEFAULT)) == []


@pytest.mark.parametrize(
    ("hold", "named"),
    [
        (Hold("h", "snapshot", "000G40R40M30E209185G", "r"), "snapshot '000G40R40M30E209185G'"),
        (Hold("h", "branch", "v1", "r"), "branch 'v1'"),
        (Hold("h", "tag", "main", "r"), "tag 'main'"),
    ],
)
def test_a_hold_on_a_missing_name_is_an_error(hold, named):
    refused = "plans will be refused. Correct the name, or remove the hold"
    message = f"the hold names the {named}, which does not exist: {refused}"
    assert found(SnapshotPolicy(default=DEFAULT, holds=(hold,))) == [Finding("error", "h", message)]


def test_an_expired_hold_is_a_warning_whatever_it_names():
    hold = Hold("h", "branch", "gone", "r", date(2026, 10, 31))
    message = "the hold expired on 2026-10-31: it protects nothing any more"
    assert found(SnapshotPolicy(default=DEFAULT, holds=(hold,))) == [Finding("warning", "h", message)]


def test_a_policy_of_holds_only_keeps_everything():
    policy = SnapshotPolicy(holds=(Hold("h", "branch", "dev", "r"),))
    assert messages(policy) == [
        ("default", "there is no rule and no default: every snapshot that a branch or tag reaches is kept")
    ]


@pytest.mark.parametrize(
    "default",
    [
        pytest.param(Keep("default", NOT_BY_AGE, 3), id="by_number"),
        pytest.param(Keep("default", None), id="for_ever"),
        pytest.param(None, id="no_default"),
    ],
)
def test_the_deletion_of_references_that_never_expire_is_reported(default):
    policy = SnapshotPolicy((rule("main", "main"),), default, delete_expired_branches=True, delete_expired_tags=True)
    texts = [message for _, message in messages(policy)]
    assert [text.split(" has no effect")[0] for text in texts] == ["delete_expired_branches", "delete_expired_tags"]


def test_delete_expired_branches_is_not_reported_if_one_branch_may_expire():
    policy = SnapshotPolicy((rule("dev", "dev"),), Keep("default", None), delete_expired_branches=True)
    assert found(policy) == []


def test_errors_come_first():
    policy = SnapshotPolicy((rule("a", "gone"),), DEFAULT, (Hold("z", "tag", "gone", "r"),))
    assert [finding.severity for finding in found(policy)] == ["error", "warning"]
