"""Sets of branch and rule names as bits, so that Spark unites them in aggregates of fixed size.

Spark aggregates whole numbers in place in a hash table. It has to collect lists and then sort the rows, which takes
about four times as long. One `bigint` column has the bits of 64 names.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from retention_assets.core.frames import on_workers
from retention_assets.errors import TableContractError

_LISTS = ("branches", "left_branches", "rule_ids")  # columns with lists of names
_BITS = 64
_ROWS = 1024  # that are encoded at a time: their lists can be long


@dataclass(frozen=True, slots=True)
class NameSets:
    """The names that occur in the lists of some rows, sorted. The position of a name is the position of its bit."""

    names: tuple[str, ...]

    @classmethod
    def of(cls, rows: DataFrame) -> Self:
        """Return the names in the lists of `rows`, which Spark reads for this."""
        every = F.explode(F.array_distinct(F.concat(*_LISTS))).alias("name")
        return cls(tuple(sorted(row["name"] for row in rows.select(every).distinct().collect())))

    @classmethod
    def of_commits(cls, commits: pa.Table) -> Self:
        """Return the names in `potential_commits`: all that their ranges and pairs can have."""
        lists = [pc.list_flatten(commits[name]).unique() for name in ("branches", "left_branches")]
        found = {name for column in (*lists, commits["rule_id"].unique()) for name in column.to_pylist()}
        return cls(tuple(sorted(found - {None})))

    def encoded_commits(self, commits: pa.Table) -> pa.Table:
        """Return rows of `potential_commits` with columns of bits in place of the lists and of `rule_id`."""
        rows = commits.combine_chunks()
        rules = rows["rule_id"].combine_chunks()
        ends = np.cumsum([0, *pc.is_valid(rules).to_numpy(zero_copy_only=False)], dtype=np.int32)
        lists = {name: rows[name].combine_chunks() for name in _LISTS[:2]}
        lists["rule_ids"] = pa.ListArray.from_arrays(ends, rules.drop_null())
        for name, column in lists.items():
            for word, bits in zip(self._words_of(name), _words(column, pa.array(self.names, pa.string())), strict=True):
                rows = rows.append_column(word, bits)
        return rows.drop_columns([*_LISTS[:2], "rule_id"])

    def encoded(self, rows: DataFrame) -> DataFrame:
        """Return the rows with columns of bits in place of the lists."""
        others = [name for name in rows.columns if name not in _LISTS]
        words = [pa.field(word, pa.int64()) for word in self._all_words()]
        schema = pa.schema([*to_arrow_schema(rows.select(*others).schema, timezone="UTC"), *words])
        known = pa.array(self.names, pa.string())

        def encode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                bits = [word for name in _LISTS for word in _words(batch.column(name), known)]
                columns = [batch.column(name) for name in others]
                yield pa.RecordBatch.from_arrays([*columns, *bits], schema=schema)

        return on_workers(rows, encode, schema)

    def united(self) -> list[Column]:
        """Return the aggregates that unite the sets of a group."""
        return [F.bit_or(word).alias(word) for word in self._all_words()]

    def decoded(self, rows: DataFrame) -> DataFrame:
        """Return the rows with lists of names, sorted, in place of the columns of bits."""
        lists = {name: self._decoded(name) for name in _LISTS}
        return rows.withColumns(lists).drop(*self._all_words())

    def _decoded(self, column: str) -> Column:
        parts = []
        for number, word in enumerate(self._words_of(column)):
            names = self.names[number * _BITS : (number + 1) * _BITS]
            parts.append(F.filter(F.array(*map(F.lit, names)), _has_bit(word)))
        return F.concat(*parts) if parts else F.array().cast("array<string>")

    def _words_of(self, column: str) -> list[str]:
        return [f"{column}_{number}" for number in range(-(-len(self.names) // _BITS))]

    def _all_words(self) -> list[str]:
        return [word for column in _LISTS for word in self._words_of(column)]


def _has_bit(word: str):  # type: ignore[no-untyped-def]  # a function of a name and its position, as Spark wants it
    return lambda _, position: F.getbit(F.col(word), position) == 1


def _words(lists: pa.ListArray, names: pa.Array) -> Iterator[pa.Array]:
    """Yield the bits of each list, 64 names at a time. Errors: TableContractError for a name that is not in `names`."""
    words = np.zeros((-(-len(names) // _BITS), len(lists)), np.uint64)
    for first in range(0, len(lists), _ROWS):
        _set_bits(words[:, first : first + _ROWS], lists.slice(first, _ROWS), names)
    for word in words:
        yield pa.array(word.view(np.int64))


def _set_bits(words: NDArray[np.uint64], lists: pa.ListArray, names: pa.Array) -> None:
    """Set the bits of each list in its column of `words`."""
    values = lists.flatten()
    is_packed = pa.types.is_dictionary(values.type)
    found = pc.index_in(values.dictionary, names).take(values.indices) if is_packed else pc.index_in(values, names)
    if found.null_count:
        unknown = values.filter(pc.is_null(found))[0]
        raise TableContractError(
            f"active_ranges: has the name {unknown}, which no row of potential_commits has, so they are of different "
            "runs. Nothing was planned. Plan the day again: `retention plan`."
        )
    position = found.to_numpy().astype(np.int64)
    row = np.repeat(np.arange(len(lists)), pc.fill_null(pc.list_value_length(lists), 0))
    np.bitwise_or.at(words, (position // _BITS, row), np.uint64(1) << (position % _BITS).astype(np.uint64))
