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
    checked_at: datetime  # when the check began, before it read anything (this machine's clock)


class LiveAddresses(Protocol):
    """Determines the live addresses of a lakeFS or Icechunk repository. A purge calls `now` before each batch."""

    def now(self) -> DataFrame:
        """Run a liveness check, and return the addresses that must stay (column `address`).

        The next call releases the rows of this call. Errors: GuardRefused if the check cannot determine which objects
        must stay.
        """
        ...


class OtherRepositories(Protocol):
    """The references of other repositories to this one, for the liveness checks of a sweep."""

    def require_known(self) -> None:
        """Raise GuardRefused if the references of another repository are unknown."""
        ...

    def extended(self, liveness: Liveness, objects: DataFrame) -> Liveness:
        """Return `liveness` with the addresses in `objects` (column `address`) that another repository refers to."""
        ...

    def release(self) -> None:
        """Release the cached rows. After this, results of `extended` must not be used."""
        ...


class NoOtherRepositories:
    """The references of other repositories when no other repository is configured."""

    def require_known(self) -> None:
        """Do nothing."""

    def extended(self, liveness: Liveness, objects: DataFrame) -> Liveness:  # the protocol requires `objects`
        """Return `liveness` unchanged."""
        return liveness

    def release(self) -> None:
        """Do nothing."""
