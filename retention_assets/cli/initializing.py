"""The commands `init`, which writes a first configuration, and `access`, which says what the credentials may do."""

import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, overload

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from retention_assets.cli.group import as_json, cli, configuration_of, examples, print_json, program, progress, screen
from retention_assets.cli.rendering import AS_IT_IS
from retention_assets.config.configuration import configuration_in
from retention_assets.config.durations import parse_span, span_of_days
from retention_assets.config.settings import FromEnvironment
from retention_assets.config.settings import Text as Value
from retention_assets.config.starter import Starter, configuration_text, options_of_environment, policy_text_of
from retention_assets.errors import ConfigurationError, StoreError
from retention_assets.repositories.permissions import MODES, PermissionCheck, Permissions, permissions_of

_EXAMPLES = examples(
    "retention init orchard --server https://lakefs.example.org",
    "retention init orchard --dump refs_dump.json --namespace s3://lake/orchard",
    "retention init field --kind icechunk --storage s3://lake/field --option region=eu-west-1",
    "retention init orchard --option secret_access_key=env:LAKE_SECRET --option access_key_id=env:LAKE_KEY",
    more="The credentials of the lakeFS server are read from LAKECTL_CREDENTIALS_ACCESS_KEY_ID and "
    "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY, those of the store from the variables that its own tools "
    "read. The file has only the names of the variables.",
)
_EXAMPLES_OF_ACCESS = examples(
    "retention access orchard",
    "retention access orchard --try-writes --json",
)
_FILE, _POLICY = "retention.yaml", "policy.yaml"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEY, _SECRET = "LAKECTL_CREDENTIALS_ACCESS_KEY_ID", "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"
_SERVER = "LAKECTL_SERVER_ENDPOINT_URL"
_OUTSIDE = re.compile(r"[^A-Za-z0-9_]")

try_writes_option = click.option(
    "--try-writes",
    is_flag=True,
    help="Also write and delete a file of our own in the quarantine, and delete a name that does not exist.",
)


@cli.command(short_help="Write a first configuration, and try it.", epilog=_EXAMPLES)
@click.argument("name", required=False)
@click.option("--kind", type=click.Choice(["lakefs", "icechunk"]), help="Default: lakefs.")
@click.option("--server", metavar="URL", help=f"The lakeFS server; default: {_SERVER}.")
@click.option("--repository", "server_name", metavar="NAME", help="Its name on the server, if it is not NAME.")
@click.option("--access-key-env", metavar="VARIABLE", default=_KEY, help="It has the server's access key.")
@click.option("--secret-key-env", metavar="VARIABLE", default=_SECRET, help="It has the server's secret key.")
@click.option("--dump", metavar="FILE", help="Instead of a server: what `lakectl refs-dump` printed.")
@click.option("--namespace", metavar="URL", help="The storage namespace; a server is asked for it.")
@click.option("--storage", metavar="URL|PATH", help="Where the objects are, if not at the namespace.")
@click.option(
    "--option", "options", metavar="NAME=VALUE", multiple=True, help="Of the store; a secret as NAME=env:VAR."
)
@click.option(
    "--keep", metavar="DURATION", help="How long the default rule keeps history. Default: the server's, or 30d."
)
@click.option("--overwrite", is_flag=True, help="Write over files that exist.")
@try_writes_option
@as_json
@click.pass_context
def init(
    context: click.Context,
    name: str | None,
    options: tuple[str, ...],
    overwrite: bool,
    try_writes: bool,
    json_wanted: bool,
    **given: str | None,
) -> None:
    """Write retention.yaml and a policy for the repository NAME, and say what the credentials may do there.

    On a terminal, what is missing is asked. The store and the server are only read. Nothing is deleted.
    """
    file = Path(context.obj or _FILE)
    policy = file.parent / _POLICY
    _require_new([file, policy], overwrite=overwrite)
    asked = name or _asked("The repository's name", "NAME")
    starter = _starter(asked, _options(options), given)
    text = configuration_text(starter, policy.name)
    configured = configuration_in(text, file.resolve()).repository(starter.name)  # checked before it is written
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    policy.write_text(policy_text_of(starter), encoding="utf-8")
    with progress.status(f"{starter.name}: trying the connection"):
        found = permissions_of(configured, try_writes=try_writes)
    if json_wanted:
        print_json({"files": [str(file), str(policy)], **found.document()})
    else:
        screen.print(f"Written: {file}, {policy}. Nothing else was changed.", **AS_IT_IS)
        _show(found)
    _require_readable(found, _program_of(file))
    if not json_wanted:
        screen.print(f"Next: {_program_of(file)} lint", **AS_IT_IS)


@cli.command(short_help="Say what the credentials may do.", epilog=_EXAMPLES_OF_ACCESS)
@click.argument("repository")
@try_writes_option
@as_json
@click.pass_context
def access(context: click.Context, repository: str, try_writes: bool, json_wanted: bool) -> None:
    """Say what the credentials of REPOSITORY may do, and what each mode lacks. Changes no object of the repository."""
    configured = configuration_of(context).repository(repository)
    with progress.status(f"{repository}: trying the connection"):
        found = permissions_of(configured, try_writes=try_writes)
    if json_wanted:
        print_json(found.document())
    else:
        _show(found)
    _require_readable(found, program())
    if not json_wanted:
        screen.print(f"Next: {program()} plan {repository}", **AS_IT_IS)


def _starter(name: str, options: Mapping[str, Value], given: Mapping[str, str | None]) -> Starter:
    """Return what the configuration says, from the options, the environment, the server and a person's answers."""
    kind: Any = given["kind"] or "lakefs"
    plain = _OUTSIDE.sub("_", name)  # names of servers may have a `-`
    keep = _keep(given["keep"]) if given["keep"] else None
    if kind == "icechunk":
        storage = _absolute(
            given["storage"] or _asked("Where its objects are (a URL such as s3://lake/field, or a path)", "--storage")
        )
        options = {**options_of_environment(storage), **options}
        return Starter(plain, kind, keep or timedelta(days=30), storage=storage, options=options)
    if given["dump"]:
        return _from_dump(plain, options, given, keep or timedelta(days=30))
    return _from_server(plain, given["server_name"] or name, options, given, keep)


def _from_dump(name: str, options: Mapping[str, Value], given: Mapping[str, str | None], keep: timedelta) -> Starter:
    namespace = given["namespace"] or _asked("Its storage namespace, such as s3://lake/orchard", "--namespace")
    storage = _storage(given["storage"], namespace)
    options = {**options_of_environment(storage or namespace), **options}
    return Starter(name, "lakefs", keep, namespace, storage, options, dump=_absolute(given["dump"]))


def _from_server(
    name: str, there: str, options: Mapping[str, Value], given: Mapping[str, str | None], keep: timedelta | None
) -> Starter:
    """Return the starter of a repository on a server. The server is asked for the namespace and for its own rules."""
    from retention_assets.lakefs.source.client import LakeFSClient
    from retention_assets.lakefs.source.discovery import discover

    server = given["server"] or os.environ.get(_SERVER) or _asked("The lakeFS server's URL", "--server")
    keys = _variable(given["access_key_env"]), _variable(given["secret_key_env"])
    access_key, secret_key = (FromEnvironment(env=key).resolve("the lakeFS server") for key in keys)
    with progress.status(f"{server}: asking for {there}"):
        found = discover(LakeFSClient(server, access_key, secret_key), there)
    storage = _storage(given["storage"], found.namespace)
    options = {**options_of_environment(storage or found.namespace), **options}
    days = span_of_days(found.default_days) if found.default_days else timedelta(days=30)
    another = there if there != name else None
    return Starter(
        name, "lakefs", keep or days, found.namespace, storage, options, server, another, keys, branches=found.branches
    )


def _storage(given: str | None, namespace: str) -> str | None:
    """Return where the objects are, if not at the namespace. Only the server knows the place of `local://`."""
    if given is None and namespace.startswith("local://"):
        given = _asked(f"The directory of {namespace} on this machine", "--storage")
    return _absolute(given)


@overload
def _absolute(place: str) -> str: ...
@overload
def _absolute(place: None) -> None: ...
def _absolute(place: str | None) -> str | None:
    """Return a path as an absolute path: the command's directory need not be the file's. A URL stays as it is."""
    return place if place is None or "://" in place else str(Path(place).expanduser().resolve())


def _options(written: Sequence[str]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for one in written:
        option, separator, value = one.partition("=")
        if not separator or not option:
            raise click.UsageError(f"--option {one.partition('=')[0]}: write NAME=VALUE, or NAME=env:VARIABLE.")
        found[option] = FromEnvironment(env=_variable(value[4:])) if value.startswith("env:") else value
    return found


def _variable(name: str | None) -> str:
    """Return the name of an environment variable. Errors: UsageError, which does not show what may be a secret."""
    if not name or not _VARIABLE.fullmatch(name):
        raise click.UsageError("A secret is given as the name of an environment variable, such as LAKE_SECRET.")
    return name


def _keep(written: str) -> timedelta:
    try:
        return parse_span(written)
    except ConfigurationError as error:
        raise ConfigurationError(f"--keep: {error}") from error


def _asked(wanted: str, option: str) -> str:
    """Ask a person. Errors: UsageError that names the option where no person can be asked."""
    if not sys.stdin.isatty():
        raise click.UsageError(f"{option} is missing: {wanted[0].lower()}{wanted[1:]}. Nothing was written.")
    return str(click.prompt(wanted, err=True))


def _require_new(files: Sequence[Path], *, overwrite: bool) -> None:
    there = [str(file) for file in files if file.exists()]
    if there and not overwrite:
        raise ConfigurationError(
            f"{', '.join(there)}: exists already. Nothing was written. Name another place with `--config FILE` before "
            "`init`, add the repository to the file by hand, or write over it with --overwrite."
        )


def _program_of(file: Path) -> str:
    """Return the text that calls this command again with a file. The file in this directory is found without it."""
    called = program()
    is_found = file == Path(_FILE) and "RETENTION_CONFIG" not in os.environ
    return called if is_found or "--config" in called else f"{called} --config {shlex.quote(str(file))}"


def _show(found: Permissions) -> None:
    table = Table(box=SIMPLE_HEAD)
    for column in ("place", "permission", "", "needed by"):
        table.add_column(column)
    for one in found.checks:
        modes = "every mode" if one.modes == MODES else ", ".join(one.modes) or "warnings only"
        style = "red" if one.state in ("refused", "failed") else ""
        table.add_row(one.place, one.permission, Text(one.state, style=style), modes)
    screen.print(table)
    for one in found.checks:
        if one.state in ("refused", "failed"):
            screen.print(f"{one.permission}: {one.detail}", **AS_IT_IS)
    for mode in MODES:
        screen.print(f"{mode}: {_readiness(found.lacking(mode), found.untried(mode))}", **AS_IT_IS)


def _readiness(lacking: Sequence[PermissionCheck], untried: Sequence[PermissionCheck]) -> str:
    told = f"lacks {_listed(lacking)}" if lacking else "nothing is missing"
    return f"{told}; not tried: {_listed(untried)}" if untried else told


def _listed(checks: Sequence[PermissionCheck]) -> str:
    return ", ".join(f"{one.permission} ({one.place})" for one in checks)


def _require_readable(found: Permissions, called: str) -> None:
    """Raise StoreError if a plan cannot be made with these credentials."""
    if lacking := found.lacking("plan"):
        raise StoreError(
            f"{found.repository}: no plan can be made: {_listed(lacking)} is missing. Nothing was deleted. Mend what "
            f"is named above, then try again: `{called} access {found.repository}`."
        )
