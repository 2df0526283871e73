"""The command `explain`: why something is kept or gone, and until when."""

import shlex
from collections.abc import Iterator
from datetime import UTC, date, datetime

import click

from retention_assets.cli.group import as_json, cli, configuration_of, day_option, examples, print_json, program, screen
from retention_assets.cli.rendering import AS_IT_IS, human_bytes
from retention_assets.config.timestamps import utc_now
from retention_assets.explain.answers import GONE, Answer, CommitSeen, ObjectAnswer, Removal

_EXAMPLES = examples(
    "retention explain orchard fruit/apples.csv",
    "retention explain orchard s3://lake/orchard/data/ADDRESS",
    "retention explain orchard COMMIT --json",
    "retention explain field 1CECHNKREP0F1RSTCMT0",
)
_FEW = 5  # paths, rules or keepers in a text
_WORDS = {
    "kept": "is kept",
    "held": "is held",
    "young": "is kept: it is young",
    "foreign": "is kept: it is foreign",
    "may_be_staged": "is kept: it may be staged",
    "waiting": "waits to be deleted",
    "candidate": "may be deleted",
    GONE: "is gone",
    "absent": "is not there",
    "missing": "is missing",
}
_REASONS = {
    "expired": "no active commit or retained snapshot has it",
    "lifecycle": "lifecycle rules let it go, although active commits have it",
    "unreferenced": "no commit or snapshot has it",
}


@cli.command(short_help="Say why something is kept or gone.", epilog=_EXAMPLES)
@click.argument("repository")
@click.argument("asked", metavar="PATH|ADDRESS|COMMIT|SNAPSHOT|CHUNK")
@day_option("The day whose plan answers; default: the newest plan that stands.")
@as_json
@click.pass_context
def explain(context: click.Context, repository: str, asked: str, given: datetime | None, json_wanted: bool) -> None:
    """Say why something of REPOSITORY is kept and until when, or why it is gone. Makes no plan.

    The answer is from the newest plan and the ledgers in the warehouse. The repository itself is not read.
    """
    from retention_assets.explain.explaining import explain as answer_of

    answer = answer_of(configuration_of(context), repository, asked, given.date() if given else None)
    if json_wanted:
        print_json(answer.document())
        return
    for line in lines_of(answer, utc_now()):
        screen.print(line, **AS_IT_IS)


def lines_of(answer: Answer, now: datetime) -> Iterator[str]:
    """Yield the lines of the answer for a person. `now` (UTC): ages and waits count from this time."""
    if answer.commit:
        yield from _of_commit(answer.commit, now)
    if answer.snapshot:
        yield f"snapshot {answer.snapshot['snapshot_id']}: {answer.snapshot['decision']}: {answer.snapshot['reason']}"
    if answer.kind == "path" and len(answer.objects) > 1:
        yield f"{answer.asked} has {len(answer.objects):,} versions:"
    for one in answer.objects:
        yield from _of_object(one, now)
    plan = answer.plan
    hours = (now - plan.made_at).total_seconds() / 3600
    age = f"{hours:,.0f} h" if hours < 48 else f"{hours / 24:,.0f} d"  # as `status` says it
    approved = f"approved by {plan.approved_by}" if plan.approved_by else "not approved"
    yield f"From the plan of {plan.day}, made {age} ago, {approved}: {plan.plan_hash}"
    for note in answer.notes:
        yield f"Note: {note}"
    for one in answer.objects:
        if one.removal and one.removal.outcome == "quarantined":
            yield f"Bring back: {program()} restore {answer.repository} --address {shlex.quote(one.address)}"


def _of_object(one: ObjectAnswer, now: datetime) -> Iterator[str]:
    size = "" if one.size is None else f" ({human_bytes(one.size)})"
    yield f"{one.address}{size} {_WORDS.get(one.state, one.state)}"
    for path in [entry.path for entry in one.entries][:_FEW]:
        entry = next(entry for entry in one.entries if entry.path == path)
        yield f"  at {path}: {entry.commits:,} commits have it, {entry.active_commits:,} of them active"
    if one.reason and one.state != GONE:
        yield f"  because {_REASONS.get(one.reason, one.reason)}{_rules(one.rule_ids)}{_since(one.due_since)}"
    for keeper in () if one.state == GONE else one.kept_by[:_FEW]:
        at = f" at {keeper.path}" if keeper.path else ""
        yield f"  kept because {keeper.detail}{at}{_until(keeper.until, now)}"
    if len(one.kept_by) > _FEW and one.state != GONE:
        yield f"  and {len(one.kept_by) - _FEW:,} more: --json"
    if one.removal:
        yield from _of_removal(one.removal)
    yield f"  {_future(one, now.date())}"


def _future(one: ObjectAnswer, today: date) -> str:
    if one.state == "candidate":
        return "It goes with the next sweep of this plan, once the plan is approved."
    if one.state == "waiting":
        return f"A plan made after {one.waits_until:%Y-%m-%d %H:%M} UTC may delete it."
    if one.goes_on:
        return f"If nothing changes, a plan of {one.goes_on} or later may delete it ({_days(one.goes_on, today)})."
    if one.state == GONE:
        return "No plan can delete it again."
    if one.state == "absent":
        return "The plan did not list it, and no sweep of ours removed it."
    if one.state == "missing":
        return "Something needs it and the store does not have it. Run `retention verify`."
    return "If nothing changes, no plan will delete it."


def _of_removal(removal: Removal) -> Iterator[str]:
    yield f"  {removal.outcome} at {removal.at:%Y-%m-%d %H:%M} UTC by the plan of {removal.day}, {removal.plan_hash}"
    if removal.detail:
        yield f"    detail: {removal.detail}"
    if removal.reason:
        why = _REASONS.get(removal.reason, removal.reason)
        yield f"    planned because {why}{_rules(removal.rule_ids)}{_since(removal.due_since)}"
    if removal.paths:
        yield f"    was at {', '.join(removal.paths[:_FEW])}"
    if removal.approved_by:
        yield f"    approved by {removal.approved_by} at {removal.approved_at}"
    record = f"record {removal.record} of run {removal.run_id}" if removal.record else "no record: the run was cut off"
    yield f"    ledger row of the sweep {removal.fence}; {record}"
    if removal.copy:
        yield f"    its copy is {removal.copy}"
    if removal.purge_after:
        yield f"    `purge` may delete the copy after {removal.purge_after:%Y-%m-%d %H:%M} UTC"


def _of_commit(commit: CommitSeen, now: datetime) -> Iterator[str]:
    state, until = "is active", _until(commit.until, now)
    if not commit.active:
        state, until = "is not active", _since(commit.until)
    heads = f", head of {', '.join(commit.heads)}" if commit.heads else ""
    rule = f" (rule retention:{commit.rule_id})" if commit.rule_id else ""
    yield f"commit {commit.commit_id} of {commit.created_at:%Y-%m-%d} {state}{heads}{until}{rule}"
    for detail in commit.protected_by:
        yield f"  kept because {detail}"


def _rules(rule_ids: tuple[str, ...]) -> str:
    return f" (rule {', '.join(rule_ids[:_FEW])})" if rule_ids else ""


def _since(since: datetime | None) -> str:
    return f", since {since:%Y-%m-%d %H:%M} UTC" if since else ""


def _until(until: datetime | None, now: datetime) -> str:
    if until is None:
        return ""
    until = until.astimezone(UTC)
    return f", until {until:%Y-%m-%d %H:%M} UTC ({_days(until.date(), now.date())})"


def _days(day: date, today: date) -> str:
    days = (day - today).days
    return "today" if not days else f"in {days:,} days" if days > 0 else f"{-days:,} days ago"
