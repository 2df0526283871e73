"""A repository for sweeps: a test says what is live, whether it is the planned one, and what is published."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from pyspark.sql import DataFrame

from retention_assets.core.amounts import Amount
from retention_assets.core.liveness import Liveness
from retention_assets.objectstore.access import StoreAccess
from retention_assets.state.lease import Lease
from retention_assets.state.plan import Plan
from retention_assets.sweep.engine import Directories, Layout, RepositorySweep
from tests.sweep.small_world import a_plan


def nothing_is_asked() -> Liveness:
    return pytest.fail("nothing is to be looked at")


@dataclass
class RepositoryHere(RepositorySweep):
    """See `RepositorySweep`. Without arguments: the planned repository, whose plan has no edits."""

    same: Callable[[], object] = lambda: None  # raises where the repository is another one
    edits: Callable[[Lease], Mapping[str, Any]] | None = None  # published before any object is deleted
    history_changes: int = 0
    plan: Plan = field(default_factory=a_plan)
    candidates: DataFrame = None  # type: ignore[assignment]  # an engine without Spark has its own
    access: StoreAccess = None  # type: ignore[assignment]
    live: Callable[[], Liveness] = nothing_is_asked
    layout: Layout = field(default_factory=Directories)
    dump: Mapping[str, str] | None = None

    @property
    def publishes(self) -> bool:  # type: ignore[override]
        return self.edits is not None

    def require_same(self) -> None:
        self.same()

    def live_now(self) -> Liveness:
        return self.live()

    def live_after_edits(self) -> None:
        return None

    def publish(self, lease: Lease) -> Mapping[str, Any] | None:
        return self.edits(lease) if self.edits else None

    def finish(self, outcomes: Mapping[str, Amount], ledger: DataFrame) -> None:
        pass

    def release(self) -> None:
        pass
