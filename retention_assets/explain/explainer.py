"""Code that the explanations of both systems share: it derives the state of an object from the tables of a plan."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import ClassVar

from retention_assets.config.configuration import Configuration
from retention_assets.core.keepers import Keeper, plan_day
from retention_assets.core.states import CANDIDATE, HELD, WAITING, YOUNG
from retention_assets.explain.explanations import ABSENT, MISSING, ObjectExplanation
from retention_assets.explain.plans import PlanTables, Row, referring_repositories
from retention_assets.tables import DELETION_CANDIDATES, STORAGE_INVENTORY
from retention_assets.warehouse.reading import one_of

_LISTED = ("address", "size", "last_modified")


@dataclass(frozen=True)
class Explainer[P](ABC):
    """Explains objects of one repository. It reads only the rows of these objects from large tables."""

    tables: PlanTables
    configuration: Configuration
    policy: P | None = None  # the policy to apply; None: the policy of the plan
    settles: bool = True  # False: `goes_on` does not include the settling time

    may_be_held: ClassVar[Collection[str]]  # the states of objects that a reference of another repository may keep

    @abstractmethod
    def objects(self, addresses: Collection[str]) -> list[ObjectExplanation]:
        """Return the explanation of each address: its state, its keepers, and the first day that may delete it."""

    @abstractmethod
    def _is_due_under_every_policy(self, due: Row) -> bool:
        """Return whether an object that the plan lists as due is due under every policy."""

    def _explained(
        self, unlisted: Collection[ObjectExplanation], classified: Callable[[ObjectExplanation], ObjectExplanation]
    ) -> list[ObjectExplanation]:
        """Return the complete explanations.

        Args:
            unlisted: the explanation of each address without the listing.
            classified: completes the explanation of a listed object that is not due: the plan does not list it as due,
                or another policy decides about it.
        """
        asked = [one.address for one in unlisted]
        rows = self.tables.rows(STORAGE_INVENTORY.name, one_of("address", asked), _LISTED)
        listed, due = {row["address"]: row for row in rows}, self.tables.due(asked)
        of_plan = self.tables.rows(DELETION_CANDIDATES.name, one_of("address", due), ["address"]) if due else []
        candidates = {row["address"] for row in of_plan}
        if self.policy:
            due = {address: row for address, row in due.items() if self._is_due_under_every_policy(row)}
        found = []
        for one in unlisted:
            explained = replace(one, state=MISSING) if one.kept_by and one.state == ABSENT else one
            if row := listed.get(one.address):
                explained = replace(one, listed=True, size=row["size"], last_modified=row["last_modified"])
                of_due = due.get(one.address)
                is_candidate = one.address in candidates
                explained = self._due(explained, of_due, is_candidate) if of_due else classified(explained)
            found.append(explained)
        of_others = [one.address for one in found if one.state in self.may_be_held and one.address not in due]
        others = referring_repositories(self.configuration, self.tables.repository.name, of_others)
        return [_held_by(others[one.address], one) if one.address in others else one for one in found]

    def _due(self, explained: ObjectExplanation, due: Row, is_candidate: bool) -> ObjectExplanation:
        waits = due.get("waits_until")  # candidates have this value, too
        ends = None if is_candidate else waits
        return replace(
            explained,
            state=WAITING if ends else CANDIDATE,
            goes_on=ends.date() if ends else self.tables.plan.day,
            reason=due["reason"],
            rule_ids=tuple(due["rule_ids"]),
            due_since=due["due_since"],
            waits_until=waits,
        )

    def _young(
        self, explained: ObjectExplanation, detail: str, old_enough: datetime, settle: timedelta
    ) -> ObjectExplanation:
        keeper = Keeper("age", explained.address, detail, old_enough)
        goes_on = plan_day(None, old_enough, settle, self.tables.plan.day)
        return replace(explained, state=YOUNG, kept_by=(keeper,), goes_on=goes_on)

    def _duration(self, name: str) -> timedelta:
        """Return a duration of the plan's settings; zero if it is not set."""
        return self.tables.duration(name) or timedelta(0)

    @property
    def _settle(self) -> timedelta:
        return self._duration("settle") if self.settles else timedelta(0)


def kept_for_ever(explained: ObjectExplanation, state: str, kind: str, detail: str) -> ObjectExplanation:
    """Return the explanation with this state, and with one keeper that time does not end."""
    return replace(explained, state=state, kept_by=(Keeper(kind, explained.address, detail, None),))


def _held_by(names: Sequence[str], explained: ObjectExplanation) -> ObjectExplanation:
    refers = "another repository refers" if len(names) == 1 else "other repositories refer"
    detail = f"{refers} to an object of this name: {', '.join(names)}"
    return replace(explained, state=HELD, kept_by=(Keeper("other_repository", names[0], detail, None),))
