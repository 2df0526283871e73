"""The edits of a plan, kept under its hash beside its objects. Source: DESIGN.md, Decisions (Plan hash)."""

import hashlib
import json

from retention_assets.errors import GuardRefused
from retention_assets.icechunk.rules.planned import PlannedEdits
from retention_assets.state.plan import Plan
from retention_assets.state.warehouse import Warehouse

PLANNED_EDITS = "planned_edits"
_CLOCK = "cutoff"  # what differs between two plans of the same world


def hash_with_edits(references: str, planned: PlannedEdits) -> str:
    """Return the `references_hash` of a plan with these edits: of the references as they were, and of the edits.

    The cutoff is a clock's and left out, as everything of a clock is.
    """
    edits = {key: value for key, value in planned.document().items() if key != _CLOCK}
    text = json.dumps({"references": references, "edits": edits}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def keep_edits(warehouse: Warehouse, repository: str, plan_hash: str, references: str, planned: PlannedEdits) -> None:
    """Keep a plan's edits under its hash, with the hash of the references that they were made of."""
    document = {"references": references, "edits": planned.document()}
    warehouse.write_document(document, repository, PLANNED_EDITS, f"{plan_hash}.json")


def planned_edits(warehouse: Warehouse, plan: Plan) -> PlannedEdits:
    """Return the plan's edits.

    Errors: GuardRefused when they are not there, are not those that the plan's hash covers, or let go what is younger
    than the plan.
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
