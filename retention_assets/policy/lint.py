"""Checks a policy against its repository: finds rules that match nothing, overlap, never apply or never delete."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from difflib import get_close_matches
from itertools import combinations
from typing import Literal

from retention_assets.config.durations import format_duration
from retention_assets.policy.matching import is_glob, matches_name, matches_other_spelling
from retention_assets.policy.rules import (
    DEFAULT_RULE,
    CommittedRetention,
    Hold,
    Kept,
    LifecycleRule,
    Policy,
    RefKind,
    ServerRules,
)
from retention_assets.policy.snapshots import NO_RULE, SnapshotPolicy, SnapshotRule

_SHORT = timedelta(hours=3)  # ten years written as `120m` are two hours, because `m` means minutes
_MAIN = "main"  # Icechunk's branch that is never deleted

References = Mapping[RefKind, Collection[str]]  # names by kind


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem of a policy. With an error, `retention lint` fails; with a warning, it does not."""

    severity: Literal["warning", "error"]
    rule_id: str
    message: str


def lint(
    policy: Policy,
    branches: Collection[str],
    tags: Collection[str],
    commits: Collection[str],
    server_rules: ServerRules | None,
    as_of: date,
) -> list[Finding]:
    """Return the findings about a policy of a lakeFS repository, errors first, then sorted by rule.

    `branches` lists all branches, also hidden ones. `server_rules` are lakeFS's own rules; None: the server has none.
    Holds that expired before the day `as_of` (UTC) are not in force.
    """
    found = [*_holds(policy.holds, {"branch": branches, "tag": tags, "commit": commits}, as_of)]
    if policy.retention:
        for one in policy.retention.rules:
            found += _unmatched(one.rule_id, "branch", one.branch, branches)
        found += _overlapping_globs(policy.retention, branches)
    if server_rules:
        found += _differences(policy.retention, branches, server_rules)
    found += _overlapping_lifecycle(policy.lifecycle)
    for rule in policy.lifecycle:
        found += _lifecycle_branches(rule, branches)
    found += _short_durations(policy.durations())
    return _sorted(found)


def lint_snapshots(
    policy: SnapshotPolicy, branches: Collection[str], tags: Collection[str], snapshots: Collection[str], as_of: date
) -> list[Finding]:
    """Return the findings about a policy of an Icechunk repository, as `lint` does. `snapshots` are ids as text."""
    references: References = {"branch": branches, "tag": tags}
    found = [*_holds(policy.holds, {"branch": branches, "tag": tags, "snapshot": snapshots}, as_of)]
    if not policy.rules and policy.default is None:
        found.append(
            _warning(
                DEFAULT_RULE, "there is no rule and no default: every snapshot that a branch or tag reaches is kept"
            )
        )
    for rule in policy.rules:
        found += _unmatched(rule.rule_id, rule.kind, rule.pattern, references[rule.kind])
    found += _overlapping_references(policy, references)
    found += _across_slashes(policy, references)
    for kind in references:
        found += _idle_deletion(policy, kind, references[kind])
    found += _short_durations(policy.durations())
    return _sorted(found)


def duration_warnings(durations: Iterable[Kept]) -> list[str]:
    """Return a plan's warnings about rules whose duration may be months that were written as minutes."""
    return [f"Rule {one.rule_id}: {one.message}." for one in _short_durations(durations)]


def _short_durations(durations: Iterable[Kept]) -> Iterator[Finding]:
    for one in dict.fromkeys(durations):
        if one.duration and one.duration < _SHORT:
            message = f"the duration {format_duration(one.duration)} is shorter than {format_duration(_SHORT)}"
            advice = "the unit m is minutes; for months, write days, such as 180d"
            yield _warning(one.rule_id or DEFAULT_RULE, f"{message}: {advice}")


def _sorted(findings: Collection[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: (finding.severity != "error", finding.rule_id, finding.message))


def _warning(rule_id: str, message: str) -> Finding:
    return Finding("warning", rule_id, message)


def _unknown(kind: str, pattern: str, names: Collection[str]) -> str | None:
    if any(matches_name(pattern, name) for name in names):
        return None
    if is_glob(pattern):
        return f"the glob {pattern!r} matches no {kind}"
    similar = get_close_matches(pattern, names, 1)
    return f"there is no {kind} {pattern!r}" + (f" (did you mean {similar[0]!r}?)" if similar else "")


def _unmatched(rule_id: str, kind: str, pattern: str, names: Collection[str]) -> Iterator[Finding]:
    if not (unknown := _unknown(kind, pattern, names)):
        return
    spelled = _other_spelling(kind, pattern, names, "rule")
    yield _warning(rule_id, spelled or f"{unknown}; the rule has no effect")


def _other_spelling(kind: str, pattern: str, names: Collection[str], what: str) -> str | None:
    """Return the message that `pattern` is another spelling of one of the `names`; None if it is not."""
    if not (spelled := sorted(name for name in names if matches_other_spelling(pattern, name))):
        return None
    return (
        f"{pattern!r} is another spelling of the {kind} {spelled[0]!r}, so the default counts "
        f"too, and the longest duration wins. To apply only the {what}, copy the name from the repository"
    )


def _overlapping_globs(retention: CommittedRetention, branches: Collection[str]) -> Iterator[Finding]:
    globs = [rule for rule in retention.rules if is_glob(rule.branch)]
    exact = {rule.branch for rule in retention.rules if not is_glob(rule.branch)}
    for one, other in combinations(globs, 2):
        shared = sorted(
            branch
            for branch in branches
            if branch not in exact and matches_name(one.branch, branch) and matches_name(other.branch, branch)
        )
        if shared:
            duration, rule_id = retention.duration_for(shared[0])
            both = f"{one.branch!r} and {other.branch!r} (rule {other.rule_id}) both match {', '.join(shared)}"
            counts = f"for {shared[0]} the longest duration counts: {format_duration(duration)} of rule {rule_id}"
            yield _warning(one.rule_id, f"{both}; {counts}")


def _differences(
    retention: CommittedRetention | None, branches: Collection[str], server_rules: ServerRules
) -> Iterator[Finding]:
    default_days, by_branch = server_rules
    if retention is None:
        yield _warning(DEFAULT_RULE, "the server has retention rules, but the policy has none: every commit is kept")
        return
    if _duration(default_days) != retention.default:
        here = format_duration(retention.default)
        yield _warning(DEFAULT_RULE, f"the default is {here} in the policy and {default_days}d on the server")
    for branch in sorted({*branches, *by_branch, *(rule.branch for rule in retention.rules)}):
        here_kept = retention.duration_for(branch)
        days = by_branch.get(branch, default_days)
        on_default = branch not in by_branch and here_kept.rule_id == retention.default_kept.rule_id
        if not is_glob(branch) and not on_default and _duration(days) != here_kept.duration:
            here = format_duration(here_kept.duration)
            rule_id = here_kept.rule_id or DEFAULT_RULE
            yield _warning(rule_id, f"branch {branch!r} is kept {here} by the policy and {days}d by the server's rules")


def _duration(days: int) -> timedelta:
    """Return the server's days as a duration, at most the longest of Python: the server accepts any number of days.

    Source: docs/lakefs-formats.md, "Rules".
    """
    return timedelta(days=min(days, timedelta.max.days))


def _holds(holds: Collection[Hold], known: Mapping[str, Collection[str]], as_of: date) -> Iterator[Finding]:
    for hold in holds:
        if not hold.in_force(as_of):
            yield _warning(hold.hold_id, f"the hold expired on {hold.until}: it protects nothing any more")
        elif hold.kind in known and hold.value not in known[hold.kind]:
            message = (
                f"the hold names the {hold.kind} {hold.value!r}, which does not exist: plans will be refused. Correct "
                "the name, or remove the hold"
            )
            yield Finding("error", hold.hold_id, message)


def _lifecycle_branches(rule: LifecycleRule, branches: Collection[str]) -> Iterator[Finding]:
    unknown = {pattern: text for pattern in rule.per_branch if (text := _unknown("branch", pattern, branches))}
    finite = {pattern for pattern, duration in rule.per_branch.items() if duration is not None}
    if not rule.enabled:
        yield _warning(rule.rule_id, "the rule is disabled: it deletes nothing")
    elif rule.default is None and not finite:
        yield _warning(rule.rule_id, "the rule has no duration, or only `forever`: it deletes nothing")
    elif rule.default is None and finite <= set(unknown):
        yield _warning(rule.rule_id, "the rule has durations only for branches that do not exist: it deletes nothing")
    for pattern, text in unknown.items():
        spelled = _other_spelling("branch", pattern, branches, "duration of the branch")
        yield _warning(rule.rule_id, spelled or f"{text}; its duration has no effect")


def _overlapping_lifecycle(rules: Collection[LifecycleRule]) -> Iterator[Finding]:
    enabled = [rule for rule in rules if rule.enabled]
    for one, other in combinations(sorted(enabled, key=lambda rule: rule.rule_id), 2):
        prefix, other_prefix = _shared_prefix(one), _shared_prefix(other)
        if prefix.startswith(other_prefix) or other_prefix.startswith(prefix):
            certain = "overlap" if one.glob is None and other.glob is None else "may overlap"
            both = f"{_covered(one)} and {_covered(other)} (rule {other.rule_id})"
            yield _warning(one.rule_id, f"{both} {certain}; if both cover a path, the rule that is due first counts")


def _shared_prefix(rule: LifecycleRule) -> str:
    """Return the prefix of all paths that `rule` covers: a directory, or a glob up to its first wildcard."""
    if rule.glob is None:
        return f"{rule.prefix}/" if rule.prefix else ""
    return next((rule.glob[:at] for at, character in enumerate(rule.glob) if is_glob(character)), rule.glob)


def _covered(rule: LifecycleRule) -> str:
    return f"the prefix {rule.prefix!r}" if rule.glob is None else f"the glob {rule.glob!r}"


def _overlapping_references(policy: SnapshotPolicy, references: References) -> Iterator[Finding]:
    globs = [rule for rule in policy.rules if is_glob(rule.pattern)]
    for one, other in combinations(globs, 2):
        shared = sorted(name for name in references[one.kind] if _both_count(policy, one, other, name))
        if shared:
            both = f"{one.pattern!r} and {other.pattern!r} (rule {other.rule_id}) both match {', '.join(shared)}"
            yield _warning(one.rule_id, f"{both}; a snapshot stays if either rule keeps it")


def _both_count(policy: SnapshotPolicy, one: SnapshotRule, other: SnapshotRule, name: str) -> bool:
    in_force = policy.keeps_for(one.kind, name)
    return one.applies_to(one.kind, name) and other.applies_to(one.kind, name) and one.keep in in_force


def _across_slashes(policy: SnapshotPolicy, references: References) -> Iterator[Finding]:
    """Yield a warning for each glob that matches a name only across a `/`, if the default keeps more than its rule."""
    default = policy.default or NO_RULE
    for rule in policy.rules:
        names = [
            name
            for name in sorted(references[rule.kind])
            if rule.applies_to(rule.kind, name) and default in policy.keeps_for(rule.kind, name)
        ]
        if names and not rule.keep.covers(default):
            matched = f"the glob {rule.pattern!r} matches {', '.join(names)} only across `/`"
            counts = "so the default counts too: a snapshot stays if the rule or the default keeps it"
            yield _warning(rule.rule_id, f"{matched}, {counts}. To apply only the rule, write `**` instead of `*`")


def _idle_deletion(policy: SnapshotPolicy, kind: RefKind, names: Collection[str]) -> Iterator[Finding]:
    flag = "delete_expired_branches" if kind == "branch" else "delete_expired_tags"
    deletable = [name for name in names if (kind, name) != ("branch", _MAIN)]
    kept = [any(keep.keeps_tip for keep in policy.keeps_for(kind, name)) for name in deletable]
    if policy.deletes(kind) and deletable and all(kept):
        rules = f"the rule of every {kind} that may be deleted always keeps its newest snapshot"
        yield _warning(DEFAULT_RULE, f"{flag} has no effect: {rules} (`keep_last`, or for ever)")
