"""The text output of `explain`."""

from datetime import date
from pathlib import Path

import pytest
from rich.console import Console

from retention_assets.cli import inspecting
from retention_assets.cli.inspecting import lines_of
from retention_assets.core.amounts import Amount
from retention_assets.core.keepers import Keeper
from retention_assets.explain.explaining import _relative
from retention_assets.explain.explanations import EntryState, Explanation, ObjectExplanation, Removal, UsedPlan
from retention_assets.explain.simulation import Forecast
from tests.assets.graph import configuration
from tests.frames import NOW
from tests.sweep.small_world import a_plan


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_an_object_may_be_asked_for_by_any_spelling_of_its_url(tmp_path: Path, scheme: str) -> None:
    repository = configuration(tmp_path, "orchard").repository("orchard")
    assert _relative(repository, f"{scheme}://lake/orchard/data/a/") == "data/a/"
    assert _relative(repository, f"{scheme}://other/data/a") == f"{scheme}://other/data/a"


def test_two_entries_with_one_path_are_both_printed() -> None:
    """One commit has the object by a relative address, another commit by an absolute one."""
    entries = tuple(EntryState("a/1", ("main",), NOW, commits, 1, (), None, None) for commits in (1, 4))
    one = ObjectExplanation("data/a", "kept", True, entries=entries)
    plan = UsedPlan(date(2026, 11, 1), "a" * 64, NOW, NOW, None)
    lines = list(lines_of(Explanation("orchard", "data/a", "address", plan, (one,)), NOW))
    assert [line for line in lines if "a/1" in line] == [
        "  at a/1: 1 commit has it, 1 of them active",
        "  at a/1: 4 commits have it, 1 of them active",
    ]


def test_a_reason_that_keeps_an_object_comes_after_its_path_and_its_end() -> None:
    until = Keeper(
        "branch", "main", "the head of branch main has it; then the lifecycle rule raw releases it", NOW, "a/1"
    )
    keepers = (until, Keeper("age", "data/a", "it is too young", None))
    plan = UsedPlan(date(2026, 11, 1), "a" * 64, NOW, NOW, None)
    one = ObjectExplanation("data/a", "kept", True, kept_by=keepers)
    lines = list(lines_of(Explanation("orchard", "data/a", "address", plan, (one,)), NOW))
    assert [line for line in lines if "because" in line] == [
        f"  kept at a/1, until {NOW:%Y-%m-%d %H:%M} UTC (today), because {until.detail}",
        "  kept because it is too young",
    ]


def test_an_object_that_was_brought_back_is_not_called_so_because_of_the_reason_of_the_plan() -> None:
    day = date(2026, 11, 1)
    removal = Removal(
        outcome="restored", at=NOW, detail=None, plan_hash="b" * 64, day=day, fence=3, reason="unreferenced",
        rule_ids=(), paths=(), due_since=None, approved_by=None, approved_at=None, record=None, run_id=None,
    )  # fmt: skip
    one = ObjectExplanation("data/a", "restored", True, reason="unreferenced", removal=removal)
    plan = UsedPlan(day, "a" * 64, NOW, NOW, None)
    lines = list(lines_of(Explanation("orchard", "data/a", "address", plan, (one,)), NOW))
    assert [line for line in lines if "because" in line] == ["    planned because no commit or snapshot has it"]
    assert f"  restored at {NOW:%Y-%m-%d %H:%M} UTC under the plan of 2026-11-01, {'b' * 64}" in lines


def test_a_forecast_under_two_policies_breaks_no_amount_at_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    day, amount = date(2026, 11, 1), Amount(123, 1_300)
    forecast = Forecast("a" * 64, day, day, {day: {"fruit/": amount}}, Amount(), amount)
    monkeypatch.setattr(inspecting, "screen", Console(width=80))
    inspecting._show(a_plan(), forecast, forecast)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.count("123, 1.3 KiB") for line in lines if "123" in line][:2] == [4, 2]
