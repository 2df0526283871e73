"""No name in the package or the tests is one of the private words that were replaced by terms of the field."""

import io
import tokenize
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "retention_assets"
REPLACED = {
    "ObjectAnswer": "ObjectExplanation",
    "PlanSeen": "UsedPlan",
    "CommitSeen": "CommitState",
    "EntrySeen": "EntryState",
    "SweepSeen": "LastSweep",
    "_last_picture": "_last_inventory",
    "_carried": "_reused_rows",
    "_DUMP_PATIENCE": "_DUMP_TIMEOUT",
    "_judged": "_checked_response",
    "left_heads": "gone_heads",
    "spellings": "namespace_urls",
    "_named_at": "_references_at",
    "Deed": "Action",
    "deed": "action",
    "deeds": "actions",
    "failure_told": "failure_of_response",
    "_tell_of_recent": "_log_recent",
    "_NOT_SAID": "_AMBIGUOUS_404",
    "passing": "retryable",
    "_unclear": "ambiguous",
    "retry_alone": "retry_singly",
    "with_manifests_alone": "with_only_manifests",
    "together": "sum_of",
    "Patience": "RetryPolicy",
    "patience": "retry_policy",
    "portion": "batch_size",
    "_pace": "_rate_limiter",
    "_quiet_until": "_backoff_until",
    "_in_time": "_before_deadline",
    "_GLANCE": "_POLL_SECONDS",
    "group_bytes": "chunk_bytes",
    "_groups_of": "_chunks_of",
    "ENDED": "FINISHED",
    "ended_of": "finished_of",
    "EndedEngine": "UndoEngine",
    "_orders": "_task_of",
    "require_standing": "require_current_plan",
    "_FACTS": "_COMPARED_COLUMNS",
    "_carry": "_execute",
    "_carrier": "_copy_strategy",
    "span_for": "duration_for",
    "_require_one_span_per_branch": "_require_one_duration_per_branch",
    "TAG_SPAN": "TAG_DURATION",
    "QuarantinePlace": "QuarantineLocation",
    "place_of_plan": "quarantine_of_plan",
    "LedgerPlace": "LedgerLocation",
    "due_objects_place": "due_objects_location",
    "require_same_place": "require_same_location",
    "place_of": "directory_prefix",
    "note_completed": "record_completed",
    "note_found": "record_found",
    "note_missing": "record_missing",
    "noted_copies": "verified_copies",
    "note_copies": "write_copies",
    "objects_noted": "objects_recorded",
    "_noted": "_recorded",
    "_same_place": "_same_storage",
    "INSTANT": "TIMESTAMP",
    "_LAST_INSTANT": "_LATEST_TIMESTAMP",
    "_instant": "_timestamp",
    "Lying": "QuarantineListing",
    "lying": "list_quarantine",
    "Doer": "Action",
    "OpenAction": "Action",
    "noncurrent_versions": "all_versions",
    "doer": "open_action",
    "Doomed": "DeleteTarget",
    "doomed": "to_delete",
    "Verdict": "CheckResult",
    "verdict": "check_result",
    "verdicts": "check_results",
    "saw": "detail",
    "complaints": "violations",
    "Horizon": "AgeCutoff",
    "horizon": "age_cutoff",
    "passed_by": "is_older",
    "clears": "is_eligible",
    "Evidence": "VerificationInputs",
    "evidence": "inputs",
    "prove": "verify",
    "Pictures": "PlanInputs",
    "pictures": "inputs",
    "take_picture": "take_snapshot",
    "Studio": "InventoryContext",
    "judge": "classify",
    "judged": "classified",
    "Judgement": "Classification",
    "judgement": "classification",
    "Examination": "CheckSummary",
    "examine": "run_checks",
    "Orders": "TaskSpec",
    "orders": "task",
    "Carried": "SweepResult",
    "carry_out": "execute",
    "Charge": "SweepRun",
    "charge": "run",
    "Pace": "RateLimiter",
    "pace": "rate_limiter",
    "InTime": "BeforeDeadline",
    "in_time": "before_deadline",
    "Carrier": "CopyStrategy",
    "carrier": "copy_strategy",
    "Holdings": "CommittedContents",
    "kept_now": "live_now",
    "Workbench": "RepositoryResource",
    "bench": "resource",
    "Facts": "PartitionMetadata",
    "facts": "metadata",
    "Scene": "PlanBasis",
    "scene": "basis",
    "Stand": "RetainedSet",
    "stand": "retained",
    "StoragePicture": "InventorySnapshot",
    "history_notes": "history_details",
    "Question": "LivenessQuery",
    "question": "query",
    "Desk": "recorded_change",
    "desk": "context",
    "complaint": "violation",
    "instant_of": "datetime_of",
    "unguarded_writers": "unconditional_writes_warning",
    "carry_out_v1": "apply_edits_v1",
    "manifests_whole": "manifests_complete",
    "inline_place": "inline_position",
    "holders": "snapshot_ids",
    "_holders": "_snapshots_with",
    "_standing": "_state",
    "_tell": "_show_undone",
    "_tell_more": "_say_more",
}


def names_in(path: Path) -> set[str]:
    with tokenize.open(path) as file:
        source = io.StringIO(file.read())
    return {token.string for token in tokenize.generate_tokens(source.readline) if token.type == tokenize.NAME}


@pytest.mark.parametrize(
    "folder", [TESTS, *sorted(path for path in PACKAGE.iterdir() if path.is_dir())], ids=lambda path: path.name
)
def test_no_name_is_a_word_that_was_replaced(folder: Path) -> None:
    found = {path: names_in(path) & REPLACED.keys() for path in folder.rglob("*.py")}
    by_module = {str(path.relative_to(TESTS.parent)): sorted(names) for path, names in found.items() if names}
    assert not by_module, (
        f"use these words: { {name: REPLACED[name] for names in by_module.values() for name in names} }"
    )


@pytest.mark.parametrize("folder", [TESTS, PACKAGE], ids=lambda path: path.name)
def test_no_module_is_named_by_a_word_that_was_replaced(folder: Path) -> None:
    assert not {path.stem for path in folder.rglob("*.py")} & REPLACED.keys()
