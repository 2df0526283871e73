"""Explains many objects of the newest plan at once, so that each table is read once."""

from collections.abc import Collection

from retention_assets.config.configuration import Configuration
from retention_assets.explain.explaining import explainer_of, with_removals
from retention_assets.explain.explanations import ObjectExplanation
from retention_assets.explain.plans import newest_plan
from retention_assets.warehouse.warehouse import Warehouse


def explain_objects(configuration: Configuration, name: str, addresses: Collection[str]) -> list[ObjectExplanation]:
    tables, _ = newest_plan(Warehouse(configuration.warehouse), configuration.repository(name), None)
    return with_removals(tables, explainer_of(configuration, tables).objects(addresses))
