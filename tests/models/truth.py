"""Brute force: the live objects and the candidates of a world, without code of the package.

Source: docs/safety.md; docs/retention.md, "Rule"; docs/lifecycle.md.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from tests.models.world import Commit, World

Duration = timedelta | None  # None: for ever
SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Retention:
    """Retention rules: durations by branch. The default None keeps for ever."""

    default: Duration
    branches: Mapping[str, Duration] = field(default_factory=dict)

    def duration(self, branch: str) -> Duration:
        return self.branches.get(branch, self.default)


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """A lifecycle rule: durations by branch for paths below a prefix. A key with `*` covers several branches."""

    prefix: str
    default: Duration
    branches: Mapping[str, Duration] = field(default_factory=dict)

    def covers(self, path: str) -> bool:
        return self.prefix == "" or path == self.prefix or path.startswith(self.prefix + "/")

    def duration(self, branch: str) -> Duration:
        if branch in self.branches:
            return self.branches[branch]
        named = [duration for name, duration in self.branches.items() if "*" in name and fnmatchcase(branch, name)]
        return longest(named) if named else self.default


@dataclass(frozen=True, slots=True)
class Held:
    """A hold: its kind (prefix, branch, tag or commit), and the name."""

    kind: str
    value: str


@dataclass(frozen=True, slots=True)
class Rules:
    """The policy and settings of a repository. Without retention rules, every commit is active."""

    retention: Retention | None = None
    lifecycle: tuple[Lifecycle, ...] = ()
    holds: tuple[Held, ...] = ()
    tags: str = "protect"
    grace: timedelta = timedelta(hours=24)
    token_life: timedelta = timedelta(hours=24)

    def document(self) -> dict[str, Any]:
        """Return the policy as a user writes it."""
        lifecycle = [
            {"id": f"r{place}", "prefix": rule.prefix, "keep": _text(rule.default),
             "branches": {branch: _text(duration) for branch, duration in rule.branches.items()}}
            for place, rule in enumerate(self.lifecycle)
        ]  # fmt: skip
        holds = [{"id": f"h{place}", hold.kind: hold.value, "reason": "audit"} for place, hold in enumerate(self.holds)]
        document: dict[str, Any] = {"lifecycle": lifecycle, "holds": holds}
        if self.retention:
            branches = [{"branch": name, "keep": _text(duration)} for name, duration in self.retention.branches.items()]
            default = {} if self.retention.default is None and branches else {"default": _text(self.retention.default)}
            document["retention"] = {**default, "branches": branches}
        return document


def _text(duration: Duration) -> str:
    return "forever" if duration is None else f"{duration // SECOND}s"


def longest(durations: list[Duration]) -> Duration:
    return None if None in durations else max(duration for duration in durations if duration is not None)


def passed(duration: Duration, since: datetime, at: datetime) -> bool:
    """Return whether `duration` after `since` has passed. At exactly that time it has."""
    return duration is not None and since + duration <= at


@dataclass(frozen=True)
class Truth:
    """A world under rules at a time."""

    world: World
    rules: Rules
    as_of: datetime

    # ---- commits

    @cached_property
    def active(self) -> set[str]:
        """Every head, every young dangling leaf, and the main parent of each young commit on the way down."""
        commits, retention = self.world.commits, self.rules.retention
        if retention is None:
            return set(commits)
        heads = set(self.world.branches.values())
        mains = {commit.main for commit in commits.values()}
        leaves = set(commits) - heads - mains
        starts = [(head, retention.duration(branch)) for branch, head in self.world.branches.items()]
        starts += [(leaf, retention.default) for leaf in leaves]
        found = heads | {leaf for leaf in leaves if not passed(retention.default, commits[leaf].at, self.as_of)}
        for start, duration in starts:
            found |= {
                commit.main
                for commit in self._line(start)
                if commit.main is not None and not passed(duration, commit.at, self.as_of)
            }
        return found

    def _line(self, start: str) -> Iterator[Commit]:
        name: str | None = start
        while name is not None:
            yield self.world.commits[name]
            name = self.world.commits[name].main

    @cached_property
    def protected(self) -> set[str]:
        """The commits of which tags and holds keep all objects."""
        world = self.world
        found = set(world.tags.values()) if self.rules.tags == "protect" else set()
        for hold in self.rules.holds:
            if hold.kind == "branch":
                found |= set(world.ancestry(world.branches[hold.value]))
            elif hold.kind == "tag":
                found.add(world.tags[hold.value])
            elif hold.kind == "commit":
                found.add(hold.value)
        return found

    # ---- pairs

    @cached_property
    def commits_by_pair(self) -> Mapping[tuple[str, str], set[str]]:
        """The commits of each (address, path) pair."""
        found: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for name, commit in self.world.commits.items():
            for path, address in commit.objects.items():
                found[address, path].add(name)
        return found

    @cached_property
    def _reached(self) -> Mapping[str, set[str]]:
        return {branch: set(self.world.ancestry(head)) for branch, head in self.world.branches.items()}

    def due(self, address: str, path: str) -> bool:
        """Return whether the pair is due under any lifecycle rule."""
        commits = self.commits_by_pair[address, path]
        added = min(self.world.commits[name].at for name in commits)
        branches = [branch for branch, reached in self._reached.items() if reached & commits]
        for rule in self.rules.lifecycle:
            duration = longest([rule.duration(branch) for branch in branches]) if branches else rule.default
            if rule.covers(path) and passed(duration, added, self.as_of):
                return True
        return False

    # ---- addresses

    @cached_property
    def live(self) -> set[str]:
        """Addresses in staging areas, under tags and holds, and of not due pairs of active commits (invariant 1)."""
        found = self.world.staged_addresses()
        prefixes = [Lifecycle(hold.value, None) for hold in self.rules.holds if hold.kind == "prefix"]
        for (address, path), commits in self.commits_by_pair.items():
            held = commits & self.protected or any(prefix.covers(path) for prefix in prefixes)
            if held or (commits & self.active and not self.due(address, path)):
                found.add(address)
        return {address for address in found if "://" not in address}

    @cached_property
    def committed(self) -> set[str]:
        """The addresses in any commit."""
        return {address for address, _ in self.commits_by_pair}

    @cached_property
    def candidates(self) -> Mapping[str, str]:
        """The candidates with their reasons: stored, with a name from the server, not live, and old enough."""
        found = {}
        actively_held = {address for (address, _), commits in self.commits_by_pair.items() if commits & self.active}
        for address in self.world.store.keys() & self.world.issued.keys() - self.live:
            reason = "lifecycle" if address in actively_held else "expired"
            if address not in self.committed:
                reason = "unreferenced"
            if self._old_enough(address, reason):
                found[address] = reason
        return found

    def _old_enough(self, address: str, reason: str) -> bool:
        wait = max(self.rules.grace, self.rules.token_life) if reason == "unreferenced" else self.rules.grace
        times = (self.world.store[address].at, self.world.issued[address])
        return all(end_of_second(at) + wait < self.world.now for at in times)


def end_of_second(at: datetime) -> datetime:
    """Return the end of a whole second, since the store may have truncated it; any other time unchanged."""
    return at if at.microsecond else at + SECOND
