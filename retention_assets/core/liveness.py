"""The result of a liveness check: the addresses that this repository or another repository still uses."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Liveness:
    """The live addresses, and the addresses that any commit references. Each table has one column, `address`."""

    live: DataFrame
    committed: DataFrame
    checked_at: datetime  # when the check began, before anything was read; this machine's clock


class LiveAddresses(Protocol):
    """The live addresses of a repository of either kind. The purge asks for them before each pass."""

    def now(self) -> DataFrame:
        """Run a liveness check, and return the addresses that must stay (column `address`).

        The next call releases the rows. Errors: GuardRefused if it is unknown which objects must stay.
        """
        ...


class Elsewhere(Protocol):
    """The references of other repositories, as a sweep queries them."""

    def require_known(self) -> None:
        """Require that the references of the other repositories are known. Errors: GuardRefused."""
        ...

    def added_to(self, liveness: Liveness, objects: DataFrame) -> Liveness:
        """Return `liveness` with those of `objects` (column `address`) that another repository refers to."""
        ...

    def release(self) -> None:
        """Release the cached rows. After this, results of `added_to` must not be used."""
        ...


class NothingElsewhere:
    """The references of other repositories when no other repository is configured."""

    def require_known(self) -> None:
        """Do nothing."""

    def added_to(self, liveness: Liveness, objects: DataFrame) -> Liveness:  # the protocol requires `objects`
        """Return `liveness` unchanged."""
        return liveness

    def release(self) -> None:
        """Do nothing."""
