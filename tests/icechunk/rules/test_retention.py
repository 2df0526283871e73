from datetime import date, timedelta

import pytest

from retention_assets.errors import GuardRefused, SourceError
from retention_assets.icechunk.formats.ids import encode_id
from retention_assets.icechunk.rules.retention import Decision, held_snapshots, select
from retention_assets.icechunk.rules.snapshots import History
from retention_assets.policy.rules import Hold
from retention_assets.policy.snapshots import NOT_BY_AGE, Keep, SnapshotPolicy, SnapshotRule
from tests.icechunk.rules.graphs import SEED, SEED_THRESHOLD, at, history, names, snapshot_id
from tests.models.policies import everything_older

NOW = at(240)


def hours(number: float) -> timedelta:
    return timedelta(hours=number)


def kept_for(number: float | None, last: int = 0) -> Keep:
    return Keep("default", None if number is None else hours(number), last)


def branch_rule(name: str, number: float | None, last: int = 0) -> SnapshotRule:
    return SnapshotRule(name, "branch", name, NOT_BY_AGE if number == 0 else kept_for(number).newer, last)


def decided(one: History, policy: SnapshotPolicy, name: str, as_of=NOW) -> Decision:
    return select(one, policy, as_of, on_roots=False).decisions[snapshot_id(name)]


def expired(one: History, policy: SnapshotPolicy, as_of=NOW) -> set[str]:
    return names(select(one, policy, as_of, on_roots=False).expired)


# main: root, a, b, c, d; dev leaves it after b for x, y; `lost` is a child of x, and no reference reaches it
LINES = history(
    {
        "root": (None, 0),
        "a": ("root", 10),
        "b": ("a", 20),
        "c": ("b", 30),
        "d": ("c", 40),
        "x": ("b", 35),
        "y": ("x", 45),
        "lost": ("x", 50),
    },
    {"main": "d", "dev": "y"},
)


def test_one_rule_for_all_expires_older_snapshots_and_never_the_root():
    assert expired(LINES, everything_older(), at(30)) == {"a", "b"}
    assert expired(SEED, everything_older(), SEED_THRESHOLD) == set("1234567")


def test_a_snapshot_is_kept_at_the_exact_limit_and_not_a_microsecond_later():
    policy = SnapshotPolicy(default=kept_for(24))
    assert not decided(LINES, policy, "a", at(34)).expired
    assert decided(LINES, policy, "a", at(34) + timedelta(microseconds=1)).expired


def test_the_longest_retention_of_the_references_that_reach_a_snapshot_decides():
    policy = SnapshotPolicy((branch_rule("main", 100), branch_rule("dev", 1)))
    assert expired(LINES, policy, at(110)) == {"x", "y"}
    assert decided(LINES, policy, "b", at(110)) == Decision(
        False, at(120), "main", "branch main", f"kept: branch main keeps it until {at(120)} (rule main)"
    )
    assert decided(LINES, policy, "x", at(110)) == Decision(
        True,
        at(36),
        "dev",
        "branch dev",
        f"expired: branch dev kept it longest, until {at(36)} (rule dev)",
    )


def test_keep_last_keeps_the_newest_snapshots_whatever_their_age():
    policy = SnapshotPolicy((branch_rule("main", 0, 2), branch_rule("dev", 0, 3)))
    assert expired(LINES, policy) == {"a"}
    assert decided(LINES, policy, "c").reason == "kept: it is one of the 2 newest snapshots of branch main (rule main)"
    assert decided(LINES, policy, "b").reason == "kept: it is one of the 3 newest snapshots of branch dev (rule dev)"


def test_a_snapshot_pushed_out_by_newer_ones_expires_when_the_last_of_them_is_written():
    one = decided(LINES, SnapshotPolicy((branch_rule("main", 0, 2), branch_rule("dev", 0, 1))), "a")
    assert one == Decision(
        True,
        at(30),
        "main",
        "branch main",
        f"expired: branch main kept it longest, until {at(30)} (rule main)",
    )


def test_keep_newer_and_keep_last_together_keep_what_either_keeps():
    policy = SnapshotPolicy((branch_rule("main", 220, 1),), default=kept_for(1))
    assert expired(LINES, policy, at(235)) == {"a", "x", "y", "lost"}
    assert expired(LINES, policy, at(1000)) == {"a", "b", "c", "x", "y", "lost"}


def test_a_reference_without_a_rule_keeps_its_history():
    policy = SnapshotPolicy((branch_rule("main", 1),))
    assert expired(LINES, policy) == {"c", "d"}
    assert decided(LINES, policy, "a") == Decision(False, None, None, "branch dev", "kept: branch dev has no rule")


def test_a_rule_that_keeps_for_ever_expires_nothing():
    policy = SnapshotPolicy((branch_rule("main", None),), default=kept_for(1))
    assert expired(LINES, policy) == {"x", "y", "lost"}
    reason = "kept: branch main keeps its history for ever (rule main)"
    assert decided(LINES, policy, "a") == Decision(False, None, "main", "branch main", reason)


def test_tags_have_rules_of_their_own():
    tagged = History(LINES.snapshots, LINES.branches, {"v1": snapshot_id("x"), "tmp": snapshot_id("y")})
    policy = SnapshotPolicy((SnapshotRule("releases", "tag", "v*", hours(300)),), default=kept_for(1))
    assert expired(tagged, policy) == {"c", "d", "y", "lost"}
    assert decided(tagged, policy, "a").reference == "tag v1"


@pytest.mark.parametrize(
    ("default", "gone"),
    [
        pytest.param(kept_for(100), True, id="older_than_the_default"),
        pytest.param(kept_for(200), False, id="younger_than_the_default"),
        pytest.param(kept_for(100, 5), True, id="numbers_do_not_count_without_a_history"),
        pytest.param(Keep("default", NOT_BY_AGE, 5), False, id="a_default_that_only_counts_keeps_it"),
        pytest.param(kept_for(None), False, id="for_ever"),
        pytest.param(None, False, id="no_default"),
    ],
)
def test_the_default_decides_on_a_snapshot_that_no_reference_reaches(default, gone):
    one = decided(LINES, SnapshotPolicy((branch_rule("main", 1), branch_rule("dev", 1)), default), "lost")
    assert one.expired is gone
    assert one.reference is None
    assert "no branch or tag reaches it, so the default counts" in one.reason


def test_the_reason_for_keeping_a_root_is_that_it_is_the_root():
    assert decided(LINES, everything_older(), "root").reason == "kept: it is the root of its history"


def test_a_parent_with_a_later_time_keeps_its_children():
    # `late` was flushed by a clock that is far ahead, the root by one farther still
    skewed = history(
        {"root": (None, 500), "a": ("root", 1), "late": ("a", 100), "b": ("late", 3), "c": ("b", 4)}, {"main": "c"}
    )
    assert expired(skewed, everything_older(), at(50)) == {"a"}
    assert expired(skewed, everything_older(), at(101)) == {"a", "late", "b", "c"}


def test_a_snapshot_that_one_reference_keeps_stays_although_another_reference_no_longer_keeps_it():
    # the tip of main comes from a clock that is ahead: what it pushed out went, by that clock, in the future
    ahead = history({"root": (None, 0), "a": ("root", 10), "d": ("a", 500), "y": ("a", 45)}, {"main": "d", "dev": "y"})
    one = decided(ahead, SnapshotPolicy((branch_rule("main", 0, 1), branch_rule("dev", 240))), "a")
    assert (one.expired, one.rule_id, one.due_since) == (False, "dev", at(250))


HOLDS = {
    "snapshot": Hold("h", "snapshot", encode_id(snapshot_id("b")), "audit"),
    "tag": Hold("h", "tag", "v1", "audit"),
    "branch": Hold("h", "branch", "main", "audit"),
}
TAGGED = History(LINES.snapshots, LINES.branches, {"v1": snapshot_id("b")})


@pytest.mark.parametrize(
    ("kind", "gone"),
    [
        pytest.param("snapshot", {"a", "c", "d", "x", "y", "lost"}, id="a_snapshot"),
        pytest.param("tag", {"a", "c", "d", "x", "y", "lost"}, id="the_snapshot_of_a_tag"),
        pytest.param("branch", {"x", "y", "lost"}, id="the_history_of_a_branch"),
    ],
)
def test_a_hold_keeps_what_it_names(kind, gone):
    policy = SnapshotPolicy(default=kept_for(1), holds=(HOLDS[kind],))
    selection = select(TAGGED, policy, NOW, on_roots=False)
    assert names(selection.expired) == gone
    assert names(selection.held) == (set() if kind == "branch" else {"b"})
    assert selection.decisions[snapshot_id("b")].rule_id == "hold:h"
    if kind != "branch":
        assert selection.decisions[snapshot_id("b")].reason == "kept: held by h (audit)"


def test_a_hold_ends_with_its_last_day():
    hold = Hold("h", "snapshot", encode_id(snapshot_id("b")), "audit", date(2024, 1, 3))
    policy = SnapshotPolicy(default=kept_for(1), holds=(hold,))
    assert list(held_snapshots(LINES, policy, at(71.9))) == [snapshot_id("b")]
    assert "b" not in expired(LINES, policy, at(71.9))
    assert held_snapshots(LINES, policy, at(72)) == {}
    assert "b" in expired(LINES, policy, at(72))


@pytest.mark.parametrize(
    "hold",
    [
        Hold("h", "snapshot", encode_id(snapshot_id("nobody")), "r"),
        Hold("h", "snapshot", "main", "r"),
        Hold("h", "branch", "v1", "r"),
        Hold("h", "tag", "main", "r"),
        Hold("h", "commit", "b", "r"),
        Hold("h", "prefix", "b", "r"),
    ],
    ids=lambda hold: f"{hold.kind}_{hold.value}",
)
def test_a_hold_on_a_missing_name_is_refused(hold):
    with pytest.raises(GuardRefused, match=f"hold 'h' names the {hold.kind} '{hold.value}'.*Nothing was changed"):
        select(TAGGED, SnapshotPolicy(default=kept_for(1), holds=(hold,)), NOW, on_roots=False)


REFERENCES = History(
    LINES.snapshots,
    {**LINES.branches, "new": snapshot_id("root"), "same": snapshot_id("d")},
    {"v1": snapshot_id("b"), "first": snapshot_id("root")},
)


def deleted(policy: SnapshotPolicy, *, on_roots: bool = False, as_of=NOW) -> list[str]:
    return [str(one) for one in select(REFERENCES, policy, as_of, on_roots=on_roots).deleted]


def test_references_are_deleted_only_if_the_policy_enables_it():
    assert deleted(everything_older()) == []
    assert deleted(everything_older(), on_roots=True) == []


def test_main_is_never_deleted_though_others_on_its_tip_are():
    policy = everything_older(delete_expired_branches=True, delete_expired_tags=True)
    assert deleted(policy) == ["tag v1", "branch dev", "branch same"]


def test_references_on_a_root_expire_in_format_1_only():
    policy = everything_older(delete_expired_branches=True, delete_expired_tags=True)
    assert deleted(policy, on_roots=True) == ["tag first", "tag v1", "branch dev", "branch new", "branch same"]
    assert deleted(policy, on_roots=True, as_of=at(0)) == []


def test_a_reference_expires_by_its_own_rule():
    rules = (branch_rule("same", 1), branch_rule("main", None), branch_rule("dev", 0, 1))
    policy = SnapshotPolicy(rules, kept_for(300), delete_expired_branches=True, delete_expired_tags=True)
    selection = select(REFERENCES, policy, NOW, on_roots=False)
    assert [str(one) for one in selection.deleted] == ["branch same"]
    assert not selection.decisions[snapshot_id("d")].expired


@pytest.mark.parametrize("hold", [Hold("h", "branch", "same", "r"), Hold("h", "tag", "v1", "r")], ids=("branch", "tag"))
def test_a_held_reference_is_not_deleted(hold):
    policy = SnapshotPolicy(default=kept_for(1), holds=(hold,), delete_expired_branches=True, delete_expired_tags=True)
    assert f"{hold.kind} {hold.value}" not in deleted(policy)
    assert deleted(policy) == [one for one in ("tag v1", "branch dev", "branch same") if hold.value not in one]


def test_a_reference_whose_tip_is_held_is_not_deleted():
    """Else the held snapshot would lose its last name, and go when the hold ends."""
    hold = Hold("h", "snapshot", encode_id(snapshot_id("d")), "audit")
    policy = SnapshotPolicy(default=kept_for(1), holds=(hold,), delete_expired_branches=True, delete_expired_tags=True)
    assert deleted(policy) == ["tag v1", "branch dev"]


def test_a_broken_history_is_refused():
    with pytest.raises(SourceError):
        select(History(LINES.snapshots, {}, {}), everything_older(), NOW, on_roots=False)


def test_many_references_on_a_long_history_are_evaluated_in_one_pass():
    long = {0: (None, 0), **{n: (n - 1, n) for n in range(1, 20_000)}}
    tags = {f"t{n}": 19_000 + n for n in range(1000)}
    many = history(long, {"main": 19_999}, tags)
    rules = (SnapshotRule("t", "tag", "t*", NOT_BY_AGE, 5),)
    gone = select(many, SnapshotPolicy(rules, kept_for(500)), at(20_000), on_roots=False).expired
    assert len(gone) == 18_995  # 1..18,995: the last five of tag t0 go back to 18,996
