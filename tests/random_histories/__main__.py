"""Runs random histories: python -m tests.random_histories --rounds 100 --seed 1. Exit status: as pytest's."""

import argparse
import os
import random
import sys
from pathlib import Path

import pytest


def main() -> int:
    """Run the rounds in two processes, and print the seed of each."""
    parser = argparse.ArgumentParser(prog="python -m tests.random_histories", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="of the first round")
    parser.add_argument("--processes", type=int, default=2)
    chosen = parser.parse_args()
    os.environ["RANDOM_HISTORIES_ROUNDS"] = str(chosen.rounds)
    os.environ["RANDOM_HISTORIES_SEED"] = str(chosen.seed)
    processes = ["-n", str(chosen.processes)] if chosen.processes > 1 else []
    return pytest.main([str(Path(__file__).parent), "-k", "random_history", "-v", "-m", "slow", *processes])


if __name__ == "__main__":
    sys.exit(main())
