"""Every mutation can be applied, and the tests that must catch it exist. `run` checks that they catch it."""

import ast
import subprocess
import sys

import pytest

from tests.conftest import deselected
from tests.mutations.mutation import PROJECT, Mutation
from tests.mutations.table import MUTATIONS

by_name = pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)


@by_name
def test_a_mutation_changes_the_source_once_and_leaves_valid_python(mutation: Mutation) -> None:
    before = (PROJECT / mutation.file).read_text(encoding="utf-8")
    assert ast.dump(ast.parse(mutation.mutated())) != ast.dump(ast.parse(before))


def test_a_mutation_whose_text_is_missing_from_the_source_is_an_error() -> None:
    gone = Mutation("gone", "nothing", MUTATIONS[0].file, "no such text", "", ())
    with pytest.raises(ValueError, match=r"stands 0 times in retention_assets/.*, not once"):
        gone.mutated()


def test_no_two_mutations_have_the_same_name_or_the_same_change() -> None:
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS)
    assert len({(mutation.file, mutation.old, mutation.new) for mutation in MUTATIONS}) == len(MUTATIONS)


def test_the_tests_that_must_catch_the_mutations_exist(request: pytest.FixtureRequest) -> None:
    named = {node_id for mutation in MUTATIONS for node_id in mutation.caught_by}
    named -= deselected.union(test.nodeid for test in request.session.items)
    if named:  # this run collected only some of the tests
        asked = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *sorted(named)]
        done = subprocess.run(asked, cwd=PROJECT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert named == {line for line in done.stdout.splitlines() if "::" in line}
