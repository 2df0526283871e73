"""The age rule: how old an object must be before it may be deleted. Source: promise 2 of docs/safety.md."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from pyspark.sql import Column
from pyspark.sql import functions as F

from retention_assets.core.states import UNREFERENCED

_SECOND = 1_000_000  # microseconds
# The clocks of the store and of the machines that plan differ by less. Source: docs/safety.md, "Assumptions".
CLOCK_MARGIN = timedelta(hours=1)


def no_issue_time(_: Column) -> Column:
    """Return null. This is `issued` for systems whose addresses do not contain the time at which they were issued."""
    return F.lit(None).cast("timestamp")


@dataclass(frozen=True, slots=True)
class AgeCutoff:
    """Decides whether an object is old enough to be deleted.

    An object is old enough if its `last_modified` (the store's clock) and the time inside its address are both more
    than `grace` before `oldest_input`.

    Attributes:
        oldest_input: the time of the oldest plan input (UTC): listing, staged list or references.
        grace: an object that is younger than this is kept.
        token_life: an unreferenced object that is younger than this is kept, because its uploader may still link it.
            lakeFS also accepts some links and stagings of older objects ("Not promised" in docs/safety.md).
        issued: returns the time at which an address was issued; null if the address does not contain the time.

    Source: promise 2 of docs/safety.md; docs/uncommitted.md.
    """

    oldest_input: datetime
    grace: timedelta
    token_life: timedelta = timedelta(0)
    issued: Callable[[Column], Column] = field(kw_only=True)

    def is_older(self, timestamp: Column) -> Column:
        """Return whether `timestamp` plus `grace` is before `oldest_input`.

        A `timestamp` of whole seconds may have been rounded down, so it counts as the end of its second.
        """
        return self._is_before_cutoff(timestamp, self.grace)

    def is_eligible(self, reason: Column) -> Column:
        """Return whether an object (columns `address`, `last_modified`) is old enough to be deleted for `reason`."""
        unlinked = self._object_is_older(max(self.grace, self.token_life))
        return F.when(reason == UNREFERENCED, unlinked).otherwise(self._object_is_older(self.grace))

    def young_until(self, reason: Column) -> Column:
        """Return a time (µs since 1970). While `oldest_input` is before this time, the object is too young."""
        written = F.greatest("last_modified", F.coalesce(self.issued(F.col("address")), F.col("last_modified")))
        grace = F.when(reason == UNREFERENCED, _micros(max(self.grace, self.token_life))).otherwise(_micros(self.grace))
        return F.unix_micros(written) + grace

    def _object_is_older(self, grace: timedelta) -> Column:
        issued = F.coalesce(self.issued(F.col("address")), F.col("last_modified"))
        return self._is_before_cutoff(F.col("last_modified"), grace) & self._is_before_cutoff(issued, grace)

    def _is_before_cutoff(self, timestamp: Column, grace: timedelta) -> Column:
        micros = F.unix_micros(timestamp)
        is_whole_second = micros % F.lit(_SECOND) == 0
        end = F.when(is_whole_second, micros + F.lit(_SECOND)).otherwise(micros)
        limit = F.unix_micros(F.lit(self.oldest_input)) - _micros(grace)
        return F.coalesce(end < limit, F.lit(False))  # an unknown age counts as young


def _micros(duration: timedelta) -> Column:
    return F.lit(duration // timedelta(microseconds=1))
