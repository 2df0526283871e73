"""The commands `plan`, `show` and `demo`."""

import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from retention_assets.cli.group import (
    AS_IT_IS,
    Target,
    as_json,
    as_of,
    cli,
    configuration_file,
    every_option,
    examples,
    for_each,
    names_argument,
    print_json,
    program,
    program_with,
    progress,
    run_job,
    say,
    screen,
    target_argument,
    targets_of,
    warn,
    working,
)
from retention_assets.cli.rendering import (
    column_order,
    format_amount,
    open_table,
    print_amounts,
    print_rows,
    require_table,
    wait_of,
)
from retention_assets.config.configuration import Configuration, Repository, load_configuration
from retention_assets.core.amounts import Amount, counted, sum_of
from retention_assets.core.states import CANDIDATE, WAITING
from retention_assets.state.approval import when_to_plan_again
from retention_assets.state.plan import Duplicate, Plan, load_plan
from retention_assets.tables import SHOWN
from retention_assets.warehouse.warehouse import Warehouse

if TYPE_CHECKING:  # importing Spark takes seconds
    from retention_assets.cli.runs import FinishedRun
    from retention_assets.icechunk.rules.planned import PlannedEdits
    from retention_assets.report.groups import Group

_FORMS = click.Choice(["table", "csv", "json"])
_SHOWN = 20  # rows of a table on a screen without --limit


@cli.command(
    short_help="Compute what may be deleted, and show it.",
    epilog=examples(
        "retention plan orchard", "retention plan orchard --as-of 2026-11-01 --json", "retention plan --all"
    ),
)
@names_argument
@every_option
@as_of
@as_json
@click.option(
    "--full",
    is_flag=True,
    help="Reuse nothing of earlier plans: read all metaranges and ranges (Icechunk: snapshots and manifests) again, "
    "and classify all objects again.",
)
@click.pass_context
def plan(
    context: click.Context, repositories: tuple[str, ...], every: bool, day: date, json_wanted: bool, full: bool
) -> None:
    """Compute what may be deleted from REPOSITORIES, and show it. The command deletes no data.

    With several repositories, or with --all, the command plans one after the other, shows a line for each, and prints
    a JSON list. If a repository is refused, the command goes on with the others.
    """
    targets = targets_of(context, repositories, every=every)
    is_single, made = len(targets) == 1 and not every, list[_Made]()

    def make(target: Target, beside: Sequence[str]) -> None:
        made.append(_make_and_summarize(target, day, beside, full=full))

    def show() -> None:
        if json_wanted and not is_single:
            print_json([one.document() for one in made])
        elif made and not is_single:
            _show_several(made, day)
        for one in made if is_single else ():
            print_json(one.document()) if json_wanted else one.show()

    for_each(targets, make, show)


@dataclass(frozen=True, slots=True)
class _Made:
    """A plan that the command made, with its run and its summary."""

    target: Target
    plan: Plan
    run: "FinishedRun"
    summary: "Summary"

    def document(self) -> dict[str, Any]:
        return {**self.plan.document(), "summary": self.summary.document()}

    def show(self) -> None:
        from retention_assets.report.page import page_of_plan

        self.summary.show(screen, self.plan)
        say(f"plan {self.plan.plan_hash}")
        page = self.target.warehouse.location(*page_of_plan(self.plan))
        day, name = self.plan.day, self.plan.repository
        table = "due_objects" if self.plan.first_wait_ends else "deletion_candidates"
        say(f"\nEach object: {program()} show {name} {table} --as-of {day}\nApprove:     {self.approve()}")
        say(f"The run:     {self.run.ui}\nThe report:  {page}")

    def approve(self) -> str:
        """Return the command that approves the plan, or why no approval is possible."""
        return _approve(self.plan, self.summary, self.target.repository.settings.mode)


def _make_and_summarize(target: Target, day: date, beside: Sequence[str], *, full: bool) -> _Made:
    """Plan a repository. `beside`: all repositories that this process plans. Errors: as `make_plan`."""
    made, run = make_plan(target.configuration, target.name, day, beside, full=full)
    with working(f"{target.name} {day}: computing the summary"):
        return _Made(target, made, run, summary_of(target.warehouse, target.repository, made))


def make_plan(
    configuration: Configuration, repository: str, day: date, beside: Sequence[str], *, full: bool = False
) -> tuple[Plan, "FinishedRun"]:
    """Plan the day, print the plan's warnings, and return the plan and its run. Errors: as `runs.run_job`.

    `beside`: all repositories that this process plans.
    """
    from retention_assets.assets.runs import FULL, plan_job

    run = run_job(configuration, repository, plan_job(repository), day, {FULL: "true"} if full else None, beside)
    made = load_plan(Warehouse(configuration.warehouse), repository, day)
    for warning in made.warnings:
        warn(f"warning: {warning}")
    return made, run


def _show_several(made: Sequence[_Made], day: date) -> None:
    """Print a line for each plan, and the commands that show and approve them."""
    screen.print(Text(f"Plans of {day}", style="bold"), _amounts_of([one.plan for one in made]))
    for one in made:
        warnings = "".join(f"\n  Warning: {warning}" for warning in one.plan.warnings)
        say(f"{one.plan.repository}: plan {one.plan.plan_hash}{warnings}\n  Approve: {one.approve()}")
    say(f"\nOne plan in full: {program()} show REPOSITORY due_objects --as-of {day}\nThe runs: {made[-1].run.ui}")


def _approve(made: Plan, summary: "Summary", mode: str) -> str:
    """Return the command that approves a plan, or why that is not possible. In the mode `plan`, it is refused."""
    removes = made.candidates.objects
    if summary.edits:
        removes += summary.edits.history_changes().total
    approve = f"{program()} approve {made.repository} {made.plan_hash} --as-of {made.day}"
    if made.blocked:
        return "not possible: the plan must not be executed (see the warning)"
    if made.first_wait_ends and not removes:
        return f"nothing to approve yet; plan again {when_to_plan_again(made)}"
    if not removes:
        again = when_to_plan_again(made)
        return f"nothing to approve: nothing may be deleted. Plan again {again}, or see: {program()} status"
    if mode == "plan":
        return f"not possible in mode `plan`. Set `mode: quarantine` or `mode: delete`, then: {approve}"
    return approve


@cli.command(
    short_help="Show one table of a day.",
    epilog=examples(
        "retention show orchard due_objects --limit 50",
        "retention show orchard deletion_candidates --format csv",
        more=f"Tables: {', '.join(sorted(SHOWN))}.",
    ),
)
@target_argument
@click.argument("table", metavar="TABLE", type=click.Choice(sorted(SHOWN)))
@as_of
@click.option("--format", "form", type=_FORMS, help="The output format. Default: table.")
@as_json
@click.option(
    "--limit", type=click.IntRange(min=0), help=f"The maximum number of rows. Default: {_SHOWN} for a table, else all."
)
def show(target: Target, table: str, day: date, form: str | None, json_wanted: bool, limit: int | None) -> None:
    """Show one TABLE of REPOSITORY for a day. --json is the same as --format json."""
    if json_wanted and form not in (None, "json"):
        raise click.UsageError(f"--json and --format {form}: choose one.")
    form = "json" if json_wanted else form or "table"
    require_table(target.repository, table)
    found = open_table(target.warehouse, target.name, table, day)
    columns = column_order(found.column_names)
    rows = (row for batch in found.select(columns).to_batches() for row in batch.to_pylist())
    most = _SHOWN if limit is None and form == "table" else limit
    print_rows(f"{target.name}.{table}", rows, columns, form, most)
    if form == "table" and most is not None and found.num_rows > most:
        progress.print(
            f"{counted(found.num_rows - most, 'more row')}: --limit {found.num_rows}, or --format csv", style="dim"
        )


_DAY = date(2026, 11, 1)
_EXPLAINED = "tables/summary.csv"  # an object of the first sample: one path keeps it, another path releases it


@cli.command(short_help="Plan the sample repositories.", epilog=examples("retention demo", "retention demo --prepare"))
@click.option("--prepare", "only_prepare", is_flag=True, help="Only put the samples in place, and plan nothing.")
def demo(only_prepare: bool) -> None:
    """Plan the sample repositories as of 2026-11-01. The demo needs no server and no configuration."""
    from retention_assets.demo.sample import copy_demo

    file = copy_demo()
    configuration = load_configuration(file)
    ready = [name for name, repository in configuration.repositories.items() if _prepare(file.parent, repository)]
    if only_prepare:
        return
    made = [make_plan(configuration, name, _DAY, ready) for name in ready]
    # Without the variable RETENTION_CONFIG, the UI shows the demo, so the command need not set it.
    of_file = f"RETENTION_CONFIG={shlex.quote(str(file))} "
    ui = made[0][1].ui if "RETENTION_CONFIG" in os.environ else made[0][1].ui.removeprefix(of_file)
    is_found = configuration_file(None).resolve() == file.resolve()
    called = program_with(None if is_found else _near(str(file)))
    show_closing(screen, Warehouse(configuration.warehouse), [plan for plan, _ in made], ui, called)


def show_closing(screen: Console, warehouse: Warehouse, plans: Sequence[Plan], ui: str, called: str) -> None:
    """Print one table of all `plans`, their reports, and the next commands.

    `ui`: the command that starts the UI. `called`: the text that calls `retention` with the configuration of the demo.
    """
    from retention_assets.report.page import page_of_plan

    first = plans[0]
    title = f"The sample repositories as of {first.day}. Nothing was deleted."
    screen.print(Text(title, style="bold"), _amounts_of(plans))
    if any(plan.totals.get(WAITING, Amount()).objects for plan in plans):
        screen.print("Waiting objects wait for a day (`settle`). In this demo, the wait never ends.\n", **AS_IT_IS)
    lines = [(f"Report, {plan.repository}:", _near(warehouse.location(*page_of_plan(plan)))) for plan in plans]
    lines += [
        ("UI:", ui),
        ("Objects:", f"{called} show {first.repository} due_objects --as-of {first.day}"),
        ("Why it stays:", f"{called} explain {first.repository} {_EXPLAINED}"),
        ("Your own:", f"{program()} init"),
    ]
    width = max(len(title) for title, _ in lines)
    for title, text in lines:
        screen.print(f"{title:{width}} {text}", **AS_IT_IS)


def _amounts_of(plans: Iterable[Plan]) -> Table:
    """Return a table with a line for each plan."""
    table = Table(box=SIMPLE_HEAD)
    table.add_column("repository")
    for column in ("listed", "stays", "waits", "may be deleted"):
        table.add_column(column, justify="right")
    for plan in plans:
        going = [plan.totals.get(state, Amount()) for state in (WAITING, CANDIDATE)]
        staying = sum_of(amount for state, amount in plan.totals.items() if state not in (WAITING, CANDIDATE))
        table.add_row(Text(plan.repository), *map(format_amount, (sum_of(plan.totals.values()), staying, *going)))
    return table


def _near(location: str) -> str:
    """Return a path below the working directory as a relative path; other locations stay as they are."""
    path = Path(location.removeprefix("file://"))
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else location


def _prepare(samples: Path, repository: Repository) -> bool:
    """Create the files of a sample repository. If this is not possible, print the reason and return False."""
    from retention_assets.demo.field import NEEDED, can_make_field, make_field
    from retention_assets.demo.sample import place_sample

    target = Path(repository.storage.removeprefix("file://"))
    with working(f"{repository.name}: making the sample"):
        if not repository.is_icechunk:
            place_sample(samples / repository.name, target)
        elif can_make_field():
            make_field(target)
        else:
            say(
                f"{repository.name}: skipped. The sample needs {' and '.join(NEEDED)}, and at least one of them is not "
                f"installed. Install them with: pip install {' '.join(NEEDED)}"
            )
            return False
    return True


_MOST = 12  # rows of a table in a summary
Amounts = list[tuple[str, Amount]]


@dataclass(frozen=True, slots=True)
class Groups:
    """The largest groups of objects, with objects and bytes. An object counts for each of its branches."""

    reasons: Amounts
    prefixes: Amounts
    branches: Amounts

    def document(self) -> dict[str, Any]:
        """Return the amounts for JSON."""
        groups = {"by_reason": self.reasons, "by_top_prefix": self.prefixes, "by_branch": self.branches}
        return {title: [{"name": name, **asdict(amount)} for name, amount in rows] for title, rows in groups.items()}

    def show(self, screen: Console, title: str) -> None:
        """Print a table for each kind of group."""
        print_amounts(screen, f"{title} by reason", "reason", self.reasons)
        print_amounts(screen, f"{title} by top prefix", "prefix", self.prefixes)
        print_amounts(screen, f"{title} by branch (an object counts for each branch)", "branch", self.branches)


@dataclass(frozen=True, slots=True)
class Summary:
    """The candidates of a plan, and the objects that wait until they have settled."""

    candidates: Groups
    waiting: Groups | None  # None: no object waits
    duplicates: tuple[Duplicate, ...]
    edits: "PlannedEdits | None" = None  # of an Icechunk repository

    def document(self) -> dict[str, Any]:
        """Return the summary for JSON."""
        amounts = self.candidates.document()
        if self.waiting:
            amounts["waiting"] = self.waiting.document()
        edits = {} if self.edits is None else {"edits": self.edits.document()}
        return {**amounts, "kept_by_duplicates": [asdict(duplicate) for duplicate in self.duplicates], **edits}

    def show(self, screen: Console, plan: Plan) -> None:
        """Print the summary with the plan's totals."""
        totals: list[tuple[str, Amount | int]] = list(plan.totals.items())
        if plan.lost:
            totals.append(("lost: needed and missing, as acknowledged", plan.lost))
        print_amounts(screen, f"{plan.repository} as of {plan.day}: everything listed", "state", totals)
        if plan.candidates.objects or not self.waiting:
            self.candidates.show(screen, "candidates")
        if self.waiting:
            self.waiting.show(screen, "waiting")
            why = (
                "A sweep of this plan does not delete them yet: plans have not found these objects due for long enough."
            )
            screen.print(f"{wait_of(plan)} {why}", **AS_IT_IS)
        if self.duplicates:
            screen.print(Text("kept only because another path has the same object", style="bold"))
        for one in self.duplicates:
            screen.print(f"  {one.address}\n    is due at {one.let_go}, and is kept at {one.kept_by}", **AS_IT_IS)
        if self.edits and self.edits.history_changes().total:
            _show_edits(screen, plan, self.edits)


def summary_of(warehouse: Warehouse, repository: Repository, plan: Plan) -> Summary:
    """Return the summary of a plan. Errors: TableContractError if the plan's objects are no longer stored."""
    from retention_assets.explain.plans import PlanTables
    from retention_assets.icechunk.edits.stored import planned_edits
    from retention_assets.report.groups import due_groups

    groups = due_groups(PlanTables(warehouse, repository, plan))
    candidates = _largest(groups, lambda group: group.candidate)
    waiting = _largest(groups, lambda group: group.waiting) if plan.first_wait_ends else None
    if repository.is_icechunk:
        return Summary(candidates, waiting, (), planned_edits(warehouse, plan))
    return Summary(candidates, waiting, plan.duplicates)


def _largest(groups: Mapping[str, Sequence["Group"]], part: Callable[["Group"], Amount]) -> Groups:
    """Return the largest groups of a part of the objects, the group with the most bytes first."""

    def rows(kind: str) -> Amounts:
        named = [(group.name, part(group)) for group in groups[kind]]
        return sorted((row for row in named if row[1].objects), key=lambda row: (-row[1].bytes, row[0]))[:_MOST]

    return Groups(rows("reason"), rows("prefix"), rows("branch"))


def _show_edits(screen: Console, plan: Plan, edits: "PlannedEdits") -> None:
    """Print the snapshots, branches and tags that a sweep removes before it deletes files."""
    screen.print(Text("removed from the history before files are deleted; `restore` does not undo this", style="bold"))
    released = f"{counted(len(edits.released), 'snapshot')} that the policy releases"
    amounts = f"{released}, {len(edits.dropped):,} that nothing reaches"
    screen.print(f"  {amounts}: {program()} show {plan.repository} expired_snapshots --as-of {plan.day}", **AS_IT_IS)
    kinds = (("branch", "branches", edits.deleted_branches), ("tag", "tags", edits.deleted_tags))
    for kind, many, names in kinds:
        for name in names[:_MOST]:
            screen.print(f"  the {kind} {name}", **AS_IT_IS)
        if len(names) > _MOST:
            screen.print(f"  and {counted(len(names) - _MOST, f'more {kind}', f'more {many}')}", **AS_IT_IS)
