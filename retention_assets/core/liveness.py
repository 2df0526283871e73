"""What a look at a repository tells: which addresses must stay, for its own sake and for that of others."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Liveness:
    """The addresses that are live, and those that any commit at all holds. One column each: `address`."""

    live: DataFrame
    committed: DataFrame
    checked_at: datetime  # this machine's clock, before anything was read


class Elsewhere(Protocol):
    """What other repositories refer to, as one that deletes asks it."""

    def require_known(self) -> None:
        """Refuse when it is not known. Errors: GuardRefused."""
        ...

    def added_to(self, liveness: Liveness, objects: DataFrame) -> Liveness:
        """Return what is live with those of `objects` (column `address`) that another repository refers to."""
        ...


class NothingElsewhere:
    """There is no other repository."""

    def require_known(self) -> None:
        """Do nothing: it is known."""

    def added_to(self, liveness: Liveness, objects: DataFrame) -> Liveness:  # of the protocol
        """Return what is live."""
        return liveness
