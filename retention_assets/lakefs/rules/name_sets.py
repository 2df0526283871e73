"""Encodes sets of branch and rule names as bits, so that Spark can unite the sets in aggregates of fixed size.

Spark aggregates integers in place in a hash table. For lists, Spark collects the names and sorts the rows, which takes
about four times as long. One `bigint` column has the bits of 64 names. A column of lists stays as it is if its bits
would be larger.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from retention_assets.errors import TableContractError
from retention_assets.spark.frames import on_workers, union_of
from retention_assets.tables import STRINGS

_LISTS = ("branches", "left_branches", "rule_ids")  # columns with lists of names
_BITS = 64
_FEW_WORDS = 16  # columns of bits; up to 16 cost less than a list, even if the lists are short
_ROWS = 1024  # rows that are encoded at a time; their lists can be long


@dataclass(frozen=True, slots=True)
class NameSets:
    """The names that occur in each column of lists, sorted. The position of a name is the position of its bit.

    `as_lists`: the columns that stay lists. They have many names and short lists, so bits would be larger.
    """

    names: Mapping[str, tuple[str, ...]]
    as_lists: tuple[str, ...] = ()

    @classmethod
    def of(cls, rows: DataFrame) -> Self:
        """Return the names in the lists of `rows`. This runs a Spark job."""
        names = [union_of(name).alias(name) for name in _LISTS]
        lengths = [F.avg(F.coalesce(F.array_size(name), F.lit(0))).alias(f"length of {name}") for name in _LISTS]
        [found] = rows.agg(*names, *lengths).collect()
        return cls._with_lists({name: (found[name], found[f"length of {name}"] or 0) for name in _LISTS})

    @classmethod
    def of_commits(cls, commits: pa.Table) -> Self:
        """Return the names in rows of `potential_commits`. Ranges and pairs of these commits have no other names."""
        found = {}
        for name in _LISTS[:2]:
            names = [part.flatten() for part in commits[name].chunks]
            every = {text for part in names for text in part.unique().to_pylist()}
            found[name] = (every, sum(map(len, names)) / max(1, commits.num_rows))
        return cls._with_lists({**found, "rule_ids": ({*commits["rule_id"].unique().to_pylist()} - {None}, 1)})

    @classmethod
    def _with_lists(cls, found: Mapping[str, tuple[Iterable[str], float]]) -> Self:
        """Choose the columns that stay lists. `found`: for each column, its names and the mean length of its lists."""
        names = {column: tuple(sorted(every)) for column, (every, _) in found.items()}
        return cls(names, tuple(name for name in _LISTS if _word_count(names[name]) > max(_FEW_WORDS, found[name][1])))

    def encoded_commits(self, commits: pa.Table) -> pa.Table:
        """Return the rows of `potential_commits` with columns of bits instead of the lists and of `rule_id`."""
        batches = map(self._encoded_batch, commits.to_batches(max_chunksize=_ROWS))
        return pa.concat_tables([self._encoded_batch(commits.schema.empty_table()), *batches])

    def _encoded_batch(self, commits: pa.RecordBatch | pa.Table) -> pa.Table:
        rules = pa.table([commits["rule_id"]], ["rule_id"]).combine_chunks()["rule_id"].combine_chunks()
        ends = np.cumsum([0, *pc.is_valid(rules).to_numpy(zero_copy_only=False)], dtype=np.int32)
        rows = pa.table(commits).drop_columns("rule_id")
        rows = rows.append_column("rule_ids", pa.ListArray.from_arrays(ends, rules.drop_null()))
        lists = {name: rows[name].combine_chunks() for name in _LISTS}
        columns = {name: lists[name].cast(STRINGS) for name in self.as_lists} | self._bits(lists)
        others = {name: rows[name] for name in rows.column_names if name not in _LISTS}
        return pa.table({**others, **columns})

    def encoded(self, rows: DataFrame) -> DataFrame:
        """Return the rows with columns of bits instead of the lists."""
        others = [name for name in rows.columns if name not in _LISTS or name in self.as_lists]
        words = [pa.field(word, pa.int64()) for word in self._all_words()]
        schema = pa.schema([*to_arrow_schema(rows.select(*others).schema, timezone="UTC"), *words])

        def encode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                columns = {name: batch.column(name) for name in batch.schema.names}
                columns |= self._bits(columns)
                yield pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)

        return on_workers(rows, encode, schema)

    def united(self) -> list[Column]:
        """Return the aggregates that unite the sets of the rows in a group."""
        lists = [union_of(name).alias(name) for name in self.as_lists]
        return [*lists, *(F.bit_or(word).alias(word) for word in self._all_words())]

    def decoded(self, rows: DataFrame) -> DataFrame:
        """Return the rows with sorted lists of names instead of the columns of bits."""
        lists = {name: self._decoded(name) for name in _LISTS if name not in self.as_lists}
        return rows.withColumns(lists).drop(*self._all_words())

    def _bits(self, lists: Mapping[str, pa.ListArray]) -> dict[str, pa.Array]:
        """Return the columns of bits of all lists except `as_lists`."""
        found: dict[str, pa.Array] = {}
        for name in _LISTS:
            if name not in self.as_lists:
                known = pa.array(self.names[name], pa.string())
                found.update(zip(self._words_of(name), _words(lists[name], known), strict=True))
        return found

    def _decoded(self, column: str) -> Column:
        parts = []
        for number, word in enumerate(self._words_of(column)):
            names = self.names[column][number * _BITS : (number + 1) * _BITS]
            parts.append(F.filter(F.array(*map(F.lit, names)), _has_bit(word)))
        return F.concat(*parts) if parts else F.array().cast("array<string>")

    def _words_of(self, column: str) -> list[str]:
        return [f"{column}_{number}" for number in range(_word_count(self.names[column]))]

    def _all_words(self) -> list[str]:
        return [word for column in _LISTS if column not in self.as_lists for word in self._words_of(column)]


def _word_count(names: Collection[str]) -> int:
    return -(-len(names) // _BITS)


def _has_bit(word: str):  # type: ignore[no-untyped-def]  # a function of a name and its position, as Spark wants it
    return lambda _, position: F.getbit(F.col(word), position) == 1


def _words(lists: pa.ListArray, names: pa.Array) -> Iterator[pa.Array]:
    """Yield the bits of each list, 64 names at a time. Errors: TableContractError for a name that is not in `names`."""
    words = np.zeros((_word_count(names), len(lists)), np.uint64)
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
            f"active_ranges: has the name {unknown}, which potential_commits does not have. The tables are from "
            "different runs. Nothing was planned. Plan the day again: `retention plan REPO --as-of DAY`."
        )
    position = found.to_numpy().astype(np.int64)
    row = np.repeat(np.arange(len(lists)), pc.fill_null(pc.list_value_length(lists), 0))
    np.bitwise_or.at(words, (position // _BITS, row), np.uint64(1) << (position % _BITS).astype(np.uint64))
