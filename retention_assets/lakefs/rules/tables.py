"""Converts commits to rows of `commit_graph` and `potential_commits`, and `commit_graph` back to references."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.lakefs.rules.committed import Activity, CommitNode
from retention_assets.lakefs.rules.references import Commit, References
from retention_assets.policy.rules import RETENTION_IDS
from retention_assets.tables import COMMIT_GRAPH, NAMES, POTENTIAL_COMMITS, with_names

REFERENCES = ("commit_id", "parents", "main_parent", "created_at", "metarange_id", "head_of", "tags")


def commit_graph_rows(nodes: Sequence[CommitNode]) -> pa.Table:
    """Return the rows of `commit_graph`: one row per commit, dangling commits too."""
    return pa.table(
        [
            pa.array([node.commit.commit_id for node in nodes]),
            [list(node.commit.parents) for node in nodes],
            [node.commit.main_parent for node in nodes],
            [node.commit.created_at for node in nodes],
            [node.commit.metarange_id for node in nodes],
            _name_lists([node.branches for node in nodes]),
            [list(node.head_of) for node in nodes],
            [list(node.tags) for node in nodes],
            [node.dangling for node in nodes],
        ],
        schema=with_names(COMMIT_GRAPH.schema, "branches"),
    )


def references_of(graph: pa.Table, taken_at: datetime) -> References:
    """Return the references in the columns `REFERENCES` of `commit_graph`: the inverse of `commit_graph_rows`."""
    rows = graph.select(REFERENCES)
    commits: dict[str, Commit] = {}
    branches: dict[str, str] = {}
    tags: dict[str, str] = {}
    for commit_id, parents, main, created_at, metarange, heads, tagged in zip(
        *(column.to_pylist() for column in rows.columns), strict=True
    ):
        version = 1 if not parents or parents[0] == main else 0
        commits[commit_id] = Commit(commit_id, tuple(parents), created_at, metarange, version)
        branches.update(dict.fromkeys(heads, commit_id))
        tags.update(dict.fromkeys(tagged, commit_id))
    return References(commits, branches, tags, taken_at)


def potential_commits_rows(
    graph: pa.Table,
    activity: Mapping[str, Activity],
    protected: Collection[str],
    potential: frozenset[str],
    left_branches: Mapping[str, Sequence[str]] | None = None,
) -> pa.Table:
    """Return the rows of `potential_commits`: whether each commit is active, protected, or may have due objects.

    `left_branches`: for each commit, the branches that reached it only from an earlier head. None: there are none.
    """
    ids = graph.column("commit_id").to_pylist()
    kept = [activity[commit_id] for commit_id in ids]
    columns = [
        graph.column("commit_id"),
        graph.column("branches"),
        graph.column("created_at"),
        graph.column("metarange_id"),
        pa.array([one.active for one in kept], pa.bool_()),
        pa.array([commit_id in potential for commit_id in ids], pa.bool_()),
        pa.array([commit_id in protected for commit_id in ids], pa.bool_()),
        pa.array(
            [None if one.active else one.due_since for one in kept], POTENTIAL_COMMITS.schema.field("due_since").type
        ),
        pa.array(
            [None if one.active or one.rule_id is None else f"{RETENTION_IDS}{one.rule_id}" for one in kept],
            pa.string(),
        ),
        pc.greater(pc.list_value_length(graph.column("head_of")), 0),
        _name_lists([(left_branches or {}).get(commit_id, ()) for commit_id in ids]),
    ]
    return pa.table(columns, schema=with_names(POTENTIAL_COMMITS.schema, "branches", "left_branches"))


def _name_lists(lists: Sequence[Sequence[str]]) -> pa.Array:
    """Return lists of names as `NAMES`. In a long history with many branches, most commits have the same lists."""
    distinct = {tuple(names) for names in lists}
    every = sorted(set().union(*distinct))
    number = {name: position for position, name in enumerate(every)}
    numbers = {names: np.array([number[name] for name in names], np.int32) for names in distinct}
    offsets = pa.array(np.cumsum([0, *(len(names) for names in lists)])).cast(pa.int32())
    flat = np.concatenate([np.empty(0, np.int32), *(numbers[tuple(names)] for names in lists)])
    return pa.ListArray.from_arrays(offsets, pa.DictionaryArray.from_arrays(flat, pa.array(every, pa.string()))).cast(
        NAMES
    )
