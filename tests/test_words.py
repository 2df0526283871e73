"""Names in the package are the field's own: no identifier is one of the private words that they replaced."""

import io
import tokenize
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "retention_assets"
REPLACED = {
    "Deed": "Action",
    "deed": "action",
    "deeds": "actions",
    "Doer": "OpenAction",
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
    "Question": "LivenessQuery",
    "question": "query",
}


def names_in(path: Path) -> set[str]:
    with tokenize.open(path) as file:
        source = io.StringIO(file.read())
    return {token.string for token in tokenize.generate_tokens(source.readline) if token.type == tokenize.NAME}


@pytest.mark.parametrize("folder", sorted(path.name for path in PACKAGE.iterdir() if path.is_dir()))
def test_no_name_is_a_word_that_was_replaced(folder: str) -> None:
    found = {path: names_in(path) & REPLACED.keys() for path in (PACKAGE / folder).rglob("*.py")}
    told = {str(path.relative_to(PACKAGE)): sorted(names) for path, names in found.items() if names}
    assert not told, "say it as in " + str({name: REPLACED[name] for names in told.values() for name in names})


def test_no_module_is_named_by_a_word_that_was_replaced() -> None:
    assert not {path.stem for path in PACKAGE.rglob("*.py")} & REPLACED.keys()
