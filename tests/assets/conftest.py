"""Each saved repository planned twice: tags ignored, then tags protected; the second run finds a filled cache."""

from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from pyspark.sql import SparkSession

from tests.assets.lake import Lake, Run, new_lake


@dataclass(frozen=True)
class Planned:
    """The results of one run, since the next one overwrites its tables."""

    run: Run
    plan: Mapping[str, object] | None
    active: frozenset[str]
    by_reason: Mapping[str, frozenset[tuple[str, int]]]


@dataclass(frozen=True)
class TwicePlanned:
    """A lake with the tables of its second run. Tests must copy it before they change it."""

    lake: Lake
    tags_ignored: Planned
    tags_protected: Planned

    def planned(self, tags: str) -> Planned:
        return {"ignore": self.tags_ignored, "protect": self.tags_protected}[tags]


# the tables that the setting `tags` affects
AFTER_TAGS = ("potential_commits", "active_ranges", "addresses", "deletion_candidates")


class Lakes:
    """The saved repositories by name. Each is planned when it is first needed."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory
        self._planned: dict[str, TwicePlanned] = {}

    def __getitem__(self, name: str) -> TwicePlanned:
        if name not in self._planned:
            lake = new_lake(name, self._factory.mktemp(name))
            self._planned[name] = TwicePlanned(lake, _planned(lake, "ignore"), _planned(lake, "protect", *AFTER_TAGS))
        return self._planned[name]


@pytest.fixture(scope="session")
def lakes(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lakes:
    return Lakes(tmp_path_factory)


@pytest.fixture(scope="session")
def orchard(lakes: Lakes) -> TwicePlanned:
    return lakes["orchard"]


def _planned(lake: Lake, tags: str, *assets: str) -> Planned:
    lake.configure(tags=tags)
    run = lake.make(*assets) if assets else lake.plan()
    commits = lake.table("potential_commits", ["commit_id", "active"]).to_pylist()
    reasons = ("expired", "lifecycle", "unreferenced")
    return Planned(
        run=run,
        plan=lake.plan_document(),
        active=frozenset(row["commit_id"] for row in commits if row["active"]),
        by_reason={reason: frozenset(lake.candidates(reason)) for reason in reasons},
    )
