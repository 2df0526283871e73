"""The text output of `explain`."""

from datetime import date

from retention_assets.cli.inspecting import lines_of
from retention_assets.explain.explanations import EntryState, Explanation, ObjectExplanation, UsedPlan
from tests.frames import NOW


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
