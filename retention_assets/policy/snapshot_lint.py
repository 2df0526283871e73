"""Checks a snapshot policy against its repository: finds rules that match nothing, overlap or never delete."""

from collections.abc import Collection, Iterator, Mapping
from datetime import date
from itertools import combinations

from retention_assets.policy.lint import Finding
from retention_assets.policy.matching import is_glob
from retention_assets.policy.rules import DEFAULT_RULE
from retention_assets.policy.snapshots import RefKind, SnapshotPolicy, SnapshotRule

References = Mapping[RefKind, Collection[str]]

_MAIN = "main"  # the branch that is never deleted


def lint_snapshots(
    policy: SnapshotPolicy, branches: Collection[str], tags: Collection[str], snapshots: Collection[str], as_of: date
) -> list[Finding]:
    """Return the findings, errors first, then sorted by rule. `snapshots` are ids as text.

    Holds that expired before the day `as_of` (UTC) are not in force.
    """
    references: References = {"branch": branches, "tag": tags}
    found = [*_holds(policy, references, snapshots, as_of), *_want_of_rules(policy)]
    found += _unknown_names(policy, references)
    found += _overlapping_globs(policy, references)
    for kind in references:
        found += _idle_deletion(policy, kind, references[kind])
    return sorted(found, key=lambda finding: (finding.severity != "error", finding.rule_id, finding.message))


def _warning(rule_id: str, message: str) -> Finding:
    return Finding("warning", rule_id, message)


def _holds(
    policy: SnapshotPolicy, references: References, snapshots: Collection[str], as_of: date
) -> Iterator[Finding]:
    known = {"branch": references["branch"], "tag": references["tag"], "snapshot": snapshots}
    for hold in policy.holds:
        if not hold.in_force(as_of):
            yield _warning(hold.hold_id, f"the hold expired on {hold.until}: it holds nothing any more")
        elif hold.value not in known[hold.kind]:
            message = f"the hold names the {hold.kind} {hold.value!r}, which does not exist: a run will refuse"
            yield Finding("error", hold.hold_id, message)


def _want_of_rules(policy: SnapshotPolicy) -> Iterator[Finding]:
    if not policy.rules and policy.default is None:
        yield _warning(DEFAULT_RULE, "there is no rule and no default: every snapshot is kept")


def _unknown_names(policy: SnapshotPolicy, references: References) -> Iterator[Finding]:
    for rule in policy.rules:
        if not any(rule.names(rule.kind, name) for name in references[rule.kind]):
            what = f"the glob {rule.pattern!r} matches no {rule.kind}"
            if not is_glob(rule.pattern):
                what = f"there is no {rule.kind} {rule.pattern!r}"
            yield _warning(rule.rule_id, f"{what}; the rule does nothing")


def _overlapping_globs(policy: SnapshotPolicy, references: References) -> Iterator[Finding]:
    globs = [rule for rule in policy.rules if is_glob(rule.pattern)]
    for one, other in combinations(globs, 2):
        shared = sorted(name for name in references[one.kind] if _both_count(policy, one, other, name))
        if shared:
            both = f"{one.pattern!r} and {other.pattern!r} (rule {other.rule_id}) both match {', '.join(shared)}"
            yield _warning(one.rule_id, f"{both}; whatever either keeps is kept")


def _both_count(policy: SnapshotPolicy, one: SnapshotRule, other: SnapshotRule, name: str) -> bool:
    counting = policy.keeps_for(one.kind, name)
    return one.names(one.kind, name) and other.names(one.kind, name) and one.keep in counting


def _idle_deletion(policy: SnapshotPolicy, kind: RefKind, names: Collection[str]) -> Iterator[Finding]:
    flag = "delete_expired_branches" if kind == "branch" else "delete_expired_tags"
    deletable = [name for name in names if (kind, name) != ("branch", _MAIN)]
    kept = [any(keep.keeps_tip for keep in policy.keeps_for(kind, name)) for name in deletable]
    if policy.deletes(kind) and deletable and all(kept):
        rules = "keeps its newest snapshot by number or for ever"
        yield _warning(DEFAULT_RULE, f"{flag} is on, but every {kind} that may be deleted {rules}: none ever expires")
