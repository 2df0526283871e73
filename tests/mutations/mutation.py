"""A mutation: one fault put into the source, and the tests that must notice it."""

from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Mutation:
    """A fault: in `file`, `old`, which stands there once, becomes `new`. Each test of `caught_by` must then fail.

    `also`: more such pairs of the same file, for a promise that two places keep.
    """

    name: str
    breaks: str  # what does not hold any more
    file: str  # relative to the project
    old: str
    new: str
    caught_by: tuple[str, ...]  # pytest's node ids
    also: tuple[tuple[str, str], ...] = ()

    def mutated(self, project: Path = PROJECT) -> str:
        """Return the file's text with the fault in it. Errors: ValueError when the source is not as expected."""
        text = (project / self.file).read_text(encoding="utf-8")
        for old, new in ((self.old, self.new), *self.also):
            times = text.count(old)
            if times != 1:
                raise ValueError(
                    f"{self.name}: the text to be changed stands {times} times in {self.file}, not once: {old!r}"
                )
            text = text.replace(old, new)
        return text
