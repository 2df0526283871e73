"""Where an Icechunk repository's files lie, and which go first: those that name others before those that they name.

A directory is flat and may hold millions; names are random, so that their first characters cut it into even parts.
Source: Icechunk facts 1, Ids; 4, step 8.
"""

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from retention_assets.icechunk.formats.ids import CHARACTERS
from retention_assets.icechunk.formats.paths import CHUNKS, MANIFESTS, OVERWRITTEN, SNAPSHOTS, TRANSACTIONS

PHASES = (SNAPSHOTS, TRANSACTIONS, MANIFESTS, CHUNKS, OVERWRITTEN)
_LETTERS = len(CHARACTERS)
_LONGEST = 3  # characters; 32,768 parts of a directory
_PAGE = 10_000  # objects: a smaller part costs more requests than it saves


def characters(listed: int, most: int) -> int:
    """Return by how many characters of their names directories are cut, so that a part has at most `most` objects.

    `listed`: objects of the whole repository; all may lie in one directory.
    """
    part = max(1, min(most, _PAGE))
    return next((count for count in range(_LONGEST) if listed <= part * _LETTERS**count), _LONGEST)


@dataclass(frozen=True, slots=True)
class IcechunkLayout:
    """See `Layout`. A place is a directory with the first `characters` of the names in it."""

    characters: int

    def place(self, address: Column) -> Column:
        """See `Layout`. Backups all begin alike: their directory is one place."""
        directory = F.concat(F.substring_index(address, "/", 1), F.lit("/"))
        begins = F.substring(F.substring_index(address, "/", -1), 1, self.characters)
        return F.when(directory == OVERWRITTEN, directory).otherwise(F.concat(directory, begins))

    def phase(self, address: Column) -> Column:
        """See `Layout`. A name that is of none of them goes last."""
        number = F.lit(len(PHASES))
        for place, directory in reversed(list(enumerate(PHASES))):
            number = F.when(address.startswith(directory), F.lit(place)).otherwise(number)
        return number
