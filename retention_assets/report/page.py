"""Shows the figures of a report as one HTML page. The page contains its styles, scripts and numbers, and loads nothing.

The plots are drawn by Observable Plot and D3 (`static/`, ISC licence) for the width of the screen. All numbers of a
plot are in a table below it, which needs no script.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

from retention_assets.core.amounts import Amount, counted, human_amount, human_bytes, human_cost, sum_of
from retention_assets.core.states import CANDIDATE, WAITING
from retention_assets.explain.simulation import Forecast
from retention_assets.report.figures import Figures, Outcomes
from retention_assets.report.groups import Group
from retention_assets.report.history import Node
from retention_assets.state.plan import PAGE, PLANS, Plan

_ROWS = 500  # the most rows of a table, and the most folders of a plot (`page.js`); the warehouse has all rows
_SECURITY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
_TITLES = {"reason": "Reason", "rule": "Rule", "prefix": "Prefix", "folder": "Folder", "branch": "Branch", "age": "Age"}

Cell = str | int | float | Amount | None


def page_of_plan(plan: Plan) -> tuple[str, ...]:
    """Return the path in the warehouse of the page that the run of a plan wrote."""
    return plan.repository, PLANS, plan.day.isoformat(), PAGE


def page_of(figures: Figures, checks: Mapping[str, str], program: str = "retention") -> str:
    """Return the page. `checks`: the description of each guard; `program`: the text that calls the command."""
    name, plan = figures.plan.repository, figures.plan
    sections = (
        _next_steps(figures, program),
        _over_time(figures.over_time),
        _why(figures),
        _where(figures),
        _forecast(figures, program),
        _history(figures),
        _outcomes(figures, program),
        _guards(figures.guards, checks),
        _terms(plan),
    )
    numbers = json.dumps(figures.document(), ensure_ascii=False).replace("<", "\\u003c")
    return "".join(
        (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_SECURITY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">',
            f"<title>{escape(name)} {plan.day}: retention report</title><style>{_static('page.css')}</style></head>",
            f"<body><main>{_head(figures)}{''.join(sections)}</main>",
            f'<script type="application/json" id="figures">{numbers}</script>',
            *(f"<script>{_static(script)}</script>" for script in ("d3.min.js", "plot.umd.min.js", "page.js")),
            "</body></html>\n",
        )
    )


@cache
def _static(name: str) -> str:
    return files("retention_assets.report").joinpath("static", name).read_text(encoding="utf-8")


def _head(figures: Figures) -> str:
    plan, status = figures.plan, figures.status
    waiting = plan.totals.get(WAITING, Amount())
    stays = _stays(plan)
    cost = "" if status.monthly_cost is None else f"{human_cost(status.monthly_cost)} a month"
    cards = [
        ("may be deleted", human_bytes(plan.candidates.bytes), counted(plan.candidates.objects, "object"), cost),
        ("waits to settle", human_bytes(waiting.bytes), counted(waiting.objects, "object"), _until(plan)),
        ("stays", human_bytes(stays.bytes), counted(stays.objects, "object"), ""),
        ("approval", str(status.approval or ""), f"by {status.approved_by}" if status.approved_by else "", ""),
    ]
    shown = "".join(
        f'<div class="card {title.split()[0]}"><span>{escape(title)}</span><b>{escape(value)}</b>'
        + "".join(f"<small>{escape(line)}</small>" for line in lines if line)
        + "</div>"
        for title, value, *lines in cards
    )
    made = f"Plan of {plan.day}, made at {_minute(plan.made_at)}. Mode: {escape(status.mode)}."
    newer = "" if figures.is_newest else '<p class="warning">This is not the newest plan.</p>'
    return (
        f"<header><h1>{escape(plan.repository)}</h1><p>{status.kind} · {made}</p>"
        f'<p class="hash">plan {plan.plan_hash}</p>{newer}</header><div class="cards">{shown}</div>'
    )


def _stays(plan: Plan) -> Amount:
    return sum_of(amount for state, amount in plan.totals.items() if state not in (CANDIDATE, WAITING))


def _until(plan: Plan) -> str:
    return f"until {_minute(plan.last_wait_ends)}" if plan.last_wait_ends else ""


def _next_steps(figures: Figures, program: str) -> str:
    plan, status = figures.plan, figures.status
    lines = [f'<li class="warning">{escape(line)}</li>' for line in plan.warnings]
    lines += [f"<li>{_with_code(need, program)}</li>" for need in status.needs_with(program)]
    if not status.needs:
        lines.append("<li>No action is needed.</li>")
    table = "due_objects" if plan.first_wait_ends else "deletion_candidates"
    command = f"{program} show {plan.repository} {table} --as-of {plan.day}"
    lines.append(f"<li>{_with_code(f'Each object: {command}', program)}</li>")
    for held in status.quarantine:
        amount = human_amount(Amount(held.objects, held.bytes))
        lines.append(f"<li>In quarantine until {_minute(held.until)}: {amount}, of the plan of {held.day}.</li>")
    return _section("Next", f"<ul>{''.join(lines)}</ul>")


def _with_code(need: str, program: str) -> str:
    """Return a sentence as HTML. If its end is a command of `program`, the command is shown as code."""
    text, is_command, arguments = need.partition(f": {program} ")
    if not is_command or f" {program} " in arguments:  # two commands, with text between them
        return escape(need)
    return f"{escape(text)}:<pre>{escape(f'{program} {arguments}')}</pre>"


def _over_time(plans: Sequence[Plan]) -> str:
    rows = [
        (
            str(plan.day),
            plan.candidates,
            plan.totals.get(WAITING, Amount()),
            _stays(plan),
        )
        for plan in reversed(plans)
    ]
    table = _table(("Day", "May be deleted", "Waits", "Stays"), rows)
    plots = _plot("over_time", "All listed bytes by day") + _plot("reclaimable", "Bytes that may be deleted or wait")
    return _section("Over time", plots + _details(counted(len(rows), "plan"), table))


def _why(figures: Figures) -> str:
    states = list(figures.plan.totals.items())
    if figures.plan.lost:
        states.append(("lost: needed and missing, as acknowledged", Amount(figures.plan.lost, 0)))
    return _section(
        "What the plan would free, and why",
        _plot("reason", "Bytes by reason")
        + _details("By reason", _groups("reason", figures.groups.reason))
        + _plot("rule", "Bytes by rule. An object counts for each of its rules")
        + _details("By rule", _groups("rule", figures.groups.rule))
        + _details("All listed objects by state", _table(("State", "Objects and bytes"), states)),
    )


def _where(figures: Figures) -> str:
    groups, icechunk = figures.groups, figures.status.kind == "icechunk"
    of_stays = (
        "Icechunk files have no paths in the repository. Prefixes here are directories of the store."
        if icechunk
        else "Objects that the repository references stay. An object counts for each path and branch that has it."
    )
    return _section(
        "Where the bytes are",
        f"<p>{of_stays}</p>"
        + _plot("folders", "Bytes of the largest folders. Each area is in proportion to its bytes")
        + _details("By folder", _groups("folder", sorted(groups.folder, key=lambda one: -one.bytes)))
        + _details("By prefix", _groups("prefix", groups.prefix))
        + _plot("branch", "Bytes by branch. An object counts for each of its branches")
        + _details("By branch", _groups("branch", groups.branch))
        + _plot("age", "Bytes by age: from the store's modification time to the time of the plan")
        + _details("By age", _groups("age", groups.age)),
    )


def _forecast(figures: Figures, program: str) -> str:
    forecast, name = figures.forecast, figures.plan.repository
    title = "Forecast"
    if forecast is None:
        return _section(
            title,
            f"<p>Too many objects are listed for a forecast here. Run:</p><pre>{escape(program)} simulate {name}</pre>",
        )
    until_last = sum_of(forecast.total(day) for day in forecast.days if day > forecast.first)
    text = (
        "<p>This is when objects come due, if nobody writes and nothing is swept. "
        f"On the day of the plan: {human_amount(forecast.total(forecast.first))}. "
        f"Later, until {forecast.last}: {human_amount(until_last)}. After {forecast.last}: "
        f"{human_amount(forecast.later)}. Never: {human_amount(forecast.never)}.</p>"
    )
    return _section(title, text + _plot("forecast", "Bytes that come due, by day and prefix") + _of_days(forecast))


def _of_days(forecast: Forecast) -> str:
    rows = [
        (str(day), prefix, amount)
        for day, prefixes in sorted(forecast.days.items())
        for prefix, amount in sorted(prefixes.items(), key=lambda one: -one[1].bytes)
    ]
    return _details("By day and prefix", _table(("Day", "Prefix", "Comes due"), rows))


def _history(figures: Figures) -> str:
    kind = "Snapshots" if figures.status.kind == "icechunk" else "Commits"
    rows = [
        (one.name, _minute(one.at), _state(one), ", ".join(one.names))
        + ((one.detail or "",) if kind == "Snapshots" else ())
        for one in figures.history
    ]
    columns = (kind[:-1], "Made at", "State", "Branches and tags", *(("Message",) if kind == "Snapshots" else ()))
    of_kind = kind.lower()
    text = (
        f"<p>{counted(len(rows), of_kind[:-1])}: the newest expired {of_kind}, their parents and children, and other "
        f"{of_kind}, those with branches and tags first. Further {of_kind} are left out.</p>"
    )
    plot = _plot("history", f"{kind} by time; lines go to parents")
    return _section(f"{kind[:-1]} graph", text + plot + _details(kind, _table(columns, rows)))


def _state(node: Node) -> str:
    since = f" since {node.due_since:%Y-%m-%d}" if node.due_since and node.state == "expired" else ""
    return f"{node.state}{since}" + (f" ({node.rule_id})" if node.rule_id and since else "")


def _outcomes(figures: Figures, program: str) -> str:
    plan, others = figures.plan, figures.other_outcomes
    text = _ending(figures.outcomes) if figures.outcomes else "<p>No sweep of this plan has ended.</p>"
    text += "".join(f"<h3>Plan {other} of this day</h3>{_ending(outcomes)}" for other, outcomes in others.items())
    if figures.outcomes or others:
        command = f"{escape(program)} show {plan.repository} deletion_report --as-of {plan.day}"
        text += f"<p>Each object:</p><pre>{command}</pre>"
    return _section("Outcomes of the plan", text)


def _ending(outcomes: Outcomes) -> str:
    early = (
        f'<p class="warning">The last run ended early: {escape(outcomes.ended_early)}</p>'
        if outcomes.ended_early
        else ""
    )
    text = f"<p>The last run ({escape(outcomes.mode)}) ended at {_minute(outcomes.ended)}.</p>{early}"
    return text + _table(("Outcome", "Objects and bytes"), list(outcomes.amounts.items()))


def _guards(guards: Sequence[Mapping[str, Any]], checks: Mapping[str, str]) -> str:
    if not guards:
        return _section(
            "Guards", "<p>An earlier version of this tool made the plan, and did not store the results of guards.</p>"
        )
    rows = [
        (
            one["guard"],
            "passed" if one["passed"] else "refused",
            _number(one["value"]),
            "" if one["value"] is None else _number(one["limit"]),
            one["detail"],
            checks.get(one["guard"], ""),
        )
        for one in guards
    ]
    passed = sum(one["passed"] for one in guards)
    text = f"<p>{passed} of {len(guards)} guards passed. If a guard refuses, there is no plan.</p>"
    return _section("Guards", text + _table(("Guard", "Result", "Value", "Limit", "Detail", "Description"), rows))


def _terms(plan: Plan) -> str:
    rows = [
        ("policy", plan.policy_hash),
        ("references", plan.references_hash),
        ("run", plan.run_id),
        *plan.terms.items(),
    ]
    return _section("Inputs and settings", _table(("Setting", "Value"), rows))


def _groups(kind: str, groups: Sequence[Group]) -> str:
    has_stays = any(one.stays is not None for one in groups)
    columns = (_TITLES[kind], "May be deleted", "Waits", *(("Stays",) if has_stays else ()))
    rows = [(one.name, one.candidate, one.waiting, *((one.stays,) if has_stays else ())) for one in groups]
    return _table(columns, rows)


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>"


def _plot(name: str, caption: str) -> str:
    return f'<figure><figcaption>{escape(caption)}</figcaption><div data-plot="{name}"></div></figure>'


def _details(title: str, content: str) -> str:
    return f"<details><summary>Table: {escape(title)}</summary>{content}</details>"


def _table(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows[:_ROWS])
    more = f"<p>{counted(len(rows) - _ROWS, 'more row')}.</p>" if len(rows) > _ROWS else ""
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{more}'


def _cell(value: Cell) -> str:
    if isinstance(value, Amount):
        return (
            f'<td class="number" data-objects="{value.objects}" data-bytes="{value.bytes}">{human_amount(value)}</td>'
        )
    return f"<td>{escape('' if value is None else str(value))}</td>"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.6g}"


def _minute(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"
