"""Descriptions in Dagster's catalog: every check and every column has one."""

import pytest

from retention_assets.assets.catalog import CHECKS, column_sources
from retention_assets.assets.lakefs import PLAN_GUARDS
from retention_assets.icechunk.sweep import planning as icechunk_planning
from retention_assets.icechunk.sweep import verification as icechunk_proof
from retention_assets.lakefs.sweep import verification as lakefs_proof
from retention_assets.tables import SHOWN, TABLES


@pytest.mark.parametrize("table", sorted(SHOWN))
def test_the_meaning_of_every_column_of_a_table_is_a_sentence(table: str) -> None:
    assert [name for name, meaning in SHOWN[table].meanings.items() if not meaning.endswith(".")] == []


@pytest.mark.parametrize("system", ["lakefs", "icechunk"])
@pytest.mark.parametrize("table", sorted(TABLES))
def test_columns_are_computed_from_columns_that_exist(system: str, table: str) -> None:
    for column, sources in column_sources(system, table).items():
        assert column in TABLES[table].schema.names
        assert all(name in TABLES[source].schema.names for source, name in sources)


def test_every_check_has_a_description() -> None:
    named = {*PLAN_GUARDS, *icechunk_planning.GUARDS, *icechunk_proof.CHECKS, *lakefs_proof.CHECKS}
    assert named <= CHECKS.keys()
    assert all(text.endswith(".") for text in CHECKS.values())
