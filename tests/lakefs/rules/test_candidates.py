"""The state of each listed object, case by case, and the live addresses."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from retention_assets.core.age import AgeCutoff
from retention_assets.core.settle import candidates
from retention_assets.core.states import STATES
from retention_assets.lakefs.names.columns import issued_at
from retention_assets.lakefs.rules import candidates as judging
from retention_assets.lakefs.rules.candidates import classified, commits_by_address, live_addresses
from retention_assets.tables import TIMESTAMP
from tests import frames
from tests.frames import DAY, MICROSECOND, NOW, OLD, Listed, Pair, Staged, address, as_dicts, of

GRACE = timedelta(hours=24)
HORIZON = AgeCutoff(NOW, GRACE, issued=issued_at)
SECOND = timedelta(seconds=1)
HALF = timedelta(milliseconds=500)


INSTANTS = {
    "older_by_half_a_second": (NOW - GRACE - HALF, True),
    "older_by_a_microsecond": (NOW - GRACE - MICROSECOND, True),
    "the_limit_itself_stays": (NOW - GRACE, False),
    "a_second_that_ends_at_the_limit": (NOW - GRACE - SECOND, False),
    "the_second_before": (NOW - GRACE - 2 * SECOND, True),
    "younger_by_a_microsecond": (NOW - GRACE + MICROSECOND, False),
    "in_the_future": (NOW + DAY, False),
    "unknown_is_young": (None, False),
}


@pytest.fixture(scope="module")
def passed(spark: SparkSession) -> dict[str, bool]:
    instants = [instant for instant, _ in INSTANTS.values()]
    return dict(zip(INSTANTS, of(spark, instants, TIMESTAMP, HORIZON.is_older), strict=True))


@pytest.mark.parametrize("case", INSTANTS)
def test_a_time_is_old_enough_if_it_plus_the_grace_period_is_before_the_oldest_input(
    passed: dict[str, bool], case: str
) -> None:
    assert passed[case] is INSTANTS[case][1]


@pytest.mark.parametrize(
    ("limit_after", "passed"),
    [pytest.param(SECOND, False, id="at_its_end"), pytest.param(SECOND + MICROSECOND, True, id="just_after_its_end")],
)
def test_a_whole_second_counts_as_its_end(spark: SparkSession, limit_after: timedelta, passed: bool) -> None:
    age_cutoff = AgeCutoff(OLD + GRACE + limit_after, GRACE, issued=issued_at)
    assert of(spark, [OLD], TIMESTAMP, age_cutoff.is_older) == [passed]


def test_without_a_grace_period_an_object_older_than_the_oldest_input_is_eligible(spark: SparkSession) -> None:
    age_cutoff = AgeCutoff(NOW, timedelta(0), issued=issued_at)
    assert of(spark, [NOW - MICROSECOND, NOW], TIMESTAMP, age_cutoff.is_older) == [True, False]


# reason, time stored, time issued, and whether the age suffices
AGES = {
    "past_the_grace_period": ("expired", NOW - 2 * DAY, NOW - 2 * DAY, True),
    "the_younger_of_both_times_counts_issued": ("expired", NOW - 2 * DAY, NOW - DAY / 2, False),
    "the_younger_of_both_times_counts_stored": ("expired", NOW - DAY / 2, NOW - 2 * DAY, False),
    "its_upload_may_still_be_linked": ("unreferenced", NOW - 2 * DAY, NOW - 2 * DAY, False),
    "its_upload_may_not_be_linked_any_more": ("unreferenced", NOW - 4 * DAY, NOW - 4 * DAY, True),
    "what_was_committed_needs_no_token": ("lifecycle", NOW - 2 * DAY, NOW - 2 * DAY, True),
}


def test_the_later_of_storing_and_issuing_must_be_before_the_cutoff_of_the_reason(spark: SparkSession) -> None:
    age_cutoff = AgeCutoff(NOW, GRACE, timedelta(days=3), issued=issued_at)
    rows = [
        frames.Candidate(address(number, issued), last_modified=modified, reason=reason, paths=(case,))
        for number, (case, (reason, modified, issued, _)) in enumerate(AGES.items())
    ]
    frame = frames.candidates(spark, *rows)
    found = frame.select(frame["paths"][0], age_cutoff.is_eligible(frame["reason"])).collect()
    assert dict(map(tuple, found)) == {case: cleared for case, (*_, cleared) in AGES.items()}


@pytest.mark.parametrize("place", range(len(AGES)), ids=list(AGES))
def test_an_object_is_too_young_while_no_input_is_newer_than_the_time_at_which_that_may_end(
    spark: SparkSession, place: int
) -> None:
    reason, modified, issued, _ = list(AGES.values())[place]
    frame = frames.candidates(
        spark, frames.Candidate(address(1, issued), last_modified=modified + MICROSECOND, reason=reason)
    )
    age_cutoff = AgeCutoff(NOW, GRACE, timedelta(days=3), issued=issued_at)
    micros = frame.select(age_cutoff.young_until(frame["reason"])).collect()[0][0]
    until = datetime(1970, 1, 1, tzinfo=UTC) + micros * MICROSECOND
    ages = [replace(age_cutoff, oldest_input=until + later) for later in (timedelta(0), SECOND + MICROSECOND)]
    (found,) = frame.select(*(age.is_eligible(frame["reason"]) for age in ages)).collect()
    assert tuple(found) == (False, True)


GENERATED = {name: address(number) for number, name in enumerate(
    ("expired", "at_two_paths", "both_expired", "active", "tagged", "held_by_prefix", "beside_the_prefix", "staged",
     "stored_lately", "not_text", "in_no_commit", "in_no_commit_but_staged", "active_and_staged")
)}  # fmt: skip
ISSUED_LATELY = address(99, NOW - DAY / 2)
USERS_FILE = "data/report.csv"

CASES = {
    "expired": (GENERATED["expired"], "candidate"),
    "one path of two is still active": (GENERATED["at_two_paths"], "kept"),
    "both paths have expired": (GENERATED["both_expired"], "candidate"),
    "active": (GENERATED["active"], "kept"),
    "a tag protects": (GENERATED["tagged"], "held"),
    "a held prefix covers a path": (GENERATED["held_by_prefix"], "held"),
    "a held prefix covers no name beside it": (GENERATED["beside_the_prefix"], "candidate"),
    "a held prefix covers a path that is not text": (GENERATED["not_text"], "held"),
    "staged again": (GENERATED["staged"], "held"),
    "stored within the grace period": (GENERATED["stored_lately"], "young"),
    "issued within the grace period": (ISSUED_LATELY, "young"),
    "in no commit": (GENERATED["in_no_commit"], "candidate"),
    "in no commit but staged": (GENERATED["in_no_commit_but_staged"], "held"),
    "active and staged": (GENERATED["active_and_staged"], "kept"),
    "a user's file that a commit held": (USERS_FILE, "foreign"),
}
HELD_PAIRS = (
    Pair(GENERATED["expired"], "a/1", branches=["dev"], due_since=OLD + DAY, rule_ids=["retention:dev"]),
    Pair(GENERATED["at_two_paths"], "a/2", due_since=OLD),
    Pair(GENERATED["at_two_paths"], "b/2", active=True),
    Pair(
        GENERATED["both_expired"], "b/3", branches=["main"], due_since=OLD + 2 * DAY, rule_ids=["retention:main"],
        added_at=OLD - DAY, last_held_at=OLD + DAY,
    ),
    Pair(
        GENERATED["both_expired"], "a/3", branches=["dev"], due_since=OLD + DAY, rule_ids=["retention:dev"],
        added_at=OLD, last_held_at=OLD,
    ),
    Pair(GENERATED["active"], "a/4", active=True),
    Pair(GENERATED["tagged"], "a/5", protected=True),
    Pair(GENERATED["held_by_prefix"], "keep/6"),
    Pair(GENERATED["beside_the_prefix"], "keeper/7"),
    Pair(GENERATED["not_text"], "elsewhere/\ufffdff"),
    Pair(GENERATED["staged"], "a/8"),
    Pair(GENERATED["stored_lately"], "a/9"),
    Pair(ISSUED_LATELY, "a/10"),
    Pair(GENERATED["active_and_staged"], "a/11", active=True),
    Pair(USERS_FILE, "a/12"),
    Pair("s3://elsewhere/object", "a/13", active=True),
)  # fmt: skip
STAGED = (
    *(Staged(GENERATED[name]) for name in ("staged", "active_and_staged")),
    Staged(f"s3://another-spelling/{GENERATED['in_no_commit_but_staged']}"),
)
HELD_PREFIXES = ("keep",)


@pytest.fixture(scope="module", params=[True, False], ids=["staged_known", "staged_unknown"])
def staged_known(request: pytest.FixtureRequest) -> bool:
    known: bool = request.param
    return known


@pytest.fixture(scope="module")
def states(spark: SparkSession, staged_known: bool) -> dict[str, str]:
    lately = {GENERATED["stored_lately"]: NOW - DAY / 2}
    inventory = frames.inventory(
        spark, *(Listed(name, last_modified=lately.get(name, OLD)) for name, _ in CASES.values())
    )
    holding = commits_by_address(frames.pairs(spark, *HELD_PAIRS), HELD_PREFIXES)
    staged = frames.staged(spark, *(STAGED if staged_known else ()))
    made = classified(inventory, holding, staged, HORIZON, staged_known=staged_known)
    return {row["address"]: row["state"] for row in made.select("address", "state").collect()}


@pytest.mark.parametrize("case", CASES)
def test_an_object_is_classified_by_everything_that_may_keep_it(
    states: dict[str, str], staged_known: bool, case: str
) -> None:
    name, state = CASES[case]
    if not staged_known and case in ("in no commit", "in no commit but staged"):
        state = "kept"  # it may be staged
    if not staged_known and case == "staged again":
        state = "candidate"  # in the plan, which is then refused to a sweep
    assert states[name] == state


def test_every_listed_object_gets_one_state(states: dict[str, str]) -> None:
    assert set(states) == {name for name, _ in CASES.values()}
    assert set(states.values()) <= set(STATES)


def test_a_candidate_has_all_its_paths_branches_and_rules(spark: SparkSession) -> None:
    name = GENERATED["both_expired"]
    pairs = frames.pairs(spark, *HELD_PAIRS)
    made = classified(
        frames.inventory(spark, Listed(name, 33)),
        commits_by_address(pairs, ()),
        frames.staged(spark),
        HORIZON,
        staged_known=True,
    )
    assert as_dicts(candidates(judging.with_names(judging.due(made), pairs)), "address") == [
        {
            "address": name,
            "size": 33,
            "last_modified": OLD,
            "etag": None,
            "reason": "expired",
            "rule_ids": ["retention:dev", "retention:main"],
            "paths": ["a/3", "b/3"],
            "branches": ["dev", "main"],
            "due_since": OLD + 2 * DAY,
            "first_committed_at": OLD - DAY,
            "last_committed_at": OLD + DAY,
        }
    ]


def test_a_candidate_that_no_commit_holds_has_no_paths_rules_or_dates(spark: SparkSession) -> None:
    listed = frames.inventory(spark, Listed(GENERATED["in_no_commit"]))
    pairs = frames.pairs(spark)
    made = classified(listed, commits_by_address(pairs, ()), frames.staged(spark), HORIZON, staged_known=True)
    (row,) = as_dicts(candidates(judging.with_names(judging.due(made), pairs)), "address")
    assert row["reason"] == "unreferenced"
    assert (row["paths"], row["branches"], row["rule_ids"]) == ([], [], [])
    assert (row["due_since"], row["first_committed_at"], row["last_committed_at"]) == (None, None, None)


def test_an_object_of_unknown_age_is_no_candidate(spark: SparkSession) -> None:
    listed = frames.inventory(spark, Listed(GENERATED["expired"])).selectExpr(
        "address", "size", "cast(null as timestamp) as last_modified", "etag", "source"
    )
    made = classified(
        listed,
        commits_by_address(frames.pairs(spark, *HELD_PAIRS), ()),
        frames.staged(spark),
        HORIZON,
        staged_known=True,
    )
    assert [row["state"] for row in made.collect()] == ["young"]


def test_an_object_that_is_staged_twice_is_classified_once(spark: SparkSession) -> None:
    name = GENERATED["staged"]
    holding = commits_by_address(frames.pairs(spark, *HELD_PAIRS), ())
    twice = frames.staged(spark, Staged(name), Staged(name, None))
    made = classified(frames.inventory(spark, Listed(name)), holding, twice, HORIZON, staged_known=True)
    assert [row["state"] for row in made.collect()] == ["held"]


def test_an_address_is_live_by_an_active_commit_a_tag_a_hold_or_a_staging_area(spark: SparkSession) -> None:
    staged = frames.staged(spark, *STAGED, Staged(address(500)))
    live = live_addresses(frames.pairs(spark, *HELD_PAIRS), staged, HELD_PREFIXES)
    names = ("at_two_paths", "active", "tagged", "held_by_prefix", "not_text", "staged", "in_no_commit_but_staged")
    expected = {GENERATED[name] for name in (*names, "active_and_staged")} | {address(500)}
    assert [row["address"] for row in as_dicts(live, "address")] == sorted(expected)


def test_a_live_address_has_the_newest_of_its_times(spark: SparkSession) -> None:
    name = GENERATED["active"]
    held = frames.pairs(
        spark,
        Pair(name, "a", active=True, last_modified=OLD),
        Pair(name, "b", active=True, last_modified=OLD + DAY),
        Pair(name, "c", active=False, last_modified=NOW),
        Pair(address(501), "d", active=True, last_modified=None),
    )
    live = as_dicts(live_addresses(held, frames.staged(spark, Staged(name, OLD + 2 * DAY)), ()), "last_modified")
    assert [(row["address"], row["last_modified"]) for row in live] == [(name, OLD + 2 * DAY), (address(501), None)]


def test_objects_outside_the_namespace_need_not_be_listed(spark: SparkSession) -> None:
    held = frames.pairs(spark, Pair("s3://elsewhere/object", active=True), Pair("https://a.b/c", protected=True))
    assert live_addresses(held, frames.staged(spark), ("",)).count() == 0


def test_times_are_compared_in_utc_whatever_the_time_zone_of_the_session(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        passed = of(spark, [NOW - GRACE - MICROSECOND, NOW - GRACE], pa.timestamp("us", tz="UTC"), HORIZON.is_older)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert passed == [True, False]
