"""The commands that stop and resume sweeps, and those for the quarantine: show, restore, purge."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING
from uuid import uuid4

import click

from retention_assets.cli.group import as_json, cli, configuration_of, examples, print_json, program, progress, screen
from retention_assets.cli.rendering import AS_IT_IS, human_bytes, print_amounts
from retention_assets.config.configuration import Configuration
from retention_assets.config.timestamps import utc_now
from retention_assets.core.amounts import Amount
from retention_assets.errors import ConfigurationError
from retention_assets.state.approval import person
from retention_assets.state.warehouse import Warehouse

_SHORT = 23  # of the name of a plan in a table: its day, and 12 digits of its hash

if TYPE_CHECKING:
    from retention_assets.sweep.undo import Undone


@cli.command(short_help="Stop all sweeps of a repository.", epilog=examples("retention stop orchard"))
@click.argument("repository")
@as_json
@click.pass_context
def stop(context: click.Context, repository: str, json_wanted: bool) -> None:
    """Stop whoever sweeps REPOSITORY, and let nobody begin, until `resume`."""
    from retention_assets.state.lease import stop_sweeps

    configuration = configuration_of(context)
    configuration.repository(repository)
    by = person()
    was = stop_sweeps(Warehouse(configuration.warehouse), repository, by, utc_now())
    if json_wanted:
        print_json({"repository": repository, "stopped_by": by, "was_sweeping": was})
        return
    ending = f"Run {was} stops after its current group." if was else "Nobody was sweeping."
    screen.print(f"Stopped: {repository}. {ending}\nResume with: {program()} resume {repository}", **AS_IT_IS)


@cli.command(short_help="Let stopped sweeps begin again.", epilog=examples("retention resume orchard"))
@click.argument("repository")
@as_json
@click.pass_context
def resume(context: click.Context, repository: str, json_wanted: bool) -> None:
    """Let sweeps of REPOSITORY begin again after `stop`."""
    from retention_assets.state.lease import resume_sweeps

    configuration = configuration_of(context)
    configuration.repository(repository)
    resume_sweeps(Warehouse(configuration.warehouse), repository, utc_now())
    if json_wanted:
        print_json({"repository": repository, "stopped_by": None})
        return
    screen.print(f"Sweeps of {repository} may begin again: {program()} sweep {repository}", **AS_IT_IS)


@cli.command(
    short_help="Show what is in quarantine.",
    epilog=examples("retention quarantined orchard", "retention quarantined orchard --json"),
)
@click.argument("repository")
@as_json
@click.pass_context
def quarantined(context: click.Context, repository: str, json_wanted: bool) -> None:
    """Show what of REPOSITORY is in quarantine, by plan: what lies there, compared with the ledgers."""
    undo = _undo(configuration_of(context), repository)
    with undo.frames:
        copies = undo.copies()
        plans, unknown = copies.by_plan(), copies.unknown()
    held = [(f"{one.plan.day} {one.plan.plan_hash}", one.held) for one in plans if one.held.objects]
    surplus = [(f"{one.plan.day} {one.plan.plan_hash}", one.surplus) for one in plans if one.surplus.objects]
    if json_wanted:
        kinds: list[tuple[Sequence[tuple[str, Amount]], Mapping[str, bool]]] = [
            (held, {}),
            (surplus, {"surplus": True}),
            (unknown, {"unknown": True}),
        ]
        rows = [{"plan": name, **asdict(amount), **kind} for found, kind in kinds for name, amount in found]
        print_json(rows)
        return
    if held:
        _print_amounts(f"{repository}: in quarantine", held)
        screen.print(
            f"Bring back: {program()} restore {repository} --plan HASH | --path PATH | --address NAME", **AS_IT_IS
        )
    else:
        screen.print(f"{repository}: nothing is in quarantine.", **AS_IT_IS)
    if surplus:
        _print_amounts(f"{repository}: surplus copies", surplus)
        screen.print(
            "A sweep made these copies, and their objects are still in the repository. "
            f"Delete the copies: {program()} purge {repository}",
            **AS_IT_IS,
        )
    if unknown:
        _print_amounts(f"{repository}: in folders or under names that no ledger has", unknown)
        screen.print("They may be another repository's, or another warehouse's. No command touches them.", **AS_IT_IS)


def _print_amounts(title: str, rows: Sequence[tuple[str, Amount]]) -> None:
    """Print a row for each plan, then each plan's name (day and hash) in full, so that the hash can be copied."""
    short = [(name[:_SHORT], amount.objects, amount.bytes) for name, amount in rows]
    print_amounts(screen, title, "plan", short)
    for name, _ in rows:
        if len(name) > _SHORT:
            screen.print(f"plan {name}", **AS_IT_IS)


@cli.command(
    short_help="Bring objects back from quarantine.",
    epilog=examples("retention restore orchard --path tables/day=7", "retention restore orchard --plan HASH --json"),
)
@click.argument("repository")
@click.option("--plan", "plan_hash", metavar="HASH", help="What the plan of this hash moved; its beginning will do.")
@click.option("--path", metavar="PATH", help="What lay at this path of the repository, or below it.")
@click.option("--address", metavar="NAME", help="One object, by its address.")
@as_json
@click.pass_context
def restore(
    context: click.Context,
    repository: str,
    plan_hash: str | None,
    path: str | None,
    address: str | None,
    json_wanted: bool,
) -> None:
    """Bring objects of REPOSITORY back from quarantine, where nothing else took their place."""
    from retention_assets.sweep.undo import Selection
    from retention_assets.sweep.undo import restore as bring_back

    if not (plan_hash or path or address):
        raise ConfigurationError("restore: say what: --plan HASH, --path PATH or --address NAME. Nothing was changed.")
    ended = bring_back(_undo(configuration_of(context), repository), Selection(plan_hash, path, address))
    _tell(repository, "restored", ended, json_wanted=json_wanted)


@cli.command(
    short_help="Delete for good what is past its time in quarantine.",
    epilog=examples(
        "retention purge orchard", "retention purge orchard --approve HASH", "retention purge orchard --versions --json"
    ),
)
@click.argument("repository")
@click.option("--versions", is_flag=True, help="Instead: the versions that the bucket keeps of what was deleted.")
@click.option("--approve", "approved", metavar="HASH", help="The hash that this command prints without it.")
@as_json
@click.pass_context
def purge(context: click.Context, repository: str, versions: bool, approved: str | None, json_wanted: bool) -> None:
    """Show what of REPOSITORY may leave the quarantine; with its hash, delete it, its versions and its manifests.

    That is what lay there longer than `quarantine.keep`, and copies whose originals are still in the repository.
    """
    from retention_assets.repositories.live_now import LiveNow
    from retention_assets.sweep.undo import due_for_purge
    from retention_assets.sweep.undo import purge as delete_for_good

    configuration = configuration_of(context)
    undo, others = _undo(configuration, repository), configuration.others(repository)
    if approved:
        asked = undo.spark, undo.warehouse, undo.repository, others, undo.run_id, undo.log, undo.clock
        with LiveNow(*asked) as live:
            ended = delete_for_good(undo, approved, live, versions=versions)
            _tell(repository, "purged", ended, json_wanted=json_wanted)
        return
    with undo.frames:
        due = due_for_purge(undo, versions=versions)
    if json_wanted:
        amounts = {
            "due": asdict(due.amount),
            "surplus": asdict(due.surplus),
            "plans_without_copies": len(due.manifests),
        }
        digest = due.digest if due.is_anything else None
        print_json({"repository": repository, **amounts, "approve": digest, "keeps_versions": due.keeps_versions})
        return
    what = "are gone, and may be there still as versions" if versions else "are past their time in quarantine"
    screen.print(f"{repository}: {_told(due.amount)}, {what}.", **AS_IT_IS)
    if due.surplus.objects:
        screen.print(
            f"{repository}: {_told(due.surplus)}, are surplus: their originals are still in the repository.", **AS_IT_IS
        )
    if due.manifests:
        screen.print(f"{repository}: {len(due.manifests):,} plans have manifests and no copies.", **AS_IT_IS)
    if due.is_anything:
        option = " --versions" if versions else ""
        again = f"{program()} purge {repository}{option} --approve {due.digest}"
        known = due.keeps_versions is not None
        screen.print(f"Delete them{' for good' if known else ''}: {again}", **AS_IT_IS)
        if not known:
            screen.print(
                "It is unknown whether the quarantine's store keeps versions of what is deleted there. If it does, "
                "they stay.",
                **AS_IT_IS,
            )


def _told(amount: Amount) -> str:
    return f"{amount.objects:,} objects, {human_bytes(amount.bytes)}"


def _undo(configuration: Configuration, repository: str):  # type: ignore[no-untyped-def]  # Spark is imported late
    from retention_assets.core.sessions import started
    from retention_assets.sweep.undo import Undo

    configured = configuration.repository(repository)
    with progress.status("starting Spark"):
        spark = started(configuration.spark)

    def log(line: str) -> None:
        progress.print(line, style="dim", **AS_IT_IS)

    return Undo(spark, Warehouse(configuration.warehouse), configured, str(uuid4()), person(), log, utc_now)


def _tell(repository: str, done: str, undone: "Undone", *, json_wanted: bool) -> None:
    if json_wanted:
        ledgers = {str(outcome): asdict(amount) for outcome, amount in sorted(undone.ledgers.items())}
        print_json({"repository": repository, "done": done, "failed": undone.failed, "outcomes": ledgers})
        undone.require_complete(repository, done)
        return
    rows = [(outcome, amount.objects, amount.bytes) for outcome, amount in sorted(undone.ledgers.items())]
    print_amounts(screen, f"{repository}: the plans' ledgers by now", "outcome", rows)
    undone.require_complete(repository, done)
