"""Checks a policy against its repository: finds rules that match nothing, overlap or never apply."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import combinations
from typing import Literal

from retention_assets.config.durations import format_duration
from retention_assets.policy.matching import is_glob, names_branch
from retention_assets.policy.rules import DEFAULT_RULE, CommittedRetention, LifecycleRule, Policy

ServerRules = tuple[int, Mapping[str, int]]  # default days, days by branch


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem of a policy. An error stops a run; a warning does not."""

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
    """Return the findings, errors first, then sorted by rule.

    `branches` has all branches, also the hidden ones. `server_rules` are lakeFS's own rules, None if there are none.
    Holds that expired before the day `as_of` (UTC) are not in force.
    """
    found = [*_holds(policy, branches, tags, commits, as_of)]
    if policy.retention:
        found += _unknown_branches(policy.retention, branches)
        found += _overlapping_globs(policy.retention, branches)
    if server_rules:
        found += _differences(policy.retention, branches, server_rules)
    found += _overlapping_lifecycle(policy.lifecycle)
    for rule in policy.lifecycle:
        found += _lifecycle_branches(rule, branches)
    return sorted(found, key=lambda finding: (finding.severity != "error", finding.rule_id, finding.message))


def _warning(rule_id: str, message: str) -> Finding:
    return Finding("warning", rule_id, message)


def _unknown(pattern: str, branches: Collection[str]) -> str | None:
    if any(names_branch(pattern, branch) for branch in branches):
        return None
    return f"the glob {pattern!r} matches no branch" if is_glob(pattern) else f"there is no branch {pattern!r}"


def _unknown_branches(retention: CommittedRetention, branches: Collection[str]) -> Iterator[Finding]:
    for rule in retention.rules:
        if unknown := _unknown(rule.branch, branches):
            yield _warning(rule.rule_id, f"{unknown}; the rule does nothing")


def _overlapping_globs(retention: CommittedRetention, branches: Collection[str]) -> Iterator[Finding]:
    globs = [rule for rule in retention.rules if is_glob(rule.branch)]
    exact = {rule.branch for rule in retention.rules if not is_glob(rule.branch)}
    for one, other in combinations(globs, 2):
        shared = sorted(
            branch
            for branch in branches
            if branch not in exact and names_branch(one.branch, branch) and names_branch(other.branch, branch)
        )
        if shared:
            span, rule_id = retention.span_for(shared[0])
            both = f"{one.branch!r} and {other.branch!r} (rule {other.rule_id}) both match {', '.join(shared)}"
            counts = f"for {shared[0]} the longest counts, {format_duration(span)} of rule {rule_id}"
            yield _warning(one.rule_id, f"{both}; {counts}")


def _differences(
    retention: CommittedRetention | None, branches: Collection[str], server_rules: ServerRules
) -> Iterator[Finding]:
    default_days, by_branch = server_rules
    if retention is None:
        yield _warning(DEFAULT_RULE, "the server has rules, the policy has none: here every commit is kept")
        return
    if _span(default_days) != retention.default:
        here = format_duration(retention.default)
        yield _warning(DEFAULT_RULE, f"the default is {here} here and {default_days}d on the server")
    for branch in sorted({*branches, *by_branch, *(rule.branch for rule in retention.rules)}):
        here_kept = retention.span_for(branch)
        days = by_branch.get(branch, default_days)
        on_default = branch not in by_branch and here_kept.rule_id == retention.default_kept.rule_id
        if not is_glob(branch) and not on_default and _span(days) != here_kept.span:
            here = format_duration(here_kept.span)
            rule_id = here_kept.rule_id or DEFAULT_RULE
            yield _warning(rule_id, f"branch {branch!r} is kept {here} here and {days}d by the server's rules")


def _span(days: int) -> timedelta:
    """Return the server's days as a duration, capped: the server checks no bounds. Source: lakeFS facts 4.1."""
    return timedelta(days=min(days, timedelta.max.days))


def _holds(
    policy: Policy, branches: Collection[str], tags: Collection[str], commits: Collection[str], as_of: date
) -> Iterator[Finding]:
    known = {"branch": branches, "tag": tags, "commit": commits}
    for hold in policy.holds:
        if not hold.in_force(as_of):
            yield _warning(hold.hold_id, f"the hold expired on {hold.until}: it holds nothing any more")
        elif hold.kind in known and hold.value not in known[hold.kind]:
            message = f"the hold names the {hold.kind} {hold.value!r}, which does not exist: a run will refuse"
            yield Finding("error", hold.hold_id, message)


def _lifecycle_branches(rule: LifecycleRule, branches: Collection[str]) -> Iterator[Finding]:
    unknown = {pattern: text for pattern in rule.per_branch if (text := _unknown(pattern, branches))}
    finite = {pattern for pattern, span in rule.per_branch.items() if span is not None}
    if not rule.enabled:
        yield _warning(rule.rule_id, "the rule is disabled: it never matches")
    elif rule.default is None and not finite:
        yield _warning(rule.rule_id, "the rule names no days at all: it never matches")
    elif rule.default is None and finite <= set(unknown):
        yield _warning(rule.rule_id, "the rule has days only for branches that do not exist: it never matches")
    for text in unknown.values():
        yield _warning(rule.rule_id, f"{text}; its days do nothing")


def _overlapping_lifecycle(rules: Collection[LifecycleRule]) -> Iterator[Finding]:
    enabled = [rule for rule in rules if rule.enabled]
    for one, other in combinations(sorted(enabled, key=lambda rule: rule.rule_id), 2):
        if _reach(one).startswith(_reach(other)) or _reach(other).startswith(_reach(one)):
            certain = "overlap" if one.glob is None and other.glob is None else "may overlap"
            both = f"{_covered(one)} and {_covered(other)} (rule {other.rule_id})"
            yield _warning(one.rule_id, f"{both} {certain}; whichever is due first counts")


def _reach(rule: LifecycleRule) -> str:
    """Return the prefix of all paths that `rule` covers: a directory, or a glob up to its first wildcard."""
    if rule.glob is None:
        return f"{rule.prefix}/" if rule.prefix else ""
    return next((rule.glob[:at] for at, sign in enumerate(rule.glob) if is_glob(sign)), rule.glob)


def _covered(rule: LifecycleRule) -> str:
    return f"the prefix {rule.prefix!r}" if rule.glob is None else f"the glob {rule.glob!r}"
