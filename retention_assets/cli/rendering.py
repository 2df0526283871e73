"""Reads tables, and prints them for people (on a screen) and for programs (CSV, JSON).

CSV and JSON have all values in full. On a screen, sizes have units, lists are joined and show their first items, and
times are cut to the minute. Ids and hashes are never cut, so that they can be copied.
"""

import csv
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime
from itertools import islice
from typing import Any

import pyarrow as pa
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from retention_assets.cli.group import json_text
from retention_assets.config.configuration import Repository
from retention_assets.core.amounts import Amount, human_amount, human_bytes, human_cost, monthly_cost
from retention_assets.core.states import WAITING
from retention_assets.errors import ConfigurationError, GuardRefused
from retention_assets.state.memory import due_objects_location
from retention_assets.state.plan import Plan, load_plan, planned_directory
from retention_assets.tables import DELETION_CANDIDATES, DUE_OBJECTS, SHOWN, shown_tables
from retention_assets.warehouse.reading import read_directory
from retention_assets.warehouse.warehouse import Warehouse

_LISTED = 6  # the most items of a list that a screen shows
_BORDER = 3  # width of a column on a screen without its text: two spaces and a line

# Short, so that a line of 80 characters has room for a hash of 64 digits and the name of its column.
_INDENT, _BETWEEN, _JOINED = "  ", "   ", "; "

Row = dict[str, Any]


def print_amounts(
    console: Console, title: str, first: str, rows: Iterable[tuple[str, Amount | int]], price: float | None = None
) -> None:
    """Print a table of names, objects and bytes, with the cost per month if `price` is known.

    A row has only a number of objects if their size is unknown. Its other cells stay empty.
    """
    table = Table()
    table.add_column(first)
    for column in ("objects", "bytes") if price is None else ("objects", "bytes", "per month"):
        table.add_column(column, justify="right")
    for name, amount in rows:
        if isinstance(amount, int):
            table.add_row(Text(name), f"{amount:,}")
            continue
        money = [] if price is None else [human_cost(monthly_cost(amount.bytes, price))]
        table.add_row(Text(name), f"{amount.objects:,}", human_bytes(amount.bytes), *money)
    console.print(Text(title, style="bold"), soft_wrap=True)  # a hash in the title stays on one line, for copying
    console.print(table)


def wait_of(plan: Plan) -> str:
    """Return sentences with the amount of the waiting objects, the end of their wait, and the plan that ends it.

    The age of the references counts, not the age of the plan: a new plan from the same dump does not end the wait.
    """
    ends = (f"{at:%Y-%m-%d %H:%M} UTC" for at in (plan.first_wait_ends, plan.last_wait_ends) if at)
    return (
        f"Waiting until {' to '.join(dict.fromkeys(ends))} (`settle`): {human_amount(plan.totals[WAITING])}. "
        "A sweep may delete waiting objects under a plan whose staged list (lakeFS) and references are newer than that "
        "time."
    )


def format_amount(amount: Amount) -> str:
    """Return objects and bytes for a cell of a table on a screen."""
    return f"{amount.objects:,}, {human_bytes(amount.bytes)}"


def column_order(names: Sequence[str]) -> list[str]:
    """Return the columns with `address` first, if there is one."""
    return sorted(names, key=lambda name: name != "address")


def cell(value: Any) -> str:
    """Return one value as text: lists joined by `;`, times as ISO 8601, an empty text for null."""
    if value is None:
        return ""
    if isinstance(value, list):
        return ";".join(cell(item) for item in value)
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def print_rows(name: str, rows: Iterable[Row], columns: list[str], form: str, limit: int | None) -> None:
    """Print rows on standard output: as CSV, as a JSON list, or for a person.

    `form`: `csv`, `json` or `table`. A table that is wider than the screen becomes one block of lines for each row.
    `limit`: the maximum number of rows; None: all rows.
    """
    rows = islice(rows, limit)
    if form == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([cell(row[column]) for column in columns] for row in rows)
    elif form == "json":
        sys.stdout.write(json_text(list(rows), default=cell) + "\n")
    else:
        _print_for_a_person(Console(highlight=False), name, list(rows), columns)


def _print_for_a_person(console: Console, name: str, rows: Sequence[Row], columns: Sequence[str]) -> None:
    """Print a table if the screen is wide enough, else a block of lines for each row."""
    cells = [{column: _short_cell(column, row[column]) for column in columns} for row in rows]
    widths = [max(len(column), *(len(texts[column]) for texts in cells), 0) for column in columns]
    console.print(Text(name, style="bold"))
    if sum(widths) + _BORDER * len(columns) + 1 <= console.width:
        _print_table(console, cells, columns)
    else:
        _print_blocks(console, cells, columns)


def _print_table(console: Console, rows: Sequence[dict[str, str]], columns: Sequence[str]) -> None:
    table = Table(box=box.HEAVY_HEAD)
    for column in columns:
        table.add_column(column, justify="right" if column == "size" else "left")
    for row in rows:
        table.add_row(*(Text(row[column]) for column in columns))
    console.print(table)


def _print_blocks(console: Console, rows: Sequence[dict[str, str]], columns: Sequence[str]) -> None:
    """Print the first column of each row, and indented below it the other columns that have a value."""
    first, *others = columns
    for row in rows:
        console.print(Text(row[first], style="bold"), soft_wrap=True)
        width = console.width - len(_INDENT)
        parts = [part for column in others if row[column] for part in _parts(column, row[column], width)]
        for line in _packed(parts, width):
            console.print(Text.assemble(_INDENT, line), soft_wrap=True)


def _parts(column: str, text: str, width: int) -> list[Text]:
    """Return the name and text of a column: one part if both fit in `width`, else one part for each item of a list."""
    fits = len(column) + 1 + len(text) <= width
    first, *others = [text] if fits else text.replace(_JOINED, ";\n").split("\n")
    return [Text.assemble((column, "dim"), " ", first), *map(Text, others)]


def _packed(parts: Iterable[Text], width: int) -> Iterator[Text]:
    """Yield lines with as many parts as fit in `width`. Parts are not broken."""
    line = Text()
    for part in parts:
        if line and len(line) + len(_BETWEEN) + len(part) > width:
            yield line
            line = Text()
        line = Text.assemble(line, _BETWEEN, part) if line else part
    if line:
        yield line


def _short_cell(column: str, value: Any) -> str:
    if column == "size" and value is not None:
        return human_bytes(value)
    if isinstance(value, list):
        shown = [_short_cell(column, item) for item in value[:_LISTED]]
        return _JOINED.join(shown if len(value) <= _LISTED else [*shown, f"{len(value) - _LISTED:,} more"])
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M}"
    return cell(value)


def require_table(repository: Repository, name: str) -> None:
    """Require that repositories of this kind have a table of this name. Errors: ConfigurationError."""
    known = shown_tables(is_icechunk=repository.is_icechunk)
    if name not in known:
        kind = "icechunk" if repository.is_icechunk else "lakefs"
        raise ConfigurationError(
            f"{repository.name}: {name} is not a table of a repository of kind `{kind}`. Nothing was read. "
            f"Name one of: {', '.join(known)}."
        )


def open_table(warehouse: Warehouse, repository: str, name: str, day: date) -> pa.Table:
    """Return the table of a day, sorted by key. If the day has a plan, `deletion_candidates` has its candidates.

    Errors: TableContractError with the command that makes the table; GuardRefused for `due_objects` of a day without a
    plan.
    """
    if name == DUE_OBJECTS.name:
        path = due_objects_location(warehouse, load_plan(warehouse, repository, day))
    elif name == DELETION_CANDIDATES.name and (plan := current_plan(warehouse, repository, day)):
        path = warehouse.location(*planned_directory(warehouse, plan))
    else:
        metadata = warehouse.metadata(repository, name, day)
        warehouse.require_rows(repository, name, day, metadata.rows)
        warehouse.require_files(metadata.files, repository, name, day)
        path = warehouse.require(repository, name, day)
    table = read_directory(warehouse, path.removeprefix(f"{warehouse.root}/"), schema=SHOWN[name].schema)
    return table.sort_by([(column, "ascending") for column in SHOWN[name].key])


def current_plan(warehouse: Warehouse, repository: str, day: date) -> Plan | None:
    """Return the current plan of the day; None if there is none."""
    try:
        return load_plan(warehouse, repository, day)
    except GuardRefused:
        return None
