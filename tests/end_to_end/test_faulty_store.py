"""Sweeps of an S3 server that throttles, closes connections, fails single keys and truncates listings.

After at most one more run, the result is the same as without faults. No request names an object outside the plan.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.end_to_end.approved import Approved, World, copied, options
from tests.end_to_end.command import Answer, Json, sample
from tests.end_to_end.s3_server import Lake, Listing, S3Server
from tests.faulty_s3 import Faults, FaultyS3, Request, faulty_s3

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture(scope="module")
def proxy(s3: S3Server) -> Iterator[FaultyS3]:
    with faulty_s3(s3.endpoint) as running:
        yield running


@dataclass(frozen=True, slots=True)
class Faulty:
    """A world whose store is behind the faulty proxy, with a second bucket for the quarantine."""

    world: World
    proxy: FaultyS3
    attic: Lake
    before: Listing

    @property
    def end(self) -> Listing:
        """The objects that remain after a sweep without faults."""
        return {
            address: size_and_time
            for address, size_and_time in self.before.items()
            if address not in self.world.planned
        }

    def sweep(self, faults: Faults) -> Answer:
        """Sweep with these faults."""
        self.proxy.faults = faults
        return self.world.project.run("sweep")

    def sweep_to_the_end(self, faults: Faults) -> Answer:
        """Sweep with these faults, and once more without if objects remain. Return the answer of the first sweep."""
        first = self.sweep(faults)
        if first.status:
            assert first.status == 3, first.err
            again = self.sweep(Faults())
            assert again.status == 0, again.err
        return first

    def touched(self) -> set[str]:
        """Return all addresses of the repository that requests wrote or deleted, whatever the response was."""
        keys = [
            key
            for request in self.proxy.requests
            if request.bucket == self.world.lake.bucket and request.method not in ("GET", "HEAD")
            for key in [named.key for named in request.deletes] or [request.key]
        ]
        return {key.removeprefix("orchard/") for key in keys}


@pytest.fixture
def faulty(
    approved: Approved, new_lake: Callable[[], Lake], proxy: FaultyS3, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Faulty]:
    lake = new_lake()
    attic = Lake(lake.server, f"{lake.bucket}-attic")
    attic.client().create_bucket(Bucket=attic.bucket)
    proxy.reset()
    with copied(approved, tmp_path, lake, proxy.endpoint, quarantine={"url": f"s3://{attic.bucket}/orchard"}) as world:
        yield Faulty(world, proxy, attic, lake.listing())


def changes(request: Request) -> bool:
    """Return whether a request writes or deletes."""
    return request.method not in ("GET", "HEAD")


def everything(request: Request) -> bool:
    """Return True: the fault applies to every request."""
    return True


@dataclass(frozen=True, slots=True)
class FaultCase:
    """A kind of fault, a check that the fault happened, and the storage options of the sweep."""

    faults: Callable[[], Faults]
    happened: Callable[[FaultyS3], bool]
    options: Json = field(default_factory=dict)


def throttling(share: float, **more: object) -> Callable[[], Faults]:
    return lambda: Faults(slow_down=share, applies=everything, **more)  # type: ignore[arg-type]


def throttled(proxy: FaultyS3) -> bool:
    return 503 in proxy.answers


def unanswered(proxy: FaultyS3) -> bool:
    return None in proxy.answers and 500 in proxy.answers


def pages(proxy: FaultyS3) -> bool:
    return any("continuation-token" in request.query for request in proxy.requests)


ONE_BY_ONE = {"disable_bulk_delete": "true"}
IMPATIENT = {"read_timeout": "2s"}
TROUBLES = [
    pytest.param(FaultCase(throttling(0.0, page=2), pages), id="no fault, but small pages"),
    pytest.param(
        FaultCase(throttling(0.05), throttled, ONE_BY_ONE), id="5 % of the answers are 503", marks=pytest.mark.slow
    ),
    pytest.param(FaultCase(throttling(0.2), throttled), id="20 % of the answers are 503", marks=pytest.mark.slow),
    pytest.param(FaultCase(throttling(0.5), throttled), id="50 % of the answers are 503"),
    pytest.param(
        FaultCase(
            lambda: Faults(lost=0.15, hanging=0.03, broken=0.1, conditions="kept"),
            unanswered,
            {**ONE_BY_ONE, **IMPATIENT},
        ),
        id="deletions are executed without a response",
    ),
    pytest.param(FaultCase(lambda: Faults(page=2, repeats=True), pages), id="every page comes twice"),
]


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.slow
def test_a_sweep_with_faults_leaves_the_same_objects_as_a_sweep_without_faults(
    faulty: Faulty, trouble: FaultCase
) -> None:
    world = faulty.world
    world.project.write(storage_options=options(faulty.proxy.endpoint, **trouble.options))
    faulty.sweep_to_the_end(trouble.faults())
    assert trouble.happened(faulty.proxy)
    assert world.lake.listing() == faulty.end
    assert faulty.touched() == world.planned
    ledger = world.ledger()
    assert ledger.keys() == world.planned
    assert {row["outcome"] for row in ledger.values()} <= {"deleted", "missing"}


MOVING = [
    pytest.param(
        FaultCase(throttling(0.2, page=2), throttled), id="20 % of the answers are 503", marks=pytest.mark.slow
    ),
    pytest.param(
        FaultCase(lambda: Faults(lost=0.1, hanging=0.02, broken=0.1, applies=changes), unanswered, IMPATIENT),
        id="copies and deletions are executed without a response",
    ),
]


@pytest.mark.parametrize("trouble", MOVING)
@pytest.mark.slow
def test_moved_objects_are_complete_in_quarantine(faulty: Faulty, trouble: FaultCase) -> None:
    world = faulty.world
    world.project.write(mode="quarantine", storage_options=options(faulty.proxy.endpoint, **trouble.options))
    world.project.adopt()
    faulty.sweep_to_the_end(trouble.faults())
    assert trouble.happened(faulty.proxy)
    assert world.lake.listing() == faulty.end
    assert faulty.touched() == world.planned
    assert world.outcomes() == {"quarantined": world.planned}
    copies = {
        path.partition("/objects/")[2]: faulty.attic.read(path)
        for path in faulty.attic.listing()
        if "/objects/" in path
    }
    assert copies == {address: sample(address) for address in world.planned}


@pytest.mark.slow
def test_keys_that_fail_once_are_deleted_and_a_key_that_always_fails_is_named(faulty: Faulty) -> None:
    world = faulty.world
    denied, unnamed, busy, broken, *_ = sorted(world.planned)
    faults = Faults(
        errors={f"orchard/{denied}": "AccessDenied"},
        errors_once={f"orchard/{busy}": "SlowDown", f"orchard/{broken}": "InternalError"},
        unnamed={f"orchard/{unnamed}"},
    )
    first = faulty.sweep(faults)
    ledger = world.ledger()
    assert first.status == 3
    assert "2 objects could not be deleted or moved" in first.err
    assert {address for address, row in ledger.items() if row["outcome"] == "failed"} == {denied, unnamed}
    assert "AccessDenied" in ledger[denied]["detail"]
    assert "the outcome is unknown" in ledger[unnamed]["detail"]
    again = faulty.sweep(faults)
    assert again.status == 3
    assert world.lake.listing().keys() == faulty.end.keys() | {denied}
    assert "AccessDenied" in world.ledger()[denied]["detail"]
    assert world.outcomes()["failed"] == {denied}
    assert faulty.touched() == world.planned


@pytest.mark.slow
def test_an_incomplete_listing_that_claims_to_be_complete_makes_a_sweep_keep_more(faulty: Faulty) -> None:
    answers = [faulty.sweep(Faults(page=2, ends_early=True)), faulty.sweep(Faults())]
    assert [answer.status for answer in answers] == [0, 0]
    left = faulty.world.lake.listing()
    kept = left.keys() - faulty.end.keys()
    assert left.keys() >= faulty.end.keys()
    assert kept
    assert kept == faulty.world.outcomes()["missing"]
    assert faulty.touched() == faulty.world.planned - kept


@pytest.mark.slow
def test_a_plan_from_an_incomplete_listing_that_claims_to_be_complete_is_refused(faulty: Faulty) -> None:
    project = faulty.world.project
    faulty.proxy.faults = Faults(page=2, ends_early=True)
    plan = project.run("plan")
    assert plan.status == 1
    assert "live_listed" in plan.err
    sweep = faulty.sweep(Faults())
    assert sweep.status == 1
    assert "there is no current plan" in sweep.err
    assert faulty.world.lake.listing() == faulty.before
    assert not faulty.touched()
