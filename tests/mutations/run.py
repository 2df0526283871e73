"""Applies each mutation to a copy of the package and shows which test catches it.

    python -m tests.mutations.run [NAME...]    # part of a mutation's name; without any, all of them

Package and tests are copied to a temporary directory that comes first on PYTHONPATH. The checkout is only read. Exit
status: 0 when every mutation is caught, 1 when one survives, cannot be applied, or a test fails without it.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table

from tests.mutations.mutation import PROJECT, Mutation
from tests.mutations.record_results import FAILED, PASSED
from tests.mutations.table import MUTATIONS, ON_A_REAL_SERVER

TestResults = dict[str, tuple[str, str]]  # by test: the result, and the first line of its error
_COPIED = ("retention_assets", "tests", "pyproject.toml")
_CAUGHT = "caught"


@dataclass(frozen=True, slots=True)
class MutationResult:
    """The result of one mutation: `caught` or the problem, and the duration in seconds."""

    mutation: Mutation
    result: str
    seconds: float

    @property
    def is_caught(self) -> bool:
        """Whether every test that must catch the mutation failed."""
        return self.result == _CAUGHT


class MutatedCopy:
    """A copy of the project, to which mutations are applied."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in _COPIED:
            if (PROJECT / name).is_dir():
                shutil.copytree(PROJECT / name, root / name, ignore=shutil.ignore_patterns("*.pyc*"))
            else:
                shutil.copy2(PROJECT / name, root / name)

    @contextmanager
    def mutated_by(self, mutation: Mutation) -> Iterator[None]:
        """Apply a mutation for as long as the block lasts. Errors: ValueError when the source is not as expected."""
        file = self.root / mutation.file
        right, wrong = file.read_text(encoding="utf-8"), mutation.mutated(self.root)
        compiled = Path(cache_from_source(str(file)))
        try:
            compiled.unlink(missing_ok=True)
            file.write_text(wrong, encoding="utf-8")
            yield
        finally:
            compiled.unlink(missing_ok=True)
            file.write_text(right, encoding="utf-8")

    def run_tests(self, node_ids: Iterable[str]) -> TestResults:
        """Run tests of the copy in a new process, and return their results. A test that is not found has none."""
        answer = self.root / "answer.json"
        answer.unlink(missing_ok=True)
        done = subprocess.run(
            [sys.executable, "-m", "tests.mutations.record_results", str(answer), *node_ids],
            cwd=self.root,
            env={**os.environ, "PYTHONPATH": str(self.root)},
            capture_output=True,
            text=True,
            check=False,
        )
        if not answer.exists():
            raise SystemExit(f"the tests did not run:\n{done.stdout}{done.stderr}")
        results = json.loads(answer.read_text(encoding="utf-8"))
        if not Path(results["package"]).is_relative_to(self.root.resolve()):
            raise SystemExit(f"the tests ran on {results['package']}, not on the copy in {self.root}")
        return {node_id: (outcome, words) for node_id, (outcome, words) in results["tests"].items()}


def run_mutation(copy: MutatedCopy, mutation: Mutation) -> MutationResult:
    """Apply one mutation, run its tests, and return the result."""
    started = time.perf_counter()
    try:
        with copy.mutated_by(mutation):
            result = _summary(mutation, copy.run_tests(mutation.caught_by))
    except ValueError as error:
        result = str(error)
    return MutationResult(mutation, result, time.perf_counter() - started)


def _summary(mutation: Mutation, run_tests: TestResults) -> str:
    for node_id in mutation.caught_by:
        outcome, words = run_tests.get(node_id, ("not there", ""))
        if outcome == PASSED:
            return f"survives: {_short(node_id)} passes"
        if outcome != FAILED:
            return f"{_short(node_id)} does not decide: {outcome} {words}"
    return _CAUGHT


def table_of(results: Sequence[MutationResult]) -> Table:
    """Return the results as a table for the terminal."""
    table = Table(
        Column("mutation", ratio=2), Column("caught by", overflow="fold", ratio=3), "seconds", show_lines=True
    )
    for result in results:
        names = "\n".join(_short(node_id) for node_id in result.mutation.caught_by)
        caught_by = names if result.is_caught else f"[bold red]{result.result}"
        table.add_row(f"{result.mutation.name}\n[dim]{result.mutation.file}", caught_by, f"{result.seconds:.1f}")
    return table


def _short(node_id: str) -> str:
    file, _, name = node_id.partition("::")
    return f"{Path(file).name}::{name}".replace("[", r"\[")


def main(names: Sequence[str]) -> int:
    """Run the mutations whose names contain one of `names`, print the results, and return the exit status."""
    console = Console()
    possible = MUTATIONS if shutil.which("lakefs") else [one for one in MUTATIONS if one not in ON_A_REAL_SERVER]
    chosen = [one for one in possible if not names or any(name in one.name for name in names)]
    with tempfile.TemporaryDirectory() as directory, console.status("without any mutation") as status:
        copy = MutatedCopy(Path(directory))
        wanted = sorted({node_id for mutation in chosen for node_id in mutation.caught_by})
        unchanged = copy.run_tests(wanted)
        unfit = [node_id for node_id in wanted if unchanged.get(node_id, ("", ""))[0] != PASSED]
        results = []
        for number, mutation in enumerate(chosen if not unfit else (), start=1):
            status.update(f"{number} of {len(chosen)}: {mutation.name}")
            results.append(run_mutation(copy, mutation))
    for node_id in unfit:
        console.print(f"[red]{_short(node_id)} does not pass without a mutation: {unchanged.get(node_id, 'not found')}")
    console.print(table_of(results))
    caught = sum(result.is_caught for result in results)
    console.print(f"{caught} of {len(chosen)} mutations are caught")
    return 0 if chosen and caught == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
