"""Committed retention on repositories that a real lakeFS server wrote."""

import csv
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from retention_assets.lakefs.rules.committed import activity, commit_graph, protected_commits
from retention_assets.lakefs.rules.references import Commit, References
from retention_assets.policy.documents import join, read_document
from retention_assets.policy.rules import CommittedRetention, Policy
from tests.lakefs.rules import naive, upstream

LAKEFS = Path(__file__).parents[2] / "data" / "lakefs"
AS_OF = datetime(2026, 11, 1, tzinfo=UTC)
NAMES = ("orchard", "meadow", "thicket")


def references_of(name: str) -> References:
    answers = json.loads((LAKEFS / name / "api.json").read_text())
    commits = {
        commit["id"]: Commit(
            commit["id"],
            tuple(commit["parents"]),
            datetime.fromtimestamp(commit["creation_date"], UTC),
            commit["meta_range_id"],
            commit["version"],
        )
        for commit in answers["commits"]
    }
    branches = {branch["id"]: branch["commit_id"] for branch in answers["branches"]}
    tags = {tag["id"]: tag["commit_id"] for tag in answers["tags"]}
    return References(commits, branches, tags, AS_OF)


def retention_of(name: str) -> CommittedRetention:
    text = (LAKEFS / name / "policies" / "gc_rules.json").read_text()
    retention = join([read_document(text, "gc_rules.json")]).retention
    assert retention is not None
    return retention


def history_of(references: References) -> naive.History:
    return {
        commit.commit_id: naive.NaiveCommit(commit.parents, commit.created_at, commit.version == 0)
        for commit in references.commits.values()
    }


def expected_of(name: str) -> dict[str, bool]:
    with (LAKEFS / name / "expected" / "active_commits.csv").open() as lines:
        return {row["commit_id"]: row["active_upstream"] == "true" for row in csv.DictReader(lines)}


@pytest.mark.parametrize("name", NAMES)
def test_the_active_commits_are_those_that_brute_force_finds(name):
    kept = activity(references_of(name), retention_of(name), AS_OF)
    assert {commit for commit, one in kept.items() if one.active} == set(expected_of(name))


@pytest.mark.parametrize("name", NAMES)
def test_commits_that_the_server_lists_as_active_are_active_and_its_walk_is_modelled(name):
    references, retention = references_of(name), retention_of(name)
    heads: dict[str, timedelta] = {}
    for branch, head in references.branches.items():
        heads[head] = max(retention.duration_for(branch).duration or timedelta.max, heads.get(head, timedelta(0)))
    history = history_of(references)
    starts = upstream.starts(history, heads)
    assert retention.default is not None
    listed = {commit for commit, by_server in expected_of(name).items() if by_server}
    assert upstream.walk(history, heads, retention.default, AS_OF, starts) == listed


@pytest.mark.parametrize("name", NAMES)
def test_a_commit_is_active_before_its_due_time_and_not_at_it(name):
    references, retention = references_of(name), retention_of(name)
    seen = 0
    for commit, one in activity(references, retention, AS_OF).items():
        if one.due_since is not None:
            at = activity(references, retention, one.due_since)[commit]
            before = activity(references, retention, one.due_since - timedelta(microseconds=1))[commit]
            assert (before.active, at.active) == (True, False)
            assert at.due_since == one.due_since
            seen += 1
    assert seen > 10


def test_a_tag_does_not_make_a_commit_active_but_protects_it():
    references = references_of("orchard")
    tagged = references.tags["release-2026-q2"]
    assert not activity(references, retention_of("orchard"), AS_OF)[tagged].active
    protected = protected_commits(references, Policy(None, (), ()), tags_protect=True, as_of=AS_OF)
    assert {commit: [keeper.name for keeper in found] for commit, found in protected.items()} == {
        tagged: ["release-2026-q2"]
    }
    assert protected_commits(references, Policy(None, (), ()), tags_protect=False, as_of=AS_OF) == {}


@pytest.mark.parametrize("name", NAMES)
def test_the_graph_knows_hidden_branches_and_dangling_commits(name):
    references = references_of(name)
    nodes = commit_graph(references)
    assert [node.commit.commit_id for node in nodes] == sorted(references.commits)
    assert {branch for node in nodes for branch in node.head_of} == set(references.branches)
    found = {node.commit.commit_id for node in nodes if node.dangling}
    assert found == naive.dangling(history_of(references), dict(references.branches)) != set()
