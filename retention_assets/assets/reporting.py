"""The asset of the report: a page for each plan, beside the plan in the warehouse."""

import time

import dagster as dg

from retention_assets.assets.descriptions import CHECKS
from retention_assets.assets.partitions import day_of
from retention_assets.assets.repository_resource import RepositoryResource
from retention_assets.core.amounts import plot_numbers
from retention_assets.report.figures import figures_of
from retention_assets.report.page import page_of, page_of_plan

_MOST_FORECAST = 1_000  # objects: a forecast of more would delay plans; `retention simulate` and `report` make it


def retention_report(resource: RepositoryResource) -> dg.AssetsDefinition:
    """Return the asset of the report, for both systems. It starts no Spark job."""

    @resource.asset("retention_report", after=["deletion_candidates"], has_rows=False)
    def asset(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        """One page with all figures of the plan, that needs no network: `report.html` beside the plan."""
        began, day, warehouse = time.monotonic(), day_of(context), resource.warehouse
        figures = figures_of(resource.configuration, resource.name, day, resource.clock(), _MOST_FORECAST)
        place = warehouse.write_text(page_of(figures, CHECKS), *page_of_plan(figures.plan))
        link = dg.MetadataValue.path(place) if warehouse.is_local else dg.MetadataValue.url(place)
        numbers = plot_numbers({"candidate": figures.plan.candidates})
        seconds = round(time.monotonic() - began, 3)
        return dg.MaterializeResult(
            metadata={"report": link, "plan_hash": figures.plan.plan_hash, "seconds": seconds, **numbers}
        )

    return asset
