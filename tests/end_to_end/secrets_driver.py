"""Plans, approves, sweeps and verifies each repository in one process, and searches its files for secrets meanwhile.

Usage: `python -m tests.end_to_end.secrets_driver ROOT DAY CONFIGURATION...`. Variables whose names begin with CANARY
have the secrets. Prints one JSON document: statuses, output, and where secrets were found.
"""

import json
import os
import sys
import time
from pathlib import Path
from threading import Event, Thread
from urllib.parse import quote

import dagster as dg
import yaml
from dagster._core.remote_representation.external_data import RepositorySnap

from retention_assets.config.configuration import load_configuration
from retention_assets.definitions import build_definitions
from tests.end_to_end.command import Answer, run

_INTERVAL = 0.3  # seconds between two searches of the files


class Watcher:
    """Reads every file below a directory when it appears or changes, since many exist only for a moment."""

    def __init__(self, root: Path, canaries: list[bytes]) -> None:
        self.found: set[str] = set()
        self.seen: dict[Path, tuple[int, int]] = {}
        self._root, self._canaries = root, canaries
        self._over = Event()
        self._thread = Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Watcher":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
        self.read_changes()

    def read_changes(self) -> None:
        """Read new and changed files."""
        for directory, _, names in os.walk(self._root):
            for name in names:
                path = Path(directory) / name
                try:
                    stat = path.stat()
                    stamp = (stat.st_size, stat.st_mtime_ns)
                    if self.seen.get(path) != stamp:
                        self.seen[path] = stamp
                        content = path.read_bytes()
                        self.found |= {str(path) for canary in self._canaries if canary in content}
                except OSError:  # gone meanwhile
                    continue

    def _watch(self) -> None:
        while not self._over.is_set():
            self.read_changes()
            time.sleep(_INTERVAL)


def command_lines() -> bytes:
    """Return the command lines of all processes on this machine."""
    found = b""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += path.read_bytes()
        except OSError:
            continue
    return found


def run_all(file: Path, day: str) -> list[Answer]:
    """Plan, approve, sweep, verify, and restore and purge if possible. Return the answers."""
    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    ((name, settings),) = document["repositories"].items()
    plan = run("--config", file, "plan", name, "--json", "--as-of", day)
    if plan.status:
        return [plan]
    plan_hash = plan.document()["plan_hash"]
    commands = (("approve", name, plan_hash), ("sweep", name), ("report", name), ("verify", name))
    done = [plan, *(run("--config", file, *command, "--as-of", day) for command in commands)]
    after = [("housekeeping", name), ("status",)]
    if settings["mode"] == "quarantine":
        after += [("quarantined", name), ("restore", name, "--plan", plan_hash), ("purge", name)]
    return [*done, *(run("--config", file, *command) for command in after)]


def main() -> None:
    """Run the program; see the module."""
    root, day, *files = sys.argv[1:]
    secrets = [value for name, value in os.environ.items() if name.startswith("CANARY")]
    canaries = [text.encode() for one in secrets for text in (one, quote(one, safe=""), quote(one))]
    answers: list[Answer] = []
    shown = ""
    with Watcher(Path(root), canaries) as watcher:
        for file in map(Path, files):
            answers += run_all(file, day)
            definitions = build_definitions(load_configuration(file))
            shown += dg.serialize_value(RepositorySnap.from_def(definitions.get_repository_def()))
        arguments = command_lines()
    output = "".join(answer.out + answer.err for answer in answers)
    document = {
        "statuses": [answer.status for answer in answers],
        "output": output,
        "files": sorted(map(str, watcher.seen)),
        "found_in_files": sorted(watcher.found),
        "found_in_snapshots": any(canary.decode() in shown for canary in canaries),
        "found_in_arguments": any(canary in arguments for canary in canaries),
        "found_in_output": any(canary.decode() in output for canary in canaries),
        "shown": len(shown),
    }
    json.dump(document, sys.stdout)


if __name__ == "__main__":
    main()
