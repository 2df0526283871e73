"""What must be kept and what goes, by brute force from the facts; nothing that it judges is imported.

Source: DESIGN.md, Invariants and Decisions; lakeFS facts 4.3.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from tests.models.world import Commit, World

Span = timedelta | None  # None: for ever
SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Retention:
    """How long versions are kept, by branch; None as the default is no default, which keeps for ever."""

    default: Span
    branches: Mapping[str, Span] = field(default_factory=dict)

    def span(self, branch: str) -> Span:
        return self.branches.get(branch, self.default)


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """How long paths below a prefix are kept, by branch; a key with `*` names several."""

    prefix: str
    default: Span
    branches: Mapping[str, Span] = field(default_factory=dict)

    def covers(self, path: str) -> bool:
        return self.prefix == "" or path == self.prefix or path.startswith(self.prefix + "/")

    def span(self, branch: str) -> Span:
        if branch in self.branches:
            return self.branches[branch]
        named = [span for name, span in self.branches.items() if "*" in name and fnmatchcase(branch, name)]
        return longest(named) if named else self.default


@dataclass(frozen=True, slots=True)
class Held:
    """A hold: what it holds (prefix, branch, tag or commit), and which."""

    kind: str
    value: str


@dataclass(frozen=True, slots=True)
class Rules:
    """The whole policy and settings of a repository. No retention: every commit is active."""

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
             "branches": {branch: _text(span) for branch, span in rule.branches.items()}}
            for place, rule in enumerate(self.lifecycle)
        ]  # fmt: skip
        holds = [{"id": f"h{place}", hold.kind: hold.value, "reason": "audit"} for place, hold in enumerate(self.holds)]
        document: dict[str, Any] = {"lifecycle": lifecycle, "holds": holds}
        if self.retention:
            branches = [{"branch": name, "keep": _text(span)} for name, span in self.retention.branches.items()]
            default = {} if self.retention.default is None and branches else {"default": _text(self.retention.default)}
            document["retention"] = {**default, "branches": branches}
        return document


def _text(span: Span) -> str:
    return "forever" if span is None else f"{span // SECOND}s"


def longest(spans: list[Span]) -> Span:
    return None if None in spans else max(span for span in spans if span is not None)


def passed(span: Span, since: datetime, at: datetime) -> bool:
    """Tell whether `span` after `since` has passed; exactly then it has."""
    return span is not None and since + span <= at


@dataclass(frozen=True)
class Truth:
    """A world under rules, as of an instant."""

    world: World
    rules: Rules
    as_of: datetime

    # ---- commits

    @cached_property
    def active(self) -> set[str]:
        """Every head; every dangling leaf that is young; and the main parent of whatever is young on the way down."""
        commits, retention = self.world.commits, self.rules.retention
        if retention is None:
            return set(commits)
        heads = set(self.world.branches.values())
        mains = {commit.main for commit in commits.values()}
        leaves = set(commits) - heads - mains
        starts = [(head, retention.span(branch)) for branch, head in self.world.branches.items()]
        starts += [(leaf, retention.default) for leaf in leaves]
        found = heads | {leaf for leaf in leaves if not passed(retention.default, commits[leaf].at, self.as_of)}
        for start, span in starts:
            found |= {
                commit.main
                for commit in self._line(start)
                if commit.main is not None and not passed(span, commit.at, self.as_of)
            }
        return found

    def _line(self, start: str) -> Iterator[Commit]:
        name: str | None = start
        while name is not None:
            yield self.world.commits[name]
            name = self.world.commits[name].main

    @cached_property
    def protected(self) -> set[str]:
        """The commits that tags and holds keep whole."""
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
    def holders(self) -> Mapping[tuple[str, str], set[str]]:
        """The commits that hold each (address, path) pair."""
        found: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for name, commit in self.world.commits.items():
            for path, address in commit.objects.items():
                found[address, path].add(name)
        return found

    @cached_property
    def _reached(self) -> Mapping[str, set[str]]:
        return {branch: set(self.world.ancestry(head)) for branch, head in self.world.branches.items()}

    def due(self, address: str, path: str) -> bool:
        """Tell whether any lifecycle rule lets the pair go."""
        commits = self.holders[address, path]
        added = min(self.world.commits[name].at for name in commits)
        branches = [branch for branch, reached in self._reached.items() if reached & commits]
        for rule in self.rules.lifecycle:
            span = longest([rule.span(branch) for branch in branches]) if branches else rule.default
            if rule.covers(path) and passed(span, added, self.as_of):
                return True
        return False

    # ---- addresses

    @cached_property
    def live(self) -> set[str]:
        """Invariant 1: an active commit's pair that is not due, a tag, a hold, or a staging area holds it."""
        found = self.world.staged_addresses()
        prefixes = [Lifecycle(hold.value, None) for hold in self.rules.holds if hold.kind == "prefix"]
        for (address, path), commits in self.holders.items():
            held = commits & self.protected or any(prefix.covers(path) for prefix in prefixes)
            if held or (commits & self.active and not self.due(address, path)):
                found.add(address)
        return {address for address in found if "://" not in address}

    @cached_property
    def committed(self) -> set[str]:
        """The addresses that any commit at all holds."""
        return {address for address, _ in self.holders}

    @cached_property
    def candidates(self) -> Mapping[str, str]:
        """What goes, with its reason: stored, of a name that the server issued, not live, and old enough."""
        found = {}
        actively_held = {address for (address, _), commits in self.holders.items() if commits & self.active}
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
    """Return the end of a whole second, and any other instant as it is: the store may have cut it off."""
    return at if at.microsecond else at + SECOND
