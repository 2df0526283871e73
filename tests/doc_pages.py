"""Reads the docs: code blocks, and commands in sentences."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from unittest.mock import patch

import click

from retention_assets.cli import group
from retention_assets.cli.main import cli

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_EXAMPLES = {"DAY": "2026-11-01", "YYYY-MM-DD": "2026-11-01"}  # what a reader fills in, where any text will not do


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code on a page."""

    language: str
    text: str

    @property
    def commands(self) -> list[str]:
        """The commands of a shell block. Continued lines are joined, comments are left out."""
        lines = re.sub(r"\\\n", " ", self.text).splitlines()
        return [line for line in (re.sub(r"(^|\s+)#.*", "", line).strip() for line in lines) if line]


def name_of(page: Path) -> str:
    """Return the path of a page in the checkout."""
    return str(page.relative_to(ROOT))


def blocks_of(page: Path, *languages: str) -> list[Block]:
    """Return the blocks of a page in these languages, in their order."""
    found = _BLOCK.findall(page.read_text("utf-8"))
    return [Block(language, dedent(text)) for language, text in found if language in languages]


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
    """Return the arguments of each `retention` command in the blocks of a page."""
    return [command for block in blocks_of(page, "sh") for line in block.commands for command in commands_in(line)]


def named_in(page: Path) -> list[list[str]]:
    """Return the arguments, with options, of each `retention` command in the sentences of a page."""
    sentences = re.findall(r"`(retention [^`]+)`", _BLOCK.sub("", page.read_text("utf-8")))
    return [command for sentence in sentences for command in commands_in(re.sub(r"[\n\[\]]", " ", sentence))]


@patch.object(group._TargetType, "convert", group.RepositoryName.convert)  # no configuration has the docs' repositories
def parse(arguments: list[str]) -> None:
    """Parse a command without running it. Errors: click's."""
    words = [_EXAMPLES.get(word, word) for word in arguments]
    command: click.Command = cli
    parent: click.Context | None = None
    while True:
        context = command.make_context(command.name, words, parent=parent)
        rest = [*context.protected_args, *context.args]
        if not isinstance(command, click.Group) or not rest:
            return
        _, found, words = command.resolve_command(context, rest)
        assert found is not None
        command, parent = found, context
