"""Stores the edits of a plan under the plan's hash, beside its objects. Source: DESIGN.md, Decisions (Plan hash)."""

import hashlib
import json

from retention_assets.errors import GuardRefused
from retention_assets.icechunk.rules.planned import PlannedEdits
from retention_assets.state.plan import Plan
from retention_assets.state.warehouse import Warehouse

PLANNED_EDITS = "planned_edits"
_CLOCK = "cutoff"  # the field that differs between two plans of the same repository state


def hash_with_edits(references: str, planned: PlannedEdits) -> str:
    """Return the `references_hash` of a plan: a hash of its references at planning and of its edits.

    The cutoff comes from a clock, so the hash leaves it out, like all times from a clock.
    """
    edits = {key: value for key, value in planned.document().items() if key != _CLOCK}
    text = json.dumps({"references": references, "edits": edits}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def keep_edits(warehouse: Warehouse, repository: str, plan_hash: str, references: str, planned: PlannedEdits) -> None:
    """Store a plan's edits under the plan's hash, with the hash of the references that the edits were made from."""
    document = {"references": references, "edits": planned.document()}
    warehouse.write_document(document, repository, PLANNED_EDITS, f"{plan_hash}.json")


def planned_edits(warehouse: Warehouse, plan: Plan) -> PlannedEdits:
    """Return the plan's edits.

    Errors: GuardRefused when the edits are missing, differ from those that the plan's hash covers, or have a cutoff
    later than the plan.
    """
    document = warehouse.read_document(plan.repository, PLANNED_EDITS, f"{plan.plan_hash}.json")
    if document is None:
        raise _refusal(plan, "are not there")
    planned = PlannedEdits.read(document["edits"])
    if hash_with_edits(document["references"], planned) != plan.references_hash or planned.cutoff > plan.made_at:
        raise _refusal(plan, "are not the approved ones")
    return planned


def _refusal(plan: Plan, what: str) -> GuardRefused:
    return GuardRefused(
        f"{plan.repository} {plan.day}: the edits of the plan {plan.plan_hash} {what}. Nothing was changed or deleted. "
        f"Plan again: `retention plan {plan.repository} --as-of {plan.day}`."
    )
