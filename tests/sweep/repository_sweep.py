"""A fake `RepositorySweep`: the test sets which objects are live, which edits are published, and what fails."""

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


def no_liveness_check() -> Liveness:
    return pytest.fail("no liveness check is expected")


@dataclass
class FakeRepository(RepositorySweep):
    """A fake `RepositorySweep`. By default the repository is the planned one, and the plan has no edits."""

    same: Callable[[], object] = lambda: None  # raises if the repository is not the planned one
    edits: Callable[[Lease], Mapping[str, Any]] | None = None  # published before any object is deleted
    history_changes: int = 0
    plan: Plan = field(default_factory=a_plan)
    candidates: DataFrame = None  # type: ignore[assignment]  # `InProcessEngine` does not read them
    access: StoreAccess = None  # type: ignore[assignment]
    live: Callable[[], Liveness] = no_liveness_check
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
