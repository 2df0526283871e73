from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone

import pytest

from retention_assets.errors import GuardRefused, SourceError
from retention_assets.lakefs.rules.committed import Activity, activity, commit_graph, protected_commits
from retention_assets.lakefs.rules.references import UNKNOWN_TIME, Commit, References, creation_time
from retention_assets.lakefs.rules.reflog import SeenHead
from retention_assets.policy.rules import BranchRetention, CommittedRetention, Hold, Policy
from tests.lakefs.rules import upstream
from tests.lakefs.rules.naive import History, NaiveCommit
from tests.lakefs.rules.strategies import AS_OF, references_of


def days(number: float) -> timedelta:
    return timedelta(days=number)


def history(**commits: tuple) -> History:
    """Return a history. `d=(5, "c", "a")`: commit d, 5 days old, with the main parent c and the other parent a."""
    return {commit: NaiveCommit(tuple(parents), AS_OF - days(age)) for commit, (age, *parents) in commits.items()}


def rules(default: int | None, **by_branch: int) -> CommittedRetention:
    named = tuple(BranchRetention(branch, branch, days(number)) for branch, number in by_branch.items())
    return CommittedRetention(named, None if default is None else days(default), has_default=default is not None)


def active(references: References, retention: CommittedRetention | None) -> set[str]:
    return {commit for commit, one in activity(references, retention, AS_OF).items() if one.active}


TWO_BRANCHES = history(a=(15,), b=(10, "a"), c=(10, "a"), d=(5, "c"), e=(5, "b"), f=(1, "e"))
DANGLING = TWO_BRANCHES | history(g=(8, "c"), h=(7, "g"))


@pytest.mark.parametrize(
    ("commits", "heads", "expected"),
    [
        pytest.param(TWO_BRANCHES, {"f": 7, "d": 3}, "bdef", id="two_branches"),
        pytest.param(
            history(a=(15,), b=(20,), c=(20, "a"), d=(20, "a")), {"b": 7, "c": 7, "d": 7}, "bcd", id="old_heads"
        ),
        pytest.param(history(a=(7,), b=(6, "a"), c=(7,), d=(6, "c", "a")), {"b": 3, "d": 10}, "bcd", id="merge"),
        pytest.param(
            history(a=(15,), b=(10, "a"), c=(10, "a"), d=(5, "c"), e=(7, "b"), f=(1, "e")),
            {"f": 7, "d": 3},
            "def",
            id="two_branches_with_previously_expired",
        ),
        pytest.param(DANGLING | history(i=(4, "h")), {"f": 7, "d": 3}, "bdefhi", id="dangling_commits_active"),
        pytest.param(DANGLING | history(i=(6, "h")), {"f": 7, "d": 3}, "bdef", id="dangling_commits_expired"),
    ],
)
def test_active_commits_agree_with_the_test_cases_of_lakefs(commits, heads, expected):
    # The cases of lakeFS's own tests. The default is 5 days, and a branch has the name of its head. Source:
    # docs/retention.md, "Rule".
    assert active(references_of(commits, {head: head for head in heads}), rules(5, **heads)) == set(expected)


def test_the_longest_period_of_the_branches_that_reach_a_commit_by_main_parents_counts_and_a_merge_does_not() -> None:
    """`b` was replaced 20 days ago. `dev` (7 days) reaches `b` by main parents, `main` (90 days) through a merge."""
    commits = history(a=(40,), b=(30, "a"), c=(20, "b"), n=(25, "a"), m=(10, "n", "c"))
    merged = references_of(commits, {"dev": "c", "main": "m"})
    assert "b" not in active(merged, rules(1, dev=7, main=90))
    by_main_parents = references_of(commits, {"dev": "c", "main": "m", "gold": "c"})
    assert "b" in active(by_main_parents, rules(1, dev=7, main=90, gold=60))


@pytest.mark.parametrize("seconds", [1_700_000_000_000, 2**63 - 1, 0, -1, -62_135_596_800, -(2**63)])
def test_a_commit_with_an_impossible_date_counts_as_later_than_all_others(seconds: int) -> None:
    assert creation_time(seconds, 0) == UNKNOWN_TIME
    assert creation_time(1_700_000_000, 5) == datetime(2023, 11, 14, 22, 13, 20, 5, UTC)


def test_active_commits_agree_with_the_documented_example_for_two_branches():
    # main 21 days and dev 7, run on 2022-03-31: main keeps what its head was from 03-10 on, dev from 03-24 on.
    def on(day: int) -> datetime:
        return datetime(2022, 3, day, tzinfo=UTC)

    commits = {"m2": NaiveCommit((), on(2)), "m9": NaiveCommit(("m2",), on(9)), "m20": NaiveCommit(("m9",), on(20))}
    commits |= {
        "d16": NaiveCommit(("m9",), on(16)),
        "d23": NaiveCommit(("d16",), on(23)),
        "d30": NaiveCommit(("d23",), on(30)),
    }
    references = references_of(commits, {"main": "m20", "dev": "d30"})
    kept = activity(references, rules(None, main=21, dev=7), on(31))
    assert {commit for commit, one in kept.items() if one.active} == {"m9", "m20", "d23", "d30"}


SEED = history(A=(20,), B=(10, "A"), C=(8, "B"), D=(5, "C"), E=(6, "B"), F=(1, "E"))


def test_the_commit_that_was_head_at_the_threshold_and_later_commits_are_active():
    # 7 days ago the HEAD was B, so objects only in A are due.
    commits = history(A=(20,), B=(10, "A"), C=(5, "B"), D=(2, "C"))
    assert active(references_of(commits, {"main": "D"}), rules(None, main=7)) == set("BCD")


def test_each_branch_keeps_the_commits_of_its_own_retention():
    # main 7 days: B was its HEAD then; feature1 3 days: D was its HEAD then, so C has gone and D still holds example1.
    assert active(references_of(SEED, {"main": "F", "feature1": "D"}), rules(7, main=7, feature1=3)) == set("BDEF")


@pytest.mark.parametrize(("default", "expected"), [(7, "BCDEF"), (3, "BEF")])
def test_commits_of_a_deleted_branch_are_active_for_the_default_retention(default, expected):
    assert active(references_of(SEED, {"main": "F"}), rules(default, main=7)) == set(expected)


def test_a_commit_exactly_at_the_threshold_is_not_active():
    commits = history(a=(9,), b=(7, "a"))
    at_the_limit = activity(references_of(commits, {"main": "b"}), rules(None, main=7), AS_OF)["a"]
    assert at_the_limit == Activity(active=False, due_since=AS_OF, rule_id="main")
    a_moment_before = activity(references_of(commits, {"main": "b"}), rules(None, main=7), AS_OF - timedelta(seconds=1))
    assert a_moment_before["a"].active
    leaf = activity(references_of(history(a=(7,)), {}), rules(7), AS_OF)["a"]
    assert leaf == Activity(active=False, due_since=AS_OF, rule_id="default")


def test_a_head_is_active_whatever_its_age_and_by_no_rule():
    one = activity(references_of(history(a=(5000,)), {"main": "a"}), rules(1, main=1), AS_OF)["a"]
    assert one == Activity(active=True, due_since=None, rule_id=None)


def test_a_head_that_is_an_ancestor_of_another_branch_is_active():
    commits = history(a=(50,), b=(40, "a"), c=(30, "b"))
    kept = activity(references_of(commits, {"main": "c", "old": "b"}), rules(1), AS_OF)
    assert kept["b"].active
    assert not kept["a"].active


def test_the_longest_retention_of_several_heads_on_one_commit_decides():
    commits = history(a=(20,), b=(8, "a"))
    references = references_of(commits, {"long": "b", "short": "b", "middle": "b"})
    one = activity(references, rules(None, long=9, short=1, middle=5), AS_OF)["a"]
    assert one == Activity(active=True, due_since=AS_OF + days(1), rule_id="long")


def test_the_longest_retention_of_branches_with_a_common_ancestor_decides_and_is_named():
    # a <- b <- c (short);  b <- d (long): what lets a go last is d's line, by b's creation.
    commits = history(a=(30,), b=(12, "a"), c=(11, "b"), d=(11, "b"))
    kept = activity(references_of(commits, {"short": "c", "long": "d"}), rules(None, short=2, long=20), AS_OF)
    assert kept["a"] == Activity(active=True, due_since=AS_OF + days(8), rule_id="long")
    assert kept["b"] == Activity(active=True, due_since=AS_OF + days(9), rule_id="long")


def test_if_due_dates_are_equal_the_lower_rule_id_is_named():
    commits = history(a=(30,), b=(12, "a"), c=(12, "a"))
    for heads in ({"y": "b", "x": "c"}, {"x": "b", "y": "c"}):
        assert activity(references_of(commits, heads), rules(None, x=2, y=2), AS_OF)["a"].rule_id == "x"


def test_a_commit_below_an_old_inactive_commit_may_be_active():
    # Dates may be set by the committer: the walk does not end at the first old commit.
    commits = history(root=(50,), middle=(2, "root"), head=(20, "middle"))
    assert active(references_of(commits, {"main": "head"}), rules(None, main=7)) == {"head", "root"}


def test_a_rule_that_keeps_for_ever_makes_nothing_due():
    commits = history(a=(5000,), b=(4000, "a"))
    retention = CommittedRetention((BranchRetention("gold", "g*", None),), days(1), has_default=True)
    assert activity(references_of(commits, {"gold": "b"}), retention, AS_OF)["a"] == Activity(True, None, "gold")


def test_without_a_default_dangling_commits_and_unnamed_branches_stay():
    commits = history(a=(5000,), b=(4000, "a"), x=(3000, "a"))
    kept = activity(references_of(commits, {"dev": "b"}), rules(None, main=1), AS_OF)
    assert kept["x"] == Activity(True, None, None)
    assert all(one.active for one in kept.values())


def test_without_rules_every_commit_is_active():
    # An empty set of rules that becomes an empty set of commits would delete everything.
    commits = history(a=(5000,), b=(4000, "a"), dangling=(3000,))
    references = references_of(commits, {"main": "b"})
    assert active(references, None) == set(commits)
    assert active(references, CommittedRetention(())) == set(commits)


def test_a_second_parent_is_not_kept_by_the_branch_that_merged_it():
    commits = history(a=(30,), tip=(20, "a"), merge=(1, "a", "tip"))
    assert active(references_of(commits, {"main": "merge"}), rules(5, main=7)) == {"merge", "a"}


def test_the_main_parent_of_a_version_0_commit_is_its_last():
    commits = history(a=(30,), tip=(20, "a"))
    commits["merge"] = NaiveCommit(("tip", "a"), AS_OF - days(1), main_is_last=True)
    assert active(references_of(commits, {"main": "merge"}), rules(5, main=7)) == {"merge", "a"}


@pytest.mark.parametrize(
    ("sibling", "heads", "walked", "right"),
    [
        pytest.param("a", "ab", "ab", "abp", id="head_that_sorts_first"),
        pytest.param("z", "zb", "bpz", "bpz", id="head_that_sorts_last"),
        pytest.param("a", "b", "b", "bp", id="dangling_leaf_that_sorts_first"),
        pytest.param("z", "b", "bp", "bp", id="dangling_leaf_that_sorts_last"),
    ],
)
def test_the_names_of_commits_do_not_decide_what_is_active(sibling, heads, walked, right):
    # p <- sibling (20 days) and p <- b (5 days), all kept 10 days: 5 days ago p was still the head of b's branch.
    commits = history(p=(30,), b=(5, "p")) | {sibling: NaiveCommit(("p",), AS_OF - days(20))}
    by_head = {head: days(10) for head in heads}
    order = upstream.starts(commits, by_head)
    assert upstream.walk(commits, by_head, days(10), AS_OF, order) == set(walked)
    assert active(references_of(commits, {head: head for head in heads}), rules(10)) == set(right)


WHOLE = references_of(TWO_BRANCHES, {"main": "f", "dev": "d"}, {"v1": "a"})


@pytest.mark.parametrize(
    ("references", "message"),
    [
        pytest.param(
            replace(WHOLE, commits={key: commit for key, commit in WHOLE.commits.items() if key != "b"}),
            "commit e: its parent b is not among the 5 commits",
            id="main_parent",
        ),
        pytest.param(
            replace(WHOLE, commits=WHOLE.commits | {"g": Commit("g", ("f", "lost"), AS_OF, "m")}),
            "commit g: its parent lost",
            id="second_parent",
        ),
        pytest.param(replace(WHOLE, branches={"main": "lost"}), "branch 'main': its commit lost", id="head"),
        pytest.param(replace(WHOLE, tags={"v1": "lost"}), "tag 'v1': its commit lost", id="tag"),
        pytest.param(
            replace(
                WHOLE,
                commits=WHOLE.commits | {"x": Commit("x", ("y",), AS_OF, ""), "y": Commit("y", ("x",), AS_OF, "")},
            ),
            "commit x is its own ancestor",
            id="cycle",
        ),
    ],
)
def test_contradictory_references_end_the_run(references, message):
    # An unknown commit must not give an empty result.
    for read in (
        lambda: commit_graph(references),
        lambda: activity(references, rules(5), AS_OF),
        lambda: activity(references, None, AS_OF),
    ):
        with pytest.raises(SourceError) as raised:
            read()
        assert str(raised.value).startswith(message)
        assert "Nothing was deleted. Run the same command again" in str(raised.value)


def test_protection_refuses_incomplete_references_too():
    with pytest.raises(SourceError, match="tag 'v1': its commit lost"):
        protected_commits(replace(WHOLE, tags={"v1": "lost"}), Policy(None, (), ()), tags_protect=True, as_of=AS_OF)


def test_the_graph_names_branches_by_any_parent_and_dangling_by_the_main_one():
    commits = history(a=(30,), tip=(20, "a"), merge=(10, "a", "tip"), deleted=(5, "a"))
    nodes = commit_graph(references_of(commits, {"main": "merge", "dev": "a", "rel": "a"}, {"v1": "a", "v2": "tip"}))
    assert [(node.commit.commit_id, node.branches, node.head_of, node.tags, node.dangling) for node in nodes] == [
        ("a", ("dev", "main", "rel"), ("dev", "rel"), ("v1",), False),
        ("deleted", (), (), (), True),
        ("merge", ("main",), ("main",), (), False),
        ("tip", ("main",), (), ("v2",), True),
    ]
    assert [node.commit.main_parent for node in nodes] == [None, "a", "a", "a"]


def test_references_without_commits_have_an_empty_graph():
    empty = References({}, {}, {}, AS_OF)
    assert commit_graph(empty) == ()
    assert activity(empty, rules(5), AS_OF) == {}


MERGED = references_of(
    history(a=(30,), tip=(20, "a"), merge=(10, "a", "tip"), x=(9, "a")), {"main": "merge", "dev": "x"}, {"v1": "a"}
)


def protected(*holds: Hold, tags_protect: bool = False, as_of: datetime = AS_OF) -> dict[str, list[str]]:
    found = protected_commits(MERGED, Policy(None, (), holds), tags_protect=tags_protect, as_of=as_of)
    return {commit: [keeper.detail for keeper in keepers] for commit, keepers in found.items()}


@pytest.mark.parametrize(
    ("hold", "commits"),
    [
        pytest.param(Hold("h", "branch", "main", "r"), {"a", "tip", "merge"}, id="branch_by_any_parent"),
        pytest.param(Hold("h", "tag", "v1", "r"), {"a"}, id="tag_although_tags_are_ignored"),
        pytest.param(Hold("h", "commit", "x", "r"), {"x"}, id="only_the_commit"),
        pytest.param(Hold("h", "prefix", "raw", "r"), set(), id="a_prefix_holds_paths"),
    ],
)
def test_a_hold_protects_the_commits_it_names(hold, commits):
    assert set(protected(hold)) == commits


@pytest.mark.parametrize(
    ("hold", "commits"),
    [
        pytest.param(Hold("h", "branch", "dev", "r"), {"a", "x", "tip"}, id="all_commits_of_the_branch"),
        pytest.param(Hold("h", "tag", "v1", "r"), {"a", "tip"}, id="the_commit_of_the_tag"),
        pytest.param(Hold("h", "branch", "main", "r"), {"a", "tip", "merge"}, id="another_name_covers_nothing_more"),
    ],
)
def test_a_hold_also_covers_earlier_heads_of_its_branch_or_tag(hold, commits):
    gone = [SeenHead("branch", "dev", "tip", AS_OF), SeenHead("tag", "v1", "tip", AS_OF)]
    found = protected_commits(MERGED, Policy(rules(30), (), (hold,)), gone, tags_protect=False, as_of=AS_OF)
    assert set(found) == commits
    assert all(len(keepers) == 1 for keepers in found.values())


@pytest.mark.parametrize(
    ("until", "ends"), [(None, AS_OF + days(30)), (date(2026, 11, 4), datetime(2026, 11, 5, tzinfo=UTC))]
)
def test_an_earlier_head_of_a_held_branch_is_kept_while_both_the_reflog_and_the_hold_last(until, ends):
    hold, gone = Hold("h", "branch", "dev", "r", until), [SeenHead("branch", "dev", "tip", AS_OF)]
    found = protected_commits(MERGED, Policy(rules(30), (), (hold,)), gone, tags_protect=False, as_of=AS_OF)
    (keeper,) = found["tip"]
    assert keeper.until == ends
    assert keeper.detail == f"the hold h on branch dev (r), which was on commit tip, last seen {AS_OF:%Y-%m-%d}"


def test_every_keeper_of_a_commit_is_returned():
    reasons = protected(Hold("b", "commit", "a", "law"), Hold("a", "tag", "v1", "audit"), tags_protect=True)
    details = ["the tag v1 is on commit a", "the hold a on tag v1 (audit)", "the hold b on commit a (law)"]
    assert reasons == {"a": details}


@pytest.mark.parametrize(("kind", "value"), [("branch", "mian"), ("tag", "v2"), ("commit", "mer"), ("branch", "v1")])
def test_a_hold_on_a_misspelled_name_refuses_the_run(kind, value):
    with pytest.raises(GuardRefused, match=f"hold 'h' names the {kind} '{value}'.*Nothing was deleted"):
        protected(Hold("ok", "tag", "v1", "r"), Hold("h", kind, value, "r"))


def test_a_hold_counts_to_the_end_of_its_last_day_in_utc():
    hold = Hold("h", "commit", "x", "r", date(2026, 10, 31))
    assert protected(hold, as_of=datetime(2026, 10, 31, 23, 59, tzinfo=UTC)) != {}
    assert protected(hold, as_of=AS_OF) == {}
    east = timezone(timedelta(hours=5))
    assert protected(hold, as_of=datetime(2026, 11, 1, 4, 59, tzinfo=east)) != {}
    assert protected(replace(hold, value="gone")) == {}  # the hold has ended, so its commit does not matter


def test_a_hold_until_the_last_day_of_the_calendar_is_accepted():
    hold = Hold("h", "commit", "x", "r", date.max)
    (keeper,) = protected_commits(MERGED, Policy(None, (), (hold,)), tags_protect=False, as_of=AS_OF)["x"]
    assert keeper.until is not None and keeper.until.date() == date.max


@pytest.mark.long
def test_a_hundred_thousand_commits_in_a_row_with_a_thousand_branches_are_walked():
    # Deeper than any stack, and far too many for one walk per branch.
    commits: dict[str, Commit] = {}
    for number in range(100_000):
        parents = (f"{number - 1:06}",) if number else ()
        commits[f"{number:06}"] = Commit(f"{number:06}", parents, AS_OF - timedelta(minutes=100_000 - number), "m")
    branches = {f"b{number:04}": f"{number * 100 + 99:06}" for number in range(1_000)}
    references = References(commits, branches, {}, AS_OF)
    nodes = commit_graph(references)
    assert len(nodes[0].branches) == 1_000
    assert nodes[-1].branches == ("b0999",)
    kept = activity(references, rules(1), AS_OF)
    assert (
        sum(one.active for one in kept.values()) == 1_000 + 1_440 - 15
    )  # heads, and a day's minutes, less the heads of that day
