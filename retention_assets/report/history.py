"""The part of the commit or snapshot graph around the newest expired commits or snapshots, laid out in lanes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from retention_assets.explain.plans import PlanTables, Row
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
    lane: int
    detail: str | None  # the commit message, or the reason of the decision


def history_of(tables: PlanTables) -> list[Node]:
    """Return at most 60 commits or snapshots, newest first: those that expired last, then their neighbours and others.

    Errors: TableContractError if a table is missing.
    """
    found = _snapshots(tables) if tables.repository.is_icechunk else _commits(tables)
    by_name = {row["name"]: row for row in found}
    shown = _chosen(found, by_name)
    return _in_lanes([by_name[name] for name in shown], by_name)


def _commits(tables: PlanTables) -> Sequence[Row]:
    graph = {row["commit_id"]: row for row in tables.rows(COMMIT_GRAPH.name, columns=_OF_GRAPH)}
    rows = []
    for one in tables.rows(POTENTIAL_COMMITS.name, columns=_OF_COMMITS):
        of_graph = graph[one["commit_id"]]
        state = HEAD if one["is_head"] else KEPT if one["active"] else PROTECTED if one["protected"] else EXPIRED
        rows.append(
            {
                "name": one["commit_id"],
                "at": one["created_at"],
                "state": state,
                "names": (*of_graph["head_of"], *of_graph["tags"]),
                "parents": of_graph["parents"],
                "due_since": one["due_since"],
                "rule_id": one["rule_id"],
                "detail": None,
            }
        )
    return rows


def _snapshots(tables: PlanTables) -> Sequence[Row]:
    decisions = {row["snapshot_id"]: row for row in tables.rows(EXPIRED_SNAPSHOTS.name)}
    rows = []
    for one in tables.rows(REPOSITORY_HISTORY.name):
        decision = decisions.get(one["snapshot_id"], {})
        names = (*one["tip_of"], *one["tags"])
        stays = decision.get("stays", True)
        rows.append(
            {
                "name": one["snapshot_id"],
                "at": one["flushed_at"] or one["stored_at"] or tables.plan.made_at,
                "state": EXPIRED if not stays else HEAD if names else KEPT,
                "names": names,
                "parents": [one["parent_id"]] if one["parent_id"] else [],
                "due_since": decision.get("due_since"),
                "rule_id": decision.get("rule_id"),
                "detail": one["message"] or decision.get("reason"),
            }
        )
    return rows


def _chosen(rows: Sequence[Row], by_name: Mapping[str, Row]) -> list[str]:
    """Return the names of the rows to show, newest first.

    The rows that expired last are chosen first, then their children and parents, then rows with branches or tags, then
    others.
    """
    last = sorted(
        (row for row in rows if row["state"] == EXPIRED), key=lambda row: row["due_since"] or _LONG_AGO, reverse=True
    )[: _SHOWN // 2]
    expired = {row["name"] for row in last}
    children = [row["name"] for row in rows if expired & set(row["parents"])]
    parents = [parent for row in last for parent in row["parents"] if parent in by_name]
    newest = [row["name"] for row in sorted(rows, key=lambda row: (not row["names"], _age(row)))]
    wanted = list(dict.fromkeys([*expired, *children, *parents, *newest]))[:_SHOWN]
    return sorted(wanted, key=lambda name: (_age(by_name[name]), name))


def _age(row: Row) -> timedelta:
    """Return a duration that sorts newer rows first."""
    return datetime.max.replace(tzinfo=UTC) - row["at"]


def _in_lanes(rows: Sequence[Row], by_name: Mapping[str, Row]) -> list[Node]:
    """Return the rows as nodes. A line of first parents has one lane. The rows must be newest first."""
    shown, lanes, free = {row["name"] for row in rows}, dict[str, int](), 0
    nodes = []
    for row in rows:
        if row["name"] not in lanes:
            lanes[row["name"]], free = free, free + 1
        parents = tuple(dict.fromkeys(one for parent in row["parents"] if (one := _shown_at(parent, shown, by_name))))
        for parent in parents[:1]:
            lanes.setdefault(parent, lanes[row["name"]])
        fields: dict[str, Any] = {**row, "parents": parents, "names": tuple(row["names"]), "lane": lanes[row["name"]]}
        nodes.append(Node(**fields))
    return nodes


def _shown_at(name: str, shown: set[str], by_name: Mapping[str, Row]) -> str | None:
    """Return `name` or its nearest ancestor by first parents that is in `shown`; None if there is none."""
    visited = set()
    while name in by_name and name not in shown and name not in visited:
        visited.add(name)
        parents = by_name[name]["parents"]
        if not parents:
            return None
        name = parents[0]
    return name if name in shown else None
