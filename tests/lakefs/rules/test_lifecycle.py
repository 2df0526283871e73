"""`with_lifecycle` (Spark) compared with the pure `due_since`: each rule set on thousands of pairs in one job."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from retention_assets.lakefs.rules.lifecycle import whole_pairs, with_lifecycle
from retention_assets.policy.rules import LifecycleRule, due_since
from tests import frames
from tests.frames import DAY, MICROSECOND, Pair

AS_OF = datetime(2026, 11, 1, tzinfo=UTC)
CALENDARS_END = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
BRANCHES = ("dev", "exp-1", "exp-2", "main")
SUBSETS = [list(chosen) for size in range(len(BRANCHES) + 1) for chosen in combinations(BRANCHES, size)]
PATHS = (
    "", "foo", "foo/bar", "foo/bar/", "foo/bar/x", "foo/bar/deep/x.csv", "foo/barn", "foo/barn/x", "foo/ba", "foo//bar",
    "FOO/bar/x", "x.csv", "tmp/a.csv", "tmp/b/a.csv", "tmp/line\nbreak.csv", "tmp/a.csv\n", "größe/é.csv", "a+b(c)/x y",
    "foo/bar/\ufffdff.csv",
)  # fmt: skip
PREFIXES = ("", "foo", "foo/bar", "foo/bar/", "foo/barn", "foo/bar/x", "tmp", "größe", "a+b(c)", "nowhere")
GLOBS = ("*.csv", "**/*.csv", "**", "foo/*", "foo/bar/**", "foo/bar?", "tmp/?.csv", "a+b(c)/*", "gr*/é.csv")
NAMES = (*BRANCHES, "exp-*", "*", "?ev", "exp-?", "gone")
DURATIONS = (
    None, MICROSECOND, timedelta(hours=36), DAY, 5 * DAY, 10 * DAY, 300_000 * DAY, 4_000_000 * DAY, 10**8 * DAY,
    timedelta.max,
)  # fmt: skip

durations = st.sampled_from(DURATIONS)


@st.composite
def rule_sets(draw: st.DrawFn) -> list[LifecycleRule]:
    rules = []
    for rule_id in draw(st.permutations(("a", "b", "c")))[: draw(st.integers(min_value=1, max_value=3))]:
        glob = draw(st.none() | st.sampled_from(GLOBS))
        prefix = "" if glob else draw(st.sampled_from(PREFIXES))
        per_branch = draw(st.dictionaries(st.sampled_from(NAMES), durations, max_size=4))
        rules.append(LifecycleRule(rule_id, prefix, draw(durations), per_branch, draw(st.integers(0, 9)) > 0, glob))
    return rules


@dataclass(frozen=True)
class ClassifiedPair:
    since: datetime | None  # the end of the calendar is never
    due: bool
    rules: tuple[str, ...]


def expected(rules: Sequence[LifecycleRule], pair: Pair, as_of: datetime) -> ClassifiedPair:
    ends = {rule.rule_id: due_since(rule, pair.added_at, pair.branches) for rule in rules if rule.covers(pair.key)}
    known = {rule_id: end for rule_id, end in ends.items() if end is not None and end < CALENDARS_END}
    matched = tuple(sorted(rule_id for rule_id, end in known.items() if end <= as_of))
    return ClassifiedPair(min(known.values(), default=None), bool(matched), matched)


def classified(
    spark: SparkSession, rules: Sequence[LifecycleRule], pairs: Sequence[Pair], as_of: datetime
) -> list[ClassifiedPair]:
    """Return the classified pairs in the order of `pairs`, whose addresses are unique."""
    frame = with_lifecycle(frames.addresses(spark, *pairs), rules, BRANCHES, as_of)
    columns = ("address", "lifecycle_due_since", "lifecycle_due", "matched_rules")
    rows = {row["address"]: row for row in frame.select(*columns).toArrow().to_pylist()}
    ordered = [rows[pair.address] for pair in pairs]
    return [
        ClassifiedPair(row["lifecycle_due_since"], row["lifecycle_due"], tuple(row["matched_rules"])) for row in ordered
    ]


def limits(rules: Sequence[LifecycleRule], as_of: datetime) -> Iterator[datetime]:
    """Yield the times at which a duration of `rules` ends, and the times a microsecond before and after."""
    finite = {duration for rule in rules for duration in (rule.default, *rule.per_branch.values()) if duration}
    for duration in sorted(finite):
        if duration < as_of - datetime.min.replace(tzinfo=UTC) - DAY:
            yield from (as_of - duration - MICROSECOND, as_of - duration, as_of - duration + MICROSECOND)
    yield from (as_of, as_of + DAY, datetime(1, 1, 2, tzinfo=UTC))


@pytest.mark.long
@settings(max_examples=12)
@given(rules=rule_sets(), as_of=st.sampled_from((AS_OF, AS_OF + timedelta(hours=7, microseconds=1))))
def test_spark_and_python_classify_pairs_of_every_path_branches_and_time_alike(
    spark: SparkSession, rules: list[LifecycleRule], as_of: datetime
) -> None:
    cases = product(PATHS, SUBSETS, dict.fromkeys(limits(rules, as_of)))
    pairs = [
        Pair(f"a{place}", key, branches=branches, added_at=added) for place, (key, branches, added) in enumerate(cases)
    ]
    differing = [
        (pair, found, wanted)
        for pair, found in zip(pairs, classified(spark, rules, pairs, as_of), strict=True)
        if found != (wanted := expected(rules, pair, as_of))
    ]
    assert differing[:3] == []


def rule(rule_id: str = "r", days: int | None = 10, prefix: str = "foo/bar", **per_branch: int | None) -> LifecycleRule:
    durations = {branch.replace("_", "-"): None if age is None else age * DAY for branch, age in per_branch.items()}
    return LifecycleRule(rule_id, prefix, None if days is None else days * DAY, durations)


CASES: Mapping[str, tuple[list[LifecycleRule], Sequence[str], float, bool]] = {
    "upstream: on main and b1, 11 days": ([rule(b1=5)], ("b1", "main"), 11, True),
    "upstream: on main and b1, 9 days": ([rule(b1=5)], ("b1", "main"), 9, False),
    "upstream: only on b1, 6 days": ([rule(b1=5)], ("b1",), 6, True),
    "upstream: only on b1, 4 days": ([rule(b1=5)], ("b1",), 4, False),
    "the limit itself is due": ([rule()], ("main",), 10, True),
    "a branch without days keeps it": ([rule(days=None, b1=5)], ("b1", "main"), 9999, False),
    "on no branch the default counts": ([rule(b1=50)], (), 10, True),
    "on no branch without a default it stays": ([rule(days=None, b1=5)], (), 9999, False),
    "a branch that keeps for ever wins": ([rule(main=None)], ("b1", "main"), 9999, False),
    "a disabled rule makes nothing due": ([LifecycleRule("r", "", DAY, {}, enabled=False)], (), 9999, False),
    "a directory covers no name beside it": ([rule(prefix="foo/ba")], (), 9999, False),
    "any rule that is due is enough": ([rule("long", 50), rule("short", 1, "")], ("main",), 2, True),
    "no rules": ([], ("main",), 9999, False),
}


@pytest.mark.parametrize("case", CASES)
def test_a_pair_below_a_prefix_is_due_as_documented(spark: SparkSession, case: str) -> None:
    rules, branches, age, due = CASES[case]
    pair = Pair("a", "foo/bar/x", branches=branches, added_at=AS_OF - age * DAY)
    branches_there = ["b1", "main"]
    frame = with_lifecycle(frames.addresses(spark, pair), rules, branches_there, AS_OF)
    assert [row["lifecycle_due"] for row in frame.collect()] == [due]


def test_the_rows_of_a_pair_have_the_branches_the_age_and_the_activity_of_the_pair(spark: SparkSession) -> None:
    rows = [
        Pair("a", etag="1", branches=["main"], left_branches=["gone"], added_at=AS_OF - 9 * DAY, due_since=AS_OF - DAY),
        Pair("a", etag="2", branches=["dev"], added_at=AS_OF - 2 * DAY, active=True),
        Pair("a", etag="2", size=20, branches=["dev"], added_at=AS_OF - DAY, due_since=AS_OF - DAY),
        Pair("a", "another/path", branches=["b1"], added_at=AS_OF - 3 * DAY, due_since=AS_OF - DAY),
        Pair("b", branches=["b2"], added_at=AS_OF - 4 * DAY),
    ]
    frame = whole_pairs(frames.addresses(spark, *rows))
    columns = ("etag", "size", "active", "due_since", "added_at", "branches", "left_branches")
    found = frames.as_dicts(frame, "address", "key", "etag", "size")
    assert frame.columns == frames.addresses(spark).columns
    of_pair = {
        "active": True,
        "due_since": None,
        "added_at": AS_OF - 9 * DAY,
        "branches": ["dev", "main"],
        "left_branches": ["gone"],
    }
    whole = [row for row in found if (row["address"], row["key"]) == ("a", "some/path")]
    expected = [("1", 10), ("2", 10), ("2", 20)]
    assert [{name: row[name] for name in columns} for row in whole] == [
        {"etag": etag, "size": size, **of_pair} for etag, size in expected
    ]
    others = [(row["address"], row["key"], row["active"], row["added_at"], row["branches"]) for row in found]
    assert ("a", "another/path", False, AS_OF - 3 * DAY, ["b1"]) in others
    assert ("b", "some/path", False, AS_OF - 4 * DAY, ["b2"]) in others
    assert len(found) == len(rows)
