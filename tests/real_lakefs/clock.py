"""A clock that a test moves. lakeFS reads it from a file, and the code under test gets it as an argument."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path


@dataclass(frozen=True, slots=True)
class MovedClock:
    """This machine's clock plus the number of seconds in a file, which lakeFS reads too (CLOCK_FILE)."""

    file: Path

    def __call__(self) -> datetime:
        """Return the time of the clock, UTC."""
        return datetime.now(UTC) + timedelta(seconds=self._offset())

    def set_back(self, days: float) -> None:
        """Set the clock to the time of so many days ago."""
        self._write(-int(days * 86_400))

    def forward(self, *, days: float = 0, hours: float = 0, seconds: float = 0) -> datetime:
        """Move the clock forward, never beyond this machine's time, and return the new time."""
        offset = self._offset() + int(timedelta(days=days, hours=hours, seconds=seconds).total_seconds())
        if offset > 0:
            raise ValueError(f"the clock would be {offset} seconds in the future: start the history earlier")
        self._write(offset)
        return self()

    def left(self) -> timedelta:
        """Return the duration by which the clock can still move forward."""
        return timedelta(seconds=-self._offset())

    def forward_to(self, hour: int) -> datetime:
        """Move the clock forward to the next time that it is `hour` o'clock, UTC."""
        now = self()
        ahead = now.replace(hour=hour, minute=0, second=0, microsecond=0) - now
        return self.forward(seconds=(ahead % timedelta(days=1)).total_seconds() + 1)

    def _offset(self) -> int:
        return int(self.file.read_text(encoding="utf-8"))

    def _write(self, offset: int) -> None:
        whole = self.file.with_suffix(".new")
        whole.write_text(str(offset), encoding="utf-8")
        whole.replace(self.file)
