from datetime import date, timedelta
from itertools import permutations

import pytest

from retention_assets.errors import ConfigurationError
from retention_assets.policy.documents import join_snapshot_documents, read_document, read_snapshot_document
from retention_assets.policy.rules import Hold
from retention_assets.policy.snapshots import NOT_BY_AGE, Keep, SnapshotPolicy, SnapshotRule

ROOT = "1CECHNKREP0F1RSTCMT0"

WHOLE = f"""
snapshots:
  default: {{keep_newer: 30d, keep_last: 5}}
  branches:
    - {{branch: main, keep_newer: 90d}}
    - {{branch: "exp-*", keep_last: 3, id: experiments}}
  tags:
    - {{tag: "v*", keep_newer: forever}}
  delete_expired_branches: true
  delete_expired_tags: false
holds:
  - {{id: audit, snapshot: {ROOT}, reason: yearly audit, until: 2027-01-01}}
  - {{id: paper, tag: "my paper", reason: published}}
"""


def days(number: int) -> timedelta:
    return timedelta(days=number)


def policy_of(text: str) -> SnapshotPolicy:
    return join_snapshot_documents([read_snapshot_document(text, "policy.yaml")])


def problem(text: str) -> str:
    with pytest.raises(ConfigurationError) as raised:
        read_snapshot_document(text, "policy.yaml")
    message = str(raised.value)
    assert message.startswith("policy.yaml: ")
    assert "Nothing was deleted." in message
    assert "\n" not in message
    return message


def test_a_document_with_all_sections_is_read():
    assert policy_of(WHOLE) == SnapshotPolicy(
        (
            SnapshotRule("branch:main", "branch", "main", days(90)),
            SnapshotRule("experiments", "branch", "exp-*", NOT_BY_AGE, 3),
            SnapshotRule("tag:v*", "tag", "v*", None),
        ),
        Keep("default", days(30), 5),
        (
            Hold("audit", "snapshot", ROOT, "yearly audit", date(2027, 1, 1)),
            Hold("paper", "tag", "my paper", "published"),
        ),
        delete_expired_branches=True,
    )


def test_a_document_may_be_json():
    text = '{"snapshots": {"default": {"keep_last": 2}}, "holds": [{"id": "b", "branch": "dev", "reason": "trial"}]}'
    assert policy_of(text) == SnapshotPolicy(
        default=Keep("default", NOT_BY_AGE, 2), holds=(Hold("b", "branch", "dev", "trial"),)
    )


def test_a_branch_and_a_tag_of_one_name_have_rules_of_their_own():
    text = "snapshots: {branches: [{branch: v1, keep_newer: 1d}], tags: [{tag: v1, keep_newer: 2d}]}"
    assert [rule.rule_id for rule in policy_of(text).rules] == ["branch:v1", "tag:v1"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("snapshots: {default: {keep_newer: 30}}", "snapshots.default.keep_newer: '30' is not a duration: it has no u"),
        ("snapshots: {default: {keep_newer: 0d}}", "snapshots.default.keep_newer: '0d' is zero"),
        ("snapshots: {default: 30d}", "snapshots.default: must be a mapping"),
        ("snapshots: {default: {}}", "snapshots.default: write keep_newer, keep_last, or both"),
        ("snapshots: {default: {keep_last: 0}}", "snapshots.default.keep_last: must be greater than or equal"),
        ("snapshots: {default: {keep_last: '3'}}", "snapshots.default.keep_last: must be a valid integer"),
        ("snapshots: {default: {keep_last: true}}", "snapshots.default.keep_last: must be a valid integer"),
        ("snapshots: {default: {keep: 3d}}", "snapshots.default.keep: unknown key"),
        ("snapshots: {}", "snapshots: neither a default nor branches nor tags"),
        ("snapshots: {delete_expired_tags: true}", "snapshots: neither a default nor branches nor tags"),
        ("snapshots: {branches: [{branch: main}]}", "snapshots.branches[0]: write keep_newer, keep_last, or both"),
        ("snapshots: {branches: [{branch: main, id: a}]}", "snapshots.branches[0]: write keep_newer, keep_last, or b"),
        ("snapshots: {branches: [{keep_last: 1}]}", "snapshots.branches[0].branch: is missing"),
        ("snapshots: {branches: [{tag: v1, keep_last: 1}]}", "snapshots.branches[0].tag: unknown key"),
        (
            "snapshots: {tags: [{tag: 'v[12]', keep_last: 1}]}",
            "snapshots.tags[0].tag: 'v[12]' is not a branch or tag name",
        ),
        ("snapshots: {tags: [{tag: ' v1', keep_last: 1}]}", "snapshots.tags[0].tag: ' v1' is not a branch or tag name"),
        ("snapshots: {tags: [{tag: v, keep_last: 1, id: default}]}", "the id 'default' is reserved"),
        (
            "snapshots: {default: {keep_last: 1}, delete_expired_tags: 1}",
            "snapshots.delete_expired_tags: must be `true` or `false`",
        ),
        ("retention: {default: 3d}\nholds: [{id: a, tag: v, reason: r}]", "retention: unknown key"),
        ("holds: []", "no rule at all"),
        ("holds: [{id: a, reason: r, snapshot: abc}]", "holds[0].snapshot: 'abc' is not a snapshot id: an id has 20"),
        ("holds: [{id: a, reason: r, snapshot: 1cechnkrep0f1rstcmt0}]", "holds[0].snapshot: '1cechnkrep0f1rstcmt0'"),
        ("holds: [{id: a, reason: r, commit: abc}]", "holds[0].commit: unknown key"),
        ("holds: [{id: a, reason: r}]", "holds[0]: a hold names exactly one of snapshot, branch, tag; this one names"),
        ("holds: [{id: a, reason: r, branch: b, tag: t}]", "this one names 2"),
        ("holds: [{id: a, reason: r, tag: 'v*'}]", "tag: a hold names one tag; a glob is not allowed"),
        ("holds: [{id: a, tag: v}]", "holds[0].reason: is missing"),
        ("holds: [{id: a, reason: r, tag: v, until: next year}]", "holds[0].until: 'next year' is not a day"),
        (
            "snapshots: {branches: [{branch: a, keep_last: 1}, {branch: a, keep_last: 1}]}",
            "snapshots: the id 'branch:a' is duplicated",
        ),
        (
            "snapshots: {branches: [{branch: a, keep_last: 1}, {branch: a, keep_newer: 3d, keep_last: 1}]}",
            "snapshots: branch 'a' keeps keep_newer 3d and keep_last 1, but keep_last 1 in policy.yaml",
        ),
    ],
)
def test_an_error_in_a_policy_names_its_key(text, message):
    assert message in problem(text)


def test_all_errors_in_a_policy_are_reported_together():
    message = problem("snapshots: {default: {keep_newer: 30}}\nholds: [{id: a, tag: x}]")
    assert "snapshots.default.keep_newer" in message
    assert "holds[0].reason" in message


def test_a_snapshot_policy_is_refused_for_lakefs():
    with pytest.raises(ConfigurationError, match="snapshots: unknown key"):
        read_document(WHOLE, "policy.yaml")


def test_documents_join_in_any_order_to_the_same_policy():
    documents = [
        read_snapshot_document(WHOLE, "whole.yaml"),
        read_snapshot_document("holds: [{id: more, branch: main, reason: trial}]", "holds.yaml"),
        read_snapshot_document("snapshots: {tags: [{tag: old, keep_last: 1}]}", "tags.yaml"),
        read_snapshot_document("snapshots: {default: {keep_last: 5, keep_newer: 720h}}", "default.yaml"),
    ]
    policies = [join_snapshot_documents(order) for order in permutations(documents)]
    assert all(policy == policies[0] for policy in policies)
    assert [rule.rule_id for rule in policies[0].rules] == ["branch:main", "experiments", "tag:old", "tag:v*"]
    assert [hold.hold_id for hold in policies[0].holds] == ["audit", "more", "paper"]
    assert policies[0].default == Keep("default", days(30), 5)
    assert policies[0].delete_expired_branches


def test_without_documents_there_are_no_rules():
    assert join_snapshot_documents([]) == SnapshotPolicy()


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        pytest.param(
            "snapshots: {default: {keep_newer: 30d}}",
            "snapshots: {default: {keep_newer: forever}}",
            "b.yaml: snapshots.default is keep_newer forever, but keep_newer 30d in a.yaml",
            id="two_defaults",
        ),
        pytest.param(
            "snapshots: {default: {keep_last: 1}, delete_expired_tags: true}",
            "snapshots: {default: {keep_last: 1}, delete_expired_tags: false}",
            "b.yaml: snapshots.delete_expired_tags is false, but true in a.yaml",
            id="a_flag_on_and_off",
        ),
        pytest.param(
            "snapshots: {branches: [{branch: dev, keep_newer: 7d}]}",
            "snapshots: {branches: [{branch: dev, keep_newer: 8d, id: other}]}",
            "b.yaml: snapshots: branch 'dev' keeps keep_newer 8d, but keep_newer 7d in a.yaml",
            id="one_branch_with_two_durations",
        ),
        pytest.param(
            "snapshots: {branches: [{branch: dev, keep_newer: 7d, id: x}]}",
            "snapshots: {tags: [{tag: v1, keep_newer: 7d, id: x}]}",
            "b.yaml: snapshots: the id 'x' is duplicated (first in a.yaml)",
            id="one_id_twice",
        ),
        pytest.param(
            "holds: [{id: x, tag: a, reason: r}]",
            "holds: [{id: x, tag: b, reason: r}]",
            "b.yaml: holds: the id 'x' is duplicated (first in a.yaml)",
            id="one_hold_id_twice",
        ),
    ],
)
def test_documents_that_contradict_each_other_are_refused(first, second, message):
    documents = [read_snapshot_document(first, "a.yaml"), read_snapshot_document(second, "b.yaml")]
    with pytest.raises(ConfigurationError) as raised:
        join_snapshot_documents(documents)
    assert str(raised.value).startswith(message)
    assert "Nothing was deleted." in str(raised.value)
