"""The plan: what a dry run shows and what a deletion takes; frozen, hashed, kept for ever.

`plans/<day>/current.json` is the plan that may be approved; beside it every plan that was ever made of that day.
Source: DESIGN.md, invariants 5, 9 and Decisions (Plan hash).
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import date, datetime
from typing import Any

from retention_assets.errors import GuardRefused, TableContractError
from retention_assets.history.references import References
from retention_assets.stores.warehouse import Warehouse

PLANS = "plans"
_CURRENT = "current.json"


@dataclass(frozen=True, slots=True)
class Amount:
    """How many objects, and their bytes."""

    objects: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """One plan of one repository and day. Bytes are as listed; instants UTC."""

    repository: str
    day: date
    plan_hash: str
    policy_hash: str
    policy_run: str  # the run whose rows of `policy_table` are this plan's rules
    references_hash: str
    candidates: Amount
    totals: Mapping[str, Amount]  # by state, of everything listed
    live: int  # live addresses inside the namespace
    collected: int  # live addresses that our own ledger deleted before
    warnings: tuple[str, ...]
    blocked: str | None  # why deleting is refused although planning is not
    made_at: datetime
    run_id: str

    def document(self) -> dict[str, Any]:
        """Return the plan as JSON writes it."""
        return {
            **asdict(self),
            "day": self.day.isoformat(),
            "made_at": self.made_at.isoformat(),
            "warnings": list(self.warnings),
        }


def plan_hash(repository: str, policy_hash: str, references_hash: str, digest: str) -> str:
    """Return the plan's hash: policy, references and candidates; no run id, no clock."""
    parts = {"repository": repository, "policy": policy_hash, "references": references_hash, "candidates": digest}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def references_hash(references: References) -> str:
    """Return a hash of what every branch and every tag names; commits follow from those by their ids."""
    named = {
        "branches": dict(references.branches),
        "tags": dict(references.tags),
        "commits": sorted(references.commits),
    }
    return hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()


def withdraw_plan(warehouse: Warehouse, repository: str, day: date) -> None:
    """Leave no plan of that day that a sweep would take. Called before a new one is made."""
    warehouse.remove_document(repository, PLANS, day.isoformat(), _CURRENT)


def keep_plan(warehouse: Warehouse, plan: Plan) -> None:
    """Make `plan` the day's plan, and keep it among all that were made."""
    made = f"{plan.made_at:%Y%m%dT%H%M%S%f}-{plan.plan_hash[:12]}.json"
    warehouse.write_document(plan.document(), plan.repository, PLANS, plan.day.isoformat(), made)
    warehouse.write_document(plan.document(), plan.repository, PLANS, plan.day.isoformat(), _CURRENT)


def load_plan(warehouse: Warehouse, repository: str, day: date) -> Plan:
    """Return the day's plan. Errors: GuardRefused when there is none that stands."""
    document = warehouse.read_document(repository, PLANS, day.isoformat(), _CURRENT)
    if document is None:
        raise GuardRefused(
            f"{repository}: there is no plan of {day} that stands. Nothing was deleted. "
            f"Make one: `retention plan {repository} --as-of {day}`."
        )
    return _plan(document)


def last_plan(warehouse: Warehouse, repository: str, until: date) -> Plan | None:
    """Return the plan that was made last of `until` or a day before it; None when there is none."""
    newest: tuple[str, str] | None = None
    for day in warehouse.directories(repository, PLANS):
        if day > until.isoformat():
            continue
        made = [name for name in warehouse.documents(repository, PLANS, day) if name != _CURRENT]
        newest = max([(name, day) for name in made] + ([newest] if newest else []), default=None)
    if newest is None:
        return None
    document = warehouse.read_document(repository, PLANS, newest[1], newest[0])
    return _plan(document) if document else None


def _plan(document: Mapping[str, Any]) -> Plan:
    fields = {
        **document,
        "day": date.fromisoformat(document["day"]),
        "made_at": datetime.fromisoformat(document["made_at"]),
        "candidates": Amount(**document["candidates"]),
        "totals": {state: Amount(**amount) for state, amount in document["totals"].items()},
        "warnings": tuple(document["warnings"]),
    }
    try:
        return Plan(**fields)
    except TypeError as error:
        raise TableContractError(
            f"{document['repository']}: the plan of {document['day']} was written by another version. Nothing was "
            f"deleted. Plan again: `retention plan {document['repository']} --as-of {document['day']}`."
        ) from error
