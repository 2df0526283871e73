"""Random histories on a real server lose nothing and leave no garbage; see the package's docstring."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.random_histories.rounds import MIXED, PROFILES, Round
from tests.real_lakefs.server import Server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800), pytest.mark.usefixtures("spark", "forgetful")]

FIRST = int(os.environ.get("RANDOM_HISTORIES_SEED", "1"))
ROUNDS = int(os.environ.get("RANDOM_HISTORIES_ROUNDS", "12"))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + ROUNDS))
def test_a_random_history_loses_nothing_and_leaves_no_garbage(
    request: pytest.FixtureRequest, tmp_path: Path, note_for_summary: Callable[[str], None], seed: int
) -> None:
    started = time.monotonic()
    server: Server = request.getfixturevalue("lakefs" if seed % 3 else "lakefs_on_s3")
    one = Round(seed, MIXED, server, tmp_path)
    one.run()
    share = one.stayed / one.garbage if one.garbage else 0.0
    description = f"{one.stayed} of {one.garbage} objects that nothing holds stay ({share:.1%})"
    note_for_summary(f"seed {seed}: nothing is lost; {description}; {time.monotonic() - started:.0f} s")


@pytest.mark.parametrize("profile", PROFILES)
def test_a_history_that_is_full_of_one_thing_loses_nothing(
    request: pytest.FixtureRequest, tmp_path: Path, profile: str
) -> None:
    chosen = PROFILES[profile]
    server: Server = request.getfixturevalue("lakefs_on_s3" if chosen.on_s3 else "lakefs")
    Round(FIRST, chosen, server, tmp_path).run()
