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
def test_a_mutation_changes_one_place_of_the_source_and_leaves_it_python(mutation: Mutation) -> None:
    before = (PROJECT / mutation.file).read_text(encoding="utf-8")
    assert ast.dump(ast.parse(mutation.mutated())) != ast.dump(ast.parse(before))


def test_a_text_that_is_not_there_is_an_error() -> None:
    gone = Mutation("gone", "nothing", MUTATIONS[0].file, "no such text", "", ())
    with pytest.raises(ValueError, match=r"stands 0 times in retention_assets/.*, not once"):
        gone.mutated()


def test_mutations_differ_by_name_and_by_what_they_change() -> None:
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS)
    assert len({(mutation.file, mutation.old, mutation.new) for mutation in MUTATIONS}) == len(MUTATIONS)


def test_the_tests_that_must_notice_them_are_there(request: pytest.FixtureRequest) -> None:
    named = {node_id for mutation in MUTATIONS for node_id in mutation.caught_by}
    named -= deselected.union(test.nodeid for test in request.session.items)
    if named:  # this run collected only some of the tests
        asked = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *sorted(named)]
        done = subprocess.run(asked, cwd=PROJECT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert named == {line for line in done.stdout.splitlines() if "::" in line}
