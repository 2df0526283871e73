"""What a plan's summary says: by reason, by top prefix, by branch."""

from dataclasses import dataclass
from datetime import date
from typing import Any

from rich.console import Console

from retention_assets.assets.resources import session, spark_resource
from retention_assets.cli.rendering import print_amounts
from retention_assets.config import Configuration
from retention_assets.stores.warehouse import Warehouse
from retention_assets.sweep.plan import Plan
from retention_assets.tables import DELETION_CANDIDATES
from retention_assets.transforms.summary import by_branch, by_reason, by_top_prefix

_MOST = 12  # rows of a summary: what a person takes in at a glance
Amounts = list[tuple[str, int, int]]


@dataclass(frozen=True, slots=True)
class Summary:
    """Candidates in objects and bytes; the largest groups only."""

    reasons: Amounts
    prefixes: Amounts
    branches: Amounts

    def document(self) -> dict[str, Any]:
        """Return the summary as JSON writes it."""
        named = {"by_reason": self.reasons, "by_top_prefix": self.prefixes, "by_branch": self.branches}
        return {
            title: [{"name": name, "objects": objects, "bytes": size} for name, objects, size in rows]
            for title, rows in named.items()
        }

    def show(self, screen: Console, plan: Plan) -> None:
        """Print the summary with the plan's totals."""
        totals = [(state, amount.objects, amount.bytes) for state, amount in plan.totals.items()]
        print_amounts(screen, f"{plan.repository} as of {plan.day}: everything listed", "state", totals)
        print_amounts(screen, "candidates by reason", "reason", self.reasons)
        print_amounts(screen, "candidates by top prefix", "prefix", self.prefixes)
        print_amounts(screen, "candidates by branch (an object counts for each branch)", "branch", self.branches)


def summary_of(configuration: Configuration, repository: str, day: date) -> Summary:
    """Return the summary of the day's candidates, computed by Spark."""
    spark = session(spark_resource(configuration.spark))
    candidates = Warehouse(configuration.warehouse).rows(spark, repository, DELETION_CANDIDATES.name, day).frame
    amounts = [
        [(row["name"], row["objects"], row["bytes"]) for row in frame.limit(_MOST).collect()]
        for frame in (by_reason(candidates), by_top_prefix(candidates), by_branch(candidates))
    ]
    return Summary(*amounts)
