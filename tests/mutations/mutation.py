"""A mutation: one deliberate fault in the source, and the tests that must fail with it."""

from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Mutation:
    """A fault: in `file`, the text `old`, which is there once, is replaced by `new`. Then all of `caught_by` must fail.

    `also`: further pairs of old and new text in the same file, for a promise that two pieces of code keep.
    """

    name: str
    breaks: str  # the broken promise
    file: str  # relative to the project
    old: str
    new: str
    caught_by: tuple[str, ...]  # pytest's node ids
    also: tuple[tuple[str, str], ...] = ()

    def mutated(self, project: Path = PROJECT) -> str:
        """Return the file's text with the fault. Errors: ValueError when the source is not as expected."""
        text = (project / self.file).read_text(encoding="utf-8")
        for old, new in ((self.old, self.new), *self.also):
            times = text.count(old)
            if times != 1:
                raise ValueError(
                    f"{self.name}: the text to be changed stands {times} times in {self.file}, not once: {old!r}"
                )
            text = text.replace(old, new)
        return text
