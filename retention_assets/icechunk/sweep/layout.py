"""Splits an Icechunk repository's files into parts: for the batches of a sweep, and for the workers that list files.

A sweep deletes files before the files that they reference. A directory is flat and may contain millions of files. File
names are random, so their first characters split a directory into even parts.
Source: docs/icechunk.md, "What is deleted"; docs/icechunk-formats.md, "Ids".
"""

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from retention_assets.core.totals import top_of
from retention_assets.icechunk.formats.ids import CHARACTERS
from retention_assets.icechunk.formats.paths import CHUNKS, MANIFESTS, OVERWRITTEN, SNAPSHOTS, TRANSACTIONS
from retention_assets.objectstore.listing import Prefixes, key_ranges
from retention_assets.objectstore.objects import ObjectReader

PHASES = (SNAPSHOTS, TRANSACTIONS, MANIFESTS, CHUNKS, OVERWRITTEN)
_LETTERS = len(CHARACTERS)
_LONGEST = 3  # characters; 32,768 parts of a directory
_PAGE = 10_000  # objects: a smaller part costs more requests than it saves


def characters(listed: int, most: int) -> int:
    """Return how many leading characters of file names split directories into parts of at most `most` objects.

    A part also has at most `_PAGE` objects. In huge repositories, parts are larger: `_LONGEST` limits the characters.
    `listed`: the number of objects in the repository. All of them may be in one directory.
    """
    part = max(1, min(most, _PAGE))
    return next((count for count in range(_LONGEST) if listed <= part * _LETTERS**count), _LONGEST)


@dataclass(frozen=True, slots=True)
class IcechunkLayout:
    """See `Layout`. A prefix is a directory and the first `characters` characters of the names of files in it."""

    characters: int

    def prefix(self, address: Column) -> Column:
        """See `Layout`. All names of backups begin with the same characters, so their whole directory is one prefix."""
        directory = top_of(address)
        begins = F.substring(F.substring_index(address, "/", -1), 1, self.characters)
        return F.when(directory == OVERWRITTEN, directory).otherwise(F.concat(directory, begins))

    def phase(self, address: Column) -> Column:
        """See `Layout`. The phases follow the order of `PHASES`; a file in none of these directories goes last."""
        number = F.lit(len(PHASES))
        for phase, directory in reversed(list(enumerate(PHASES))):
            number = F.when(address.startswith(directory), F.lit(phase)).otherwise(number)
        return number


def icechunk_prefixes(reader: ObjectReader) -> Prefixes:
    """Return the prefixes that together contain every object of a repository; `chunks/` is split into key ranges."""
    top = [name for name in reader.prefixes("") if name != CHUNKS]
    return Prefixes(tuple(top), ("",), key_ranges(CHUNKS, CHARACTERS))
