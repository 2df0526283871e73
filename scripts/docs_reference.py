"""Makes the pages of `docs/reference` from the code: commands, tables, policies, checks, errors; and the notebook's.

MkDocs calls `on_files` when it builds the site (`mkdocs.yml`), so no page can be older than the code.
"""

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, get_args

import click
import pyarrow as pa
from pydantic import BaseModel

import retention_assets
from retention_assets import errors
from retention_assets.assets.catalog import CHECKS
from retention_assets.cli.main import cli
from retention_assets.config.durations import format_duration
from retention_assets.core.remedies import REMEDIES
from retention_assets.errors import RetentionError
from retention_assets.policy.schemas import OwnForm, SeedRule, ServerForm, SnapshotForm
from retention_assets.tables import DELETION_REPORT, LEDGER, SHOWN, Table
from scripts.output_schemas import OUTPUTS

PACKAGE = Path(retention_assets.__file__).parent
_NOTEBOOK = Path(__file__).parents[1] / "docs" / "notebook.ipynb"
_WIDTH = 100
ERRORS: Mapping[str, type[RetentionError]] = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, RetentionError) and kind is not RetentionError
}


def on_files(files: Any, config: Any) -> Any:
    """Add the pages to the files of the site."""
    from mkdocs.structure.files import File

    for name, text in pages().items():
        files.append(File.generated(config, name, content=text))
    return files


def pages() -> dict[str, str]:
    """Return the text of each page by its path below `docs`."""
    return {
        "reference/commands.md": commands_page(),
        "reference/json.md": json_page(),
        "reference/tables.md": tables_page(),
        "reference/policy.md": policy_page(),
        "reference/checks.md": checks_page(),
        "reference/errors.md": errors_page(),
        "notebook.md": notebook_page(),
    }


def notebook_page() -> str:
    """Return the example notebook as a page: its text, its code, and its stored outputs."""
    lines = []
    for cell in json.loads(_NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        lines += [source, ""] if cell["cell_type"] == "markdown" else ["```python", source, "```", ""]
        for output in cell.get("outputs", ()):
            lines += ["```text", "".join(output["data"]["text/plain"]), "```", ""]
    return "\n".join(lines)


# ---- commands


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield each command that can be run with its name, such as `retention icechunk branch create`."""
    yield from _below("retention", cli)


def _below(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield name, command
        return
    for part in sorted(command.commands):
        yield from _below(f"{name} {part}", command.commands[part])


def commands_page() -> str:
    """Return the page of all commands, with the text of `--help`."""
    lines = ["# Commands", "", "Made from the code: the text of each command's `--help`.", ""]
    for name, command in commands():
        usage = name.replace(" icechunk ", " icechunk REPOSITORY ")
        context = click.Context(command, info_name=usage, max_content_width=_WIDTH, terminal_width=_WIDTH)
        lines += [f"## {name}", "", "```text", command.get_help(context), "```", ""]
    return "\n".join(lines)


def json_page() -> str:
    """Return the page of the JSON schemas of commands."""
    lines = [
        "# JSON output",
        "",
        "Made from the code. With `--json`, a command prints one JSON document on standard output, and its progress on",
        "standard error. These are the schemas of the documents. `retention show --json` prints the rows of a",
        "[table](tables.md). A version may add keys; keys that are renamed or removed are in the changelog.",
        "",
    ]
    for name, output in OUTPUTS.items():
        schema = json.dumps(output.json_schema(mode="serialization"), indent=1, ensure_ascii=False)
        lines += [f"## retention {name} --json", "", "```json", schema, "```", ""]
    return "\n".join(lines)


# ---- tables


def tables_page() -> str:
    """Return the page of all tables of the warehouse with their columns."""
    lines = ["# Tables", "", "Made from the code. `retention show REPO TABLE` prints a table of a day.", ""]
    for name in sorted(SHOWN):
        lines += _table(SHOWN[name])
    lines += ["## ledger", "", "The outcomes of each object. A row with a greater `fence` is newer.", ""]
    own = {
        "outcome": f"attempted, {DELETION_REPORT.meanings['outcome']}",
        "fence": "The fencing token of the sweep, restore or purge.",
    }
    lines += _columns(LEDGER, {**DELETION_REPORT.meanings, **own})
    return "\n".join(lines)


def _table(table: Table) -> list[str]:
    key = ", ".join(f"`{column}`" for column in table.key)
    return [f"## {table.name}", "", f"Key: {key}.", "", *_columns(table.schema, table.meanings)]


def _columns(schema: pa.Schema, meanings: Mapping[str, str]) -> list[str]:
    rows = [(f"`{field.name}`", _type(field), meanings[field.name]) for field in schema]
    return _rows(("column", "type", "meaning"), rows)


def _type(field: pa.Field) -> str:
    kind = "list of text" if pa.types.is_list(field.type) else str(field.type).replace("string", "text")
    return f"{kind}, or null" if field.nullable else kind


# ---- policies


def policy_page() -> str:
    """Return the page of the forms of a policy with their keys."""
    lines = ["# Policy", "", "Made from the code. A policy is YAML or JSON in one of these forms.", ""]
    titles = {
        OwnForm: "lakeFS: this project's form",
        ServerForm: "lakeFS: the server's own rules",
        SeedRule: "lakeFS: lifecycle rules by id (each rule)",
        SnapshotForm: "Icechunk",
    }
    for form, title in titles.items():
        lines += [f"## {title}", ""]
        for model in _models(form):
            example = (inspect.getdoc(model) or "").partition("\n")[0].partition(" Source:")[0]
            meanings = _meanings(model)
            rows = [(f"`{name}`", _default(field), meanings[name]) for name, field in model.model_fields.items()]
            lines += [example, "", *_rows(("key", "default", "meaning"), rows)]
    return "\n".join(lines)


def _models(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """Yield a model, then the models of its fields."""
    yield model
    for field in model.model_fields.values():
        for kind in _types(field.annotation):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from _models(kind)


def _meanings(model: type[BaseModel]) -> dict[str, str]:
    """Return the comment behind each field of a model and of the models that it is made of."""
    found: dict[str, str] = {}
    for kind in reversed(model.__mro__):
        if issubclass(kind, BaseModel) and kind is not BaseModel:
            found |= re.findall(r"(?m)^    (\w+): .*?  # (.+)$", inspect.getsource(kind))
    return found


def _types(annotation: Any) -> Iterator[Any]:
    yield annotation
    for argument in get_args(annotation):
        yield from _types(argument)


def _default(field: Any) -> str:
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True)
    if isinstance(default, timedelta):
        return f"`{format_duration(default)}`"
    return "none" if default in (None, [], {}) else f"`{str(default).lower()}`"


# ---- checks and errors


def checks_page() -> str:
    """Return the page of the checks of plans and verifications with their remedies."""
    rows = [(f"`{name}`", text, REMEDIES[name]) for name, text in CHECKS.items()]
    return "\n".join(
        [
            "# Guards and checks",
            "",
            "Made from the code. If a guard of a plan fails, nothing is deleted and there is no plan. If a check of a",
            "verification fails, nothing is changed. The message has the check's name, the value found and the remedy.",
            "`none_failed` is the check of a sweep: the results of the other objects count.",
            "",
            *_rows(("check", "what must hold", "if it does not"), rows),
        ]
    )


@dataclass(frozen=True, slots=True)
class Message:
    """An error's message in the code. `text` has the name of each value in angle brackets."""

    error: str
    module: str  # its path below the package
    line: int
    text: str


def errors_page() -> str:
    """Return the page of all errors with their messages."""
    lines = [
        "# Errors",
        "",
        "Made from the code. Each message says where, what is wrong, what was not done, and the remedy. `<…>` is a",
        "value that was found. The error decides the exit status. Guards have [their own page](checks.md).",
        "",
    ]
    found = messages()
    for name, kind in ERRORS.items():
        lines += [f"## {name}", "", f"{inspect.getdoc(kind)} Exit status {kind.exit_code}.", ""]
        modules = sorted({one.module for one in found if one.error == name})
        for module in modules:
            texts = sorted({one.text for one in found if (one.error, one.module) == (name, module)})
            wrapped = "\n\n".join(textwrap.fill(text, _WIDTH, break_on_hyphens=False) for text in texts)
            lines += [f"`{module}`", "", "````text", wrapped, "````", ""]
    return "\n".join(lines)


@cache
def messages() -> tuple[Message, ...]:
    """Return the messages of errors that the package's code makes, in the order of the files."""
    return tuple(found for file in sorted(PACKAGE.rglob("*.py")) for found in _messages_in(file))


def _messages_in(file: Path) -> Iterator[Message]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    constants = dict(_constants(tree))
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args):
            continue
        name = "SourceError" if node.func.id == "NotFound" else node.func.id
        text = _text(node.args[0], constants)
        if name in ERRORS and text:
            yield Message(name, str(file.relative_to(PACKAGE)), node.lineno, text)


def _constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the strings that a module gives names to."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and (text := _text(node.value, {})):
            yield node.targets[0].id, text


def _text(node: ast.expr, constants: Mapping[str, str]) -> str:
    """Return the text of a string in the code, with names for its values; empty if it is no string."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part, constants) or _value(part, constants) for part in node.values)
    return ""


def _value(node: ast.expr, constants: Mapping[str, str]) -> str:
    if not isinstance(node, ast.FormattedValue):
        return ""
    if isinstance(node.value, ast.Name) and node.value.id in constants:
        return constants[node.value.id]
    if isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "counted":
        number, *words = node.value.args
        noun = _text(words[-1], constants)
        return f"<{_name(number)}> {noun if len(words) > 1 else f'{noun}s'}"
    return f"<{_name(node.value)}>"


def _name(node: ast.expr) -> str:
    """Return the last name in an expression."""
    names = re.findall(r"[A-Za-z_]\w*", re.sub(r"'[^']*'", "", ast.unparse(node)))
    return names[-1].strip("_").lower() if names else "…"


def _rows(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    line = "|".join("---" for _ in head)
    return [f"| {' | '.join(head)} |", f"|{line}|", *(f"| {' | '.join(row)} |" for row in rows), ""]
