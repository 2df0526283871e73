"""The docs are true: their commands parse, their keys exist, and each check and error says what to do."""

import importlib.util
import re
import shlex
from collections.abc import Iterator
from datetime import time, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import click
import pytest
import yaml
from pydantic import BaseModel

from retention_assets.assets.descriptions import CHECKS
from retention_assets.cli.main import cli
from retention_assets.config.configuration import Settings
from retention_assets.config.durations import parse_duration
from retention_assets.config.settings import IcechunkSettings, LakeFSSettings
from retention_assets.core.guards import CheckResult
from retention_assets.core.remedies import REMEDIES

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_EXAMPLES = {"DAY": "2026-11-01", "YYYY-MM-DD": "2026-11-01"}  # what a reader fills in, where any text will not do


def _loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


reference = _loaded("docs_reference")


def commands_in(text: str) -> Iterator[list[str]]:
    """Yield the arguments of each `retention` command in the lines of a shell."""
    for line in text.splitlines():
        parts: list[list[str]] = [[]]
        words = shlex.shlex(line, posix=True, punctuation_chars="|;&")
        words.whitespace_split = True
        for word in words:
            parts = [*parts, []] if set(word) <= set("|;&") else [*parts[:-1], [*parts[-1], word]]
        yield from (part[1:] for part in parts if part and part[0].rpartition("/")[2] == "retention")


def shown_in(page: Path) -> list[list[str]]:
    blocks = re.findall(r"^ *```sh\n(.*?)^ *```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return [command for block in blocks for command in commands_in(re.sub(r"\\\n", " ", block))]


def parse(arguments: list[str]) -> None:
    """Parse a command without running it. Errors: click's."""
    words = [_EXAMPLES.get(word, word) for word in arguments]
    command: click.Command = cli
    parent: click.Context | None = None
    while True:
        context = command.make_context(command.name, words, parent=parent)
        if not isinstance(command, click.Group):
            return
        _, found, words = command.resolve_command(context, [*context.protected_args, *context.args])
        assert found is not None
        command, parent = found, context


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_in_a_block_of_the_docs_parses(page: Path) -> None:
    for arguments in shown_in(page):
        try:
            parse(arguments)
        except click.ClickException as error:
            pytest.fail(f"retention {shlex.join(arguments)}: {error.format_message()}")


def test_the_commands_of_the_docs_are_found() -> None:
    assert ["approve", "orchard", "HASH"] in shown_in(ROOT / "README.md")
    assert sum(len(shown_in(page)) for page in PAGES) > 40


def test_every_page_is_in_the_navigation() -> None:
    site = yaml.safe_load(re.sub(r"!!python/\S+", "", (ROOT / "mkdocs.yml").read_text("utf-8")))
    named = set(re.findall(r"[\w/-]+\.md", str(site["nav"])))
    pages = {str(page.relative_to(ROOT / "docs")) for page in PAGES[1:]}
    assert named == pages | reference.pages().keys()


# ---- retention.yaml


def keys_of(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield the keys of a model and of the models in it, each with its default."""
    for name, field in model.model_fields.items():
        inner = [one for one in (field.annotation, *get_args(field.annotation)) if _is_model(one)]
        if len(inner) == 1 and name not in ("source", "inventory", "earlier_keys", "signing_key"):
            yield from keys_of(inner[0], f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", None if field.is_required() else field.get_default(call_default_factory=True)


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def documented() -> dict[str, str]:
    """Return the text of the default of each key in the tables of the page."""
    found: dict[str, str] = {}
    for line in (ROOT / "docs/configuration.md").read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
        keys = re.findall(r"`([^`]+)`", cells[0])
        if not line.startswith("| `") or len(cells) < 3:
            continue
        defaults = cells[1].split(", ") if len(keys) == len(cells[1].split(", ")) else [cells[1]] * len(keys)
        first = keys[0].rpartition(".")[0]
        for key, default in zip(keys, defaults, strict=True):
            found[f"{first}{key}" if first and key.count(".") == 1 and key != keys[0] else key] = default
    return found


def models() -> dict[str, Any]:
    of_file = {key: value for key, value in keys_of(Settings, "") if key != "repositories"}
    both = {**dict(keys_of(IcechunkSettings, ".")), **dict(keys_of(LakeFSSettings, "."))}
    return {**of_file, **both}


def test_the_page_of_the_configuration_has_every_key_and_no_other() -> None:
    text = (ROOT / "docs/configuration.md").read_text("utf-8")
    parts = {".source": [".source.dump", ".source.api"]}
    missing = [
        key for key in models() if not {key, *parts.get(key, ())} & documented().keys() and f"`{key}`" not in text
    ]
    assert not missing
    known = models().keys() | {"repositories.<name>", ".source.dump", ".source.dump_age", ".source.api"}
    assert not [key for key in documented() if key not in known and not key.startswith(("records.", "spark."))]


def test_the_defaults_on_the_page_are_those_of_the_code() -> None:
    shown, wrong = documented(), {}
    for key, default in models().items():
        if key not in shown or shown[key] in ("", "required", "none", "namespace") or shown[key].startswith("`<"):
            continue
        if key not in (".settle", ".reflog") and not _is_shown(default, shown[key].strip("`")):  # they differ by kind
            wrong[key] = (default, shown[key])
    assert not wrong


def _is_shown(value: Any, text: str) -> bool:
    if isinstance(value, timedelta):
        return parse_duration(text) == value
    if isinstance(value, time):
        return text == f"{value:%H:%M}"
    return text == str(value).lower() if isinstance(value, bool | int | float | str) else True


# ---- checks and errors


def test_every_check_has_a_remedy() -> None:
    assert REMEDIES.keys() == CHECKS.keys()
    assert all(remedy.endswith(".") for remedy in REMEDIES.values())


@pytest.mark.parametrize("guard", sorted(REMEDIES))
def test_a_failed_check_says_what_it_saw_and_what_to_do(guard: str) -> None:
    failed = CheckResult(guard, False, "3 objects, a first, are not there")
    assert failed.message == f"3 objects, a first, are not there. {REMEDIES[guard]}"
    assert CheckResult(guard, True, "all are there").message == "all are there"


# Words by which a message says what was not done. A placeholder may stand for that sentence. Other messages are about
# what was done in part: they name what is left.
_UNDONE = re.compile(
    r"\b(Nothing|No|None|It|They|Some|Its|What|This|Only|The \w+)\b[^.]*\b(was|were|is|are|stands|begun|can)\b"
    r"|<(undone|remedy|again|missing|rest|left|told)>|was not (deleted|copied)|could not be"
)


_OF_RUNS = ["GuardRefused", "SourceError", "StoreError", "AccessDenied", "CorruptFile", "TableContractError"]
# A message that ends so has no remedy, unless a value in it has one.
_ENDS_UNDONE = re.compile(r"\b(Nothing|No \w+|It|The \w+) (was|were|is) [^.]*\.$")
_WITH_REMEDY = re.compile(r"<(blocked|unknown|lines|told|missing|guard)>|remedy>")


@pytest.mark.parametrize("error", _OF_RUNS)
def test_every_message_has_a_remedy(error: str) -> None:
    without = [
        f"{one.module}:{one.line}: {one.text}"
        for one in reference.messages()
        if one.error == error
        and (_ENDS_UNDONE.search(one.text) or ". " not in one.text)
        and not _WITH_REMEDY.search(one.text)
        and not one.text.endswith("No action is needed.")
    ]
    assert not without


@pytest.mark.parametrize("error", _OF_RUNS)
def test_every_message_says_what_was_not_done(error: str) -> None:
    silent = [
        f"{one.module}:{one.line}: {one.text}"
        for one in reference.messages()
        if one.error == error and not _UNDONE.search(one.text)
    ]
    assert not silent


def test_the_generated_pages_have_every_command_table_check_and_error() -> None:
    pages = reference.pages()
    assert all(f"## {name}\n" in pages["reference/commands.md"] for name, _ in reference.commands())
    assert all(f"## {name}\n" in pages["reference/tables.md"] for name in reference.SHOWN)
    assert all(f"| `{name}` |" in pages["reference/checks.md"] for name in CHECKS)
    assert all(f"## {name}\n" in pages["reference/errors.md"] for name in reference.ERRORS)
    assert pages["reference/errors.md"].count("deleted") > 100
