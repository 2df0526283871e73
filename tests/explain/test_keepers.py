"""The pure rules for what keeps a (path, address) pair and until when, for cases that no saved repository has."""

from datetime import UTC, date, datetime, timedelta

import pytest

from retention_assets.core.keepers import Keeper, first_day_from, old_enough_at, plan_day, released_at
from retention_assets.lakefs.rules.keepers import Entry, keepers_of, kept_commits
from retention_assets.lakefs.rules.references import Commit, References
from retention_assets.lakefs.rules.reflog import Memory, SeenHead
from retention_assets.policy.rules import CommittedRetention, Hold, LifecycleRule, Policy

DAY, SECOND = timedelta(days=1), timedelta(seconds=1)
NOW = datetime(2026, 11, 1, tzinfo=UTC)


def ago(days: float) -> datetime:
    return NOW - days * DAY


def a_commit(name: str, parents: tuple[str, ...], days_ago: float) -> Commit:
    return Commit(name, parents, ago(days_ago), f"of-{name}", 1)


# a <- b <- c (main)   b <- gone (a branch that was deleted)
COMMITS = (a_commit("a", (), 40), a_commit("b", ("a",), 20), a_commit("c", ("b",), 5), a_commit("gone", ("b",), 15))
REFERENCES = References({one.commit_id: one for one in COMMITS}, {"main": "c"}, {"v1": "a"}, NOW)
RETENTION = CommittedRetention((), 30 * DAY, has_default=True)


def keepers(
    *commits: str,
    policy: Policy | None = None,
    tags_protect: bool = False,
    memory: Memory | None = None,
    left: tuple[str, ...] = (),
) -> dict[str, Keeper]:
    """Return what keeps a pair in these commits, by kind."""
    policy = policy or Policy(RETENTION, (), ())
    kept = kept_commits(policy, REFERENCES, tags_protect=tags_protect, as_of=NOW, memory=memory or Memory())
    added = min(REFERENCES.commits[one].created_at for one in commits)
    entry = Entry("raw/x", "data/x", 1, added, ("main",), left, commits)
    return {keeper.kind: keeper for keeper in keepers_of(entry, kept)}


def test_a_head_keeps_a_pair_without_an_end() -> None:
    assert keepers("c")["branch"].until is None


def test_a_commit_keeps_a_pair_until_the_retention_counted_from_its_child_ends() -> None:
    found = keepers("a")
    assert set(found) == {"commit"}
    assert found["commit"].until == ago(20) + 30 * DAY


def test_of_several_commits_the_one_that_ends_last_is_named() -> None:
    assert keepers("a", "b")["commit"].name == "b"


def test_a_commit_that_has_expired_keeps_nothing() -> None:
    short = Policy(CommittedRetention((), 3 * DAY, has_default=True), (), ())
    assert keepers("a", "b", policy=short) == {}


def test_a_tag_keeps_a_pair_without_an_end_only_if_tags_protect() -> None:
    assert keepers("a", tags_protect=True)["tag"].until is None
    assert "tag" not in keepers("a")


def test_a_deleted_tag_keeps_a_pair_for_the_duration_of_the_reflog() -> None:
    memory = Memory((SeenHead("tag", "v0", "b", ago(2)),), {}, None)
    assert keepers("b", tags_protect=True, memory=memory)["reflog"].until == ago(2) + 30 * DAY


def test_a_deleted_branch_keeps_a_pair_for_the_duration_of_the_reflog() -> None:
    memory = Memory((SeenHead("branch", "old", "gone", ago(2)),), {}, None)
    kept = keepers("gone", memory=memory)["reflog"]
    duration = RETENTION.duration_for("old").duration
    assert duration is not None
    assert kept.until == ago(2) + duration
    assert "old" in f"{kept.name} {kept.detail}"


def test_a_keeper_names_its_commit_by_the_full_id() -> None:
    old, head = "a" * 64, "b" * 64
    commits = {old: a_commit(old, (), 20), head: a_commit(head, (old,), 5)}
    references = References(commits, {"main": head}, {"v1": old}, NOW)
    memory = Memory((SeenHead("tag", "v0", old, ago(2)),), {}, None)
    kept = kept_commits(Policy(RETENTION, (), ()), references, tags_protect=True, as_of=NOW, memory=memory)
    found = keepers_of(Entry("raw/x", "data/x", 1, ago(20), ("main",), (), (old,)), kept)
    details = {keeper.kind: keeper.detail for keeper in found}
    assert details.keys() == {"tag", "reflog", "commit"}
    assert all(old in detail for detail in details.values())


def test_a_lifecycle_rule_limits_how_long_a_head_keeps_a_pair() -> None:
    rule = LifecycleRule("raw", "raw", 50 * DAY, {})
    found = keepers("a", "c", policy=Policy(RETENTION, (rule,), ()))
    assert found["branch"].until == ago(40) + 50 * DAY
    assert found["branch"].detail.endswith("has it; then the lifecycle rule raw releases it")


def test_a_lifecycle_rule_uses_the_longest_duration_of_the_branches_of_a_pair_also_deleted_ones() -> None:
    rule = LifecycleRule("raw", "raw", 10 * DAY, {"old": 60 * DAY})
    policy = Policy(None, (rule,), ())
    assert keepers("c", "a", policy=policy) == {}
    assert keepers("c", "a", policy=policy, left=("old",))["branch"].until == ago(40) + 60 * DAY


def test_a_hold_on_a_prefix_keeps_a_pair_until_the_end_of_its_last_day() -> None:
    hold = Hold("audit", "prefix", "raw", "the audit", date(2026, 11, 3))
    short = Policy(CommittedRetention((), DAY, has_default=True), (), (hold,))
    assert keepers("a", policy=short)["hold"].until == datetime(2026, 11, 4, tzinfo=UTC)


def test_a_hold_whose_last_day_has_passed_keeps_nothing() -> None:
    hold = Hold("audit", "prefix", "raw", "the audit", date(2026, 10, 30))
    short = Policy(CommittedRetention((), DAY, has_default=True), (), (hold,))
    assert keepers("a", policy=short) == {}


def test_a_hold_on_a_commit_keeps_its_pairs() -> None:
    policy = Policy(CommittedRetention((), DAY, has_default=True), (), (Hold("h", "commit", "a", "why"),))
    assert keepers("a", policy=policy)["hold"].until is None


def test_an_object_is_released_when_the_last_keeper_ends_and_never_if_one_does_not() -> None:
    one, other, for_ever = (Keeper("hold", "h", "", until) for until in (ago(1), ago(-1), None))
    assert released_at([one, other]) == ago(-1)
    assert released_at([one, for_ever]) is None


@pytest.mark.parametrize(
    ("instant", "day"),
    [
        pytest.param(NOW, date(2026, 11, 1), id="the beginning of a day"),
        pytest.param(NOW + SECOND, date(2026, 11, 2), id="a second later"),
        pytest.param(NOW - SECOND, date(2026, 11, 1), id="a second before"),
    ],
)
def test_the_day_of_a_time_is_the_first_day_that_does_not_begin_before_it(instant: datetime, day: date) -> None:
    assert first_day_from(instant) == day


def test_a_time_without_a_fraction_counts_as_the_end_of_its_second() -> None:
    half = NOW.replace(microsecond=500_000)
    assert old_enough_at((NOW, None), DAY) == NOW + SECOND + DAY
    assert old_enough_at((half,), DAY) == half + DAY


def test_the_day_of_a_plan_is_the_latest_of_release_age_and_today_plus_the_wait() -> None:
    today = NOW.date()
    assert plan_day(None, ago(3), timedelta(0), today) == today
    assert plan_day(ago(-5), ago(3), timedelta(0), today) == today + 5 * DAY
    assert plan_day(ago(-5), ago(-9), timedelta(0), today) == today + 9 * DAY
    assert plan_day(ago(-5), ago(3), timedelta(hours=25), today) == today + 7 * DAY
    assert plan_day(datetime.max.replace(tzinfo=UTC), ago(3), timedelta(hours=25), today) == date.max
