"""Names of old lakeFS versions are the repository's own only where its entries have such names."""

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from retention_assets.lakefs.names.legacy import KINDS, is_own_name, kinds_in_use
from tests import frames
from tests.frames import Pair, address, of

ROOT = "d41d8cd98f00b204e9800998ecf8427e"
LINKED = "data/orchard-main:0fd0f0a4-7b6d-4b0e-9a3e-1f2d3c4b5a69/mHdWMWSOf6mkzFvmPvO_X"
NEW = address(1)


@pytest.mark.parametrize(
    ("entries", "kinds"),
    [
        pytest.param([], set(), id="no_entry"),
        pytest.param([NEW, "s3://elsewhere/" + ROOT, "data/" + ROOT], set(), id="no_old_name"),
        pytest.param([NEW, ROOT], {"root"}, id="a_name_in_the_root"),
        pytest.param([LINKED], {"linked"}, id="a_name_of_the_link_era"),
        pytest.param([ROOT, LINKED, NEW], KINDS, id="both"),
    ],
)
def test_a_kind_of_legacy_names_is_in_use_if_any_entry_has_such_a_name(
    spark: SparkSession, entries: list[str], kinds: set[str]
) -> None:
    assert kinds_in_use(frames.addresses(spark, *(Pair(entry) for entry in entries))) == kinds


@pytest.mark.parametrize(
    ("legacy", "own"),
    [
        pytest.param((), [True, False, False], id="none"),
        pytest.param(("root",), [True, True, False], id="the_root's"),
        pytest.param(("linked",), [True, False, True], id="the_link_era's"),
        pytest.param(KINDS, [True, True, True], id="both"),
    ],
)
def test_a_legacy_name_belongs_to_the_repository_only_if_its_kind_is_in_use(
    spark: SparkSession, legacy: tuple[str, ...], own: list[bool]
) -> None:
    names = [NEW, ROOT, LINKED, "README.md"]
    assert of(spark, names, pa.string(), lambda name: is_own_name(name, legacy)) == [*own, False]
