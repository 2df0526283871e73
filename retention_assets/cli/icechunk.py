"""The commands of `retention icechunk`: branch, tag, status, log and upgrade."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click

from retention_assets.cli.group import (
    NAME_OF_PERSON,
    as_json,
    cli,
    configuration_of,
    examples,
    log_line,
    name_argument,
    print_json,
    print_result,
    program,
    say,
    working,
)
from retention_assets.config.configuration import Repository
from retention_assets.config.timestamps import utc_now
from retention_assets.core.amounts import counted
from retention_assets.errors import ConfigurationError, naming
from retention_assets.warehouse.warehouse import Warehouse

if TYPE_CHECKING:
    from retention_assets.objectstore.conditional import BeforeWrite

_REPOSITORY = "retention_assets.repository"  # key in the `meta` of click's context
_snapshot = click.argument("snapshot", metavar="SNAPSHOT")
_name = click.argument("name", metavar="NAME")


@cli.group(short_help="Change branches, tags and status of an Icechunk repository.")
@name_argument
@click.pass_context
def icechunk(context: click.Context, repository: str) -> None:
    """Change references or the status of the Icechunk REPOSITORY, show its log, or upgrade it to format 2.

    SNAPSHOT is an id of 20 characters. No sweep runs during a change. A record names the change and the person.
    """
    context.meta[_REPOSITORY] = repository


@icechunk.group(short_help="Create, delete or reset a branch.")
def branch() -> None:
    """Create, delete or reset a branch."""


@icechunk.group(short_help="Create or delete a tag.")
def tag() -> None:
    """Create or delete a tag."""


@branch.command(
    "create",
    short_help="Create a branch at a snapshot.",
    epilog=examples("retention icechunk field branch create trial 1CECHNKREP0F1RSTCMT0", more=NAME_OF_PERSON),
)
@_name
@_snapshot
@as_json
@click.pass_context
def create_branch(context: click.Context, name: str, snapshot: str, json_wanted: bool) -> None:
    """Create the branch NAME at SNAPSHOT."""
    _operate(
        context,
        f"branch create {name} {snapshot}",
        lambda on: on.create_branch(name, snapshot),
        json_wanted=json_wanted,
    )


@branch.command(
    "delete",
    short_help="Delete a branch.",
    epilog=examples("retention icechunk field branch delete trial", more=NAME_OF_PERSON),
)
@_name
@as_json
@click.pass_context
def delete_branch(context: click.Context, name: str, json_wanted: bool) -> None:
    """Delete the branch NAME. Snapshots that are then unreachable stay until a sweep deletes them."""
    _operate(context, f"branch delete {name}", lambda on: on.delete_branch(name), json_wanted=json_wanted)


@branch.command(
    "reset",
    short_help="Move a branch to another snapshot.",
    epilog=examples("retention icechunk field branch reset main 1CECHNKREP0F1RSTCMT0", more=NAME_OF_PERSON),
)
@_name
@_snapshot
@click.option("--from", "expected", metavar="SNAPSHOT", help="Move the branch only if it is at this snapshot.")
@as_json
@click.pass_context
def reset_branch(context: click.Context, name: str, snapshot: str, expected: str | None, json_wanted: bool) -> None:
    """Move the branch NAME to SNAPSHOT. Snapshots that are then unreachable stay until a sweep deletes them."""
    _operate(
        context,
        f"branch reset {name} {snapshot}",
        lambda on: on.reset_branch(name, snapshot, expected),
        json_wanted=json_wanted,
    )


@tag.command(
    "create",
    short_help="Create a tag at a snapshot.",
    epilog=examples("retention icechunk field tag create v1 1CECHNKREP0F1RSTCMT0", more=NAME_OF_PERSON),
)
@_name
@_snapshot
@as_json
@click.pass_context
def create_tag(context: click.Context, name: str, snapshot: str, json_wanted: bool) -> None:
    """Create the tag NAME at SNAPSHOT."""
    _operate(
        context, f"tag create {name} {snapshot}", lambda on: on.create_tag(name, snapshot), json_wanted=json_wanted
    )


@tag.command(
    "delete", short_help="Delete a tag.", epilog=examples("retention icechunk field tag delete v1", more=NAME_OF_PERSON)
)
@_name
@as_json
@click.pass_context
def delete_tag(context: click.Context, name: str, json_wanted: bool) -> None:
    """Delete the tag NAME. The name can never be used again."""
    _operate(context, f"tag delete {name}", lambda on: on.delete_tag(name), json_wanted=json_wanted)


@icechunk.command(
    short_help="Show the status, or set it to online or read-only.",
    epilog=examples(
        "retention icechunk field status --json",
        "retention icechunk field status read-only --reason upgrade",
        more=NAME_OF_PERSON,
    ),
)
@click.argument("wanted", metavar="[online|read-only]", type=click.Choice(["online", "read-only"]), required=False)
@click.option("--reason", metavar="TEXT", help="The reason for read-only.")
@as_json
@click.pass_context
def status(context: click.Context, wanted: str | None, reason: str | None, json_wanted: bool) -> None:
    """Show the format, references and status of the repository, or set the status. Setting it needs format 2."""
    from retention_assets.icechunk.formats.model import Availability

    if reason is not None and wanted != "read-only":
        raise click.UsageError("--reason is only for `status read-only`.")
    if wanted is not None:
        availability = Availability.ONLINE if wanted == "online" else Availability.READ_ONLY
        _operate(context, f"status {wanted}", lambda on: on.set_status(availability, reason), json_wanted=json_wanted)
        return
    repository = _repository(context)
    with working(f"{repository.name}: reading the repository"):
        found = _state(repository)
    if json_wanted:
        print_json(found)
        return
    for name, value in found.items():
        text = ", ".join(value) if isinstance(value, list) else value
        say(f"{name}: {'none' if text in (None, '') else text}")


@icechunk.command(
    short_help="Show the log of changes.", epilog=examples("retention icechunk field log --limit 50 --json")
)
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="The maximum number of entries."
)
@as_json
@click.pass_context
def log(context: click.Context, limit: int, json_wanted: bool) -> None:
    """Show Icechunk's own log of the repository, newest first. A repository of format 1 has no log."""
    from retention_assets.icechunk.source.ops_log import ops_log
    from retention_assets.icechunk.source.repository import IcechunkSource
    from retention_assets.objectstore.access import open_store
    from retention_assets.objectstore.objects import ObjectReader

    repository = _repository(context)
    access = open_store(repository)
    source = IcechunkSource(access, utc_now)
    with working(f"{repository.name}: reading the log"):
        found = source.repo_object()
        if found is None:
            source.references()  # raises SourceError if there is no repository of format 1 either
            raise ConfigurationError(
                f"{access.url}: a repository of format 1 has no log. Nothing was changed. Upgrade it to format 2: "
                f"`{program()} icechunk {repository.name} upgrade`."
            )
        entries = [_readable(asdict(update)) for update in islice(ops_log(ObjectReader(access), found.repo), limit)]
    if json_wanted:
        print_json(entries)
        return
    for entry in entries:
        values = " ".join(f"{name}={value}" for name, value in entry.items() if name not in ("updated_at", "kind"))
        say(f"{entry['updated_at']}  {entry['kind']}  {values}")


@icechunk.command(
    short_help="Upgrade from format 1 to format 2.",
    epilog=examples(
        "retention icechunk field upgrade --dry-run", "retention icechunk field upgrade", more=NAME_OF_PERSON
    ),
)
@click.option("--dry-run", is_flag=True, help="Show the result without writing anything.")
@as_json
@click.pass_context
def upgrade(context: click.Context, dry_run: bool, json_wanted: bool) -> None:
    """Upgrade the repository to format 2, or complete an interrupted upgrade.

    Stop all writers first, and all programs that expire or collect with icechunk. A program that opened the repository
    before the upgrade, and runs icechunk's garbage_collect afterwards, deletes everything.
    """
    from retention_assets.icechunk.administration.upgrade import upgrade as upgrade_to_format_2
    from retention_assets.objectstore.access import open_store
    from retention_assets.objectstore.mutate.writing import ObjectWriter

    repository = _repository(context)
    access = open_store(repository)

    def act(before_write: "BeforeWrite") -> Mapping[str, Any]:
        ObjectWriter(access).require_conditions()
        return asdict(upgrade_to_format_2(access, utc_now, dry_run=False, before_write=before_write))

    with working(f"{repository.name}: upgrading to format 2"), naming(repository.name):
        if dry_run:
            done: Mapping[str, Any] = asdict(upgrade_to_format_2(access, utc_now, dry_run=True))
        else:
            done = _recorded(context, repository, "upgrade", act)
    verb = "would be upgraded" if dry_run else "upgraded"
    text = (
        f"{repository.name}: {verb}: {counted(done['snapshots'], 'snapshot')}, "
        f"{counted(done['branches'], 'branch', 'branches')}, {counted(done['tags'], 'tag')}; left out: "
        f"{counted(done['left_out'], 'unreachable snapshot')}; {'to be removed' if dry_run else 'removed'}: "
        f"{counted(len(done['removed']), 'file')} of format 1"
    )
    print_result({"repository": repository.name, "dry_run": dry_run, **done}, text, json_wanted=json_wanted)


def _operate(context: click.Context, what: str, act: Callable[[Any], int], *, json_wanted: bool) -> None:
    """Make the change `what` with `act`, which returns the number of conflicts, and print the result."""
    from retention_assets.icechunk.administration.operations import Operations
    from retention_assets.objectstore.access import open_store
    from retention_assets.objectstore.mutate.writing import ObjectWriter

    repository = _repository(context)
    access = open_store(repository)

    def conflicts(before_write: "BeforeWrite") -> Mapping[str, Any]:
        ObjectWriter(access).require_conditions()
        return {"conflicts": act(Operations(access, utc_now, log_line, before_write))}

    with working(f"{repository.name}: {what}"):
        done = _recorded(context, repository, what, conflicts)
    met = f" ({counted(done['conflicts'], 'conflict')} with other writers)" if done["conflicts"] else ""
    document = {"repository": repository.name, "done": what, **done}
    print_result(document, f"{repository.name}: done: {what}{met}", json_wanted=json_wanted)


def _recorded(
    context: click.Context, repository: Repository, what: str, act: "Callable[[BeforeWrite], Mapping[str, Any]]"
) -> Mapping[str, Any]:
    """Make the change `what` with `act` under the lease, write a record of it, and return the result of `act`."""
    from retention_assets.icechunk.administration.operations import recorded_change
    from retention_assets.state.approval import person

    warehouse = Warehouse(configuration_of(context).warehouse)
    return recorded_change(warehouse, repository, what, person(), str(uuid4()), utc_now, act)


def _repository(context: click.Context) -> Repository:
    """Return the repository of the command. Errors: ConfigurationError if it is not an Icechunk repository."""
    repository = configuration_of(context).repository(context.meta[_REPOSITORY])
    _ = repository.icechunk  # raises ConfigurationError for a lakeFS repository
    return repository


def _state(repository: Repository) -> dict[str, Any]:
    from retention_assets.icechunk.source.repository import IcechunkSource
    from retention_assets.objectstore.access import open_store

    with naming(repository.name):
        state = IcechunkSource(open_store(repository), utc_now).state()
    found: dict[str, Any] = {
        "format": state.format,
        "snapshots": len(state.history.snapshots),
        "branches": sorted(state.history.branches),
        "tags": sorted(state.history.tags),
        "deleted_tags": sorted(state.deleted_tags),
    }
    if state.repo is not None:
        found["status"] = state.repo.status.availability.word
        found["reason"] = state.repo.status.limited_availability_reason
    return found


def _readable(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a log entry with readable values and without empty fields."""
    from retention_assets.icechunk.formats.ids import encode_id
    from retention_assets.icechunk.rules.snapshots import datetime_of

    shown: dict[str, Any] = {
        "updated_at": datetime_of(entry["updated_at"], b"").isoformat(),
        "kind": entry["kind"].name.lower(),
    }
    for name, value in entry.items():
        if name in shown or value is None:
            continue
        if isinstance(value, bytes):
            shown[name] = encode_id(value)
        elif isinstance(value, Mapping):
            shown[name] = {one: each.name.lower() if isinstance(each, Enum) else each for one, each in value.items()}
        else:
            shown[name] = value
    return shown
