"""The metadata of partitions have the same keys as in earlier versions."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from retention_assets.core.guards import CheckResult
from retention_assets.errors import TableContractError
from retention_assets.warehouse.metadata import Details, PartitionMetadata, needed
from retention_assets.warehouse.warehouse import METADATA, SUCCESS, Warehouse
from tests.sweep.small_world import DAY

# As the version before wrote these documents: all notes are texts.
CHECKS = '[{"guard": "nothing_live", "passed": false, "detail": "2 are live", "value": 2, "limit": 0}]'
NOTES = {
    "check_results": CHECKS,
    "refused": "nothing_live",
    "plan_hash": "5e1f",
    "policy_hash": "ab",
    "policy_run": "a-run",
    "references_hash": "cd",
    "instance": "",
    "known": "false",
    "staged_warning": "a page may be missing",
    "legacy_kinds": "linked root",
    "unusual_names": "1 key is not a valid path (first: '..')",
    "fell_back": "there is no usable inventory of another day",
    "clean_at": "2026-11-20T01:02:03.000004+00:00",
    "storage": "s3://lake/orchard",
    "cutoff": "2026-11-19T00:00:00+00:00",
    "format": "2",
    "deleted_tags": '["v1", "v2"]',
    "availability": "read-only",
    "limits": "",
    "tags_deletable": "true",
    "lost": "0",
    "unread": "3",
}
STORED = {"notes": NOTES, "rows": 7, "run_id": "a-run", "taken_at": "2026-11-21T00:00:00+00:00"}


def test_a_document_of_the_version_before_is_written_as_it_was_read(tmp_path: Path) -> None:
    warehouse = Warehouse(str(tmp_path))
    partition = ("orchard", "commit_graph", DAY.isoformat())
    warehouse.write_document(STORED, *partition, METADATA)
    (tmp_path.joinpath(*partition) / SUCCESS).touch()
    before = tmp_path.joinpath(*partition, METADATA).read_bytes()
    metadata = warehouse.metadata("orchard", "commit_graph", DAY)
    warehouse.write_metadata("orchard", "commit_graph", DAY, metadata)
    assert tmp_path.joinpath(*partition, METADATA).read_bytes() == before


def test_the_details_of_a_document_have_their_types() -> None:
    details = PartitionMetadata.of_document(STORED).details
    assert details.check_results == (CheckResult("nothing_live", False, "2 are live", 2, 0),)
    assert (details.known, details.tags_deletable) == (False, True)
    assert details.legacy_kinds == {"root", "linked"}
    assert details.clean_at == datetime(2026, 11, 20, 1, 2, 3, 4, tzinfo=UTC)
    assert (details.format, details.lost, details.unread) == (2, 0, 3)
    assert details.deleted_tags == ("v1", "v2")
    assert Details.of_texts(NOTES | {"of_a_later_version": "x"}) == details


def test_unknown_details_are_not_stored() -> None:
    assert Details().texts() == {}
    assert Details(legacy_kinds=frozenset(), lost=0).texts() == {"legacy_kinds": "", "lost": "0"}


@pytest.mark.parametrize(
    "change",
    [
        {"taken_at": "yesterday"},
        {"taken_at": None},
        {"notes": {"lost": "many"}},
        {"notes": {"check_results": "{"}},
        {"notes": {"check_results": "[1]"}},
        {"notes": {"cutoff": 7}},
        {"notes": ["lost"]},
        {"notes": None},
    ],
    ids=str,
)
def test_damaged_metadata_are_refused_with_the_table_and_the_command_that_makes_it(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    warehouse = Warehouse(str(tmp_path))
    partition = ("orchard", "commit_graph", DAY.isoformat())
    warehouse.write_document({**STORED, **change}, *partition, METADATA)
    (tmp_path.joinpath(*partition) / SUCCESS).touch()
    message = rf"orchard: the metadata of commit_graph of {DAY} is damaged: .* Nothing was deleted\. Make it again: "
    with pytest.raises(TableContractError, match=f"{message}`retention plan orchard --as-of {DAY}`"):
        warehouse.metadata("orchard", "commit_graph", DAY)


def test_a_missing_required_detail_is_reported_with_its_table_and_name() -> None:
    assert needed("a-run", "policy_table", "policy_run") == "a-run"
    message = (
        r"^policy_table: its metadata has no policy_run: .* Nothing was deleted\. Make the table again: `retention plan"
    )
    with pytest.raises(TableContractError, match=message):
        needed(Details().policy_run, "policy_table", "policy_run")
