"""A lakeFS repository of a dozen objects, one of each kind, which can be planned in a second or two."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from pyspark.sql import SparkSession

from retention_assets.config.limits import GuardSettings
from retention_assets.config.settings import LakeFSSettings, SourceSettings
from retention_assets.core.amounts import Amount
from retention_assets.lakefs.rules.reflog import Memory
from retention_assets.lakefs.sweep.planning import PlanInputs, PlanParameters, blocked, make_plan
from retention_assets.objectstore.access import StoreAccess
from retention_assets.policy.rules import CommittedRetention, Policy
from retention_assets.state.plan import Plan, Planned, plan_hash, planned_objects
from retention_assets.tables import COMMIT_GRAPH
from retention_assets.warehouse.metadata import Details
from retention_assets.warehouse.warehouse import Rows, Warehouse
from tests import frames
from tests.frames import NOW, OLD, Listed, Pair, Staged, address

DAY = NOW.date()
POLICY = Policy(CommittedRetention((), timedelta(days=30), has_default=True), (), ())
REFERENCES_HASH = "e" * 64
SETTINGS = {"storage": "file:///lake", "grace": "1d"}  # the settings of the plan
TERMS = {"mode": "delete", **SETTINGS}

LIVE, ALSO_LIVE, TAGGED, STAGED, DEAD, ALSO_DEAD, UNREFERENCED = (address(number) for number in range(7))
YOUNG = address(8, NOW - timedelta(hours=1))
FOREIGN = "data/report.csv"

LISTED = tuple(
    Listed(name) for name in (LIVE, ALSO_LIVE, TAGGED, STAGED, DEAD, ALSO_DEAD, UNREFERENCED, YOUNG, FOREIGN)
)
PAIRS = (
    Pair(LIVE, "a/1", active=True),
    Pair(ALSO_LIVE, "a/2", active=True),
    Pair(TAGGED, "a/3", protected=True),
    Pair(STAGED, "a/4"),
    Pair(DEAD, "a/5", due_since=OLD, rule_ids=["retention:default"]),
    Pair(ALSO_DEAD, "a/6", due_since=OLD, rule_ids=["retention:default"]),
    Pair(YOUNG, "a/7"),
    Pair(FOREIGN, "a/8"),
)


_WAREHOUSES = TemporaryDirectory(prefix="planned_worlds_")  # each after the first plan of a world
_planned: dict[str, tuple[Path, Planned]] = {}  # by world

_COMMIT = {
    "parents": [],
    "main_parent": None,
    "metarange_id": "",
    "branches": [],
    "head_of": [],
    "tags": [],
    "dangling": True,
}


@dataclass(frozen=True)
class World:
    """The inputs of a plan. All have the same time unless a test sets another."""

    inventory: Sequence[Listed] = LISTED
    pairs: Sequence[Pair] = PAIRS
    staged: Sequence[Staged] = (Staged(STAGED),)
    staged_known: bool = True
    listed_at: datetime = NOW
    staged_at: datetime = NOW
    staged_until: datetime | None = None  # the time of the first page of the staged list; None: `staged_at`
    references_at: datetime = NOW
    references_hash: str = REFERENCES_HASH
    policy: Policy = POLICY
    made_at: datetime = NOW
    run_id: str = "a-run"
    max_live_shrink: float = 0.5
    grace: timedelta = timedelta(hours=24)
    settle: timedelta = timedelta(0)
    memory: Memory = field(default_factory=Memory)
    commits: Sequence[str] = ()  # that the references have, on no branch
    committed_at: datetime = OLD  # all commits
    legacy_kinds: frozenset[str] | None = frozenset()  # the kinds of old names that lakeFS gave to entries
    legacy_names: bool = False
    unusual: str | None = None  # the details of the inventory about keys that are no paths
    storage: str = "s3://lake/orchard"
    oldest_dump: timedelta | None = None  # None: a server gives the references
    namespace: str | None = None  # of the settings; None: as `SETTINGS` has it

    def without(self, *addresses: str) -> "World":
        """Return a copy of the world without these objects in its store."""
        return replace(self, inventory=[row for row in self.inventory if row.address not in addresses])

    def inputs(self, spark: SparkSession) -> PlanInputs:
        rows = [{**_COMMIT, "commit_id": commit_id, "created_at": self.committed_at} for commit_id in self.commits]
        graph = pa.Table.from_pylist(rows, schema=COMMIT_GRAPH.schema)
        return PlanInputs(
            Rows(frames.inventory(spark, *self.inventory), self.listed_at, Details(unusual_names=self.unusual or None)),
            Rows(frames.staged(spark, *self.staged), self.staged_at, self._of_staged()),
            Rows(graph, self.references_at, Details(references_hash=self.references_hash)),
            Rows(frames.addresses(spark, *self.pairs), self.references_at, Details(legacy_kinds=self.legacy_kinds)),
        )

    def _of_staged(self) -> Details:
        return Details(known=self.staged_known, complete_until=self.staged_until)

    def plan(self, spark: SparkSession, warehouse: Warehouse) -> Planned:
        """Make the plan of `DAY`. A world is planned once per process: later empty warehouses get a copy of its files.

        Equal inputs give an equal plan, and most of these tests begin with a plan of the same world.
        """
        root, world = Path(warehouse.root), repr(self)
        if root.is_dir() and any(root.iterdir()):
            return self._plan(spark, warehouse)
        if world not in _planned:
            planned = self._plan(spark, warehouse)
            if planned.plan:
                copied = Path(_WAREHOUSES.name) / str(len(_planned))
                _planned[world] = Path(shutil.copytree(root, copied)), planned
            return planned
        copied, planned = _planned[world]
        assert planned.plan
        shutil.copytree(copied, root, dirs_exist_ok=True)
        return replace(planned, candidates=planned_objects(spark, warehouse, planned.plan))

    def blocked(self, spark: SparkSession) -> str | None:
        """Return why a plan of this world must not be executed; None if it may."""
        inputs = self.inputs(spark)
        return blocked(self._parameters(), inputs, inputs.references())

    def _plan(self, spark: SparkSession, warehouse: Warehouse) -> Planned:
        return make_plan(spark, warehouse, self._parameters(), self.inputs(spark))

    def _parameters(self) -> PlanParameters:
        return PlanParameters(
            repository="orchard",
            day=DAY,
            policy=self.policy,
            policy_run=self.run_id,
            settings=LakeFSSettings.model_construct(
                source=SourceSettings.model_construct(
                    dump="dump.json" if self.oldest_dump else None, dump_age=self.oldest_dump
                ),
                grace=self.grace,
                settle=self.settle,
                legacy_names=self.legacy_names,
                guards=GuardSettings(max_live_shrink=self.max_live_shrink),
            ),
            now=self.made_at,
            run_id=self.run_id,
            access=StoreAccess(self.storage),
            memory=self.memory,
            terms=SETTINGS if self.namespace is None else {**SETTINGS, "namespace": self.namespace},
        )


def a_plan(**changes: object) -> Plan:
    """Return a plan of the repository as an earlier run may have stored it."""
    plan = Plan(
        repository="orchard",
        day=DAY,
        plan_hash=plan_hash("orchard", POLICY.policy_hash, REFERENCES_HASH, "a digest"),
        policy_hash=POLICY.policy_hash,
        policy_run="a-run",
        references_hash=REFERENCES_HASH,
        candidates=Amount(2, 20),
        totals={"candidate": Amount(2, 20), "kept": Amount(3, 30)},
        live=3,
        collected=0,
        warnings=("a warning",),
        blocked=None,
        instance=None,
        made_at=NOW - timedelta(hours=1),
        run_id="an-earlier-run",
        terms=SETTINGS,
    )
    return replace(plan, **changes)  # type: ignore[arg-type]


def at(text: str) -> date:
    return date.fromisoformat(text)
