"""The part of the commit or snapshot graph around the newest expired commits or snapshots, laid out in lanes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from retention_assets.explain.plans import PlanTables
from retention_assets.tables import COMMIT_GRAPH, EXPIRED_SNAPSHOTS, POTENTIAL_COMMITS, REPOSITORY_HISTORY

HEAD, KEPT, PROTECTED, EXPIRED = "head", "kept", "protected", "expired"
_SHOWN = 60  # commits or snapshots in the graph
_OF_GRAPH = ("commit_id", "parents", "head_of", "tags")
_OF_COMMITS = ("commit_id", "created_at", "active", "protected", "due_since", "rule_id", "is_head")
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Node:
    """A commit or snapshot of the graph. Commits between a node and its `parents` may be left out."""

    name: str
    at: datetime
    state: str  # head, kept, protected or expired
    names: tuple[str, ...]  # branches and tags on it
    parents: tuple[str, ...]
    due_since: datetime | None
    rule_id: str | None
    lane: int = 0
    detail: str | None = None  # the message of a snapshot, or the reason of the decision on it


def history_of(tables: PlanTables) -> list[Node]:
    """Return at most 60 commits or snapshots, newest first: those that expired last, then their neighbours and others.

    Errors: TableContractError if a table is missing.
    """
    by_name = {node.name: node for node in (_snapshots(tables) if tables.repository.is_icechunk else _commits(tables))}
    return _in_lanes([by_name[name] for name in _chosen(by_name)], by_name)


def _commits(tables: PlanTables) -> Iterator[Node]:
    graph = {row["commit_id"]: row for row in tables.rows(COMMIT_GRAPH.name, columns=_OF_GRAPH)}
    for one in tables.rows(POTENTIAL_COMMITS.name, columns=_OF_COMMITS):
        of_graph = graph[one["commit_id"]]
        yield Node(
            name=one["commit_id"],
            at=one["created_at"],
            state=HEAD if one["is_head"] else KEPT if one["active"] else PROTECTED if one["protected"] else EXPIRED,
            names=(*of_graph["head_of"], *of_graph["tags"]),
            parents=tuple(of_graph["parents"]),
            due_since=one["due_since"],
            rule_id=one["rule_id"],
        )


def _snapshots(tables: PlanTables) -> Iterator[Node]:
    decisions = {row["snapshot_id"]: row for row in tables.rows(EXPIRED_SNAPSHOTS.name)}
    for one in tables.rows(REPOSITORY_HISTORY.name):
        decision = decisions.get(one["snapshot_id"], {})
        names = (*one["tip_of"], *one["tags"])
        stays = decision.get("stays", True)
        yield Node(
            name=one["snapshot_id"],
            at=one["flushed_at"] or one["stored_at"] or tables.plan.made_at,
            state=EXPIRED if not stays else HEAD if names else KEPT,
            names=names,
            parents=(one["parent_id"],) if one["parent_id"] else (),
            due_since=decision.get("due_since"),
            rule_id=decision.get("rule_id"),
            detail=one["message"] or decision.get("reason"),
        )


def _chosen(by_name: Mapping[str, Node]) -> list[str]:
    """Return the names of the nodes to show, newest first.

    The nodes that expired last are chosen first, then their children and parents, then nodes with branches or tags,
    then others.
    """
    nodes = by_name.values()
    last = sorted(
        (node for node in nodes if node.state == EXPIRED), key=lambda node: node.due_since or _LONG_AGO, reverse=True
    )[: _SHOWN // 2]
    expired = {node.name for node in last}
    children = [node.name for node in nodes if expired & set(node.parents)]
    parents = [parent for node in last for parent in node.parents if parent in by_name]
    newest = [node.name for node in sorted(nodes, key=lambda node: (not node.names, _age(node)))]
    wanted = list(dict.fromkeys([*expired, *children, *parents, *newest]))[:_SHOWN]
    return sorted(wanted, key=lambda name: (_age(by_name[name]), name))


def _age(node: Node) -> timedelta:
    """Return a sort key that is smaller for newer nodes."""
    return datetime.max.replace(tzinfo=UTC) - node.at


def _in_lanes(nodes: Sequence[Node], by_name: Mapping[str, Node]) -> list[Node]:
    """Return the nodes with lanes, and with parents that are shown.

    A line of first parents has one lane. The nodes must be newest first.
    """
    shown, lanes, free = {node.name for node in nodes}, dict[str, int](), 0
    found = []
    for node in nodes:
        if node.name not in lanes:
            lanes[node.name], free = free, free + 1
        parents = tuple(dict.fromkeys(one for parent in node.parents if (one := _shown_at(parent, shown, by_name))))
        for parent in parents[:1]:
            lanes.setdefault(parent, lanes[node.name])
        found.append(replace(node, parents=parents, lane=lanes[node.name]))
    return found


def _shown_at(name: str, shown: set[str], by_name: Mapping[str, Node]) -> str | None:
    """Return `name` or its nearest ancestor by first parents that is in `shown`; None if there is none."""
    visited = set()
    while name in by_name and name not in shown and name not in visited:
        visited.add(name)
        parents = by_name[name].parents
        if not parents:
            return None
        name = parents[0]
    return name if name in shown else None
