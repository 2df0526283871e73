"""Tables for people and for programs: sizes with units, lists joined, `address` first.

CSV and JSON have every value whole. What a person sees on a screen is shortened: ids to their beginning, instants to
the minute.
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

# What is printed as it is: a path may hold what looks like markup.
AS_IT_IS: Any = {"soft_wrap": True, "highlight": False, "markup": False}
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_STEP = 1024
_GB = 10**9  # what prices are of
_CENT = 0.01
_ID = re.compile(r"\b(?:[0-9a-f]{64}|[0-9a-f]{32}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\b")
_SHORT = 12  # digits of an id on a screen: enough to tell apart, and what `git` and lakeFS's UI show at most
_LISTED = 6  # items of a list on a screen
_BESIDE = 3  # what a column takes on a screen besides its text: two spaces and a line

_INDENT, _BETWEEN = "    ", "   "

Row = dict[str, Any]


def human_bytes(size: float) -> str:
    """Return a size with its unit, such as `1.5 GiB`."""
    for unit in _UNITS:
        if size < _STEP or unit == _UNITS[-1]:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= _STEP
    raise AssertionError("the last unit takes everything")


def monthly_cost(size: int, price: float) -> float:
    """Return what `size` bytes cost a month; `price` is of a GB, which is 10^9 bytes."""
    return size / _GB * price


def human_cost(cost: float) -> str:
    """Return an amount of money to the cent; a smaller one is said to be so."""
    return "< 0.01" if 0 < cost < _CENT else f"{cost:,.2f}"


def print_amounts(
    console: Console, title: str, first: str, rows: Sequence[tuple[str, int, int | None]], price: float | None = None
) -> None:
    """Print names with objects and bytes, and what the bytes cost a month where a price is known. None: not known."""
    table = Table()
    table.add_column(first)
    for column in ("objects", "bytes") if price is None else ("objects", "bytes", "per month"):
        table.add_column(column, justify="right")
    for name, objects, size in rows:
        money = [] if price is None or size is None else [human_cost(monthly_cost(size, price))]
        table.add_row(Text(name), f"{objects:,}", "" if size is None else human_bytes(size), *money)
    console.print(Text(title, style="bold"), table, sep="\n")


def column_order(names: Sequence[str]) -> list[str]:
    """Return the columns with `address` first where there is one."""
    return sorted(names, key=lambda name: name != "address")


def cell(value: Any) -> str:
    """Return one value as text: lists joined by `;`, instants as ISO 8601, nothing for null."""
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
    """Print rows on standard output: for a person as a table or a block each, else as CSV or one JSON list."""
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
    """Print a table if the screen is wide enough for it, else a block of lines for each row."""
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
    """Print each row as its first column, and indented below it the other columns that have a value."""
    first, *others = columns
    for row in rows:
        console.print(Text(row[first], style="bold"), soft_wrap=True)
        told = [Text.assemble((column, "dim"), " ", row[column]) for column in others if row[column]]
        for line in _packed(told, console.width - len(_INDENT)):
            console.print(Text.assemble(_INDENT, line), soft_wrap=True)


def _packed(parts: Iterable[Text], width: int) -> Iterator[Text]:
    """Yield lines of as many parts as fit; a part is never broken."""
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
