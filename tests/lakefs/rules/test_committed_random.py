"""Committed retention on random histories, compared with the slow model."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings

from retention_assets.lakefs.rules.committed import activity, commit_graph, protected_commits
from retention_assets.policy.rules import Hold, Policy
from tests.lakefs.rules import naive, upstream
from tests.lakefs.rules.strategies import AS_OF, Repository, repositories

pytestmark = pytest.mark.long


@settings(max_examples=1000)
@given(repositories())
def test_activity_and_due_dates_agree_with_the_model(repository: Repository):
    found = naive.retained_heads(repository.history, repository.branches, repository.durations, repository.default)
    kept = activity(repository.references(), repository.retention(), AS_OF)
    assert {commit for commit, one in kept.items() if one.active} == naive.active(found, AS_OF)
    heads = set(repository.branches.values())
    for commit in repository.history:
        expected = None if commit in heads else naive.due_since(found, commit)
        assert kept[commit].due_since == expected


@settings(max_examples=300)
@given(repositories())
def test_the_graph_agrees_with_the_model(repository: Repository):
    nodes = {node.commit.commit_id: node for node in commit_graph(repository.references())}
    reach = {branch: naive.reached(repository.history, head) for branch, head in repository.branches.items()}
    dangling = naive.dangling(repository.history, repository.branches)
    assert set(nodes) == set(repository.history)
    for commit, node in nodes.items():
        assert node.branches == tuple(sorted(branch for branch in reach if commit in reach[branch]))
        assert node.head_of == tuple(sorted(name for name, head in repository.branches.items() if head == commit))
        assert node.tags == tuple(sorted(name for name, tagged in repository.tags.items() if tagged == commit))
        assert node.dangling is (commit in dangling)
        assert node.commit.main_parent == repository.history[commit].before


@settings(max_examples=300)
@given(repositories())
def test_all_ancestors_of_a_held_branch_are_protected(repository: Repository):
    policy = Policy(None, (), tuple(Hold(branch, "branch", branch, "audit") for branch in repository.branches))
    protected = protected_commits(repository.references(), policy, tags_protect=True, as_of=AS_OF)
    heads = repository.branches.values()
    came_from = set().union(*(naive.reached(repository.history, head) for head in heads))
    assert set(protected) == came_from | set(repository.tags.values())


@settings(max_examples=300)
@given(repositories())
def test_the_active_commits_contain_those_of_upstreams_walk_in_any_order(repository: Repository):
    finite = {branch: duration or timedelta(days=30) for branch, duration in repository.durations.items()}
    repository = replace(repository, durations=finite, default=timedelta(days=4), has_default=True)
    heads: dict[str, timedelta] = {}
    for branch, head in repository.branches.items():
        heads[head] = max(finite.get(branch, timedelta(days=4)), heads.get(head, timedelta(0)))
    kept = activity(repository.references(), repository.retention(), AS_OF)
    active = {commit for commit, one in kept.items() if one.active}
    starts = upstream.starts(repository.history, heads)
    for order in (starts, starts[::-1]):
        assert upstream.walk(repository.history, heads, timedelta(days=4), AS_OF, order) <= active
