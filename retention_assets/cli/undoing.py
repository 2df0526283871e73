"""The commands that stop sweeps, bring objects back, delete copies for good, and clean up the warehouse."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import click

from retention_assets.cli.group import (
    NAME_OF_PERSON,
    Target,
    as_json,
    cli,
    configuration_of,
    examples,
    log_line,
    optional_name_argument,
    print_json,
    print_result,
    program,
    raise_first,
    say,
    screen,
    target_argument,
    working,
)
from retention_assets.cli.rendering import print_amounts
from retention_assets.config.timestamps import utc_now
from retention_assets.core.amounts import Amount, counted, human_amount, human_bytes, sum_of
from retention_assets.errors import ConfigurationError, RetentionError
from retention_assets.explain.status import status_of
from retention_assets.state.approval import person
from retention_assets.warehouse.warehouse import Warehouse

if TYPE_CHECKING:
    from retention_assets.repositories.housekeeping import Leftover
    from retention_assets.sweep.copies import Undo
    from retention_assets.sweep.undo import UndoResult

_SHOWN = 20  # addresses that `acknowledge` and, without --limit, `purge` print


@cli.command(
    short_help="Stop sweeps, restores and purges of a repository.",
    epilog=examples("retention stop orchard", more=NAME_OF_PERSON),
)
@target_argument
@as_json
def stop(target: Target, json_wanted: bool) -> None:
    """Stop the running sweep, restore or purge of REPOSITORY.

    Until `resume`, sweeps, restores, purges, housekeeping and changes with `retention icechunk` are refused.
    """
    from retention_assets.state.lease import ending_of_stop, stop_sweeps

    by = person()
    was = stop_sweeps(target.warehouse, target.name, by, utc_now())
    text = f"Stopped: {target.name}. {ending_of_stop(was)}\nResume with: {program()} resume {target.name}"
    document = {"repository": target.name, "stopped_by": by, "was_sweeping": was}
    print_result(document, text, json_wanted=json_wanted)


@cli.command(short_help="Allow again what `stop` stopped.", epilog=examples("retention resume orchard"))
@target_argument
@as_json
def resume(target: Target, json_wanted: bool) -> None:
    """Allow sweeps, restores, purges, housekeeping and changes with `retention icechunk` of REPOSITORY again."""
    from retention_assets.state.lease import resume_sweeps

    resume_sweeps(target.warehouse, target.name, utc_now())
    text = f"Sweeps of {target.name} are allowed again. If `stop` interrupted a command, run that command again.\n"
    document = {"repository": target.name, "stopped_by": None}
    print_result(document, text + _next_of_resumed(target), json_wanted=json_wanted)


def _next_of_resumed(target: Target) -> str:
    """Return the required actions of the repository, which `status` shows, too."""
    found = status_of(target.warehouse, target.repository, utc_now())
    if found.mode == "plan":
        return f"The mode of the repository is `plan`, which allows no sweep. See: {program()} status {target.name}"
    return "\n".join(found.needs_with(program())) or "No other action is needed."


@cli.command(
    short_help="Show what is in quarantine.",
    epilog=examples("retention quarantined orchard", "retention quarantined orchard --json"),
)
@target_argument
@as_json
def quarantined(target: Target, json_wanted: bool) -> None:
    """List the quarantine of REPOSITORY by plan, and compare the copies with the ledgers."""
    undo, repository = _undo(target), target.name
    with undo.frames, working(f"{repository}: comparing the quarantine with the ledgers"):
        copies = undo.copies()
        plans, unknown = copies.by_plan(), copies.unknown()
    named = [(f"{one.plan.day} {one.plan.plan_hash}", one) for one in plans]
    in_quarantine = [(name, one.held) for name, one in named if one.held.objects]
    missing = [(name, one.missing) for name, one in named if one.missing.objects]
    surplus = [(name, one.surplus) for name, one in named if one.surplus.objects]
    if json_wanted:
        kinds: list[tuple[Sequence[tuple[str, Amount]], Mapping[str, bool]]] = [
            (in_quarantine, {}),
            (missing, {"missing": True}),
            (surplus, {"surplus": True}),
            (unknown, {"unknown": True}),
        ]
        rows = [{"plan": name, **asdict(amount), **kind} for found, kind in kinds for name, amount in found]
        print_json(rows)
        return
    if in_quarantine:
        print_by_plan(f"{repository}: in quarantine", in_quarantine)
        say(f"Bring back: {program()} restore {repository} --plan HASH | --path PATH | --address NAME")
    else:
        say(f"{repository}: no object is in quarantine.")
    if missing:
        print_by_plan(f"{repository}: moved to quarantine, and without a copy there", missing)
        say(
            "Check that quarantine.url was not changed, and that the quarantine is mounted. Otherwise another program "
            "deleted these copies, and they cannot be brought back."
        )
    if surplus:
        print_by_plan(f"{repository}: surplus copies", surplus)
        say(
            "A sweep made these copies, and their objects are still in the repository. "
            f"See the copies that may be deleted, and the command that deletes them: {program()} purge {repository}"
        )
    if unknown:
        print_by_plan(f"{repository}: files that no ledger lists", unknown)
        say("They may belong to another repository or another warehouse. No command deletes them.")


def print_by_plan(title: str, rows: Sequence[tuple[str, Amount]]) -> None:
    """Print two lines for each plan: its day and hash, which fill a screen of 80 columns, and its amount."""
    say(title, style="bold")
    for name, amount in rows:
        say(f"plan {name}\n    {human_amount(amount)}")


@cli.command(
    short_help="Bring objects back from quarantine.",
    epilog=examples(
        "retention restore orchard --path tables/day=7",
        "retention restore orchard --plan HASH --json",
        more=NAME_OF_PERSON,
    ),
)
@target_argument
@click.option(
    "--plan", "plan_hash", metavar="HASH", help="Objects that this plan moved. The beginning of the hash is enough."
)
@click.option("--path", metavar="PATH", help="The objects at this path of the repository, or below it.")
@click.option("--address", metavar="NAME", help="One object, by its address.")
@as_json
def restore(target: Target, plan_hash: str | None, path: str | None, address: str | None, json_wanted: bool) -> None:
    """Bring objects of REPOSITORY back from quarantine.

    At least one of --plan, --path and --address is needed. With several of them, the command restores only objects that
    match all of them. Objects that exist in the repository are not overwritten.
    """
    from retention_assets.state.lease import require_not_stopped
    from retention_assets.sweep.undo import Selection
    from retention_assets.sweep.undo import restore as bring_back

    if not (plan_hash or path or address):
        raise ConfigurationError(
            "restore: name the objects with --plan HASH, --path PATH or --address NAME. Nothing was changed."
        )
    selection = Selection(plan_hash, path, address)
    selection.require_utf_8(target.name)  # these refusals need no Spark; the restore checks both again
    require_not_stopped(target.warehouse, target.name)
    undo = _undo(target)
    with working(f"{target.name}: bringing objects back"):
        undone = bring_back(undo, selection)
    _show_undone(target.name, "restored", undone, json_wanted=json_wanted)
    if target.repository.is_icechunk and not json_wanted:
        say(
            "The history of the repository was not changed: snapshots that a sweep removed from it stay removed. "
            "Until a branch or tag leads to them, later plans name their files again. The docs about Icechunk show "
            "how to bring the history back."
        )


@cli.command(
    short_help="Show which copies in quarantine are due, or delete them for good.",
    epilog=examples(
        "retention purge orchard",
        "retention purge orchard --approve HASH",
        "retention purge orchard --versions --json",
        more=NAME_OF_PERSON,
    ),
)
@target_argument
@click.option(
    "--versions",
    is_flag=True,
    help="Show or delete the versions that the bucket keeps of deleted objects, instead of the copies in quarantine.",
)
@click.option(
    "--approve",
    "approved",
    metavar="HASH",
    help="Delete the objects that this hash covers. Without --approve, the command prints the hash.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=_SHOWN,
    show_default=True,
    help="The maximum number of objects that are listed, without --approve.",
)
@as_json
def purge(target: Target, versions: bool, approved: str | None, limit: int, json_wanted: bool) -> None:
    """Show the copies of REPOSITORY that may be deleted from the quarantine. With --approve, delete them for good.

    A copy is due if it was in quarantine longer than `quarantine.keep`, if an earlier purge left it, or if its original
    is still in the repository. The purge also deletes the versions that the bucket keeps of these copies, and the lists
    of objects (manifests) in the quarantine that belong to plans without copies.
    """
    from retention_assets.repositories.live_now import LiveNow
    from retention_assets.state.lease import require_not_stopped
    from retention_assets.sweep.undo import due_for_purge
    from retention_assets.sweep.undo import purge as delete_for_good

    repository = target.name
    if approved:
        require_not_stopped(target.warehouse, repository)  # needs no Spark; the purge checks this again
    undo = _undo(target)
    if approved:
        others = target.configuration.others(repository)
        with LiveNow(undo, others) as live, working(f"{repository}: deleting for good"):
            undone = delete_for_good(undo, approved, live, versions=versions)
        _show_undone(repository, "purged", undone, json_wanted=json_wanted)
        return
    with undo.frames, working(f"{repository}: listing what is due"):
        due = due_for_purge(undo, versions=versions)
        first = due.first(limit)
    if json_wanted:
        amounts = {
            "due": asdict(due.amount),
            "surplus": asdict(due.surplus),
            "objects": first,
            "plans_without_copies": len(due.manifests),
        }
        digest = due.digest if due.has_any else None
        print_json({"repository": repository, **amounts, "approve": digest, "keeps_versions": due.keeps_versions})
        return
    for sentence in due.sentences():
        say(f"{repository}: {sentence}")
    for one in first:
        say(f"  {one['day']}  {one['address']}  {human_bytes(one['size'])}{'  surplus' if one['surplus'] else ''}")
    if more := sum_of((due.amount, due.surplus)).objects - len(first):
        say(f"  and {more:,} more: --limit {more + len(first)}")
    if due.has_any:
        option = " --versions" if versions else ""
        again = f"{program()} purge {repository}{option} --approve {due.digest}"
        known = due.keeps_versions is not None
        say(f"Delete them{' for good' if known or versions else ''}: {again}")
    if unknown := due.unknown_versions():
        say(unknown)


def _undo(target: Target) -> "Undo":
    from retention_assets.spark.sessions import started
    from retention_assets.sweep.copies import Undo

    with working("starting Spark"):
        spark = started(target.configuration.spark)
    return Undo(spark, target.warehouse, target.repository, str(uuid4()), person(), log_line, utc_now)


def _show_undone(repository: str, done: str, undone: "UndoResult", *, json_wanted: bool) -> None:
    if json_wanted:
        ledgers = {str(outcome): asdict(amount) for outcome, amount in sorted(undone.ledgers.items())}
        counts = {"failed": undone.failed}
        counts |= {"skipped": undone.skipped, "busy": undone.busy} if done == "restored" else {}
        print_json({"repository": repository, "done": done, **counts, "outcomes": ledgers})
    else:
        print_amounts(screen, f"{repository}: current totals of the ledgers", "outcome", sorted(undone.ledgers.items()))
    undone.require_complete(repository, done)


@cli.command(
    short_help="Accept that live objects are lost.",
    epilog=examples(
        "retention acknowledge orchard",
        "retention acknowledge orchard --file lost.txt --yes --json",
        more=NAME_OF_PERSON,
    ),
)
@target_argument
@click.argument("addresses", nargs=-1, metavar="[ADDRESS]...")
@click.option("--file", "file", type=click.Path(path_type=Path), help="A file with one address in each line.")
@click.option("--whole-slices", is_flag=True, help="Also accept the loss of directories in which no object is left.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@as_json
def acknowledge(
    target: Target,
    addresses: tuple[str, ...],
    file: Path | None,
    whole_slices: bool,
    yes: bool,
    json_wanted: bool,
) -> None:
    """Accept that live objects of REPOSITORY are lost. Then plans are possible again, and count these objects as lost.

    Without addresses, the command shows the objects that the last refused plan or failed verification did not find and
    that are still missing, and asks for confirmation. With addresses or --file, it does not ask. The command refuses an
    object that exists in the store, and an address that neither a failed check nor the newest tables have. A record has
    the number and the hash of the addresses, your name and the time. If more objects are lost later, plans are refused
    again.
    """
    from retention_assets.state.acknowledged import acknowledge as acknowledge_lost
    from retention_assets.state.acknowledged import (
        complete_records,
        known_addresses,
        missing_addresses,
        require_lost,
        still_lost,
    )
    from retention_assets.state.records import seal_of

    if addresses and file:
        raise click.UsageError("Name addresses or a file, not both.")
    warehouse, repository, run_id, seal = target.warehouse, target.name, str(uuid4()), seal_of(target.repository)
    complete_records(warehouse, repository, utc_now(), run_id, seal)
    is_named = bool(addresses or file)
    given = list(addresses) or (_lines(file) if file else missing_addresses(warehouse, repository))
    wanted = sorted(set(given) - known_addresses(warehouse, repository))
    why_none = "All of these objects are acknowledged already." if given else "No missing objects are known."
    if wanted:
        with working(f"{repository}: checking {counted(len(wanted), 'object')} in the store"):
            if is_named:
                require_lost(warehouse, target.repository, wanted, whole_slices=whole_slices)
            else:
                wanted = still_lost(target.repository, wanted, whole_slices=whole_slices)
                why_none = "The objects that were missing are in the store now."
    if not wanted:
        print_result(
            {"acknowledged_by": None, "at": None, "addresses": []},
            f"{repository}: nothing to acknowledge. {why_none}",
            json_wanted=json_wanted,
        )
        return
    if not json_wanted:
        for address in wanted[:_SHOWN]:
            say(f"  {address}")
        if len(wanted) > _SHOWN:
            say(f"  and {len(wanted) - _SHOWN:,} more")
    if not (yes or is_named):
        click.confirm(
            f"Acknowledge that {counted(len(wanted), 'live object is', 'live objects are')} lost?", abort=True, err=True
        )
    by, now = person(), utc_now()
    acknowledge_lost(warehouse, repository, wanted, by, now, run_id, seal)
    text = (
        f"Acknowledged by {by}: {counted(len(wanted), 'lost object')} of {repository}.\n"
        f"Plan again: {program()} plan {repository}"
    )
    document = {"acknowledged_by": by, "at": now.isoformat(), "addresses": wanted}
    print_result(document, text, json_wanted=json_wanted)


def _lines(file: Path) -> list[str]:
    """Return the addresses in a file. An address may end with spaces, and contain other line separators of Unicode."""
    try:
        lines = file.read_bytes().decode("utf-8-sig").split("\n")  # editors of Windows write a byte order mark
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"{file}: cannot be read ({error.__class__.__name__}). Nothing was written. Name a text file (UTF-8) with "
            "one address in each line."
        ) from error
    return [name for name in (line.removesuffix("\r") for line in lines) if name]


@cli.command(
    short_help="Show old tables of the warehouse, or remove them.",
    epilog=examples("retention housekeeping", "retention housekeeping orchard --execute --json"),
)
@optional_name_argument
@click.option("--execute/--dry-run", default=False, help="Remove the tables. Default: only show what would be removed.")
@as_json
@click.pass_context
def housekeeping(context: click.Context, repository: str | None, execute: bool, json_wanted: bool) -> None:
    """Show old tables that the warehouse no longer needs, of REPOSITORY or of all repositories.

    With --execute, the command removes tables of days that are older than `warehouse_keep.tables`, cache files that
    no run reads any more, and the object lists of plans that nobody swept and that are older than
    `warehouse_keep.tables`, `grace` and `approval.life`. If `warehouse_keep.plans` is set, it also removes the
    documents of plans that nobody swept and that are older than `warehouse_keep.plans`. Everything that a plan, sweep,
    restore, purge or verification needs stays. If a repository is refused, the command goes on with the others.
    """
    from retention_assets.repositories.housekeeping import leftovers, remove_leftovers, unconfigured

    configuration = configuration_of(context)
    warehouse, keep = Warehouse(configuration.warehouse), configuration.warehouse_keep
    names = [repository] if repository else list(configuration.repositories)

    run_id, errors = str(uuid4()), list[RetentionError]()
    leftovers_of: dict[str, list[Leftover]] = {}
    with working("listing the warehouse", len(names)) as work:
        for one in map(configuration.repository, names):
            found: list[Leftover] = []
            try:
                if execute:
                    remove_leftovers(warehouse, one, keep, run_id, log_line, utc_now, found)
                else:
                    found = leftovers(warehouse, one, keep, utc_now())
                leftovers_of[one.name] = found
            except RetentionError as error:
                errors.append(error)
                if found:  # they were removed before the error
                    error.say_nothing_more()
                    leftovers_of[one.name] = found
            work.count()
    if json_wanted and leftovers_of:
        print_json(
            [
                {"repository": name, **asdict(one), "written_at": one.written_at.isoformat()}
                for name, entries in leftovers_of.items()
                for one in entries
            ]
        )
    elif leftovers_of:
        _show_leftovers(leftovers_of, execute=execute)
        if not repository and (unknown := unconfigured(warehouse, names)):
            say(
                f"These directories of the warehouse belong to no configured repository, and stay: {', '.join(unknown)}"
            )
        if not execute and any(leftovers_of.values()):
            command = " ".join(filter(None, (program(), "housekeeping", repository, "--execute")))
            say(f"Remove them with: {command}")
    if errors and execute and any(leftovers_of.values()):
        errors[0].say_nothing_more()
    raise_first(errors)


def _show_leftovers(leftovers_of: Mapping[str, Sequence["Leftover"]], *, execute: bool) -> None:
    for name, entries in leftovers_of.items():
        for (table, reason), same in groupby(entries, key=lambda one: (one.path.partition("/")[0], one.reason)):
            group = list(same)
            size = human_bytes(sum(one.bytes for one in group))
            first, last = (one.path.partition("/")[2] for one in (group[0], group[-1]))
            say(f"{name}: {table}: {counted(len(group), 'entry', 'entries')}, {size}, {first} to {last}: {reason}")
        total, done = human_bytes(sum(one.bytes for one in entries)), "removed" if execute else "would be removed"
        amount = f"{counted(len(entries), 'entry', 'entries')}, {total}, {done}."
        say(f"{name}: {amount if entries else 'no table is old enough.'}")
