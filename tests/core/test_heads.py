"""Whether new commits alone moved a branch while branches and tags were read."""

import pytest

from retention_assets.core.heads import moved_on_by_commits

PARENTS = {"b": "a", "c": "b", "d": "c", "side": "a"}


@pytest.mark.parametrize(
    ("head", "earlier", "known", "expected"),
    [
        pytest.param("c", "c", "abc", True, id="not_moved"),
        pytest.param("d", "c", "abc", True, id="one_commit"),
        pytest.param("d", "a", "a", True, id="several_commits"),
        pytest.param("a", "c", "abc", False, id="reset_to_an_ancestor"),
        pytest.param("d", "b", "abc", False, id="reset_to_a_descendant_and_a_commit"),
        pytest.param("c", "b", "abc", False, id="reset_to_a_descendant"),
        pytest.param("side", "c", "abc", False, id="reset_to_a_new_commit_beside"),
        pytest.param("new", "c", "abc", False, id="a_commit_without_a_known_parent"),
    ],
)
def test_only_new_commits_move_a_branch_on(head: str, earlier: str, known: str, expected: bool) -> None:
    assert moved_on_by_commits(head, earlier, PARENTS.get, known) is expected
