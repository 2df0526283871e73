"""Damaged JSON documents of the warehouse: each is refused with its file and a remedy, and none ends in a KeyError."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from retention_assets.errors import RetentionError
from retention_assets.icechunk.edits.stored import interrupted_attempts, planned_edits, removed_references
from retention_assets.lakefs.sweep.memory import last_read_at
from retention_assets.objectstore.access import StoreAccess
from retention_assets.state.acknowledged import missing_addresses, noticed_as_lost, record_missing
from retention_assets.state.binding import are_of_location
from retention_assets.state.lease import lease_in_force
from retention_assets.state.memory import included_by
from retention_assets.state.plan import Heads, find_plan, last_terms, load_plan, made_name, planned_heads
from retention_assets.state.policies import completed_runs
from retention_assets.state.quarantine import marker_of
from retention_assets.state.records import Record, newest_fingerprint, newest_of_day, read_records
from retention_assets.warehouse.cache_batches import cache_batches
from retention_assets.warehouse.metadata import PartitionMetadata
from retention_assets.warehouse.warehouse import Warehouse
from tests.frames import NOW
from tests.sweep.small_world import a_plan

PLAN = a_plan()
DAY_OF_PLAN, HASH, MADE = PLAN.day.isoformat(), PLAN.plan_hash, made_name(PLAN)
TIME = NOW.isoformat()
RECORD = Record("sweep", "orchard", DAY_OF_PLAN, "ada", TIME, "a-run", TIME, TIME, "delete", HASH)
DIGEST = "0" * 64


@dataclass(frozen=True)
class Document:
    """A document, its path below the directory of the repository, and a function that reads it."""

    path: str
    content: dict[str, Any]
    read: Callable[[Warehouse], object]
    optional: tuple[str, ...] = ()  # keys that earlier versions did not write, and keys that are not read


RECORDED = {
    **asdict(RECORD),
    "outcomes": {"deleted": {"objects": 1, "bytes": 2}},
    "in_quarantine": {"objects": 0, "bytes": 0},
    "terms": {"mode": "delete"},
    "ledger_digest": DIGEST,
    "previous": DIGEST,
}
UNREAD = ("policy_hash", "longest_window_seconds", "dump")
LATER = ("published", "ended_early", "terms", "in_quarantine")
DOCUMENTS = {
    "a record, for verify": Document(
        "records/00000001.json", RECORDED, lambda warehouse: list(read_records(warehouse, "orchard")), UNREAD + LATER
    ),
    "a record, for report": Document(
        "records/00000001.json",
        RECORDED,
        lambda warehouse: newest_of_day(warehouse, "orchard", DAY_OF_PLAN),
        UNREAD + LATER,
    ),
    "the newest record, for a lease": Document(
        "records/00000001.json", RECORDED, lambda warehouse: newest_fingerprint(warehouse, "orchard"), UNREAD + LATER
    ),
    "the current plan": Document(
        f"plans/{DAY_OF_PLAN}/current.json",
        PLAN.document(),
        lambda warehouse: load_plan(warehouse, "orchard", PLAN.day),
        ("repository", "first_wait_ends", "last_wait_ends", "reflog", "terms", "lost", "duplicates"),
    ),
    "a plan, by its hash": Document(
        f"plans/{DAY_OF_PLAN}/{MADE}.json",
        PLAN.document(),
        lambda warehouse: find_plan(warehouse, "orchard", HASH),
        ("repository", "first_wait_ends", "last_wait_ends", "reflog", "terms", "lost", "duplicates"),
    ),
    "the settings of the newest plan": Document(
        f"plans/{DAY_OF_PLAN}/{MADE}.json",
        {"terms": {"grace": "1d"}},
        lambda warehouse: last_terms(warehouse, "orchard"),
        ("terms",),
    ),
    "the heads of a plan": Document(
        f"planned_heads/{HASH}.json",
        asdict(Heads({"main": "a"}, {"v1": "b"})),
        lambda warehouse: planned_heads(warehouse, PLAN),
    ),
    "the newest lease": Document(
        "leases/00000001.json",
        {"holder": "a", "fence": 1, "at": TIME, "until": TIME, "released": False},
        lambda warehouse: lease_in_force(warehouse, "orchard", NOW),
    ),
    "the name of the newest memory": Document(
        "memory/newest.json",
        {"name": MADE, "seen_at": TIME},
        lambda warehouse: last_read_at(warehouse, "orchard"),
    ),
    "the heads of the memory": Document(
        f"memory/{MADE}/heads.json",
        {
            "seen_at": TIME,
            "heads": [{"kind": "branch", "name": "main", "commit_id": "a", "last_seen": TIME}],
            "includes": [MADE],
        },
        lambda warehouse: last_read_at(warehouse, "orchard"),
        ("includes",),
    ),
    "the name of the newest due objects": Document(
        "newest_due.json",
        {"name": MADE, "seen_at": MADE.partition("-")[0]},
        lambda warehouse: included_by(warehouse, PLAN),
    ),
    "the number of due objects": Document(
        f"due_objects/{MADE}/_rows.json",
        {"rows": 0, "seen_at": MADE.partition("-")[0], "seen_until": MADE.partition("-")[0], "includes": []},
        lambda warehouse: included_by(warehouse, PLAN),
        ("seen_at", "seen_until", "includes"),
    ),
    "the location of the tables": Document(
        "place.json",
        {"namespace": "s3://lake/orchard", "storage": "s3://lake/orchard"},
        lambda warehouse: are_of_location({}, warehouse, "orchard"),
    ),
    "a completed plan": Document(
        "completed/a.json", {"policy_run": "a-run"}, lambda warehouse: completed_runs(warehouse, "orchard")
    ),
    "the markers of quarantines": Document(
        "quarantine_directories.json",
        {"file:///attic": ".retention-quarantine-a"},
        lambda warehouse: marker_of(warehouse, "orchard", StoreAccess("file:///attic")),
        ("file:///attic",),
    ),
    "the missing objects": Document(
        "missing_live.json",
        {"guard": "live_listed", "at": TIME, "addresses": ["data/a"]},
        lambda warehouse: missing_addresses(warehouse, "orchard"),
        ("at", "addresses"),
    ),
    "the missing objects, for a sweep": Document(
        "missing_live.json",
        {"guard": "live_listed", "at": TIME, "addresses": ["data/a"]},
        lambda warehouse: noticed_as_lost(warehouse, "orchard", NOW),
        ("at", "addresses"),
    ),
    "the missing objects, for a plan": Document(
        "missing_live.json",
        {"guard": "live_listed", "at": TIME, "addresses": ["data/a"]},
        lambda warehouse: record_missing(warehouse, "orchard", "live_listed", (), NOW),
        ("at", "addresses"),
    ),
    "the manifest of a batch": Document(
        "ranges_ids/00000001-a/_batch.json",
        {"rows": {"part-a.parquet": 1}, "ids": {"part-b.parquet": 1}, "replaces": []},
        lambda warehouse: cache_batches(warehouse, "orchard", "ranges"),
    ),
    "the edits of a plan": Document(
        f"planned_edits/{HASH}.json",
        {"references": DIGEST, "edits": {}},
        lambda warehouse: planned_edits(warehouse, PLAN),
    ),
    "a publication": Document(
        f"publications/{HASH}/00000001.json",
        {"references_removed": ["refs/a"], "references_gone": [], "at": TIME},
        lambda warehouse: removed_references(warehouse, PLAN),
    ),
    "a publication that began": Document(
        f"publications/{HASH}/begun/00000001.json",
        {"intended": [], "marks": {"refs/a": "b"}, "at": TIME},
        lambda warehouse: interrupted_attempts(warehouse, PLAN),
        ("intended", "marks", "at"),
    ),
    "the metadata of a table": Document(
        f"addresses/{DAY_OF_PLAN}/_facts.json",
        PartitionMetadata(NOW, 3, "a-run").document(),
        lambda warehouse: warehouse.metadata_if_there("orchard", "addresses", DAY_OF_PLAN),
    ),
}
WRONG = [[1]]  # no key has such a value
REMEDY = r"Copy it from a backup of the warehouse|[Pp]lan again|Remove this file|retention stop orchard|Make it again"


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    made = Warehouse(str(tmp_path / "warehouse"))
    for table in (f"due_objects/{MADE}", "ranges/00000001-a", "ranges_ids/00000001-a"):
        made.mark_complete("orchard", *table.split("/"))
    return made


def write(warehouse: Warehouse, path: str, text: str) -> None:
    file = Path(warehouse.root, "orchard", path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def damages(document: Document) -> dict[str, str]:
    """Return contents of the file that the reader must refuse, by what is wrong."""
    content, needed = document.content, document.content.keys() - set(document.optional)
    without = {f"no {one}": {key: content[key] for key in content.keys() - {one}} for one in needed}
    unread = {*UNREAD, "intended", "at"} - needed if "records" in document.path or "begun" in document.path else ()
    wrong = {f"wrong {one}": {**content, one: WRONG} for one in content.keys() - set(unread)}
    texts = {name: json.dumps(one) for name, one in {**without, **wrong}.items()}
    if needed:
        texts["no key"] = "{}"
    return {**texts, "empty": "", "cut off": json.dumps(content)[:-1], "a list": "[]"}


@pytest.mark.parametrize("document", [pytest.param(one, id=name) for name, one in DOCUMENTS.items()])
def test_a_damaged_document_is_refused_with_its_file_and_a_remedy(warehouse: Warehouse, document: Document) -> None:
    for what, text in damages(document).items():
        write(warehouse, document.path, text)
        with pytest.raises(RetentionError, match=REMEDY) as refused:
            document.read(warehouse)
        is_named = document.path in str(refused.value)
        assert is_named or "the plan of 2026-11-01" in str(refused.value) or "addresses of 2026" in str(refused.value)
        assert "Nothing was" in str(refused.value), what
