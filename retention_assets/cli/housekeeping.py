"""The command that removes what the warehouse no longer needs."""

from dataclasses import asdict
from itertools import groupby
from uuid import uuid4

import click

from retention_assets.cli.group import as_json, cli, configuration_of, examples, print_json, program, progress, screen
from retention_assets.cli.rendering import AS_IT_IS, human_bytes
from retention_assets.config.timestamps import utc_now
from retention_assets.state.warehouse import Warehouse


@cli.command(
    short_help="Remove old tables from the warehouse.",
    epilog=examples("retention housekeeping", "retention housekeeping orchard --execute --json"),
)
@click.argument("repository", required=False)
@click.option("--execute/--dry-run", default=False, help="Remove it. The default only shows what would be removed.")
@as_json
@click.pass_context
def housekeeping(context: click.Context, repository: str | None, execute: bool, json_wanted: bool) -> None:
    """Show what the warehouse no longer needs of REPOSITORY, or of all; with --execute, remove it.

    That is: tables of days older than `warehouse_keep.tables`, the objects of plans of that age that nobody swept, and
    batches of caches that were merged. What a plan, sweep, restore, purge or verification needs stays.
    """
    from retention_assets.repositories.housekeeping import leftovers, remove_leftovers, unconfigured

    configuration = configuration_of(context)
    warehouse, keep = Warehouse(configuration.warehouse), configuration.warehouse_keep
    names = [repository] if repository else list(configuration.repositories)

    def log(line: str) -> None:
        progress.print(line, style="dim", **AS_IT_IS)

    run_id, found = str(uuid4()), {}
    for one in map(configuration.repository, names):
        if execute:
            found[one.name] = remove_leftovers(warehouse, one, keep, run_id, log, utc_now)
        else:
            found[one.name] = leftovers(warehouse, one, keep, utc_now())
    if json_wanted:
        print_json(
            [
                {"repository": name, **asdict(one), "written_at": one.written_at.isoformat()}
                for name, those in found.items()
                for one in those
            ]
        )
        return
    for name, those in found.items():
        for (table, reason), group in groupby(those, key=lambda one: (one.path.partition("/")[0], one.reason)):
            entries = list(group)
            size = human_bytes(sum(one.bytes for one in entries))
            first, last = (one.path.partition("/")[2] for one in (entries[0], entries[-1]))
            screen.print(f"{name}: {table}: {len(entries):,} entries, {size}, {first} to {last}: {reason}", **AS_IT_IS)
        total, done = human_bytes(sum(one.bytes for one in those)), "removed" if execute else "would be removed"
        told = f"{len(those):,} entries, {total}, {done}." if those else "nothing is old enough to be removed."
        screen.print(f"{name}: {told}", **AS_IT_IS)
    if not repository and (unknown := unconfigured(warehouse, names)):
        screen.print(f"Not in the configuration, so not touched: {', '.join(unknown)}", **AS_IT_IS)
    if not execute and any(found.values()):
        command = " ".join(filter(None, (program(), "housekeeping", repository, "--execute")))
        screen.print(f"Remove it: {command}", **AS_IT_IS)
