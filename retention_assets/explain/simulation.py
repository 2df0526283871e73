"""Forecasts what comes due on the coming days if nobody changes anything, under a plan's policy or another policy.

Each object is classified as `explain` classifies it. Objects are explained in batches, so memory does not grow with the
repository. Each object takes about 0.2 ms.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from typing import Any

from retention_assets.config.configuration import Configuration
from retention_assets.config.documents import plain
from retention_assets.core.amounts import NO_PATH, Amount, sum_of
from retention_assets.core.states import CANDIDATE, WAITING
from retention_assets.explain.explaining import explainer_of
from retention_assets.explain.explanations import ObjectExplanation
from retention_assets.explain.plans import PlanTables
from retention_assets.policy.rules import Policy
from retention_assets.policy.snapshots import SnapshotPolicy
from retention_assets.tables import STORAGE_INVENTORY

_AT_ONCE = 50_000  # objects that are explained together

Days = Mapping[date | None, Mapping[str, Amount]]  # by day and prefix; None: no day is known


@dataclass(frozen=True, slots=True)
class Forecast:
    """The amounts of objects that come due, by day and prefix.

    An object comes due on the first day whose plan lists it as a candidate or as a waiting object. The day `first`
    has all candidates and waiting objects of the plan. The forecast assumes that nobody writes, deletes or sweeps.
    """

    policy_hash: str
    first: date  # the day of the plan
    last: date  # the last of the days
    days: Mapping[date, Mapping[str, Amount]]  # from `first` to `last`; days on which nothing comes due are left out
    later: Amount  # objects that come due after `last`
    never: Amount  # objects without a known day: they stay as long as nobody changes anything

    def total(self, day: date) -> Amount:
        """Return the amount that comes due on a day."""
        return sum_of(self.days.get(day, {}).values())

    def due_until(self, day: date) -> Amount:
        """Return the amount that a plan of this day finds due if no sweep runs before."""
        return sum_of(self.total(one) for one in self.days if one <= day)

    def document(self) -> dict[str, Any]:
        """Return the forecast for JSON."""
        days = [
            {
                "day": day,
                **asdict(self.total(day)),
                "by_prefix": [{"name": name, **asdict(amount)} for name, amount in sorted(prefixes.items())],
            }
            for day, prefixes in sorted(self.days.items())
        ]
        rest = {"later": asdict(self.later), "never": asdict(self.never)}
        document: dict[str, Any] = plain(
            {"policy_hash": self.policy_hash, "first": self.first, "last": self.last, "days": days, **rest}
        )
        return document


def forecast_of(
    configuration: Configuration, tables: PlanTables, days: int, policy: Policy | SnapshotPolicy | None = None
) -> Forecast:
    """Return the forecast from the day of the plan to `days` later. If `policy` is None, the plan's policy applies.

    Errors: TableContractError when a table is missing; GuardRefused when a hold of `policy` names a branch, tag, commit
    or snapshot that the plan does not have.
    """
    first = tables.plan.day
    last = first + timedelta(days=days)
    found: defaultdict[date | None, defaultdict[str, Amount]] = defaultdict(lambda: defaultdict(Amount))
    for one in _explanations(configuration, tables, policy):
        day, prefix = _due_on(one, first), _prefix_of(one, tables.repository.is_icechunk)
        of_day = found[day] if day is None or day <= last else found[date.max]  # `date.max`: all days after `last`
        of_day[prefix] = sum_of((of_day[prefix], Amount(1, one.size or 0)))
    never, later = (sum_of(found.pop(day, {}).values()) for day in (None, date.max))
    policy_hash = tables.plan.policy_hash if policy is None else policy.policy_hash
    within = {day: dict(prefixes) for day, prefixes in found.items() if day is not None}
    return Forecast(policy_hash, first, last, within, later, never)


def _explanations(
    configuration: Configuration, tables: PlanTables, policy: Policy | SnapshotPolicy | None
) -> Iterator[ObjectExplanation]:
    explainer = explainer_of(configuration, tables, policy, settles=False)
    for batch in tables.batches(STORAGE_INVENTORY.name, ("address",)):
        for start in range(0, batch.num_rows, _AT_ONCE):
            yield from explainer.objects(batch["address"].slice(start, _AT_ONCE).to_pylist())


def _due_on(one: ObjectExplanation, today: date) -> date | None:
    if one.state in (CANDIDATE, WAITING):
        return today
    if any(keeper.kind == "reference" for keeper in one.kept_by):
        return None  # a sweep deletes the branch with the history, so no plan lists it
    return one.goes_on


def _prefix_of(one: ObjectExplanation, is_icechunk: bool) -> str:
    path = one.address if is_icechunk else min((entry.path for entry in one.entries), default=None)
    if path is None:
        return NO_PATH
    top, slash, _ = path.partition("/")
    return top + slash
