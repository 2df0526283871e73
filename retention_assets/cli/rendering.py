"""Prints tables for people (on a screen) and for programs (CSV, JSON). The column `address` is always first.

CSV and JSON have all values in full. On a screen, sizes have units, lists are joined, ids are cut to their beginning,
and times to the minute.
"""

import csv
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from retention_assets.core.amounts import human_bytes, human_cost, monthly_cost

# Options that print a text unchanged: a path may contain text that looks like markup.
AS_IT_IS: Any = {"soft_wrap": True, "highlight": False, "markup": False}
_ID = re.compile(r"\b(?:[0-9a-f]{64}|[0-9a-f]{32}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\b")
_SHORT = 12  # digits of an id on a screen: enough to be unique, and the most that `git` and lakeFS's UI show
_LISTED = 6  # items of a list on a screen
_BESIDE = 3  # width of a column on a screen besides its text: two spaces and a line

_INDENT, _BETWEEN = "    ", "   "

Row = dict[str, Any]


def print_amounts(
    console: Console, title: str, first: str, rows: Sequence[tuple[str, int, int | None]], price: float | None = None
) -> None:
    """Print a table of names, objects and bytes (None: unknown), with the cost per month if `price` is known."""
    table = Table()
    table.add_column(first)
    for column in ("objects", "bytes") if price is None else ("objects", "bytes", "per month"):
        table.add_column(column, justify="right")
    for name, objects, size in rows:
        money = [] if price is None or size is None else [human_cost(monthly_cost(size, price))]
        table.add_row(Text(name), f"{objects:,}", "" if size is None else human_bytes(size), *money)
    console.print(Text(title, style="bold"), soft_wrap=True)  # so that a hash in the title can be copied whole
    console.print(table)


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


def print_rows(name: str, batches: Iterable[pa.RecordBatch], columns: list[str], form: str, limit: int | None) -> None:
    """Print rows on standard output: as CSV, as one JSON list, or for a person as a table or one block per row."""
    rows = _limited((row for batch in batches for row in batch.select(columns).to_pylist()), limit)
    if form == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([cell(row[column]) for column in columns] for row in rows)
    elif form == "json":
        sys.stdout.write(json.dumps(list(rows), default=cell, ensure_ascii=False, indent=2) + "\n")
    else:
        _print_for_a_person(Console(highlight=False), name, list(rows), columns)


def _limited(rows: Iterator[Row], limit: int | None) -> Iterator[Row]:
    for place, row in enumerate(rows):
        if limit is not None and place >= limit:
            return
        yield row


def _print_for_a_person(console: Console, name: str, rows: Sequence[Row], columns: Sequence[str]) -> None:
    """Print a table if the screen is wide enough, else a block of lines for each row."""
    cells = [{column: _short_cell(column, row[column]) for column in columns} for row in rows]
    widths = [max(len(column), *(len(texts[column]) for texts in cells), 0) for column in columns]
    console.print(Text(name, style="bold"))
    if sum(widths) + _BESIDE * len(columns) + 1 <= console.width:
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
        told = [Text.assemble((column, "dim"), " ", row[column]) for column in others if row[column]]
        for line in _packed(told, console.width - len(_INDENT)):
            console.print(Text.assemble(_INDENT, line), soft_wrap=True)


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
        return "; ".join(shown if len(value) <= _LISTED else [*shown, f"{len(value) - _LISTED:,} more"])
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M}"
    return _ID.sub(lambda found: found[0][:_SHORT], cell(value))
