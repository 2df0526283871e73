"""The Dagster component that adds repositories to a project: `defs.yaml` has the keys of a `retention.yaml`."""

from functools import cache
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

if TYPE_CHECKING:
    from retention_assets.config.settings import SparkValue


class RetentionRepository(dg.Component, dg.Resolvable, dg.Model):
    """Plans what may be deleted from lakeFS and Icechunk repositories, and deletes it on approval.

    The attributes are the keys of `retention.yaml`, or `configuration`, which names such a file. `project_spark` can be
    added to both. Paths are relative to `defs.yaml`. Put repositories that share objects into one component: a plan
    knows only the references of the repositories in its own component.
    """

    configuration: str | None = Field(default=None, description="The path of a retention.yaml that has all other keys.")
    warehouse: str | None = Field(default=None, description="Where the tables are written: a path or a URL.")
    repositories: dict[str, Any] | None = Field(
        default=None, description="The repositories by name, as in retention.yaml."
    )
    shared_warehouse: bool | None = Field(default=None, description="Whether all machines see the local warehouse.")
    spark: dict[str, Any] | None = Field(default=None, description="The configuration of the Spark session.")
    records: dict[str, Any] | None = Field(default=None, description="How records are signed and copied.")
    warehouse_keep: dict[str, Any] | None = Field(default=None, description="How long old tables are kept.")
    project_spark: bool = Field(default=False, description="Whether to use the project's own resource `pyspark`.")

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the assets, jobs, schedules and sensors of the repositories, and their resources."""
        from retention_assets.config.configuration import configuration_of_component
        from retention_assets.definitions import build_definitions

        attributes = self.model_dump(exclude_none=True)
        configuration = configuration_of_component(attributes, context.path / "defs.yaml")
        spark = None if self.project_spark else tuple(configuration.spark.items())
        resources = _resources(configuration.warehouse, configuration.shared_warehouse, spark)
        return build_definitions(configuration, resources=resources, executor=None)


@cache
def _resources(warehouse: str, shared: bool, spark: "tuple[tuple[str, SparkValue], ...] | None") -> dict[str, Any]:
    """Return the resources of a component. Components with the same settings must give Dagster the same objects."""
    from retention_assets.assets.resources import ClockResource, WarehouseResource
    from retention_assets.definitions import shared_resources

    settings = None if spark is None else dict(spark)
    return shared_resources(settings, WarehouseResource(root=warehouse, shared=shared), ClockResource())
