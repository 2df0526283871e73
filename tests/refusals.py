"""Finds errors of the package that no test provokes, and messages without a remedy.

With `REFUSALS=FOLDER` in its environment, pytest records every error of the package that a test causes, with its line
of code and its text. `python -m tests.refusals FOLDER...` compares them with the messages on the generated page of
errors. It lists the messages that no test provoked, and the texts that do not say what was not done, or have no remedy.
"""

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from retention_assets import errors
from scripts.docs_reference import PACKAGE, Message, messages

# Errors of runs. A mistake in the configuration (`ConfigurationError`) is refused before anything is done.
OF_RUNS = ("GuardRefused", "SourceError", "StoreError", "AccessDenied", "CorruptFile", "TableContractError")


@dataclass(frozen=True, slots=True)
class Provoked:
    """An error that a test provoked: its class, its path below the package, its line, and its text."""

    error: str
    module: str
    line: int
    text: str


def record(folder: Path) -> None:
    """From now on, write each error of the project to `folder`, one file per process."""
    seen: set[Provoked] = set()
    folder.mkdir(parents=True, exist_ok=True)

    def new(kind: type[errors.RetentionError], *values: Any, **named: Any) -> errors.RetentionError:
        made = Exception.__new__(kind, *values, **named)
        frame = sys._getframe(1)
        if values and isinstance(values[0], str) and (place := _in_package(frame)):
            one = Provoked(_shown(kind), place, frame.f_lineno, values[0])
            if one not in seen:
                seen.add(one)
                with (folder / f"{os.getpid()}.jsonl").open("a", encoding="utf-8") as out:
                    out.write(json.dumps(asdict(one)) + "\n")
        return made

    errors.RetentionError.__new__ = new  # type: ignore[method-assign,assignment]


def recorded(folders: Iterable[Path]) -> Iterator[Provoked]:
    """Yield the errors that tests recorded in `folders`."""
    for folder in folders:
        for file in sorted(folder.glob("*.jsonl")):
            for line in file.read_text(encoding="utf-8").splitlines():
                yield Provoked(**json.loads(line))


def never_provoked(provoked: Iterable[Provoked]) -> list[Message]:
    """Return the messages of the code that are not among `provoked`."""
    places = {(one.module, one.line) for one in provoked}
    return [one for one in messages() if (one.module, one.line) not in places]


# Words by which a message says what was not done. Other messages are about partial results: they name the rest.
UNDONE = (
    r"\b(Nothing|No|None|It|They|Some|Its|What|This|Only|The \w+)\b[^.]*\b(was|were|is|are|stands|begun|can)\b"
    r"|was not (deleted|copied)|could not be|Whether it was (written|deleted) is unknown"
)
_UNDONE = re.compile(UNDONE)
# A text that ends so has no remedy.
ENDS_UNDONE = re.compile(r"\b(Nothing|No \w+|It|The \w+) (was|were|is) [^.]*\.$")


def is_silent(one: Provoked) -> bool:
    """Return whether the text of an error does not say what was not done, or has no remedy."""
    if one.error not in OF_RUNS or one.module == "errors.py" or one.text.endswith("No action is needed."):
        return False  # `errors.py` only makes again what a worker raised
    return not _UNDONE.search(one.text) or bool(ENDS_UNDONE.search(one.text)) or ". " not in one.text


def _shown(kind: type[errors.RetentionError]) -> str:
    return next(one.__name__ for one in kind.__mro__ if one.__module__ == errors.__name__)


def _in_package(frame: FrameType) -> str:
    """Return the path of the frame's code below the package; empty if it lies elsewhere."""
    file = Path(frame.f_code.co_filename)
    return str(file.relative_to(PACKAGE)) if file.is_relative_to(PACKAGE) else ""


def main(folders: list[str]) -> int:
    """Print the findings; return 1 if there are any."""
    provoked = list(recorded(map(Path, folders)))
    missing = never_provoked(provoked)
    silent = sorted({one for one in provoked if is_silent(one)}, key=lambda one: (one.module, one.line))
    lines = [f"not provoked by a test: {one.module}:{one.line}: {one.error}: {one.text}" for one in missing]
    lines += [f"says too little: {one.module}:{one.line}: {one.error}: {one.text}" for one in silent]
    lines += [f"{len(messages()) - len(missing)} of {len(messages())} messages were provoked"]
    sys.stdout.write("\n".join([*lines, ""]))
    return 1 if missing or silent else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
