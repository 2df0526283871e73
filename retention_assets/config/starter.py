"""The text of a first `retention.yaml` and of a first policy, with comments, for `retention init`."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

import yaml

from retention_assets.config.durations import format_duration
from retention_assets.config.settings import FromEnvironment, Text

# The environment variables that the tools of each cloud read, by obstore's name of the option.
_S3 = {
    "access_key_id": "AWS_ACCESS_KEY_ID",
    "secret_access_key": "AWS_SECRET_ACCESS_KEY",
    "session_token": "AWS_SESSION_TOKEN",
    "region": "AWS_REGION",
    "endpoint": "AWS_ENDPOINT_URL",
}
_GCS = {"application_credentials": "GOOGLE_APPLICATION_CREDENTIALS"}
_AZURE = {
    "account_name": "AZURE_STORAGE_ACCOUNT_NAME",
    "account_key": "AZURE_STORAGE_ACCOUNT_KEY",
    "sas_key": "AZURE_STORAGE_SAS_TOKEN",
}
_VARIABLES = {"s3": _S3, "gs": _GCS, **dict.fromkeys(("az", "azure", "abfs", "abfss", "https"), _AZURE)}


@dataclass(frozen=True, slots=True)
class Starter:
    """The values of a first configuration with one repository. Secrets are names of environment variables."""

    name: str
    kind: Literal["lakefs", "icechunk"]
    keep: timedelta  # how long the default rule of the policy keeps history
    namespace: str = ""  # of lakeFS
    storage: str | None = None  # if it is not the namespace
    options: Mapping[str, Text] = field(default_factory=dict)
    server: str | None = None
    server_name: str | None = None  # the repository's name on the server; None: the same name
    keys: tuple[str, str] = ("", "")  # the environment variables with the server's access key and secret key
    dump: str | None = None
    branches: Mapping[str, int] = field(default_factory=dict)  # the retention days of the server's own rules

    @property
    def location(self) -> str:
        """The URL or path of the objects."""
        return self.storage or self.namespace


def options_of_environment(url: str) -> dict[str, Text]:
    """Return the storage options for `url` whose environment variables are set. Each value names its variable."""
    variables = _variables_of(url)
    return {option: FromEnvironment(env=name) for option, name in variables.items() if os.environ.get(name)}


def _variables_of(url: str) -> Mapping[str, str]:
    return _VARIABLES.get(url.partition("://")[0].replace("s3a", "s3"), {})


def configuration_text(starter: Starter, policy: str) -> str:
    """Return a `retention.yaml` with one repository in mode `plan`. `policy`: the name of the policy's file."""
    lines = [
        "# The repositories of `retention`. All keys: docs/configuration.md. Paths are relative to this file.",
        "warehouse: warehouse          # where the tables are written; for several machines a URL: s3a://bucket/tables",
        "",
        "repositories:",
        f"  {_inline(starter.name)}:",
        *_indented(_storage(starter) if starter.kind == "icechunk" else [*_storage(starter), *_source(starter)]),
        f"    policy: {_inline(policy)}",
        "    grace: 24h                 # younger objects stay; choose a time that is longer than your longest write",
        "    mode: plan                 # deletes no data; `quarantine` moves objects, `delete` deletes them",
        "    # quarantine:              # for `mode: quarantine`",
        f"    #   url: {_quarantine(starter.location)}",
        "    #   keep: 30d              # how long objects can be restored",
        "    # sweep:",
        "    #   single_machine: true   # no other machine ever sweeps; needed for a bucket with a local `warehouse`",
        "",
    ]
    return "\n".join(lines)


def policy_text_of(starter: Starter) -> str:
    """Return a policy: a default rule, the rules that the server has for branches, and examples in comments."""
    keep = format_duration(starter.keep)
    if starter.kind == "icechunk":
        lines = [
            "# How long snapshots are kept. Durations: 12h, 30d, 8w, forever. More: docs/icechunk.md",
            "snapshots:",
            f"  default: {{keep_newer: {keep}}}        # branches and tags that no rule names",
            "  branches:",
            "    - {branch: main, keep_newer: forever}   # main keeps all its history until you change this",
            "  tags:",
            '    - {tag: "*", keep_newer: forever}',
            "# holds:",
            "#   - {id: paper, tag: v1, reason: published figure, until: 2030-01-01}",
        ]
        return "\n".join([*lines, ""])
    origin = "Copied from the server's own rules. " if starter.branches else ""
    rules = [
        f"    - {{branch: {_inline(branch)}, keep: {days}d}}" for branch, days in sorted(starter.branches.items())
    ] or ['    # - {branch: "exp-*", keep: 7d}']
    lines = [
        f"# How long history is kept, by branch. {origin}More: docs/retention.md",
        "retention:",
        f"  default: {keep}                # for branches that no rule names",
        "  branches:" if starter.branches else "  # branches:",
        *rules,
        "# lifecycle:                  # also deletes objects of active commits: docs/lifecycle.md",
        "#   - {id: scratch, prefix: scratch, keep: 7d}",
        "# holds:                      # keep objects whatever the rules say",
        "#   - {id: audit, prefix: reference, reason: yearly audit, until: 2030-01-01}",
    ]
    return "\n".join([*lines, ""])


def _storage(starter: Starter) -> list[str]:
    """Return the lines of the keys `kind`, `namespace`, `storage` and `storage_options`."""
    lines = [f"kind: {starter.kind}"]
    if starter.kind == "lakefs":
        lines.append(f"namespace: {_inline(starter.namespace)}   # as the server names it")
    if starter.storage:
        lines.append(f"storage: {_inline(starter.storage)}   # where `retention` finds the objects")
    if starter.options:
        options = {name: _value(value) for name, value in starter.options.items()}
        return [*lines, "storage_options:", *(f"  {name}: {_inline(value)}" for name, value in options.items())]
    if variables := _variables_of(starter.location):
        known = ", ".join(f"{option}: {{env: {name}}}" for option, name in list(variables.items())[:2])
        lines.append(f"# storage_options: {{{known}}}   # else the machine's own credentials are used")
    return lines


def _source(starter: Starter) -> list[str]:
    """Return the lines of the key `source` of a lakeFS repository."""
    if starter.dump:
        return ["source:", f"  dump: {_inline(starter.dump)}   # the output of `lakectl refs-dump`"]
    access, secret = starter.keys
    lines = ["source:", "  api:", f"    url: {_inline(starter.server)}"]
    lines += [f"    access_key: {{env: {access}}}", f"    secret_key: {{env: {secret}}}"]
    return lines + ([f"    repository: {_inline(starter.server_name)}"] if starter.server_name else [])


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _quarantine(location: str) -> str:
    """Return an example of a URL or path for the quarantine."""
    scheme, separator, _ = location.partition("://")
    return f"{scheme}://another-bucket/quarantine" if separator and scheme != "file" else f"{location}.quarantine"


def _value(value: Text) -> object:
    return {"env": value.env} if isinstance(value, FromEnvironment) else value


def _inline(value: object) -> str:
    """Return a value as YAML on one line."""
    return yaml.safe_dump(value, default_flow_style=True, width=10_000).removesuffix("\n").removesuffix("\n...")
