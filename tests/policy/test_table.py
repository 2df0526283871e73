from dataclasses import replace
from datetime import date, timedelta

from retention_assets.policy.documents import join, read_document
from retention_assets.policy.rules import BranchRetention, CommittedRetention, Hold, LifecycleRule, Policy
from retention_assets.policy.table import days_before, policy_rows
from retention_assets.tables import POLICY_TABLE

# The worked example of the lifecycle design, its indentation included.
EXAMPLE = """
{
   "rule1" : {
   "prefix": "foo/bar",
   "days": 10,
   "enabled": true,
   "branch_days": {
   "b1": 5,
   "b2": 8
    }
   },
   "rule2" : {
   "prefix": "foo/zoo",
   "enabled": true,
   "branch_days": {
      "b1": 5
   }
   }
}
"""


def rows(table):
    columns = ("run_id", "rule_id", "prefix", "branch", "date_to_be_deleted")
    return [tuple(row[name] for name in columns) for row in table.to_pylist()]


def test_the_policy_table_has_a_row_with_a_date_for_each_prefix_and_branch():
    # The proposal prints 18 January for b2, but 8 days before the 20th is the 12th.
    policy = join([read_document(EXAMPLE, "lifecycle.json")])
    table = policy_rows(policy, date(1998, 1, 20), "2")
    assert table.schema == POLICY_TABLE.schema
    assert rows(table) == [
        ("2", "rule1", "foo/bar", "", date(1998, 1, 10)),
        ("2", "rule1", "foo/bar", "b1", date(1998, 1, 15)),
        ("2", "rule1", "foo/bar", "b2", date(1998, 1, 12)),
        ("2", "rule2", "foo/zoo", "b1", date(1998, 1, 15)),
    ]
    assert set(table.column("policy_hash").to_pylist()) == {policy.policy_hash}


def test_the_dates_in_a_run_of_the_day_before_are_one_day_earlier():
    table = policy_rows(join([read_document(EXAMPLE, "lifecycle.json")]), date(1998, 1, 19), "1")
    assert rows(table)[:2] == [
        ("1", "rule1", "foo/bar", "", date(1998, 1, 9)),
        ("1", "rule1", "foo/bar", "b1", date(1998, 1, 14)),
    ]


def test_every_kind_of_rule_has_its_rows():
    policy = Policy(
        CommittedRetention(
            (BranchRetention("experiments", "exp-*", timedelta(days=7)), BranchRetention("gold", "gold", None)),
            timedelta(days=30),
            has_default=True,
        ),
        (
            LifecycleRule("raw", "raw", None, {"gold": None}),
            LifecycleRule("off", "raw", timedelta(days=1), {}, enabled=False),
            LifecycleRule("tmp", "", timedelta(hours=36), {}, glob="tmp/*.csv"),
        ),
        (
            Hold("audit", "prefix", "reference", "audit", date(2026, 11, 1)),
            Hold("dev", "branch", "dev", "a trial"),
            Hold("over", "prefix", "old", "audit", date(2026, 10, 31)),
            Hold("release", "tag", "v1", "release"),
        ),
    )
    assert [row[1:] for row in rows(policy_rows(policy, date(2026, 11, 1), "r"))] == [
        ("hold:audit", "reference", "", None),
        ("hold:dev", "", "dev", None),
        ("hold:release", "", "", None),
        ("raw", "raw", "gold", None),
        ("retention:default", "", "", date(2026, 10, 2)),
        ("retention:experiments", "", "exp-*", date(2026, 10, 25)),
        ("retention:gold", "", "gold", None),
        ("tmp", "glob:tmp/*.csv", "", date(2026, 10, 30)),
    ]


def test_a_default_of_for_ever_has_a_row_and_no_default_has_none():
    policy = Policy(CommittedRetention((), None, has_default=True), (), ())
    assert rows(policy_rows(policy, date(2026, 11, 1), "r")) == [("r", "retention:default", "", "", None)]
    without = replace(policy, retention=CommittedRetention(()))
    assert policy_rows(without, date(2026, 11, 1), "r").num_rows == 0


def test_part_of_a_day_gives_the_earlier_date_and_a_huge_duration_the_first_date():
    assert days_before(date(2026, 11, 1), timedelta(hours=1)) == date(2026, 10, 31)
    assert days_before(date(2026, 11, 1), timedelta.max) == date.min
