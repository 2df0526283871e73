import json
from datetime import date, timedelta
from itertools import permutations
from pathlib import Path

import pytest

from retention_assets.errors import ConfigurationError
from retention_assets.policy.documents import from_server, join, read_document
from retention_assets.policy.rules import BranchRetention, CommittedRetention, Hold, LifecycleRule, Policy

LAKEFS = Path(__file__).parents[1] / "data" / "lakefs"

OURS = """
retention:
  default: 30d
  branches:
    - {branch: main, keep: 45d}
    - {branch: "exp-*", keep: 7d, id: experiments}
holds:
  - {id: audit, prefix: reference/, reason: yearly audit, until: 2027-01-01}
  - {id: rel, tag: v1, reason: released}
lifecycle:
  - {id: raw, prefix: raw, keep: 60d, branches: {dev: 14d, "exp-*": 7d, gold: forever}, enabled: true}
  - {id: tmp, glob: "tmp/*.parquet", keep: 36h}
"""


def days(number: int) -> timedelta:
    return timedelta(days=number)


def policy_of(text: str) -> Policy:
    return read_document(text, "policy.yaml").policy


def problem(text: str) -> str:
    with pytest.raises(ConfigurationError) as raised:
        read_document(text, "policy.yaml")
    message = str(raised.value)
    assert message.startswith("policy.yaml: ")
    assert "Nothing was deleted." in message
    assert "\n" not in message
    return message


def test_a_policy_in_our_own_schema_is_read():
    assert policy_of(OURS) == Policy(
        CommittedRetention(
            (BranchRetention("main", "main", days(45)), BranchRetention("experiments", "exp-*", days(7))),
            days(30),
            has_default=True,
        ),
        (
            LifecycleRule("raw", "raw", days(60), {"dev": days(14), "exp-*": days(7), "gold": None}),
            LifecycleRule("tmp", "", timedelta(hours=36), {}, glob="tmp/*.parquet"),
        ),
        (
            Hold("audit", "prefix", "reference", "yearly audit", date(2027, 1, 1)),
            Hold("rel", "tag", "v1", "released"),
        ),
    )


def test_a_policy_in_our_own_schema_may_be_json():
    text = '{"holds": [{"id": "c", "commit": "abc", "reason": "law", "until": "2027-01-01"}]}'
    assert policy_of(text).holds == (Hold("c", "commit", "abc", "law", date(2027, 1, 1)),)


def test_a_default_that_keeps_for_ever_counts_as_a_default():
    assert policy_of("retention: {default: forever}").retention == CommittedRetention((), None, has_default=True)


def test_rules_without_a_default_keep_the_rest_for_ever():
    retention = policy_of("retention: {branches: [{branch: dev, keep: 7d}]}").retention
    assert retention == CommittedRetention((BranchRetention("dev", "dev", days(7)),), None, has_default=False)


def test_a_branch_called_default_does_not_take_the_id_of_the_default():
    retention = policy_of("retention: {default: 3d, branches: [{branch: default, keep: 7d}]}").retention
    assert retention is not None
    assert retention.duration_for("default") == (days(7), "branch:default")
    assert retention.duration_for("dev") == (days(3), "default")


def test_rules_in_the_schema_of_the_server_are_read():
    text = (LAKEFS / "orchard" / "policies" / "gc_rules.json").read_text()
    assert policy_of(text) == Policy(
        CommittedRetention(
            (BranchRetention("main", "main", days(45)), BranchRetention("dev", "dev", days(14))),
            days(30),
            has_default=True,
        ),
        (),
        (),
    )


def test_the_servers_branches_may_be_null():
    retention = policy_of('{"default_retention_days": 30, "branches": null}').retention
    assert retention == CommittedRetention((), days(30), has_default=True)


def test_the_rules_of_a_server_give_the_same_policy_as_their_document():
    text = (LAKEFS / "orchard" / "policies" / "gc_rules.json").read_text()
    document = from_server(30, {"main": 45, "dev": 14})
    assert document.policy == policy_of(text)
    with pytest.raises(ConfigurationError, match=r"server: default_retention_days: 0 days"):
        from_server(0, {})


def test_an_error_asks_to_correct_the_source_of_the_rules():
    with pytest.raises(ConfigurationError, match=r"deleted\. Correct the rules of the lakeFS server\.$"):
        from_server(0, {})
    with pytest.raises(ConfigurationError, match=r"deleted\. Correct policy\.yaml\.$"):
        read_document('{"default_retention_days": 0, "branches": []}', "policy.yaml")


def test_lifecycle_rules_in_the_older_json_schema_are_read():
    text = (LAKEFS / "orchard" / "policies" / "lifecycle-1.json").read_text()
    policy = policy_of(text)
    assert policy.retention is None
    assert {rule.rule_id: rule for rule in policy.lifecycle} == {
        "raw-months": LifecycleRule("raw-months", "raw", days(60), {}),
        "foo-bar": LifecycleRule("foo-bar", "foo/bar", days(40), {"b1": days(20)}),
        "models-on-dev": LifecycleRule("models-on-dev", "models", None, {"dev": days(30)}),
        "tables": LifecycleRule("tables", "tables", days(90), {}),
        "off": LifecycleRule("off", "reference", days(1), {}, enabled=False),
    }


@pytest.mark.parametrize("file", sorted(LAKEFS.glob("*/policies/*.json")), ids=lambda f: f"{f.parts[-3]}-{f.stem}")
def test_every_policy_of_the_real_repositories_is_read_completely(file):
    policy = policy_of(file.read_text())
    written = json.loads(file.read_text())
    if "default_retention_days" in written:
        assert policy.retention is not None
        assert len(policy.retention.rules) == len(written["branches"])
    else:
        assert len(policy.lifecycle) == len(written)


def test_a_rule_in_the_older_json_schema_may_have_the_name_of_a_section():
    (rule,) = policy_of('{"retention": {"prefix": "raw", "days": 3, "enabled": true}}').lifecycle
    assert rule == LifecycleRule("retention", "raw", days(3), {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("retention: {default: 30}", "retention.default: '30' is not a duration: it has no unit, write 30d"),
        ("retention: {default: 0d}", "retention.default: '0d' is zero"),
        ("retention: {default: -3d}", "retention.default: '-3d' is not a duration: it is negative"),
        ("retention: {default: }", "retention.default: 'None' is not a duration"),
        ("retention: {}", "retention: neither a default nor branches"),
        ("retention: {branches: []}", "retention: neither a default nor branches"),
        ("retention: {branches: [{branch: main}]}", "retention.branches[0].keep: is missing"),
        (
            "retention: {branches: [{branch: main, keep: 3d, kepe: 1d}]}",
            "retention.branches[0].kepe: unknown key (did you mean `keep`?)",
        ),
        ("retention: {branches: [{branch: on, keep: 3d}]}", "retention.branches[0].branch: must be a text: put it in"),
        ("retention: {branches: [{branch: 'e[12]', keep: 3d}]}", "retention.branches[0].branch: 'e[12]' is not a b"),
        ("retention: {branches: [{branch: a, keep: 3d, id: default}]}", "the id 'default' is reserved"),
        ("holds: [{id: a, prefix: x}]", "holds[0].reason: is missing"),
        ("holds: [{id: a, prefix: x, reason: ''}]", "holds[0].reason: "),
        (
            "holds: [{id: a, reason: r}]",
            "holds[0]: a hold names exactly one of prefix, branch, tag, commit; this one n",
        ),
        ("holds: [{id: a, reason: r, tag: v, branch: b}]", "this one names 2"),
        ("holds: [{id: a, reason: r, branch: 'exp-*'}]", "branch: a hold names one branch; a glob is not allowed"),
        ("holds: [{id: a, reason: r, prefix: /x}]", "holds[0].prefix: '/x': a prefix must not begin with `/`"),
        ("holds: [{id: a, reason: r, prefix: raw/*}]", "holds[0]: prefix: a hold names a directory, and keeps"),
        ("holds: [{id: a, reason: r, prefix: x, until: 2027-01-01T00:00:00Z}]", "holds[0].until: "),
        ("holds: [{id: a, reason: r, prefix: x, until: 20270101}]", "holds[0].until: "),
        (
            "holds: [{id: a, reason: r, prefix: x, until: 'next year'}]",
            "holds[0].until: 'next year' is not a day; write it like 2027-01-01",
        ),
        ("lifecycle: [{id: a, keep: 3d}]", "lifecycle[0]: a rule names exactly one of prefix and glob"),
        ("lifecycle: [{id: a, prefix: x, glob: y, keep: 3d}]", "lifecycle[0]: a rule names exactly one of"),
        ("lifecycle: [{id: a, glob: /x, keep: 3d}]", "lifecycle[0]: glob: paths of a repository do not begin with"),
        ("lifecycle: [{id: a, prefix: x, keep: 3}]", "lifecycle[0].keep: '3' is not a duration"),
        ("lifecycle: [{id: a, prefix: x, branches: {dev: 3}}]", "lifecycle[0].branches.dev: '3' is not a duration"),
        ("lifecycle: [{id: a, prefix: x, enabled: 'yes'}]", "lifecycle[0].enabled: must be `true` or `false`"),
        ("lifecycle: [{id: a, prefix: /, keep: 3d}]", "lifecycle[0].prefix: '/'"),
        ("lifecycle: [{id: a, prefix: x//, keep: 3d}]", "lifecycle[0].prefix: 'x//'"),
        ("lifecycle: [{id: a, prefix: , keep: 3d}]", "a rule names exactly one of prefix and glob"),
        ("lifecycle: [{id: 'hold:a', prefix: x, keep: 3d}]", "lifecycle[0].id: 'hold:a' is not a rule id"),
        ("lifecycle: [{prefix: x, keep: 3d}]", "lifecycle[0].id: is missing"),
        ("lifecycle: {a: {keep: 3d}}", "lifecycle: must be a list"),
        ("holds: []", "no rule at all"),
        ("retention: {default: 3d}\nlifecyle: []", "lifecyle: unknown key (did you mean `lifecycle`?)"),
        ("retention:\ndefault: 3d\nbranches: []\n", "branches, default must be indented below `retention:`"),
        ('{"default_retention_days": 0, "branches": []}', "default_retention_days: 0 days: retention is at least 1"),
        ('{"default_retention_days": -1, "branches": []}', "default_retention_days: -1 days"),
        ('{"default_retention_days": true, "branches": []}', "default_retention_days: True is not a whole number"),
        ('{"default_retention_days": "30d", "branches": []}', "default_retention_days: '30d' is not a whole number"),
        ('{"default_retention_days": 3.0, "branches": []}', "default_retention_days: 3.0 is not a whole number"),
        ('{"branches": []}', "default_retention_days: is missing"),
        ('{"default_retention_days": 3, "branches": [{"branch_id": "a"}]}', "branches[0].retention_days: is missing"),
        (
            '{"default_retention_days": 3, "branches": [{"branch_id": "a-*", "retention_days": 1}]}',
            "branches[0].branch_id: 'a-*': lakeFS accepts only branch names here",
        ),
        (
            '{"default_retention_days": 3, "branches": [{"branch_id": "a", "retention_days": 9}, '
            '{"branch_id": "a", "retention_days": 9}]}',
            "retention: the id 'a' is duplicated",
        ),
        (
            '{"default_retention_days": 3, "branches": [{"branch_id": "a", "retention_days": 9}, '
            '{"branch_id": "a", "retention_days": 1}]}',
            "retention: branch 'a' is kept 1d, but 9d in policy.yaml",
        ),
        ('{"r": {"prefix": "x", "days": 0, "enabled": true}}', "r.days: 0 days"),
        ('{"r": {"prefix": "x", "days": "3d", "enabled": true}}', "r.days: '3d' is not a whole number"),
        ('{"r": {"prefix": "x", "days": 3}}', "r.enabled: is missing"),
        ('{"r": {"days": 3, "enabled": true}}', "r.prefix: is missing"),
        ('{"r": {"prefix": "x", "enabled": true, "branch_days": {"b": -1}}}', "r.branch_days.b: -1 days"),
        ('{"r": {"prefix": "x", "enabled": true, "branch_day": {}}}', "r.branch_day: unknown key"),
        ('{"r": {"prefix": "x", "enabled": true}, "s": {}}', "s.prefix: is missing"),
    ],
)
def test_an_error_in_a_policy_names_its_key(text, message):
    assert message in problem(text)


def test_all_errors_in_a_policy_are_reported_together():
    message = problem("retention: {default: 30}\nholds: [{id: a, prefix: x}]")
    assert "retention.default" in message
    assert "holds[0].reason" in message


def test_a_document_in_an_unknown_schema_is_refused_with_the_accepted_schemas():
    message = problem("rules: [{expire: 3d}]")
    assert "unknown form, its keys are ['rules']" in message
    for accepted in ("`retention:`", "`default_retention_days`", '"branch_days"'):
        assert accepted in message


def test_documents_join_in_any_order_to_the_same_policy():
    documents = [
        read_document(OURS, "ours.yaml"),
        read_document('{"r": {"prefix": "x", "days": 3, "enabled": true}}', "seed.json"),
        read_document('{"default_retention_days": 30, "branches": [{"branch_id": "dev", "retention_days": 14}]}', "gc"),
        read_document("holds: [{id: more, branch: main, reason: trial}]", "more.yaml"),
    ]
    policies = [join(order) for order in permutations(documents)]
    assert all(policy == policies[0] for policy in policies)
    assert len({policy.policy_hash for policy in policies}) == 1
    policy = policies[0]
    assert policy.retention is not None
    assert [rule.rule_id for rule in policy.retention.rules] == ["dev", "experiments", "main"]
    assert policy.retention.default == days(30)
    assert [rule.rule_id for rule in policy.lifecycle] == ["r", "raw", "tmp"]
    assert [hold.hold_id for hold in policy.holds] == ["audit", "more", "rel"]


def test_without_documents_there_are_no_rules():
    assert join([]) == Policy(None, (), ())


def test_a_default_in_one_document_applies_to_the_rules_of_another():
    policy = join(
        [
            read_document("retention: {branches: [{branch: dev, keep: 7d}]}", "a"),
            read_document("retention: {default: forever}", "b"),
        ]
    )
    assert policy.retention == CommittedRetention((BranchRetention("dev", "dev", days(7)),), None, has_default=True)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        pytest.param(
            "retention: {default: 30d}",
            "retention: {default: 31d}",
            "b.yaml: retention.default is 31d, but 30d in a.yaml",
            id="two_defaults",
        ),
        pytest.param(
            "retention: {default: 30d}",
            "retention: {default: forever}",
            "b.yaml: retention.default is forever, but 30d in a.yaml",
            id="a_default_and_for_ever",
        ),
        pytest.param(
            "retention: {branches: [{branch: dev, keep: 7d}]}",
            "retention: {branches: [{branch: dev, keep: 8d, id: other}]}",
            "b.yaml: retention: branch 'dev' is kept 8d, but 7d in a.yaml",
            id="one_branch_with_two_durations",
        ),
        pytest.param(
            "retention: {branches: [{branch: dev, keep: 7d, id: x}]}",
            "retention: {branches: [{branch: main, keep: 8d, id: x}]}",
            "b.yaml: retention: the id 'x' is duplicated (first in a.yaml)",
            id="one_retention_id_twice",
        ),
        pytest.param(
            "lifecycle: [{id: x, prefix: a, keep: 1d}]",
            '{"x": {"prefix": "b", "days": 1, "enabled": true}}',
            "b.yaml: lifecycle: the id 'x' is duplicated (first in a.yaml)",
            id="one_lifecycle_id_in_two_schemas",
        ),
        pytest.param(
            "holds: [{id: x, prefix: a, reason: r}]",
            "holds: [{id: x, prefix: b, reason: r}]",
            "b.yaml: holds: the id 'x' is duplicated (first in a.yaml)",
            id="one_hold_id_twice",
        ),
    ],
)
def test_documents_that_contradict_each_other_are_refused(first, second, message):
    documents = [read_document(first, "a.yaml"), read_document(second, "b.yaml")]
    with pytest.raises(ConfigurationError) as raised:
        join(documents)
    assert str(raised.value).startswith(message)
    assert "Nothing was deleted." in str(raised.value)


def test_two_sections_may_use_the_same_id():
    text = "holds: [{id: x, prefix: a, reason: r}]\nlifecycle: [{id: x, prefix: a, keep: 1d}]"
    assert policy_of(text).lifecycle[0].rule_id == policy_of(text).holds[0].hold_id
