"""Full hashes are printed, also on a screen of 80 columns, so that they can be copied."""

from dataclasses import replace
from datetime import date, timedelta
from io import StringIO

import pytest
from rich.console import Console

from retention_assets.cli import group, undoing
from retention_assets.cli.comparing import show_plans
from retention_assets.core.amounts import Amount
from tests.explain.test_status import a_plan

COLUMNS = 80
FIRST = replace(a_plan(), plan_hash="1" * 64, policy_hash="2" * 64, references_hash="3" * 64)
SECOND = replace(FIRST, plan_hash="4" * 64, policy_hash="5" * 64, day=FIRST.day + timedelta(days=1))


@pytest.fixture
def screen() -> Console:
    return Console(file=StringIO(), width=COLUMNS)


def lines_on(screen: Console) -> list[str]:
    assert isinstance(screen.file, StringIO)
    return screen.file.getvalue().splitlines()


def test_two_plans_are_shown_with_full_hashes(screen: Console) -> None:
    show_plans(screen, FIRST, SECOND)
    shown = lines_on(screen)
    for name in ("1", "2", "3", "4", "5"):
        assert sum(line.endswith(f" {name * 64}") for line in shown) == 1  # the second's references are "the same"
    assert "    references the same" in shown
    assert max(map(len, shown)) <= COLUMNS


def test_each_plan_in_quarantine_is_shown_with_its_full_hash(screen: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "screen", screen)
    undoing.print_by_plan("orchard: in quarantine", [(f"{date(2026, 11, 1)} {'a' * 64}", Amount(59, 2**20))])
    assert lines_on(screen) == ["orchard: in quarantine", f"plan 2026-11-01 {'a' * 64}", "    59 objects, 1.0 MiB"]
    assert max(map(len, lines_on(screen))) <= COLUMNS
