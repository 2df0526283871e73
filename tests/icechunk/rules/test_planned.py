"""The document of a plan's edits: it is read as written, and any other document is refused."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from retention_assets.errors import GuardRefused
from retention_assets.icechunk.formats.ids import encode_id
from retention_assets.icechunk.rules.planned import PlannedEdits, raw_ids
from retention_assets.icechunk.rules.snapshots import Reference

IDS = tuple(sorted(encode_id(bytes([number] * 12)) for number in range(4)))
PLANNED = PlannedEdits(
    format=2,
    as_of=datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
    cutoff=datetime(2026, 1, 1, tzinfo=UTC),
    known=IDS,
    released=IDS[:2],
    dropped=IDS[3:],
    deleted=frozenset({Reference("branch", "a/b", bytes(12)), Reference("tag", "é", bytes([3] * 12))}),
    in_use=IDS[2:3],
)


HEADS = {"a/b": IDS[0], "main": IDS[1]}, {"é": IDS[3]}


def test_planned_edits_are_read_back_unchanged():
    assert PlannedEdits.read(json.loads(json.dumps(PLANNED.document())), *HEADS) == PLANNED


@pytest.mark.parametrize(
    "changes",
    [
        {"format": 3},
        {"format": None},
        {"as_of": "2026-01-02T03:04:05"},
        {"cutoff": "yesterday"},
        {"released": [IDS[0][:-1] + "1"]},
        {"dropped": None},
        {"dropped": IDS[0]},
        {"in_use": [IDS[0][:-1] + "1"]},
        {"in_use": []},
        {"deleted_branches": ["of no head"]},
        {"more": 1},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_corrupt_document_of_planned_edits_is_refused(changes: dict[str, Any]):
    with pytest.raises(GuardRefused, match=r"is corrupt.*Plan again"):
        PlannedEdits.read({**PLANNED.document(), **changes}, *HEADS)


def test_a_document_of_an_earlier_version_names_no_snapshots_in_use():
    document = PLANNED.document()
    del document["in_use"]
    earlier = PlannedEdits.read(document, *HEADS)
    assert earlier == replace(PLANNED, in_use=())
    assert earlier.document() == document


def test_an_incomplete_document_is_refused():
    document = PLANNED.document()
    del document["seen"]
    with pytest.raises(GuardRefused, match="KeyError: 'seen'"):
        PlannedEdits.read(document, *HEADS)


def test_ids_become_bytes():
    assert raw_ids(IDS) == {bytes([number] * 12) for number in range(4)}
