"""The commands before a first plan.

`init` writes a configuration or adds a repository to it. `access` tests the permissions. `lint` checks the
configuration and the policies.
"""

import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from retention_assets.cli.group import (
    Duration,
    Target,
    as_json,
    cli,
    configuration_of,
    examples,
    names_argument,
    print_json,
    program,
    say,
    screen,
    target_argument,
    with_demo,
    working,
)
from retention_assets.config.configuration import Configuration, Repository, configuration_in, load_configuration
from retention_assets.config.durations import duration_of_days, format_duration
from retention_assets.config.settings import FromEnvironment
from retention_assets.config.settings import Text as Value
from retention_assets.config.starter import (
    Starter,
    add_to_file,
    configuration_text,
    entry_of,
    options_of_environment,
    policy_text_of,
    text_of,
    text_with_entry,
)
from retention_assets.config.timestamps import utc_now
from retention_assets.core.amounts import counted
from retention_assets.errors import ConfigurationError, RetentionError, StoreError
from retention_assets.policy.lint import Finding
from retention_assets.policy.rules import Policy
from retention_assets.repositories.permissions import MODES, PermissionCheck, Permissions, permissions_of
from retention_assets.warehouse.warehouse import Warehouse

if TYPE_CHECKING:
    from retention_assets.core.remedies import CheckResult
    from retention_assets.lakefs.rules.references import References
    from retention_assets.lakefs.source.opening import OpenRepository

_EXAMPLES_OF_INIT = examples(
    "retention init orchard --server https://lakefs.example.org",
    "retention init orchard --dump refs_dump.json --namespace s3://lake/orchard",
    "retention init field --kind icechunk --storage s3://lake/field --option region=eu-west-1",
    "retention init orchard --option secret_access_key=env:LAKE_SECRET --option access_key_id=env:LAKE_KEY",
    more="The command reads the credentials of the lakeFS server from LAKECTL_CREDENTIALS_ACCESS_KEY_ID and "
    "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY, and the credentials of the store from the variables of the store's own "
    "tools. The file has only the names of the variables.",
)
_FILE, _POLICY = "retention.yaml", "policy.yaml"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEY, _SECRET = "LAKECTL_CREDENTIALS_ACCESS_KEY_ID", "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"
_SERVER = "LAKECTL_SERVER_ENDPOINT_URL"
_NOT_ALLOWED = re.compile(r"[^A-Za-z0-9_]")  # in names of repositories in `retention.yaml`
_NEEDED_BY_NO_MODE = {  # the text for permissions that no mode needs, by their location
    "storage": "only restore",
    "server": "no mode: without it, plans warn",
    "witness": "no mode: only this test",
}
_KEEP = timedelta(days=30)  # the default rule keeps history this long, if neither the user nor the server says how long

try_writes_option = click.option(
    "--try-writes",
    is_flag=True,
    help="Also write, read and delete a new file in the warehouse, in the quarantine and at the witness, and send a "
    "delete request for a name that does not exist in the repository. On S3, this request is sent only if the bucket "
    "keeps no versions. A new file stays if the credentials may not delete it; the command then names it.",
)


@cli.command(short_help="Write a configuration, or add a repository to it, and test it.", epilog=_EXAMPLES_OF_INIT)
@click.argument("name", required=False)
@click.option("--kind", type=click.Choice(["lakefs", "icechunk"]), help="The kind of the repository. Default: lakefs.")
@click.option("--server", metavar="URL", help=f"The lakeFS server. Default: the variable {_SERVER}.")
@click.option(
    "--repository", "server_name", metavar="NAME", help="The repository's name on the server, if it is not NAME."
)
@click.option(
    "--access-key-env",
    metavar="VARIABLE",
    default=_KEY,
    help=f"The environment variable that has the server's access key. Default: {_KEY}.",
)
@click.option(
    "--secret-key-env",
    metavar="VARIABLE",
    default=_SECRET,
    help=f"The environment variable that has the server's secret key. Default: {_SECRET}.",
)
@click.option("--dump", metavar="FILE", help="The output of `lakectl refs-dump`, instead of a server.")
@click.option(
    "--namespace", metavar="URL", help="The storage namespace, for --dump. With a server, the server names it."
)
@click.option(
    "--storage", metavar="URL|PATH", help="The location of the objects. For lakeFS, only if it is not the namespace."
)
@click.option(
    "--option",
    "options",
    metavar="NAME=VALUE",
    multiple=True,
    help="An option of the store. For a secret: NAME=env:VAR. Repeat the option for each option of the store.",
)
@click.option(
    "--keep",
    metavar="DURATION",
    type=Duration(),
    help="How long the default rule keeps history. Default: the server's default rule, or 30d.",
)
@click.option(
    "--overwrite", is_flag=True, help="Overwrite existing files. The configuration then has only this repository."
)
@try_writes_option
@as_json
@click.pass_context
def init(
    context: click.Context,
    name: str | None,
    options: tuple[str, ...],
    keep: timedelta | None,
    overwrite: bool,
    try_writes: bool,
    json_wanted: bool,
    **given: str | None,
) -> None:
    """Write a configuration and a policy for the repository NAME, and test the permissions of the credentials.

    If the file exists, the command adds the repository to it, with a policy in policy-NAME.yaml. All other text stays.
    On a terminal, the command asks for missing values. Without --try-writes, it only reads the store and the server.
    """
    file = Path(context.obj or _default_file())
    name = name or _asked("The repository's name", "NAME")
    existing = None if overwrite else _existing(file, _plain(name))
    policy = file.parent / _POLICY if existing is None else _folder(file) / f"policy-{_plain(name)}.yaml"
    if not overwrite:
        _require_new(policy, "overwrite it with --overwrite" if existing is None else f"add {name} to {file} by hand")
    starter = _starter(name, _options(options), given, keep)
    text = configuration_text(starter, policy.name)
    configuration = configuration_in(text, file.resolve())  # checked before it is shown or written
    if existing is None:
        with _own_errors(file):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            policy.write_text(policy_text_of(starter), encoding="utf-8")
    else:
        configuration = _add(file, existing, starter, policy)
    with working(f"{starter.name}: testing the permissions"):
        found = permissions_of(configuration, starter.name, try_writes=try_writes)
    if json_wanted:
        print_json({"files": [str(file), str(policy)], **found.document()})
    else:
        say(_done(file, policy, starter.name, configuration))
        _show(found, _program_of(file))
    _require_readable(found, _program_of(file))
    if not json_wanted:
        say(f"Next: {_program_of(file)} lint")


@cli.command(
    short_help="Test the permissions of the credentials.",
    epilog=examples("retention access orchard", "retention access orchard --try-writes --json"),
)
@target_argument
@try_writes_option
@as_json
def access(target: Target, try_writes: bool, json_wanted: bool) -> None:
    """Test the permissions on REPOSITORY, and list the missing permissions of each mode.

    The command also tests the quarantine, the warehouse, the inventories and the witness of the repository. It changes
    no object of the repository.
    """
    with working(f"{target.name}: testing the permissions"):
        found = permissions_of(target.configuration, target.name, try_writes=try_writes)
    if json_wanted:
        print_json(found.document())
    else:
        _show(found, program())
    _require_readable(found, program())
    if not json_wanted:
        say(f"Next: {program()} plan {target.name}")


def _starter(
    name: str, options: Mapping[str, Value], given: Mapping[str, str | None], keep: timedelta | None
) -> Starter:
    """Return the values of the configuration: as given, else from the environment, the server, or a prompt."""
    plain = _plain(name)
    if given["kind"] == "icechunk":
        if strange := [f"--{option}" for option in ("server", "dump", "namespace") if given[option]]:
            raise click.UsageError(f"{', '.join(strange)}: only for lakeFS. An Icechunk repository needs --storage.")
        storage = _absolute(
            given["storage"]
            or _asked("The location of the objects (a URL such as s3://lake/field, or a path)", "--storage")
        )
        starter = Starter(plain, "icechunk", keep or _KEEP, storage=storage)
    elif dump := given["dump"]:
        starter = _from_dump(plain, dump, given, keep or _KEEP)
    else:
        starter = _from_server(plain, given["server_name"] or name, given, keep)
    return replace(starter, options={**options_of_environment(starter.location), **options})


def _plain(name: str) -> str:
    """Return `name` with `_` for each character that the configuration does not allow, such as the `-` of lakeFS."""
    return _NOT_ALLOWED.sub("_", name)


def _from_dump(name: str, dump: str, given: Mapping[str, str | None], keep: timedelta) -> Starter:
    namespace = given["namespace"] or _asked("The storage namespace, such as s3://lake/orchard", "--namespace")
    storage = _storage(given["storage"], namespace)
    return Starter(name, "lakefs", keep, namespace, storage, dump=_absolute(dump))


def _from_server(name: str, server_name: str, given: Mapping[str, str | None], keep: timedelta | None) -> Starter:
    """Return the values for a repository on a server. Its namespace and rules come from the server."""
    from retention_assets.lakefs.source.client import LakeFSClient
    from retention_assets.lakefs.source.discovery import namespace_of

    server = given["server"] or os.environ.get(_SERVER) or _asked("The lakeFS server's URL", "--server")
    keys = _variable(given["access_key_env"]), _variable(given["secret_key_env"])
    access_key, secret_key = (FromEnvironment(env=key).resolve("the lakeFS server") for key in keys)
    with working(f"{server}: asking for {server_name}"):
        client = LakeFSClient(server, access_key, secret_key)
        namespace, rules = namespace_of(client, server_name), client.gc_rules(server_name)
    storage = _storage(given["storage"], namespace)
    keep = keep or (duration_of_days(rules.default_days) if rules and rules.default_days else _KEEP)
    another = server_name if server_name != name else None
    branches = rules.branches if rules else {}
    return Starter(
        name, "lakefs", keep, namespace, storage, server=server, server_name=another, keys=keys, branches=branches
    )


def _storage(given: str | None, namespace: str) -> str | None:
    """Return the location of the objects; None: the namespace. For `local://`, ask the user for the directory."""
    if given is None and namespace.startswith("local://"):
        given = _asked(f"The directory of {namespace} on this machine", "--storage")
    return None if given is None else _absolute(given)


def _absolute(location: str) -> str:
    """Return a URL unchanged, and a path as absolute: a relative path would be relative to the configuration file."""
    if location.startswith("file:"):
        scheme, path = location[:7], location[7:]
        return f"{scheme}{Path(path).resolve()}" if scheme == "file://" else location  # the validation refuses `file:/`
    if "://" in location:
        return location
    return str(Path(location).expanduser().resolve())


def _options(written: Sequence[str]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for one in written:
        option, separator, value = one.partition("=")
        if not separator or not option:
            raise click.UsageError(f"--option {option}: write NAME=VALUE, or NAME=env:VARIABLE.")
        found[option] = FromEnvironment(env=_variable(value[4:])) if value.startswith("env:") else value
    return found


def _variable(name: str | None) -> str:
    """Return `name` if it can be the name of an environment variable.

    Errors: UsageError. The message does not show `name`, which may be a secret.
    """
    if not name or not _VARIABLE.fullmatch(name):
        raise click.UsageError("Give a secret as the name of an environment variable, such as LAKE_SECRET.")
    return name


def _asked(wanted: str, option: str) -> str:
    """Ask the user for a value. Errors: UsageError that names the option if standard input is not a terminal."""
    if not sys.stdin.isatty():
        raise click.UsageError(f"{option} is missing: {wanted[0].lower()}{wanted[1:]}. Nothing was written.")
    return str(click.prompt(wanted, err=True))


@contextmanager
def _own_errors(file: Path) -> Iterator[None]:
    """Raise ConfigurationError if the block cannot write `file` or the files beside it."""
    try:
        yield
    except OSError as error:
        raise ConfigurationError(
            f"{error.filename or file}: cannot be written: {error.strerror}. The repository was not changed. Write "
            "`--config FILE` before `init`, with a file in a folder that you can write."
        ) from error


def _existing(file: Path, name: str) -> str | None:
    """Return the text of a configuration that does not have the repository `name` yet; None: there is no such file.

    Errors: ConfigurationError if the configuration has the repository, or is not valid.
    """
    with _own_errors(file):
        if not file.exists():
            return None
    if name in load_configuration(file).repositories:
        raise ConfigurationError(
            f"{file}: has the repository {name} already. Nothing was written. Edit its entry in the file, or write "
            "`--config FILE` before `init`, with a file in another folder. With --overwrite, the command replaces the "
            "whole file with a configuration that has only this repository."
        )
    return text_of(file)


def _folder(file: Path) -> Path:
    """Return the folder that the paths in a configuration are relative to."""
    return (file.resolve() if file.is_symlink() else file).parent


def _require_new(policy: Path, remedy: str) -> None:
    with _own_errors(policy):
        if not policy.exists():
            return
    raise ConfigurationError(
        f"{policy}: exists already. Nothing was written. Move the file away, write `--config FILE` before `init`, "
        f"with a file in another folder, or {remedy}."
    )


def _add(file: Path, existing: str, starter: Starter, policy: Path) -> Configuration:
    """Add the repository to a configuration with the text `existing`, and return the new configuration.

    Errors: ConfigurationError with the lines to add by hand, if this would change the meaning of other lines.
    """
    entry, policy_text = entry_of(starter, policy.name), policy_text_of(starter)
    text = text_with_entry(existing, entry)
    if text is None:
        lines = "\n".join(f"  {line}" for line in entry)
        raise ConfigurationError(
            f"{file}: {starter.name} cannot be added without a change of other lines. Nothing was changed. Write these "
            f"lines to {policy}:\n\n{policy_text}\nThen add these lines below `repositories:`:\n\n{lines}"
        )
    configuration = configuration_in(text, file.resolve())
    with _own_errors(file):
        add_to_file(file, existing, text, policy, policy_text)
    return configuration


def _done(file: Path, policy: Path, name: str, configuration: Configuration) -> str:
    """Return the text that says what was written."""
    if not configuration.others(name):
        return f"Written: {file}, {policy}. Nothing else was changed."
    return (
        f"{name} was added to {file}. Written: {policy}. Nothing else was changed.\n"
        f"Until {name} has a plan, sweeps and purges of the other repositories are refused."
    )


def _default_file() -> str:
    return os.environ.get("RETENTION_CONFIG") or _FILE


def _program_of(file: Path) -> str:
    """Return the text that calls `retention` with the configuration `file`. The default file needs no option."""
    called = program()
    is_found = str(file) == _default_file()
    return called if is_found or "--config" in called else f"{called} --config {shlex.quote(str(file))}"


def _show(found: Permissions, called: str) -> None:
    """Print the result of the checks. `called`: the text that calls the command."""
    table = Table(box=SIMPLE_HEAD)
    for column in ("location", "permission", "result", "needed by"):
        table.add_column(column, overflow="fold")
    for one in found.checks:
        modes = "every mode" if one.modes == MODES else ", ".join(one.modes)
        modes = modes or _NEEDED_BY_NO_MODE[one.place]
        style = "red" if one.state in ("refused", "failed") else ""
        table.add_row(one.place, one.permission, Text(one.state, style=style), modes)
    screen.print(table)
    for one in found.checks:
        if one.state in ("refused", "failed"):
            say(f"{one.permission} ({one.place}): {with_demo(one.detail, click.get_current_context().obj)}")
    for mode in MODES:
        say(f"{mode}: {_readiness(found.missing(mode), found.untried(mode))}")
    if found.can_try_more:
        say(f"To test writing and deleting too, with new names only: {called} access {found.repository} --try-writes")


def _readiness(missing: Sequence[PermissionCheck], untried: Sequence[PermissionCheck]) -> str:
    text = f"missing: {_listed(missing)}" if missing else "nothing is missing"
    return f"{text}; not tested: {_listed(untried)}" if untried else text


def _listed(checks: Sequence[PermissionCheck]) -> str:
    return ", ".join(f"{one.permission} ({one.place})" for one in checks)


def _require_readable(found: Permissions, called: str) -> None:
    """Raise StoreError if a plan cannot be made with these credentials."""
    if missing := found.missing("plan"):
        is_refused = all(one.state == "refused" for one in missing)
        remedy = "Grant the missing permissions" if is_refused else "Correct what the checks above say"
        raise StoreError(
            f"{found.repository}: no plan can be made, because these checks failed: {_listed(missing)}. Nothing was "
            f"deleted. {remedy}, then test again: `{called} access {found.repository}`."
        )


@cli.command(
    short_help="Check the configuration and the policies.",
    epilog=examples("retention lint", "retention lint orchard --json"),
)
@names_argument
@as_json
@click.pass_context
def lint(context: click.Context, repositories: tuple[str, ...], json_wanted: bool) -> None:
    """Check the configuration and the policies of REPOSITORIES (default: all). Exit status 2: an error was found.

    The command reads branches, tags and commits. With `source.api`, the server writes a dump for this, and the dump
    stays.
    """
    configuration = configuration_of(context)
    names = repositories or tuple(configuration.repositories)
    found, failed = {}, []
    with working("checking policies", len(names)) as work:
        for name in names:
            try:
                found[name] = findings_of(configuration, name)
            except RetentionError as error:
                if len(names) == 1:
                    raise
                failed.append(error)
                found[name] = [Finding("error", "(not checked)", with_demo(str(error), context.obj))]
            work.count()
    if json_wanted:
        print_json({name: [asdict(one) for one in findings] for name, findings in found.items()})
    else:
        _print_findings(found)
    if failed:
        context.exit(failed[0].exit_code)
    if any(finding.severity == "error" for findings in found.values() for finding in findings):
        context.exit(ConfigurationError.exit_code)


def _print_findings(found: Mapping[str, Sequence[Finding]]) -> None:
    for name, findings in found.items():
        for finding in findings:
            say(f"{name}: {finding.severity}: {finding.rule_id}: {finding.message}")
        errors = sum(finding.severity == "error" for finding in findings)
        amounts = f"{counted(errors, 'error')}, {counted(len(findings) - errors, 'warning')}"
        say(f"{name}: {amounts if findings else 'no issues found'}")
        if not errors:
            say(f"Next: {program()} plan {name}")


def findings_of(configuration: Configuration, name: str) -> list[Finding]:
    """Return the findings about a repository's locations and policy, and for lakeFS about its reflog, grace and server.

    Errors: ConfigurationError if the policy is invalid; errors of the source.
    """
    from retention_assets.lakefs.source.opening import open_repository
    from retention_assets.lakefs.sweep.guards import locations_apart
    from retention_assets.policy.lint import lint as lint_policy
    from retention_assets.repositories.other_repositories import not_configured

    repository = configuration.repository(name)
    if repository.is_icechunk:
        return _findings_of_icechunk(configuration, repository)
    opened = open_repository(repository, utc_now)
    policy = opened.policy()
    references = opened.source.references()
    rules = opened.source.rules()
    warning = not_configured(opened.source, [repository, *configuration.others(name)])
    found = lint_policy(
        policy,
        branches=references.branches,
        tags=references.tags,
        commits=references.commits,
        server_rules=rules,
        as_of=utc_now().date(),
    )
    found += _refused_locations(configuration, repository, locations_apart(opened, configuration.locations()))
    found += _reflog(repository, Warehouse(configuration.warehouse), references, policy)
    if warning:
        found.append(Finding("warning", "repositories", warning))
    return found + _shorter_grace(repository, opened)


def _refused_locations(configuration: Configuration, repository: Repository, apart: "CheckResult") -> Iterator[Finding]:
    """Yield an error for each location that a plan or sweep would refuse. `apart`: the result of the guard."""
    from retention_assets.state.binding import require_outside
    from retention_assets.state.quarantine import quarantine_access, require_parent

    if not apart.passed:
        yield Finding("error", apart.guard, apart.message)
    names = configuration.repositories
    checks = {"warehouse": lambda: require_outside(configuration.warehouse, repository, names)}
    if repository.settings.mode == "quarantine" or repository.settings.quarantine.url:
        checks["quarantine"] = lambda: require_parent(quarantine_access(repository))
    for key, check in checks.items():
        try:
            check()
        except RetentionError as error:
            yield Finding("error", key, str(error))


def _reflog(
    repository: Repository, warehouse: Warehouse, references: "References", policy: Policy
) -> Iterator[Finding]:
    """Yield a warning if the reflog is off, and a warning for each head that only the reflog keeps."""
    from retention_assets.lakefs.rules.reflog import held_until, reported_heads
    from retention_assets.lakefs.sweep.memory import read_memory

    if not repository.lakefs.keeps_reflog:
        yield Finding(
            "warning",
            "reflog",
            "the reflog is off: the commits of a branch or tag that is deleted by mistake can expire at the next plan. "
            "Set `reflog: true`.",
        )
    memory = read_memory(warehouse, repository.name, repository.lakefs)
    for head in reported_heads(references, memory, policy, utc_now()):
        until = held_until(head, policy)
        yield Finding(
            "warning",
            "reflog",
            f"{head.kind} {head.name} no longer names {head.commit_id}. The reflog keeps its commits "
            f"{f'until {until:%Y-%m-%d}' if until else 'for ever'}. If this was a mistake, let the "
            f"{head.kind} name this commit again.",
        )


def _shorter_grace(repository: Repository, opened: "OpenRepository") -> list[Finding]:
    """Return a warning if `grace` is shorter than the grace period of the server's own garbage collection."""
    from retention_assets.lakefs.source.api import ApiSource

    if not isinstance(opened.source, ApiSource):
        return []
    ours, servers = repository.settings.grace, opened.source.grace()
    if ours >= servers:
        return []
    return [
        Finding(
            "warning",
            "grace",
            f"grace is {format_duration(ours)}, the server's own grace period is {format_duration(servers)}: a plan "
            "can name objects that the server would keep because of their age. Set grace to "
            f"{format_duration(servers)} or more.",
        )
    ]


def _findings_of_icechunk(configuration: Configuration, repository: Repository) -> list[Finding]:
    from retention_assets.core.guards import namespaces_apart
    from retention_assets.icechunk.formats.ids import encode_id
    from retention_assets.icechunk.source.opening import open_icechunk
    from retention_assets.policy.lint import lint_snapshots

    opened = open_icechunk(repository, utc_now)
    policy = opened.policy()
    history = opened.source.state().history
    snapshots = set(map(encode_id, history.snapshots))
    found = lint_snapshots(policy, history.branches.keys(), history.tags.keys(), snapshots, utc_now().date())
    apart = namespaces_apart(repository.name, configuration.locations())
    return [*found, *_refused_locations(configuration, repository, apart)]
