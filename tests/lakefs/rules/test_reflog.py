"""The reflog: heads that earlier plans saw and that are gone, and commits with wrong dates."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from retention_assets.lakefs.rules.committed import activity
from retention_assets.lakefs.rules.references import Commit, References
from retention_assets.lakefs.rules.reflog import (
    Memory,
    SeenHead,
    counting_heads,
    gone_heads,
    held_until,
    lost_heads,
    memory_digest,
    remember,
    reported_heads,
    with_true_ages,
)
from retention_assets.policy.rules import BranchRetention, CommittedRetention, Policy

DAY = timedelta(days=1)
START = datetime(2026, 6, 1, tzinfo=UTC)
RETENTION = CommittedRetention(
    (BranchRetention("gold", "gold", None), BranchRetention("main", "main", 45 * DAY)), 10 * DAY, has_default=True
)
POLICY = Policy(RETENTION, (), ())


def at(day: int) -> datetime:
    return START + day * DAY


def references(day: int, commits: Mapping[str, tuple[str, int]], **branches: str) -> References:
    """Return references. Each commit has its parent (empty: none) and the day of its date."""
    made = {
        name: Commit(name, (parent,) if parent else (), at(dated), name) for name, (parent, dated) in commits.items()
    }
    return References(made, branches, {}, at(day))


HISTORY = {"m1": ("", 0), "m2": ("m1", 50), "g1": ("m1", 1), "g2": ("g1", 2)}


def active(after: References, memory: Memory, day: int) -> set[str]:
    aged = with_true_ages(after, memory)
    left = counting_heads(aged, memory, POLICY, at(day))
    return {name for name, found in activity(aged, RETENTION, at(day), left).items() if found.active}


def test_a_deleted_branch_keeps_its_commits_for_its_own_retention() -> None:
    before = references(60, HISTORY, main="m2", gold="g2")
    after = references(61, HISTORY, main="m2")
    memory = remember(before, Memory(), POLICY)
    assert active(after, Memory(), 61) == {"m1", "m2"}
    assert active(after, memory, 61) == {"m1", "m2", "g1", "g2"}
    assert active(after, memory, 10_000) >= {"g1", "g2"}


def test_a_branch_that_was_reset_keeps_its_old_head_from_when_it_was_last_seen() -> None:
    memory = remember(references(60, {"a": ("", 0), "b": ("a", 1)}, main="b"), Memory(), POLICY)
    after = references(61, {"a": ("", 0), "b": ("a", 1)}, main="a")
    assert active(after, memory, 60 + 44) == {"a", "b"}
    assert active(after, memory, 60 + 45) == {"a"}


def test_the_digest_of_the_memory_changes_if_the_memory_keeps_other_commits() -> None:
    now = references(62, HISTORY, main="m2")
    of_gone_branch = remember(references(61, HISTORY, main="m2", gold="g2"), Memory(), POLICY)
    of_first_plan = Memory(not_before={name: at(60) for name in HISTORY}, seen_at=at(61))
    assert len({memory_digest(now, one, POLICY) for one in (Memory(), of_gone_branch, of_first_plan)}) == 3


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(references(61, HISTORY, main="m2"), id="unchanged"),
        pytest.param(references(49, HISTORY, main="m1"), id="moved on"),
        pytest.param(references(61, HISTORY, main="m2", gold="g2"), id="deleted branch that still counts"),
        pytest.param(references(5, HISTORY, main="m1", old="g2"), id="deleted branch that no longer counts"),
        pytest.param(references(40, {"m1": ("", 0)}, main="m1"), id="backdated commits"),
    ],
)
def test_the_digest_of_the_memory_is_the_same_after_the_plan_is_stored(before: References) -> None:
    now = references(62, HISTORY, main="m2")
    memory = remember(before, Memory(), POLICY)
    after = remember(with_true_ages(now, memory), memory, POLICY)
    assert memory_digest(now, memory, POLICY) == memory_digest(now, after, POLICY)


def test_a_backdated_commit_expires_nothing() -> None:
    memory = remember(references(60, {"a": ("", 0)}, main="a"), Memory(), POLICY)
    after = references(61, {"a": ("", 0), "b": ("a", -4000)}, main="b")
    assert active(after, Memory(), 61) == {"b"}
    assert active(after, memory, 61) == {"a", "b"}
    assert with_true_ages(after, memory).commits["b"].created_at == at(60)


def test_the_age_of_a_commit_is_remembered_by_every_later_plan() -> None:
    first = references(60, {"a": ("", 0)}, main="a")
    second = references(61, {"a": ("", 0), "b": ("a", -4000)}, main="b")
    memory = remember(first, Memory(), POLICY)
    for day in (61, 62, 63):
        seen = with_true_ages(second, memory)
        memory = remember(References(seen.commits, second.branches, {}, at(day)), memory, POLICY)
    assert with_true_ages(second, memory).commits["b"].created_at == at(60)
    assert with_true_ages(second, memory).commits["a"].created_at == at(0)


def test_a_first_plan_uses_every_commit_date_unchanged() -> None:
    seen = references(60, HISTORY, main="m2")
    assert with_true_ages(seen, Memory()) == seen


def test_the_old_head_of_a_branch_that_moved_on_is_forgotten() -> None:
    memory = remember(references(60, {"a": ("", 0)}, main="a"), Memory(), POLICY)
    after = references(62, {"a": ("", 0), "b": ("a", 61)}, main="b")
    assert [head.commit_id for head in remember(after, memory, POLICY).heads] == ["b"]


def test_a_vanished_commit_is_reported_as_lost_while_its_branch_would_keep_it() -> None:
    """lakeFS never removes commits, so the repository was restored to an older state."""
    memory = remember(references(60, {"a": ("", 0), "b": ("a", 59)}, main="b"), Memory(), POLICY)
    for day in (61, 62):  # lost commits stay known
        restored = references(day, {"a": ("", 0)}, main="a")
        assert [head.commit_id for head in lost_heads(restored, memory, POLICY)] == ["b"]
        memory = remember(restored, memory, POLICY)
    for day, lost in ((104, ["b"]), (106, [])):
        restored = references(day, {"a": ("", 0)}, main="a")
        assert [head.commit_id for head in lost_heads(restored, memory, POLICY)] == lost
    assert not lost_heads(references(59, {"a": ("", 0)}, main="a"), memory, POLICY)  # an older dump
    assert not lost_heads(references(61, {"a": ("", 0)}, main="a"), Memory(), POLICY)


def test_a_vanished_commit_is_reported_as_lost_for_30_days_however_long_ago_the_last_plan_was() -> None:
    memory = remember(references(60, {"a": ("", 0), "b": ("a", 59)}, main="b"), Memory(), POLICY)
    for day, lost in ((200, ["b"]), (201, ["b"]), (229, ["b"]), (246, [])):
        restored = references(day, {"a": ("", 0)}, main="a")
        assert [head.commit_id for head in lost_heads(restored, memory, POLICY)] == lost
        memory = remember(restored, memory, POLICY)


@pytest.mark.parametrize(
    ("days", "lost"),
    [
        pytest.param((89, 90, 118, 120), (True, True, True, False), id="29_days_later"),
        pytest.param((91, 92, 120, 122), (True, True, True, False), id="31_days_later"),
        pytest.param((91, 122, 153), (True, False, False), id="every_31_days"),
    ],
)
def test_a_vanished_commit_is_reported_as_lost_for_30_days_from_the_first_plan_without_it(
    days: tuple[int, ...], lost: tuple[bool, ...]
) -> None:
    """The retention period of its branch is shorter."""
    memory = remember(references(60, {"a": ("", 0), "b": ("a", 59)}, short="b"), Memory(), POLICY)
    for day, is_lost in zip(days, lost, strict=True):
        restored = references(day, {"a": ("", 0)}, short="a")
        assert bool(lost_heads(restored, memory, POLICY)) == is_lost
        memory = remember(restored, memory, POLICY)


def test_a_branch_that_was_reset_and_moved_forward_again_keeps_the_commit_of_the_reset() -> None:
    commits = {"a": ("", 0), "b": ("a", 1)}
    memory = remember(references(10, commits, main="b"), Memory(), POLICY)
    memory = remember(references(60, commits, main="a"), memory, POLICY)
    after = references(61, commits, main="b")
    assert active(after, remember(after, memory, POLICY), 60 + 44) == {"a", "b"}


def test_a_head_whose_retention_is_over_is_forgotten() -> None:
    memory = remember(references(60, HISTORY, main="m2", ci="g2"), Memory(), POLICY)
    assert ("ci", "g2") in {(head.name, head.commit_id) for head in memory.heads}
    early, late = (remember(references(day, HISTORY, main="m2"), memory, POLICY) for day in (89, 91))
    assert {head.name for head in early.heads} == {"main", "ci"}
    assert not counting_heads(references(89, HISTORY, main="m2"), memory, POLICY, at(89))
    assert {head.name for head in late.heads} == {"main"}


def test_a_policy_that_is_too_short_by_mistake_does_not_forget_heads() -> None:
    short = Policy(CommittedRetention((), DAY, has_default=True), (), ())
    memory = remember(references(60, HISTORY, main="m2", ci="g2"), Memory(), POLICY)
    after = references(65, HISTORY, main="m2")
    memory = remember(after, memory, short)
    assert not counting_heads(after, memory, short, at(65))
    assert [head.name for head in counting_heads(after, memory, POLICY, at(65))] == ["ci"]


def test_a_deleted_tag_counts_for_the_default_time() -> None:
    tag = SeenHead("tag", "v1", "g2", at(60))
    assert held_until(tag, POLICY) == at(70)
    assert held_until(tag, Policy(None, (), ())) == at(90)


@pytest.mark.parametrize(
    ("branches", "left"),
    [
        pytest.param({"main": "m2", "gold": "g2"}, set(), id="as_it_was"),
        pytest.param({"main": "m2"}, {"gold"}, id="deleted"),
        pytest.param({"main": "m2", "gold": "m1"}, {"gold"}, id="made_again_elsewhere"),
    ],
)
def test_gone_heads_are_those_that_their_branch_or_tag_no_longer_has(branches: dict[str, str], left: set[str]) -> None:
    memory = remember(references(60, HISTORY, main="m2", gold="g2"), Memory(), POLICY)
    assert {head.name for head in gone_heads(references(61, HISTORY, **branches), memory)} == left


@pytest.mark.parametrize(
    ("main", "dated", "left"),
    [
        pytest.param("m3", 60, set(), id="moved_on"),
        pytest.param("m3", 1, set(), id="moved_on_to_a_commit_with_a_wrong_date"),
        pytest.param("m1", 60, {"m2"}, id="reset"),
        pytest.param("g2", 60, {"m2"}, id="made_again_elsewhere"),
    ],
)
def test_a_branch_that_has_only_moved_on_did_not_leave_its_head(main: str, dated: int, left: set[str]) -> None:
    memory = remember(references(60, HISTORY, main="m2"), Memory(), POLICY)
    after = references(61, {**HISTORY, "m3": ("m2", dated)}, main=main)
    assert {head.commit_id for head in reported_heads(after, memory, POLICY, at(61))} == left
    assert {head.commit_id for head in counting_heads(after, memory, POLICY, at(61))} == {"m2"}


def test_a_head_whose_commit_is_no_longer_known_is_left_out() -> None:
    memory = Memory((SeenHead("branch", "gold", "unknown", at(60)),), {}, at(60))
    assert gone_heads(references(61, HISTORY, main="m2"), memory) == ()
