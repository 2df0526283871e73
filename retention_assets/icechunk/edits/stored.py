"""Stores the edits of a plan under the plan's hash, and records the edits that its sweeps applied.

Before a sweep applies the edits, it writes the references that it will remove, with their marks, to
`publications/<plan hash>/begun/<fence>.json`. After the edits, and before it changes any object, it writes the applied
edits to `publications/<plan hash>/<fence>.json`.
References are in these documents and in the report. They are not in the ledger, whose totals count objects, because in
format 2 references are not objects and have no size. Source: docs/safety.md, "Guards: the checks of a plan".
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

import pyarrow as pa
from pydantic import AwareDatetime

from retention_assets.errors import GuardRefused, naming
from retention_assets.icechunk.rules.planned import PlannedEdits
from retention_assets.icechunk.rules.snapshots import History
from retention_assets.objectstore.outcomes import Outcome
from retention_assets.state.lease import Lease
from retention_assets.state.plan import Plan, planned_heads
from retention_assets.tables import DELETION_REPORT
from retention_assets.warehouse.warehouse import Warehouse

if TYPE_CHECKING:  # this import takes a second, and the status of a plan needs only its edits
    from retention_assets.icechunk.edits.created_again import Marks
    from retention_assets.icechunk.edits.publishing import Published

PLANNED_EDITS = "planned_edits"
_CLOCK = "cutoff"  # the field that depends on a clock, so it differs between two plans of the same repository state


class _Edits(TypedDict):
    """The keys of the document of a plan's edits."""

    references: str
    edits: dict[str, Any]


class _Attempt(TypedDict):
    """The key of a document in `_BEGUN` that is read. Earlier versions did not write it."""

    marks: NotRequired[dict[str, str]]


class _Publication(TypedDict):
    """The keys of a document in `PUBLICATIONS` that are read."""

    references_removed: list[str]
    references_gone: list[str]
    at: AwareDatetime


def hash_with_edits(references: str, planned: PlannedEdits) -> str:
    """Return the `references_hash` of a plan: a hash of its references at planning and of its edits.

    The hash leaves out the cutoff, like all times from a clock.
    """
    edits = {key: value for key, value in planned.document().items() if key != _CLOCK}
    text = json.dumps({"references": references, "edits": edits}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def keep_edits(warehouse: Warehouse, repository: str, plan_hash: str, references: str, planned: PlannedEdits) -> None:
    """Store a plan's edits under the plan's hash, with the hash of the references that the edits were made from."""
    document = {"references": references, "edits": planned.document()}
    warehouse.write_document(document, repository, PLANNED_EDITS, f"{plan_hash}.json")


def planned_edits(warehouse: Warehouse, plan: Plan) -> PlannedEdits:
    """Return the plan's edits, with the snapshots that the deleted references named at planning.

    Errors: GuardRefused when the edits or these snapshots are missing, when the edits do not match the plan's hash, or
    when their cutoff is later than the plan.
    """
    document = warehouse.read_document(plan.repository, PLANNED_EDITS, f"{plan.plan_hash}.json", shape=_Edits)
    if document is None:
        raise _refusal(plan, "are missing")
    heads = planned_heads(warehouse, plan)
    with naming(plan.repository, plan.day.isoformat()):
        planned = PlannedEdits.read(document["edits"], heads.branches, heads.tags)
    if hash_with_edits(document["references"], planned) != plan.references_hash or planned.cutoff > plan.made_at:
        raise _refusal(plan, "do not match its hash or its time")
    return planned


def _refusal(plan: Plan, what: str) -> GuardRefused:
    return GuardRefused(
        f"{plan.repository} {plan.day}: the edits of the plan {plan.plan_hash} {what}. Nothing was changed or deleted. "
        f"{plan.again}"
    )


PUBLICATIONS = "publications"
_BEGUN = "begun"


def reference_addresses(planned: PlannedEdits) -> frozenset[str]:
    """Return the addresses of the branches and tags that a plan deletes."""
    return frozenset(one.address for one in planned.deleted)


def edits_left(warehouse: Warehouse, plan: Plan, planned: PlannedEdits) -> PlannedEdits:
    """Return the plan's edits without the references that earlier sweeps of the plan recorded as removed or gone.

    If such a reference exists, somebody created it after that sweep, and nobody approved its deletion.
    """
    recorded = _recorded(warehouse, plan)
    return replace(planned, deleted=frozenset(one for one in planned.deleted if one.address not in recorded))


def begin_publication(
    warehouse: Warehouse, plan: Plan, planned: PlannedEdits, marks: "Marks", lease: Lease, at: datetime
) -> None:
    """Record the references that a sweep will remove, with the `marks` of those that exist.

    After a crash, only this document has their names.
    """
    document = {"intended": sorted(reference_addresses(planned)), "marks": dict(marks), "at": at.isoformat()}
    warehouse.write_document(document, plan.repository, PUBLICATIONS, plan.plan_hash, _BEGUN, f"{lease.fence:08d}.json")


def interrupted_attempts(warehouse: Warehouse, plan: Plan) -> "list[Marks]":
    """Return the marks of each attempt that began, and did not record the edits that it applied.

    Earlier versions recorded no marks. Their attempts count as if no reference existed then.
    """
    parts = plan.repository, PUBLICATIONS, plan.plan_hash
    interrupted = sorted({*warehouse.documents(*parts, _BEGUN)} - {*warehouse.documents(*parts)})
    found = (warehouse.read_document(*parts, _BEGUN, name, shape=_Attempt) for name in interrupted)
    return [document.get("marks", {}) for document in found if document]


def keep_publication(
    warehouse: Warehouse, plan: Plan, published: "Published", gone: frozenset[str], lease: Lease, at: datetime
) -> Mapping[str, Any]:
    """Record the edits that a sweep applied, and return the document for the sweep's audit record.

    `gone`: planned references that no longer existed. An interrupted attempt may have removed them.
    """
    document = {
        "conflicts": published.conflicts,
        "written": list(published.written),
        "references_removed": list(published.references_removed),
        "references_gone": sorted(gone),
        "left_for_the_next_plan": published.left,
        "etag": published.etag,
        "at": at.isoformat(),
    }
    warehouse.write_document(document, plan.repository, PUBLICATIONS, plan.plan_hash, f"{lease.fence:08d}.json")
    return document


def unexplained(warehouse: Warehouse, plan: Plan, planned: PlannedEdits, published: "Published") -> frozenset[str]:
    """Return the planned references that neither this sweep nor an earlier one recorded as removed or gone."""
    return reference_addresses(planned) - _recorded(warehouse, plan) - set(published.references_removed)


def without_existing(addresses: frozenset[str], history: History) -> frozenset[str]:
    """Return the `addresses` whose branch or tag is no longer in `history`."""
    return addresses - {one.address for one in history.references()}


def removed_references(warehouse: Warehouse, plan: Plan) -> pa.Table:
    """Return rows of `deletion_report` for the references that sweeps of the plan removed: one row each, 0 bytes."""
    rows: dict[str, dict[str, Any]] = {}
    for document in _documents(warehouse, plan):
        at = datetime.fromisoformat(document["at"])
        for address in _removed_or_gone(document):
            outcome, detail = Outcome.DELETED, None
            if address in document["references_gone"]:
                outcome, detail = Outcome.MISSING, "was gone before"
            rows[address] = {"address": address, "size": 0, "outcome": outcome, "detail": detail, "at": at}
    return pa.Table.from_pylist([rows[address] for address in sorted(rows)], schema=DELETION_REPORT.schema)


def _recorded(warehouse: Warehouse, plan: Plan) -> set[str]:
    return {address for document in _documents(warehouse, plan) for address in _removed_or_gone(document)}


def _removed_or_gone(document: Mapping[str, Any]) -> list[str]:
    return [*document["references_removed"], *document["references_gone"]]


def _documents(warehouse: Warehouse, plan: Plan) -> Iterator[Mapping[str, Any]]:
    for name in warehouse.documents(plan.repository, PUBLICATIONS, plan.plan_hash):
        parts = plan.repository, PUBLICATIONS, plan.plan_hash, name
        document = warehouse.read_document(*parts, shape=_Publication)
        assert document is not None
        yield document
