"""Tables for people and for programs: sizes with units, lists joined, `address` first."""

import csv
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_STEP = 1024


def human_bytes(size: float) -> str:
    """Return a size with its unit, such as `1.5 GiB`."""
    for unit in _UNITS:
        if size < _STEP or unit == _UNITS[-1]:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= _STEP
    raise AssertionError("the last unit takes everything")


def print_amounts(console: Console, title: str, first: str, rows: Sequence[tuple[str, int, int]]) -> None:
    """Print names with objects and bytes."""
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column(first)
    table.add_column("objects", justify="right")
    table.add_column("bytes", justify="right")
    for name, objects, size in rows:
        table.add_row(name, f"{objects:,}", human_bytes(size))
    console.print(table)


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
    """Print rows on standard output as a table, CSV or JSON lines joined in a list."""
    rows = _limited((row for batch in batches for row in batch.select(columns).to_pylist()), limit)
    if form == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([cell(row[column]) for column in columns] for row in rows)
    elif form == "json":
        sys.stdout.write(json.dumps(list(rows), default=cell, ensure_ascii=False, indent=2) + "\n")
    else:
        _print_table(name, list(rows), columns)


def _limited(rows: Iterator[dict[str, Any]], limit: int | None) -> Iterator[dict[str, Any]]:
    for place, row in enumerate(rows):
        if limit is not None and place >= limit:
            return
        yield row


def _print_table(name: str, rows: list[dict[str, Any]], columns: list[str]) -> None:
    table = Table(title=name, title_justify="left", title_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold", justify="right" if column == "size" else "left")
    for row in rows:
        table.add_row(*(human_bytes(row[c]) if c == "size" else cell(row[c]) for c in columns))
    Console().print(table)
