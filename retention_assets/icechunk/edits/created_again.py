"""Finds the branches and tags that no interrupted sweep of the plan can have removed.

An interrupted sweep may not have recorded which references it removed. If somebody creates one again, nobody approved
the deletion of the new one. So before a sweep removes references, it records a mark of each one. A later sweep compares
these marks, and does not remove a reference that was created again. If a reference is missing when the later sweep
begins, and somebody creates it again meanwhile, it is not removed either.
Source: docs/icechunk.md, "What is deleted".
"""

from collections.abc import Mapping, Sequence
from functools import cache, partial

from retention_assets.icechunk.formats.model import UpdateKind
from retention_assets.icechunk.formats.paths import ReferenceFile
from retention_assets.icechunk.rules.planned import PlannedEdits
from retention_assets.icechunk.rules.snapshots import Reference, datetime_of
from retention_assets.icechunk.source.ops_log import updates_since
from retention_assets.icechunk.source.repository import IcechunkState
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.policy.rules import RefKind

Marks = Mapping[str, str]  # by the address of the reference
_CREATED: Mapping[UpdateKind, RefKind] = {UpdateKind.BRANCH_CREATED: "branch", UpdateKind.TAG_CREATED: "tag"}


def marks_of(reader: ObjectReader, state: IcechunkState, planned: PlannedEdits) -> Marks:
    """Return the marks of the references that the plan deletes and that exist, on the snapshots that the plan names.

    Format 1: the ETag and the time of the reference's file. Format 2: the time of the newest entry of the ops log.
    """
    there = planned.deleted.intersection(state.history.references())
    return {one.address: _mark(reader, state, one) for one in there}


def never_removed(
    reader: ObjectReader, state: IcechunkState, planned: PlannedEdits, attempts: Sequence[Marks]
) -> frozenset[Reference]:
    """Return the existing references of the plan that no interrupted attempt can have removed.

    `attempts`: the marks that each interrupted attempt recorded. A reference without a mark did not exist then.
    Errors: as `updates_since`.
    """
    created_since = cache(partial(_created_since, reader, state))

    def is_new(one: Reference, mark: str | None) -> bool:
        if mark is None:
            return True
        if state.repo is None:
            return _mark(reader, state, one) != mark
        return (one.kind, one.name) in created_since(mark)

    there = planned.deleted.intersection(state.history.references())
    marks = {one: {attempt.get(one.address) for attempt in attempts} for one in there}
    return frozenset(one for one in there if not any(is_new(one, mark) for mark in marks[one]))


def _mark(reader: ObjectReader, state: IcechunkState, reference: Reference) -> str:
    if state.repo is not None:
        return str(state.repo.latest_updates[0].updated_at)
    metadata = reader.head(ReferenceFile(reference.kind, reference.name).path)
    return f"{metadata.e_tag} {metadata.last_modified.isoformat()}"


def _created_since(reader: ObjectReader, state: IcechunkState, mark: str) -> set[tuple[RefKind, str | None]]:
    """Return the kinds and names of the references that somebody created since the mark (format 2).

    The ops log names the references that somebody creates, but not those that an expiration removes.
    """
    assert state.repo is not None
    updates = updates_since(reader, state.repo, datetime_of(int(mark), b""))
    new = (one for one in updates if one.updated_at > int(mark))
    return {(_CREATED[one.kind], one.name) for one in new if one.kind in _CREATED}
