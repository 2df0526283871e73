"""The text of a `retention.yaml` and of a policy, with comments, for `retention init`.

The text of an existing `retention.yaml` gets the entry of one more repository, and is otherwise unchanged.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Literal
from uuid import uuid4

import yaml

from retention_assets.config.documents import load_document
from retention_assets.config.durations import format_duration
from retention_assets.config.settings import FromEnvironment, Text
from retention_assets.errors import ConfigurationError

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
        *_indented(entry_of(starter, policy), 2),
        "",
    ]
    return "\n".join(lines)


def entry_of(starter: Starter, policy: str) -> list[str]:
    """Return the lines of the repository's entry below `repositories:`, not indented, in mode `plan`.

    `policy`: the name of the policy's file.
    """
    lines = [
        *_storage(starter),
        *([] if starter.kind == "icechunk" else _source(starter)),
        f"policy: {_inline(policy)}",
        "grace: 24h                 # younger objects stay; choose a time that is longer than your longest write",
        "mode: plan                 # no sweep. `quarantine`: a sweep moves objects; `delete`: it deletes them",
        "# quarantine:              # for `mode: quarantine`",
        f"#   url: {_quarantine(starter.location)}",
        "#   keep: 30d              # how long objects can be restored",
        "# sweep:",
        "#   single_machine: true   # no other machine ever sweeps; needed for a bucket with a local `warehouse`",
    ]
    return [f"{_inline(starter.name)}:", *_indented(lines, 2)]


def text_with_entry(text: str, entry: Sequence[str]) -> str | None:
    """Return the text of a configuration with one more entry at the end of `repositories:`.

    The other text is unchanged, with its comments. The result is None if this is not possible: the repositories
    are in braces, behind an alias or in another key, or the result would have another meaning.
    """
    place = _end_of_repositories(text)
    if place is None:
        return None
    end, indentation = place
    newline = "\r\n" if "\r\n" in text else "\n"
    gap = "" if text[:end].endswith("\n") else newline
    lines = newline.join([*_indented(entry, indentation), ""])
    new = f"{text[:end]}{gap}{lines}{text[end:]}"
    return new if _has_only_one_more(text, new, entry) else None


def _end_of_repositories(text: str) -> tuple[int, int] | None:
    """Return the index in the text where the repositories end, and the indentation of their names."""
    try:
        document = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError:  # JSON that is no YAML
        return None
    for key, value in document.value if isinstance(document, yaml.MappingNode) else ():
        if key.value == "repositories" and isinstance(value, yaml.MappingNode) and not value.flow_style:
            # YAML's mark is after the blank lines and comments that follow. They belong to the next key.
            lines = text[: value.end_mark.index].splitlines(keepends=True)
            while lines and _is_after(lines[-1], key.start_mark.column):
                lines.pop()
            first, _ = value.value[0]
            return len("".join(lines)), first.start_mark.column
    return None


def _is_after(line: str, indentation: int) -> bool:
    """Return whether a line is blank, or is a comment that is not indented more than the key `repositories`."""
    written = line.strip()
    return not written or (written.startswith("#") and line.index("#") <= indentation)


def _has_only_one_more(old: str, new: str, entry: Sequence[str]) -> bool:
    try:
        before, after, added = (load_document(text) for text in (old, new, "\n".join(entry)))
    except (ConfigurationError, ValueError):
        return False
    assert isinstance(before, dict)
    assert isinstance(added, dict)
    return after == {**before, "repositories": {**before["repositories"], **added}}


def add_to_file(file: Path, before: str, after: str, policy: Path, policy_text: str) -> None:
    """Create the policy's file, then replace the text `before` of a configuration by `after`, atomically.

    Errors: ConfigurationError if the file no longer has the text `before`; OSError. Then nothing is changed.
    """
    target = file.resolve()  # a link stays a link
    new = target.with_name(f".{target.name}.{uuid4().hex}")
    policy.touch(exist_ok=False)
    try:
        policy.write_text(policy_text, encoding="utf-8")
        new.write_text(after, encoding="utf-8", newline="")
        shutil.copymode(target, new)
        with suppress(PermissionError):  # only root may give a file to another user
            os.chown(new, target.stat().st_uid, target.stat().st_gid)
        if text_of(target) != before:
            raise ConfigurationError(
                f"{file}: another program changed the file meanwhile. Nothing was changed. Run the same command again."
            )
        new.replace(target)
    except BaseException:
        policy.unlink(missing_ok=True)
        raise
    finally:
        new.unlink(missing_ok=True)


def text_of(file: Path) -> str:
    """Return the text of a file, with its line ends as they are."""
    with file.open(encoding="utf-8", newline="") as opened:
        return opened.read()


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


def _indented(lines: Sequence[str], spaces: int) -> list[str]:
    return [f"{' ' * spaces}{line}" for line in lines]


def _quarantine(location: str) -> str:
    """Return an example of a URL or path for the quarantine."""
    scheme, separator, _ = location.partition("://")
    return f"{scheme}://another-bucket/quarantine" if separator and scheme != "file" else f"{location}.quarantine"


def _value(value: Text) -> object:
    return {"env": value.env} if isinstance(value, FromEnvironment) else value


def _inline(value: object) -> str:
    """Return a value as YAML on one line."""
    return yaml.safe_dump(value, default_flow_style=True, width=10_000).removesuffix("\n").removesuffix("\n...")
