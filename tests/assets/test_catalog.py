"""Dagster's pages say what each check asks and what each column means."""

import pytest

from retention_assets.assets.catalog import CHECKS, column_description
from retention_assets.assets.lakefs import PLAN_GUARDS
from retention_assets.icechunk.sweep import planning as icechunk_planning
from retention_assets.icechunk.sweep import verification as icechunk_proof
from retention_assets.lakefs.sweep import verification as lakefs_proof
from retention_assets.tables import TABLES


@pytest.mark.parametrize("table", sorted(TABLES))
def test_every_column_of_a_table_has_a_description(table: str) -> None:
    missing = [name for name in TABLES[table].schema.names if not column_description(table, name)]
    assert not missing


def test_every_check_has_a_description() -> None:
    named = {*PLAN_GUARDS, *icechunk_planning.GUARDS, *icechunk_proof.CHECKS, *lakefs_proof.CHECKS}
    assert named <= CHECKS.keys()
    assert all(text.endswith(".") for text in CHECKS.values())
