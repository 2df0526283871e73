"""Runs with optimized listing over weeks of uploads, commits, resets and sweeps find what a full listing finds.

A model has the objects of the store and their references, so it knows the candidates without the package.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from retention_assets.core.age import AgeCutoff
from retention_assets.core.settle import candidates
from retention_assets.lakefs.names.columns import issued_at
from retention_assets.lakefs.rules.candidates import classified, commits_by_address, due, with_names
from retention_assets.lakefs.source.inventory_snapshot import InventorySnapshot
from retention_assets.objectstore.outcomes import Outcome
from retention_assets.warehouse.warehouse import Warehouse
from tests.acceptance.runs import Found, Run, found_in, objects_in, write_ledger
from tests.frames import Pair, Staged, pairs, staged
from tests.lakefs_repositories import BuiltRepository, Version, address, build_repository

pytestmark = pytest.mark.usefixtures("forgetful")

START = datetime(2025, 6, 1, 8, tzinfo=UTC)
HOUR, SECOND = timedelta(hours=1), timedelta(seconds=1)
GRACE = 24 * HOUR
TOKEN_LIFE = 24 * HOUR
SIZE = 10


@dataclass
class Lake:
    """A model of a repository: its objects and their references. Every step moves the clock forward."""

    random: Random
    built: BuiltRepository
    now: datetime = START
    stored: dict[str, datetime] = field(default_factory=dict)
    issued: dict[str, datetime] = field(default_factory=dict)  # addresses, some of which nothing was written to yet
    staged: set[str] = field(default_factory=set)
    branches: dict[str, set[str]] = field(default_factory=lambda: {"main": set()})
    expired: set[str] = field(default_factory=set)  # held by commits, but by no active one
    slices: list[datetime] = field(default_factory=list)  # of two servers

    def step(self) -> None:
        """Run one random operation of a user or server."""
        self.now += timedelta(seconds=self.random.randrange(1, 40 * 60))  # so that a slice gets several addresses
        acts = [self.upload, self.upload, self.ask_for_an_address, self.upload_late, self.commit, self.reset, self.drop]
        self.random.choice(acts)()

    def upload(self) -> None:
        name = self._issue()
        self._write(name)
        self.staged.add(name)

    def ask_for_an_address(self) -> None:
        self._issue()

    def upload_late(self) -> None:
        """Write to an issued address within `token_life`, and link it or leave it unlinked."""
        waiting = [name for name in sorted(self.issued.keys() - self.stored.keys()) if self._may_be_written(name)]
        if waiting:
            name = max(waiting, key=lambda name: self.now - self.issued[name])  # the latest of all uploads
            self._write(name)
            if self.random.random() < 0.3:
                self.staged.add(name)

    def commit(self) -> None:
        branch = self.random.choice([*self.branches, "another"])
        held = self.branches.setdefault(branch, set())
        replaced = {name for name in sorted(held) if self.random.random() < 0.2}
        self.branches[branch] = (held | self.staged) - replaced
        self.expired |= replaced  # until an active commit has it again
        self.staged.clear()

    def reset(self) -> None:
        self.staged = {name for name in sorted(self.staged) if self.random.random() < 0.5}

    def drop(self) -> None:
        self.expired |= self.branches.pop("another", set())

    def candidates(self) -> set[Found]:
        """Return the candidates now with their reasons."""
        live = set().union(self.staged, *self.branches.values())
        gone: set[Found] = set()
        for name in self.stored.keys() - live:
            reason = "expired" if name in self.expired else "unreferenced"
            newest = max(self.stored[name], self.issued[name].replace(microsecond=0))
            if newest + SECOND < self.now - max(GRACE, TOKEN_LIFE):  # all its times are whole seconds
                gone.add((name, SIZE, reason))
        return gone

    def sweep(self, gone: set[str]) -> None:
        self.built.remove(gone)
        for name in gone:
            del self.stored[name]

    def _issue(self) -> str:
        """Return a new address of one of two servers. A server begins a new slice every hour."""
        self.slices = [began for began in self.slices if self.now - began < HOUR] or [self.now, self.now - 30 * SECOND]
        name = address(self.now, len(self.issued), began=self.random.choice(self.slices))
        self.issued[name] = self.now
        return name

    def _may_be_written(self, name: str) -> bool:
        return HOUR < self.now - self.issued[name] <= TOKEN_LIFE

    def _write(self, name: str) -> None:
        self.stored[name] = self.now
        self.built.store({name: self.now}, SIZE)


def classified_by(run: Run, snapshot: InventorySnapshot, lake: Lake) -> set[Found]:
    """Return the candidates by the package, for the references of the model."""
    active = set().union(*lake.branches.values())
    held = [Pair(name, f"path/{name}", active=name in active) for name in sorted(active | lake.expired)]
    uncommitted = staged(run.spark, *(Staged(name) for name in sorted(lake.staged)))
    age_cutoff = AgeCutoff(snapshot.taken_at, GRACE, TOKEN_LIFE, issued=issued_at)
    committed = pairs(run.spark, *held)
    commits = commits_by_address(committed, ())
    objects = classified(snapshot.frame, commits, uncommitted, age_cutoff, staged_known=True)
    return found_in(candidates(with_names(due(objects), committed)))


def empty_lake(directory: Path, random: Random) -> Lake:
    built = build_repository(directory, [Version("root", START, {})], {"main": "root"}, taken_at=START)
    return Lake(random, built)


def weeks(spark: SparkSession, lake: Lake, runs: int) -> Iterator[tuple[Run, InventorySnapshot, InventorySnapshot]]:
    """Yield several runs on successive days, each with its optimized and its full inventory snapshot."""
    own = lake.built.repository({"default_retention_days": 1, "branches": []}, listing="optimized", clean_every="14d")
    tables = Warehouse(str(lake.built.directory / "warehouse"))
    for _ in range(runs):
        for _ in range(lake.random.randrange(40, 160)):
            lake.step()
        run = Run(spark, own, tables, lake.now.date(), lake.now)
        clean = replace(run, repository=replace(own, settings=own.settings.model_copy(update={"listing": "clean"})))
        optimized = run.snapshot()
        run.keep(optimized)
        yield run, optimized, clean.snapshot()


def compare(spark: SparkSession, directory: Path, seed: int, runs: int) -> list[int]:
    """Compare optimized with full snapshots; return how many prefixes each optimized one did not list."""
    lake = empty_lake(directory, Random(seed))
    spared = []
    for run, optimized, clean in weeks(spark, lake, runs):
        assert (
            objects_in(optimized.frame) == objects_in(clean.frame) == {(n, SIZE, at) for n, at in lake.stored.items()}
        )
        assert optimized.taken_at == clean.taken_at
        found = classified_by(run, optimized, lake)
        assert found == lake.candidates()
        to_delete = {name for name, _, _ in sorted(found) if lake.random.random() < 0.5}
        write_ledger(run, dict.fromkeys(to_delete, Outcome.DELETED), lake.now)
        lake.sweep(to_delete)
        spared.append(0 if optimized.details.fell_back else len(optimized.prefixes.deep) - optimized.listed)
    return spared


@pytest.mark.parametrize("seed", range(1))
@pytest.mark.slow
def test_an_optimized_run_finds_the_same_objects_as_a_clean_run(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    assert sum(compare(spark, tmp_path, seed, runs=5)) > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 20))
def test_many_optimized_runs_find_the_same_objects_as_clean_runs(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    assert sum(compare(spark, tmp_path, seed, runs=10)) > 0
