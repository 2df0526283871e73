"""The rules of a lakeFS policy: committed retention, holds, lifecycle. The duration None means for ever."""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import reduce
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from retention_assets.config.durations import FOREVER, later
from retention_assets.errors import ConfigurationError
from retention_assets.policy.matching import (
    glob_matches,
    is_unreadable,
    prefix_covers,
    rules_naming,
    unicode_forms,
)

RETENTION_IDS, HOLD_IDS = "retention:", "hold:"  # prefixes of ids in tables; the ids of lifecycle rules have none
DEFAULT_RULE = "default"  # the id of the rule for branches that no other rule names

HoldKind = Literal["prefix", "branch", "tag", "commit", "snapshot"]
RefKind = Literal["branch", "tag"]


class Kept(NamedTuple):
    """How long something is kept, and by which rule. Both are None if no rule applies: it is kept for ever."""

    duration: timedelta | None
    rule_id: str | None

    def outlasts(self, other: "Kept") -> bool:
        """Return whether this duration is longer. Of equal durations, the one with the lower rule id counts as longer.

        So all runs show the same one of two rules with equal durations.
        """
        if self.duration == other.duration:
            return (self.rule_id or "") < (other.rule_id or "")
        return other.duration is not None and (self.duration is None or self.duration > other.duration)


class ServerRules(NamedTuple):
    """The retention rules of a lakeFS server: the default number of days, and the days of each branch by its name."""

    default_days: int
    branches: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class BranchRetention:
    """How long the history of a branch, or of all branches that a glob matches, is kept."""

    rule_id: str
    branch: str  # a name, or a glob
    duration: Annotated[timedelta | None, Field(alias="span")]  # `span` in the policies that the warehouse stores


@dataclass(frozen=True, slots=True)
class CommittedRetention:
    """How long committed versions are kept, by branch. Without a default, a branch without a rule is kept for ever."""

    rules: tuple[BranchRetention, ...]
    default: timedelta | None = None
    has_default: bool = False  # distinguishes the default "for ever" from no default

    def __post_init__(self) -> None:
        if self.default is not None and not self.has_default:
            raise ConfigurationError("a default duration needs has_default=True: otherwise the default is not used")

    @property
    def default_kept(self) -> Kept:
        """The default for branches that no rule names, and for dangling commits. Source: docs/retention.md."""
        return Kept(self.default, DEFAULT_RULE if self.has_default else None)

    def duration_for(self, branch: str) -> Kept:
        """Return how long `branch` is kept, and by which rule.

        Of several rules that apply, the longest retention counts. Source: `rules_naming`; docs/retention.md,
        "Policy".
        """
        rules, with_default = rules_naming(((rule.branch, rule) for rule in self.rules), branch)
        kept = [Kept(rule.duration, rule.rule_id) for rule in rules]
        return _longest([*kept, self.default_kept] if with_default else kept)


@dataclass(frozen=True, slots=True)
class Hold:
    """Keeps all objects below a path prefix, or all of a branch, tag, commit or snapshot, whatever the rules say."""

    hold_id: str
    kind: HoldKind
    value: str
    reason: str
    until: date | None = None  # the last day (UTC) of the hold; None: no end

    def in_force(self, as_of: date) -> bool:
        """Return whether the hold is in force on the day `as_of`. The last day still counts."""
        return self.until is None or as_of <= self.until

    def covers(self, path: str) -> bool:
        """Return whether this hold is on a path prefix that covers `path`, or may cover it.

        The prefix counts in all its `unicode_forms`. A path that is not UTF-8 may be covered by every prefix.
        """
        covers = (prefix_covers(prefix, path) for prefix in unicode_forms(self.value))
        return self.kind == "prefix" and (is_unreadable(path) or any(covers))


@dataclass(frozen=True, slots=True)
class LifecycleRule:
    """How long each branch keeps objects below `prefix`, or at paths that match `glob`, after they were added."""

    rule_id: str
    prefix: str
    default: timedelta | None  # for branches that `per_branch` does not name
    per_branch: Mapping[str, timedelta | None]  # names and globs
    enabled: bool = True
    glob: str | None = None  # used instead of the prefix, which is then empty

    def covers(self, path: str) -> bool:
        """Return whether the rule applies to `path`."""
        if is_unreadable(path):
            return False
        return prefix_covers(self.prefix, path) if self.glob is None else glob_matches(self.glob, path)

    def duration_for(self, branch: str) -> timedelta | None:
        """Return the longest of the durations that apply to `branch`; None for ever. Source: `rules_naming`."""
        durations, with_default = rules_naming(self.per_branch.items(), branch)
        return _longest(Kept(one, None) for one in ([*durations, self.default] if with_default else durations)).duration


def due_since(rule: LifecycleRule, added: datetime, branches: Collection[str]) -> datetime | None:
    """Return the time from which a (path, address) pair is due under `rule`; None if never.

    The longest duration of the branches that contain the pair counts. If no branch contains the pair, the default
    counts. Under a disabled rule, nothing is due. `added` (UTC): the creation of the oldest commit with the pair.
    Source: docs/lifecycle.md.
    """
    if not rule.enabled:
        return None
    durations = [rule.duration_for(branch) for branch in branches] or [rule.default]
    finite = [duration for duration in durations if duration is not None]
    return later(added, max(finite)) if len(finite) == len(durations) else None


@dataclass(frozen=True, slots=True)
class Policy:
    """All rules of one lakeFS repository. Without `retention`, every commit is active."""

    retention: CommittedRetention | None
    lifecycle: tuple[LifecycleRule, ...]
    holds: tuple[Hold, ...]

    def held_prefixes(self, day: date) -> list[str]:
        """Return the path prefixes of the holds in force on the day."""
        return [hold.value for hold in self.holds if hold.kind == "prefix" and hold.in_force(day)]

    def durations(self) -> Iterator[Kept]:
        """Yield each duration of the policy, and the rule that has it. Disabled rules are left out."""
        if self.retention:
            yield self.retention.default_kept
            yield from (Kept(rule.duration, rule.rule_id) for rule in self.retention.rules)
        for lifecycle_rule in (rule for rule in self.lifecycle if rule.enabled):
            for duration in (lifecycle_rule.default, *lifecycle_rule.per_branch.values()):
                yield Kept(duration, lifecycle_rule.rule_id)

    @property
    def policy_hash(self) -> str:
        """The SHA-256 (hex) of the policy as canonical JSON. The order of files, rules and keys does not matter."""
        canonical = {
            "retention": None if self.retention is None else _canonical_retention(self.retention),
            "lifecycle": sorted(_canonical_lifecycle(rule) for rule in self.lifecycle),
            "holds": sorted(canonical_hold(hold) for hold in self.holds),
        }
        return hash_of(canonical)


def _longest(kept: Iterable[Kept]) -> Kept:
    first, *others = kept
    return reduce(lambda longest, one: one if one.outlasts(longest) else longest, others, first)


def hash_of(canonical: Mapping[str, object]) -> str:
    """Return the SHA-256 (hex) of the rules of a policy, written as JSON with sorted keys and without spaces."""
    text = json.dumps(canonical, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _text(duration: timedelta | None) -> str:
    return FOREVER if duration is None else str(duration)


def _canonical_retention(retention: CommittedRetention) -> dict[str, object]:
    return {
        "default": _text(retention.default) if retention.has_default else None,
        "rules": sorted([rule.rule_id, rule.branch, _text(rule.duration)] for rule in retention.rules),
    }


def _canonical_lifecycle(rule: LifecycleRule) -> list[str]:
    covered = ["prefix", rule.prefix] if rule.glob is None else ["glob", rule.glob]
    branches = sorted([branch, _text(duration)] for branch, duration in rule.per_branch.items())
    return [rule.rule_id, *covered, _text(rule.default), json.dumps(branches), str(rule.enabled)]


def canonical_hold(hold: Hold) -> list[str]:
    """Return the texts of a hold that are part of the policy's hash."""
    return [hold.hold_id, hold.kind, hold.value, hold.reason, hold.until.isoformat() if hold.until else ""]
