"""Puts each mutation into a copy of the package and shows which test notices it.

    python -m tests.mutations.run [NAME...]    # part of a mutation's name; without any, all of them

Package and tests are copied to a temporary directory that comes first on PYTHONPATH; the checkout is only read. Exit
status: 0 when every mutation is caught, 1 when one survives, cannot be put in, or a test fails without it.
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
from tests.mutations.table import MUTATIONS, ON_A_REAL_SERVER
from tests.mutations.witness import FAILED, PASSED

Saw = dict[str, tuple[str, str]]  # what became of each test, and in which words
_COPIED = ("retention_assets", "tests", "pyproject.toml")
_CAUGHT = "caught"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one mutation: `caught`, or what is wrong with it, and how many seconds it took."""

    mutation: Mutation
    result: str
    seconds: float

    @property
    def is_caught(self) -> bool:
        """Whether every test that is to notice the mutation did."""
        return self.result == _CAUGHT


class Ground:
    """A copy of the project to put faults into."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in _COPIED:
            if (PROJECT / name).is_dir():
                shutil.copytree(PROJECT / name, root / name, ignore=shutil.ignore_patterns("*.pyc*"))
            else:
                shutil.copy2(PROJECT / name, root / name)

    @contextmanager
    def broken_by(self, mutation: Mutation) -> Iterator[None]:
        """Have the fault in for as long as the block lasts. Errors: ValueError when the source is not as expected."""
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

    def saw(self, node_ids: Iterable[str]) -> Saw:
        """Run tests here in a process of their own, and return what became of them; of one not found, nothing."""
        answer = self.root / "answer.json"
        answer.unlink(missing_ok=True)
        done = subprocess.run(
            [sys.executable, "-m", "tests.mutations.witness", str(answer), *node_ids],
            cwd=self.root,
            env={**os.environ, "PYTHONPATH": str(self.root)},
            capture_output=True,
            text=True,
            check=False,
        )
        if not answer.exists():
            raise SystemExit(f"the tests did not run:\n{done.stdout}{done.stderr}")
        told = json.loads(answer.read_text(encoding="utf-8"))
        if not Path(told["package"]).is_relative_to(self.root.resolve()):
            raise SystemExit(f"the tests ran on {told['package']}, not on the copy in {self.root}")
        return {node_id: (became, words) for node_id, (became, words) in told["tests"].items()}


def tried(ground: Ground, mutation: Mutation) -> Verdict:
    """Put one mutation in, and return whether its tests notice."""
    started = time.perf_counter()
    try:
        with ground.broken_by(mutation):
            result = _result(mutation, ground.saw(mutation.caught_by))
    except ValueError as error:
        result = str(error)
    return Verdict(mutation, result, time.perf_counter() - started)


def _result(mutation: Mutation, saw: Saw) -> str:
    for node_id in mutation.caught_by:
        became, words = saw.get(node_id, ("not there", ""))
        if became == PASSED:
            return f"survives: {_short(node_id)} passes"
        if became != FAILED:
            return f"{_short(node_id)} is no verdict: {became} {words}"
    return _CAUGHT


def shown(verdicts: Sequence[Verdict]) -> Table:
    """Return the table that people read."""
    table = Table(
        Column("mutation", ratio=2), Column("caught by", overflow="fold", ratio=3), "seconds", show_lines=True
    )
    for verdict in verdicts:
        names = "\n".join(_short(node_id) for node_id in verdict.mutation.caught_by)
        told = names if verdict.is_caught else f"[bold red]{verdict.result}"
        table.add_row(f"{verdict.mutation.name}\n[dim]{verdict.mutation.file}", told, f"{verdict.seconds:.1f}")
    return table


def _short(node_id: str) -> str:
    file, _, name = node_id.partition("::")
    return f"{Path(file).name}::{name}".replace("[", r"\[")


def main(names: Sequence[str]) -> int:
    """Try the mutations whose names contain one of `names`, show what came of them, and return the exit status."""
    console = Console()
    possible = MUTATIONS if shutil.which("lakefs") else [one for one in MUTATIONS if one not in ON_A_REAL_SERVER]
    chosen = [one for one in possible if not names or any(name in one.name for name in names)]
    with tempfile.TemporaryDirectory() as directory, console.status("without any mutation") as status:
        ground = Ground(Path(directory))
        wanted = sorted({node_id for mutation in chosen for node_id in mutation.caught_by})
        saw = ground.saw(wanted)
        unfit = [node_id for node_id in wanted if saw.get(node_id, ("", ""))[0] != PASSED]
        verdicts = []
        for number, mutation in enumerate(chosen if not unfit else (), start=1):
            status.update(f"{number} of {len(chosen)}: {mutation.name}")
            verdicts.append(tried(ground, mutation))
    for node_id in unfit:
        console.print(f"[red]{_short(node_id)} does not pass without a mutation: {saw.get(node_id, 'not found')}")
    console.print(shown(verdicts))
    caught = sum(verdict.is_caught for verdict in verdicts)
    console.print(f"{caught} of {len(chosen)} mutations are caught")
    return 0 if chosen and caught == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
