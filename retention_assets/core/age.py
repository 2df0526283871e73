"""The age rule: how old an object must be before it may go. Source: DESIGN.md, invariant 2."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from pyspark.sql import Column
from pyspark.sql import functions as F

from retention_assets.core.states import (
    UNREFERENCED,
)

_WHOLE_SECOND = 1_000_000  # microseconds


def tells_no_time(_: Column) -> Column:
    """Return null: the addresses of some systems do not tell when they were issued."""
    return F.lit(None).cast("timestamp")


@dataclass(frozen=True, slots=True)
class AgeCutoff:
    """The youngest object that may be judged: by the store's clock and by the time inside its address.

    `oldest_picture` is the oldest of listing, staged list and references (UTC). `grace` keeps every object that is
    younger; `token_life` one that no commit holds: until then its upload may still be linked.
    Source: DESIGN.md, invariant 2; lakeFS facts 1.1 (link addresses).
    """

    oldest_picture: datetime
    grace: timedelta
    token_life: timedelta = timedelta(0)
    issued: Callable[[Column], Column] = field(kw_only=True)  # when an address was issued; null: it does not tell

    def is_older(self, instant: Column) -> Column:
        """Return whether `instant` + grace lies before the oldest picture; a whole second counts as its end."""
        return self._passed(instant, self.grace)

    def is_eligible(self, reason: Column) -> Column:
        """Return whether an object (columns `address`, `last_modified`) is old enough to go for `reason`."""
        unlinked = self._object_passed(max(self.grace, self.token_life))
        return F.when(reason == UNREFERENCED, unlinked).otherwise(self._object_passed(self.grace))

    def _object_passed(self, grace: timedelta) -> Column:
        issued = F.coalesce(self.issued(F.col("address")), F.col("last_modified"))
        return self._passed(F.col("last_modified"), grace) & self._passed(issued, grace)

    def _passed(self, instant: Column, grace: timedelta) -> Column:
        micros = F.unix_micros(instant)
        whole = micros % F.lit(_WHOLE_SECOND) == 0
        end = F.when(whole, micros + F.lit(_WHOLE_SECOND)).otherwise(micros)
        limit = F.unix_micros(F.lit(self.oldest_picture)) - F.lit(grace // timedelta(microseconds=1))
        return F.coalesce(end < limit, F.lit(False))  # of unknown age: young
