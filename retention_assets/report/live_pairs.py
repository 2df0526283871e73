"""Which (path, address) pairs of a lakeFS repository a plan counts as referenced, batch by batch."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

from retention_assets.explain.lakefs import policy_of
from retention_assets.explain.plans import PlanTables
from retention_assets.lakefs.rules.generated_names import is_absolute, listed_name
from retention_assets.lakefs.rules.keepers import Entry, lifecycle_end
from retention_assets.policy.rules import Hold, LifecycleRule

LIVE_PAIR = ("address", "key", "size", "branches", "left_branches", "added_at", "active", "protected")
_REMEMBERED = 100_000  # combinations of rules, branches and times

_Same = tuple[tuple[bool, ...], datetime, tuple[str, ...], tuple[str, ...]]  # pairs that rules treat alike


@dataclass(frozen=True, slots=True)
class LivePairs:
    """The rules that decide which pairs are live. They are those of `candidates.live_addresses`.

    A pair is live if an active commit has it and no lifecycle rule lets it go, or if a tag or hold protects it. Objects
    outside the namespace are not listed, so their pairs are left out.
    """

    rules: Sequence[LifecycleRule]
    held: Sequence[Hold]
    as_of: datetime
    _ends: dict[_Same, bool] = field(default_factory=dict)

    @classmethod
    def of_plan(cls, tables: PlanTables) -> "LivePairs":
        """Return the rules of a plan. Errors: TableContractError when its policy is not known any more."""
        policy, day = policy_of(tables), tables.plan.day
        held = [hold for hold in policy.holds if hold.kind == "prefix" and hold.in_force(day)]
        rules = [rule for rule in policy.lifecycle if rule.enabled]
        return cls(rules, held, datetime(day.year, day.month, day.day, tzinfo=UTC))

    def in_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the live pairs of a batch with the columns `LIVE_PAIR`."""
        active, protected = (batch[name].to_numpy(zero_copy_only=False) for name in ("active", "protected"))
        if self.rules and active.any():
            active = active & ~self._due(batch)
        if self.held:
            covered = [any(hold.covers(key) for hold in self.held) for key in batch["key"].to_pylist()]
            protected = protected | np.array(covered, dtype=bool)
        inside = [not is_absolute(listed_name(address)) for address in batch["address"].to_pylist()]
        return batch.filter(pa.array((active | protected) & np.array(inside, dtype=bool)))

    def _due(self, batch: pa.RecordBatch) -> np.ndarray:
        columns = [batch[name].to_pylist() for name in ("key", "added_at", "branches", "left_branches")]
        return np.array([self._is_due(*row) for row in zip(*columns, strict=True)], dtype=bool)

    def _is_due(self, path: str, added: datetime, branches: list[str], left: list[str] | None) -> bool:
        same = tuple(rule.covers(path) for rule in self.rules), added, tuple(branches), tuple(left or ())
        if same not in self._ends:
            if len(self._ends) >= _REMEMBERED:
                self._ends.clear()
            entry = Entry(path, "", 0, added, same[2], same[3], ())
            ends, _ = lifecycle_end(entry, self.rules)
            self._ends[same] = ends is not None and ends <= self.as_of
        return self._ends[same]
