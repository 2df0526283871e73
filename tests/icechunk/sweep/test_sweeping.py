"""Liveness checks of Icechunk sweeps: the live files, and whether the repository is still the planned one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from retention_assets.config.configuration import load_configuration
from retention_assets.config.timestamps import utc_now
from retention_assets.errors import GuardRefused
from retention_assets.icechunk.administration.operations import Operations
from retention_assets.icechunk.formats.ids import encode_id, encode_ids
from retention_assets.icechunk.formats.manifests import read_manifest_chunks
from retention_assets.icechunk.formats.model import Availability
from retention_assets.icechunk.rules.planned import PlannedEdits
from retention_assets.icechunk.rules.snapshots import History, Reference
from retention_assets.icechunk.source.opening import open_icechunk
from retention_assets.icechunk.source.repository import IcechunkState
from retention_assets.icechunk.sweep.reach import IcechunkSweep
from retention_assets.icechunk.sweep.sweeping import IcechunkRepositorySweep, require_same_repository
from retention_assets.icechunk.sweep.verification import files_kept
from retention_assets.state.acknowledged import LOST, write_acknowledgement
from retention_assets.state.plan import Heads
from retention_assets.sweep.sweep_run import Sweep
from retention_assets.warehouse.metadata import Details, PartitionMetadata
from retention_assets.warehouse.warehouse import METADATA, Warehouse
from tests.icechunk.rules.graphs import at, history, snapshot_id
from tests.icechunk_projects import AS_OF, IcechunkProject, ago, icechunk_project
from tests.icechunk_repositories import FORMATS, Commit, open_repository
from tests.sweep.small_world import a_plan

pytestmark = pytest.mark.long

LINE = {0: (None, 0), 1: (0, 1), 2: (1, 2), 3: (1, 3)}
PLANNED = history(LINE, {"main": 2, "old": 3, "tag v1": 2}, {"v1": 1})  # a branch can have such a name
OLD = Reference("branch", "old", snapshot_id(3))
EDITS = PlannedEdits(2, at(10), at(9), (), (encode_id(snapshot_id(3)),), (), frozenset({OLD}))


class Checks(IcechunkRepositorySweep):
    """The liveness checks of a sweep whose plan has these `candidates` and no edits. The plan is not stored."""

    def __init__(self, sweep: IcechunkSweep, planned: PlannedEdits, candidates: DataFrame) -> None:
        self._sweep, self._edits, self.candidates = sweep, planned, candidates
        self._policy = sweep.opened.policy()
        self.plan = a_plan(repository="field", policy_hash=self._policy.policy_hash)
        self._last = None


def state_of(now: History, **changes: object) -> IcechunkState:
    state = IcechunkState(2, now, None, frozenset(), {}, at(11))
    return replace(state, **changes)  # type: ignore[arg-type]


def require_same(state: IcechunkState) -> None:
    heads = Heads(
        {name: encode_id(tip) for name, tip in PLANNED.branches.items()},
        {name: encode_id(tip) for name, tip in PLANNED.tags.items()},
    )
    require_same_repository(a_plan(repository="field"), heads, EDITS, state)


@pytest.mark.parametrize(
    "now",
    [
        pytest.param(PLANNED, id="nothing_happened"),
        pytest.param(history({**LINE, 4: (2, 4)}, {"main": 4}, {}), id="new_commits_and_deleted_references"),
        pytest.param(history({0: (None, 0), 1: (0, 1), 2: (1, 2)}, {"main": 2}, {"v1": 1}), id="the_plan_is_done"),
    ],
)
def test_a_repository_with_new_commits_and_references_is_accepted(now: History) -> None:
    require_same(state_of(now))


@pytest.mark.parametrize(
    ("state", "why"),
    [
        pytest.param(state_of(PLANNED, format=1), "it has format 1, and the plan is for format 2", id="another_format"),
        pytest.param(
            state_of(history({0: (None, 0), 1: (0, 1)}, {"main": 1}, {"v1": 1})),
            f"the branch main named the snapshot {encode_id(snapshot_id(2))}, which no longer exists",
            id="gone_back",
        ),
        pytest.param(state_of(history({0: (None, 0)}, {"main": 0})), "main named", id="created_again"),
        pytest.param(
            state_of(history({0: (None, 0), 2: (0, 2)}, {"main": 2})),
            "tag v1 named",
            id="the_snapshot_of_a_tag_is_missing",
        ),
    ],
)
def test_a_repository_that_is_not_the_planned_one_is_refused(state: IcechunkState, why: str) -> None:
    with pytest.raises(GuardRefused, match=f"{why}.*Nothing was changed or deleted.*retention plan field"):
        require_same(state)


# ---- files that are acknowledged as lost


@dataclass(frozen=True)
class Losing:
    """A repository whose branch `side` has its own manifest with one chunk that no other branch needs."""

    spark: SparkSession
    field: IcechunkProject
    manifest: str
    chunk: str

    def sweep(self, run_id: str) -> IcechunkSweep:
        configuration = load_configuration(self.field.project.file)
        repository = configuration.repository("field")
        opened = open_icechunk(repository, utc_now)
        warehouse = Warehouse(configuration.warehouse)
        return Sweep(self.spark, warehouse, opened, AS_OF.date(), run_id, lambda _: None, utc_now)

    def acknowledge(self, address: str) -> None:
        write_acknowledgement(self.sweep("a-run").warehouse, "field", [address], LOST, "anna", utc_now())

    def liveness(self, run_id: str = "a-run", candidates: Sequence[str] = ("chunks/a",)) -> Checks:
        planned = PlannedEdits(self.field.format, AS_OF, AS_OF - timedelta(days=1), (), (), (), frozenset())
        objects = self.spark.createDataFrame([(one,) for one in candidates], "address string")
        return Checks(self.sweep(run_id), planned, objects)

    def live(self, run_id: str = "a-run", candidates: Sequence[str] = ("chunks/a",)) -> set[str]:
        return {row["address"] for row in self.liveness(run_id, candidates).live_now().live.collect()}

    @property
    def file(self) -> Path:
        return self.field.directory / self.manifest


def chunks_in(field: IcechunkProject, manifest: str) -> set[str]:
    content = (field.directory / "manifests" / manifest).read_bytes()
    return {f"chunks/{one}" for one in encode_ids(read_manifest_chunks(content, manifest).chunk_ids).to_pylist()}


@pytest.fixture(params=[1], ids=["format_1"])
def losing(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Losing:
    commits = (Commit("a", None, ago(5)), Commit("s", "a", ago(4)))
    field = icechunk_project(tmp_path, request.param, commits, {"main": "a", "side": "s"}, {})
    repository = open_repository(field.directory)
    before, manifest = (repository.list_manifest_files(field.ids[name])[0].id for name in "as")
    (chunk,) = chunks_in(field, manifest) - chunks_in(field, before)
    return Losing(spark, field, f"manifests/{manifest}", chunk)


@pytest.mark.parametrize("losing", [2], indirect=True, ids=["format_2"])
def test_a_repository_that_becomes_read_only_during_a_sweep_ends_it(losing: Losing) -> None:
    liveness = losing.liveness()
    assert losing.chunk in {row["address"] for row in liveness.live_now().live.collect()}
    Operations(losing.sweep("a-run").opened.access, utc_now, lambda _: None).set_status(Availability.READ_ONLY, "audit")
    with pytest.raises(GuardRefused, match=r"read-only \(reason: audit\)\. Nothing more was changed or deleted"):
        liveness.live_now()


@pytest.mark.parametrize("losing", [2], indirect=True, ids=["format_2"])
def test_a_sweep_is_refused_if_the_ops_log_does_not_have_the_newest_entry_of_an_earlier_plan(losing: Losing) -> None:
    sweep = losing.liveness()
    sweep._heads, sweep.access = Heads({}, {}), losing.sweep("a-run").opened.access
    sweep.require_same()
    found = PartitionMetadata(utc_now(), 1, "a-run", Details(logged_until=utc_now()))
    losing.sweep("a-run").warehouse.write_document(
        found.document(), "field", "repository_history", AS_OF.date().isoformat(), METADATA
    )
    refused = f"the newest one at the plan of {AS_OF.date()}.*when `grace` has passed. Nothing was changed or deleted"
    with pytest.raises(GuardRefused, match=refused):
        sweep.require_same()


@pytest.mark.parametrize("losing", FORMATS, indirect=True, ids=["format_1", "format_2"])
def test_a_file_that_was_acknowledged_as_lost_and_came_back_is_read(losing: Losing) -> None:
    losing.acknowledge(losing.manifest)
    assert {losing.manifest, losing.chunk} <= losing.live(candidates=["snapshots/a"])
    sweep = losing.sweep("a-proof")
    kept = files_kept(sweep, sweep.opened.source.state())
    assert {losing.manifest, losing.chunk} <= {row["address"] for row in kept.collect()}


def test_a_file_that_comes_back_between_two_checks_is_read(losing: Losing) -> None:
    content = losing.file.read_bytes()
    losing.acknowledge(losing.manifest)
    repository = open_repository(losing.field.directory)
    repository.delete_branch("side")
    losing.file.unlink()
    liveness = losing.liveness()
    assert losing.chunk not in {row["address"] for row in liveness.live_now().live.collect()}
    losing.file.write_bytes(content)
    repository.create_branch("side", losing.field.ids["s"])
    assert losing.chunk in {row["address"] for row in liveness.live_now().live.collect()}


def test_what_a_lost_file_references_is_live_if_an_earlier_run_read_the_file(losing: Losing) -> None:
    before = losing.live("first")
    losing.file.unlink()
    losing.acknowledge(losing.manifest)
    assert losing.chunk in before
    assert losing.live("second") == before


def test_a_needed_file_that_is_lost_and_was_never_read_ends_a_sweep_of_manifests_or_chunks(losing: Losing) -> None:
    losing.file.unlink()
    losing.acknowledge(losing.manifest)
    day = AS_OF.date()
    for candidates in (["chunks/a"], ["snapshots/a", "manifests/a"]):
        with pytest.raises(GuardRefused) as refused:
            losing.live(candidates=candidates)
        message = str(refused.value)
        assert message.startswith(f"field {day}: {losing.manifest} is needed but lost, and no run ever read it")
        assert "Nothing more was deleted. Restore this file" in message
        assert message.endswith(f"Or plan again: `retention plan field --as-of {day}`.")
    assert losing.manifest in losing.live(candidates=["snapshots/a", "transactions/a"])
