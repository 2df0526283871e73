"""Brute force for `explain` on the saved lakeFS repositories: the live objects of a day, from recorded server answers.

It imports no rule of the package. It uses `tests.lakefs.rules.naive` for commits, and the JSON of lifecycle rules.
"""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import Any

from tests.lakefs.rules import naive
from tests.saved_repositories import api, objects_by_commit, policy_file

DAY = timedelta(days=1)


def midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def covers(prefix: str, path: str) -> bool:
    directory = prefix.rstrip("/")
    return not directory or path == directory or path.startswith(f"{directory}/")


@dataclass(frozen=True)
class Truth:
    """A saved repository under policy files, each of which has retention or lifecycle rules."""

    name: str
    policies: Sequence[str]
    tags: str

    @cached_property
    def history(self) -> naive.History:
        return {
            one["id"]: naive.NaiveCommit(
                tuple(one["parents"]), datetime.fromtimestamp(one["creation_date"], UTC), one["version"] == 0
            )
            for one in api(self.name)["commits"]
        }

    @cached_property
    def branches(self) -> dict[str, str]:
        return {one["id"]: one["commit_id"] for one in api(self.name)["branches"]}

    @cached_property
    def entries(self) -> dict[tuple[str, str], set[str]]:
        """The commits that contain each (path, address) pair."""
        found: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        inside = f"s3://lake/{self.name}/"
        for row in objects_by_commit(self.name).to_pylist():
            found[row["path"], row["physical_address"].removeprefix(inside)].add(row["commit_id"])
        return dict(found)

    @cached_property
    def staged(self) -> set[str]:
        inside = f"s3://lake/{self.name}/"
        rows = api(self.name)["staged"]
        return {row["physical_address"].removeprefix(inside) for row in rows if row["physical_address"]}

    def live(self, day: date) -> set[str]:
        """The addresses of all entries that are live at the beginning of the day, without staged ones."""
        return {address for _, address in self.live_entries(day)}

    def live_entries(self, day: date) -> set[tuple[str, str]]:
        """The (path, address) pairs that are live at the beginning of the day."""
        at, active = midnight(day), self._active(midnight(day))
        tagged = {one["commit_id"] for one in api(self.name)["tags"]} if self.tags == "protect" else set()
        return {
            (path, address)
            for (path, address), commits in self.entries.items()
            if commits & tagged or (commits & active and not self._due(path, commits, at))
        }

    def _document(self, policy: str) -> Any:
        return json.loads(policy_file(self.name, f"{policy}.json").read_text(encoding="utf-8"))

    def _active(self, at: datetime) -> set[str]:
        if "gc_rules" not in self.policies:
            return set(self.history)
        rules = self._document("gc_rules")
        durations = {one["branch_id"]: one["retention_days"] * DAY for one in rules["branches"]}
        default = rules["default_retention_days"] * DAY
        every = {branch: durations.get(branch, default) for branch in self.branches}
        return naive.active(naive.retained_heads(self.history, self.branches, every, default), at)

    @cached_property
    def _branches_of(self) -> dict[str, set[str]]:
        found: defaultdict[str, set[str]] = defaultdict(set)
        for branch, head in self.branches.items():
            for commit in naive.reached(self.history, head):
                found[commit].add(branch)
        return found

    @cached_property
    def _lifecycle(self) -> list[dict[str, Any]]:
        names = [name for name in self.policies if name != "gc_rules"]
        return [rule for name in names for rule in self._document(name).values() if rule["enabled"]]

    def _due(self, path: str, commits: set[str], at: datetime) -> bool:
        """Whether the pair is due under a rule, for all branches that reach one of its commits."""
        added = min(self.history[commit].at for commit in commits)
        branches = set().union(*(self._branches_of.get(commit, set()) for commit in commits))
        return any(
            all(self._passed(rule, branch, added, at) for branch in (branches or {""}))
            for rule in self._lifecycle
            if covers(rule["prefix"], path)
        )

    @staticmethod
    def _passed(rule: dict[str, Any], branch: str, added: datetime, at: datetime) -> bool:
        days = rule.get("branch_days", {}).get(branch, rule.get("days"))
        return days is not None and added + days * DAY <= at
