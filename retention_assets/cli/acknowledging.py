"""The command `acknowledge`: a person accepts that live objects are lost, and later plans go on without them."""

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import click

from retention_assets.cli.group import as_json, cli, configuration_of, examples, print_json, program, screen
from retention_assets.cli.rendering import AS_IT_IS
from retention_assets.config.configuration import Repository
from retention_assets.config.timestamps import utc_now
from retention_assets.errors import ConfigurationError, GuardRefused, ObjectMissing
from retention_assets.objectstore.access import open_store
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.state.approval import person
from retention_assets.state.warehouse import Warehouse

_SHOWN = 20  # how many addresses are printed
_AT_ONCE = 16  # concurrent requests to the store


@cli.command(
    short_help="Accept that live objects are lost.",
    epilog=examples("retention acknowledge orchard", "retention acknowledge orchard --file lost.txt --yes --json"),
)
@click.argument("repository")
@click.argument("addresses", nargs=-1, metavar="[ADDRESS]...")
@click.option("--file", "file", type=click.Path(path_type=Path), help="One address a line.")
@click.option("--whole-slices", is_flag=True, help="Also where nothing is left of a directory.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@as_json
@click.pass_context
def acknowledge(
    context: click.Context,
    repository: str,
    addresses: tuple[str, ...],
    file: Path | None,
    whole_slices: bool,
    yes: bool,
    json_wanted: bool,
) -> None:
    """Accept that live objects of REPOSITORY are lost: plans go on and count them; new losses still refuse.

    Without addresses, those that the last refused plan missed are shown, and you are asked. The store is asked for each
    object: one that is there is refused. Who acknowledged what, and when, is recorded.
    """
    from retention_assets.state.acknowledged import acknowledge as acknowledge_lost
    from retention_assets.state.acknowledged import known_addresses, missing_addresses
    from retention_assets.state.records import seal_of

    if addresses and file:
        raise click.UsageError("Name addresses or a file, not both.")
    configuration = configuration_of(context)
    configured = configuration.repository(repository)
    warehouse = Warehouse(configuration.warehouse)
    given = list(addresses) or (_lines(file) if file else missing_addresses(warehouse, repository))
    wanted = sorted(set(given) - known_addresses(warehouse, repository))
    if not wanted:
        known = "All of them are acknowledged already." if given else "No plan was refused for missing objects."
        if json_wanted:
            print_json({"acknowledged_by": None, "at": None, "addresses": []})
        else:
            screen.print(f"{repository}: nothing to acknowledge. {known}", **AS_IT_IS)
        return
    _require_missing(configured, wanted)
    _require_single(configured, wanted, whole_slices=whole_slices)
    if not json_wanted:
        for address in wanted[:_SHOWN]:
            screen.print(f"  {address}", **AS_IT_IS)
        if len(wanted) > _SHOWN:
            screen.print(f"  and {len(wanted) - _SHOWN:,} more", **AS_IT_IS)
    if not (yes or addresses or file):
        click.confirm(f"Acknowledge that these {len(wanted):,} live objects are lost?", abort=True, err=True)
    by, now = person(), utc_now()
    acknowledge_lost(warehouse, repository, wanted, by, now, str(uuid4()), seal_of(configured))
    if json_wanted:
        print_json({"acknowledged_by": by, "at": now.isoformat(), "addresses": wanted})
        return
    screen.print(
        f"Acknowledged by {by}: {len(wanted):,} objects of {repository} are lost.\n"
        f"Plan again: {program()} plan {repository}",
        **AS_IT_IS,
    )


def _lines(file: Path) -> list[str]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"{file}: cannot be read ({error.__class__.__name__}). Nothing was written."
        ) from error
    return [line for line in lines if line]


def _require_missing(repository: Repository, addresses: Sequence[str]) -> None:
    """Reject addresses that are not relative, and addresses whose object is in the store."""
    for address in addresses:
        if "://" in address or address.startswith(("/", "_lakefs/")) or ".." in address.split("/"):
            raise ConfigurationError(
                f"{address}: is not the address of an object of {repository.name}. Nothing was acknowledged. Addresses "
                f"are relative to the namespace: `retention show {repository.name} addresses` has them."
            )
    reader = ObjectReader(open_store(repository))

    def is_there(address: str) -> bool:
        try:
            reader.head(address)
        except ObjectMissing:
            return False
        return True

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        there = [one for one, found in zip(addresses, pool.map(is_there, addresses), strict=True) if found]
    if there:
        raise GuardRefused(
            f"{repository.name}: {len(there):,} of {len(addresses):,} objects are in the store, {there[0]} first. "
            "Nothing was acknowledged. If a plan did not find them, its listing was cut. Plan again: "
            f"`retention plan {repository.name}`."
        )


def _require_single(repository: Repository, addresses: Sequence[str], *, whole_slices: bool) -> None:
    """Reject several addresses of one directory in which nothing is left, unless `whole_slices` allows them."""
    directories = Counter(address[: address.rfind("/") + 1] for address in addresses)
    several = sorted(name for name, objects in directories.items() if name and objects > 1)
    reader = ObjectReader(open_store(repository))
    whole = [] if whole_slices else [name for name in several if next(iter(reader.list(name)), None) is None]
    if whole:
        raise GuardRefused(
            f"{repository.name}: {len(whole):,} directories are missing as a whole, {whole[0]} first with "
            f"{directories[whole[0]]:,} of the addresses. Nothing was acknowledged. Check that `storage` is the right "
            "place and that the credentials may list all of it. If the directories are lost: --whole-slices."
        )
