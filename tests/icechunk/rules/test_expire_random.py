"""Random policies on random histories, against the slow model, in both formats."""

from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from retention_assets.icechunk.formats.ids import encode_id
from retention_assets.icechunk.rules.expiration import edited, expiration_v1, expiration_v2
from retention_assets.icechunk.rules.retention import select
from retention_assets.icechunk.rules.snapshots import lineage, reachable
from retention_assets.policy.rules import Hold
from retention_assets.policy.snapshots import NOT_BY_AGE, Keep, SnapshotPolicy, SnapshotRule
from tests.icechunk.rules import naive
from tests.icechunk.rules.strategies import BRANCHES, TAGS, World, at, worlds

AS_OF = at(20)
durations = st.one_of(st.just(NOT_BY_AGE), st.none(), st.integers(1, 22).map(lambda hours: timedelta(hours=hours)))
any_worlds = worlds(most=16) | worlds(most=16, skewed=True) | worlds(most=16, more_roots=True)
keeps = st.tuples(durations, st.integers(0, 4))


@st.composite
def policies(draw: st.DrawFn) -> SnapshotPolicy:
    named = draw(st.dictionaries(st.sampled_from((*BRANCHES, "main", *TAGS)), keeps))
    rules = tuple(
        SnapshotRule(name, "tag" if name in TAGS else "branch", name, duration, last)
        for name, (duration, last) in named.items()
    )
    default = draw(st.none() | keeps.map(lambda one: Keep("default", *one)))
    flags = {"delete_expired_branches": draw(st.booleans()), "delete_expired_tags": draw(st.booleans())}
    return SnapshotPolicy(rules, default, **flags)


def expired_by_the_model(world: World, policy: SnapshotPolicy) -> set[bytes]:
    """Return the expired snapshots of the slow model."""
    history = world.history
    made = {one: naive.Snapshot(snapshot.parent_id, snapshot.flushed_at) for one, snapshot in history.snapshots.items()}
    tips = {str(one): one.tip for one in history.references()}
    rules = {
        str(one): [naive.Rule(keep.newer, keep.last) for keep in policy.keeps_for(one.kind, one.name)]
        for one in history.references()
    }
    default = None if policy.default is None else naive.Rule(policy.default.newer, policy.default.last)
    return naive.expired(made, tips, rules, default, AS_OF)


@settings(max_examples=150)
@given(worlds(most=16) | worlds(most=16, more_roots=True), policies())
def test_expired_snapshots_agree_with_the_model(world, policy):
    selection = select(world.history, policy, AS_OF, on_roots=False)
    assert selection.expired == expired_by_the_model(world, policy)
    for snapshot_id, decision in selection.decisions.items():
        assert decision.expired is (snapshot_id in selection.expired)
        if decision.expired:
            assert decision.due_since < AS_OF
        elif decision.due_since is not None:
            assert decision.due_since >= AS_OF


@settings(max_examples=100)
@given(any_worlds, policies())
def test_every_reference_still_reaches_its_kept_snapshots_and_nothing_else_is_lost(world, policy):
    history = world.history
    for expiration, on_roots in (
        (expiration_v1(history, policy, AS_OF), True),
        (expiration_v2(history, policy, AS_OF), False),
    ):
        after = edited(history, expiration.edits)
        gone = {str(one) for one in select(history, policy, AS_OF, on_roots=on_roots).deleted}
        assert {str(one) for one in history.references()} - {str(one) for one in after.references()} == gone
        for reference in after.references():
            before = lineage(history, reference.tip, ())
            seen = lineage(after, reference.tip, ())
            assert [one for one in before if one in set(seen)] == seen
            assert seen[-1] == before[-1]
            rules = policy.keeps_for(reference.kind, reference.name)
            places = enumerate(before)
            kept = {one for place, one in places if any(_kept(history, one, place, rule) for rule in rules)}
            assert kept <= set(seen)
        lost = reachable(history, history.tips()) - reachable(after, after.tips())
        roots = {one for one in lost if history.is_root(one)}
        assert lost - roots == expiration.released & reachable(history, history.tips())


def _kept(history, snapshot_id, place, rule) -> bool:
    young = rule.newer is None or history.snapshots[snapshot_id].flushed_at >= AS_OF - rule.newer
    return young or place < rule.last


@settings(max_examples=100)
@given(any_worlds, policies())
def test_a_second_expiration_at_the_same_time_keeps_all_reachable_snapshots(world, policy):
    for expire in (expiration_v1, expiration_v2):
        left = edited(world.history, expire(world.history, policy, AS_OF).edits)
        again = edited(left, expire(left, policy, AS_OF).edits)
        assert reachable(again, again.tips()) == reachable(left, left.tips())


@settings(max_examples=100)
@given(any_worlds, policies(), st.data())
def test_held_snapshots_are_kept_and_stay_reachable(world, policy, data):
    history = world.history
    held = data.draw(st.lists(st.sampled_from(sorted(history.snapshots)), max_size=3, unique=True))
    holds = tuple(Hold(encode_id(one), "snapshot", encode_id(one), "audit") for one in held)
    holding = SnapshotPolicy(policy.rules, policy.default, holds)
    for expire in (expiration_v1, expiration_v2):
        expiration = expire(history, holding, AS_OF)
        after = edited(history, expiration.edits)
        assert not expiration.released & set(held)
        still = reachable(after, after.tips())
        assert set(held) & reachable(history, history.tips()) <= still
