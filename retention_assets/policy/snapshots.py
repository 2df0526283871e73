"""How long the snapshots of an Icechunk repository are kept, by branch and tag. The duration None means for ever."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import NamedTuple

from retention_assets.config.durations import FOREVER
from retention_assets.policy.matching import matches_name, rules_naming
from retention_assets.policy.rules import HOLD_IDS, Hold, HoldKind, Kept, RefKind, canonical_hold, hash_of

SNAPSHOT_HOLDS: tuple[HoldKind, ...] = ("snapshot", "branch", "tag")  # the kinds of holds on an Icechunk repository

NOT_BY_AGE = timedelta(0)  # the duration of a rule that keeps by number only


class Keep(NamedTuple):
    """The condition under which a snapshot stays in the history of one reference: by age, by number, or both.

    A snapshot is kept if it is not older than `newer`, or if it is among the `last` newest snapshots of that history.
    If both are zero, nothing is kept.
    """

    rule_id: str | None  # None: no rule applies
    newer: timedelta | None  # None: for ever
    last: int = 0

    @property
    def keeps_tip(self) -> bool:
        """Whether the newest snapshot stays whatever its age. Then the reference stays too."""
        return self.newer is None or self.last > 0

    def covers(self, other: "Keep") -> bool:
        """Return whether this condition keeps everything that `other` keeps in the same history."""
        is_as_long = self.newer is None or (other.newer is not None and other.newer <= self.newer)
        return is_as_long and (self.newer is None or other.last <= self.last)


NO_RULE = Keep(None, None)  # the condition where no rule applies: every snapshot is kept


@dataclass(frozen=True, slots=True)
class SnapshotRule:
    """A rule for the history of a branch or tag, or of all branches or tags that a glob matches."""

    rule_id: str
    kind: RefKind
    pattern: str  # a name, or a glob
    newer: timedelta | None
    last: int = 0

    @property
    def keep(self) -> Keep:
        """The condition under which the rule keeps a snapshot."""
        return Keep(self.rule_id, self.newer, self.last)

    def applies_to(self, kind: RefKind, name: str) -> bool:
        """Return whether the rule's pattern matches the branch or tag."""
        return kind == self.kind and matches_name(self.pattern, name)


@dataclass(frozen=True, slots=True)
class SnapshotPolicy:
    """All rules of one Icechunk repository. Without any, every snapshot that a reference reaches stays."""

    rules: tuple[SnapshotRule, ...] = ()
    default: Keep | None = None  # for references that no rule names
    holds: tuple[Hold, ...] = ()
    delete_expired_branches: bool = False  # branches whose tip has expired; never `main`
    delete_expired_tags: bool = False

    def keeps_for(self, kind: RefKind, name: str) -> Sequence[Keep]:
        """Return the conditions for the history of a branch or tag. A snapshot that meets one of them is kept.

        All rules that apply count, so the longest duration and the highest number win.
        Source: `rules_naming`; docs/icechunk.md.
        """
        rules, with_default = rules_naming(((rule.pattern, rule) for rule in self.rules if rule.kind == kind), name)
        keeps = [rule.keep for rule in rules]
        return [*keeps, self.default or NO_RULE] if with_default else keeps

    def deletes(self, kind: RefKind) -> bool:
        """Return whether references of this kind are deleted when their tip has expired."""
        return self.delete_expired_branches if kind == "branch" else self.delete_expired_tags

    def holds_in_force(self, as_of: date) -> list[Hold]:
        """Return the holds in force on the day `as_of`, sorted by id."""
        return sorted((hold for hold in self.holds if hold.in_force(as_of)), key=lambda hold: hold.hold_id)

    def durations(self) -> Iterator[Kept]:
        """Yield each duration of the policy, and the rule that has it."""
        conditions = [rule.keep for rule in self.rules] + ([self.default] if self.default else [])
        yield from (Kept(one.newer, one.rule_id) for one in conditions)

    @property
    def policy_hash(self) -> str:
        """The SHA-256 (hex) of the policy as canonical JSON. The order of files, rules and keys does not matter."""
        canonical = {
            "default": None if self.default is None else _canonical_keep(self.default),
            "rules": sorted([rule.kind, rule.pattern, *_canonical_keep(rule.keep)] for rule in self.rules),
            "holds": sorted(canonical_hold(hold) for hold in self.holds),
            "delete_expired": [self.delete_expired_branches, self.delete_expired_tags],
        }
        return hash_of(canonical)


def holds_by_name(holds: Collection[Hold], kind: str) -> dict[str, Hold]:
    """Return the holds of one kind by the name that they protect. Of several holds on one name, the first counts."""
    found: dict[str, Hold] = {}
    for hold in holds:
        if hold.kind == kind:
            found.setdefault(hold.value, hold)
    return found


def keep_of(hold: Hold) -> Keep:
    """Return the condition that a hold adds to a history: keep every snapshot for ever."""
    return Keep(f"{HOLD_IDS}{hold.hold_id}", None)


def _canonical_keep(keep: Keep) -> list[str]:
    return [keep.rule_id or "", FOREVER if keep.newer is None else str(keep.newer), str(keep.last)]
