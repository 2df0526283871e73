"""An S3 server and an approved plan, one per process, and new buckets with orchard."""

from collections.abc import Callable, Iterator
from itertools import count

import pytest
from pyspark.sql import SparkSession

from retention_assets.spark import sessions
from tests.conftest import COMPILED, INTERPRETED
from tests.end_to_end.approved import Approved, approve_orchard
from tests.end_to_end.s3_server import Lake, S3Server, lake, s3_server

_NUMBERS = count()


@pytest.fixture(scope="module")
def compiled(spark: SparkSession) -> Iterator[None]:
    """Let Spark compile its queries, as in production."""
    for name, value in COMPILED.items():
        spark.conf.set(name, value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sessions, "_FEW_OBJECTS", -1)
        yield
    for name, value in INTERPRETED.items():
        spark.conf.set(name, value)


@pytest.fixture(scope="session")
def s3(clean_environment: None) -> Iterator[S3Server]:
    with s3_server() as running:
        yield running


@pytest.fixture(scope="session")
def new_lake(s3: S3Server) -> Callable[[], Lake]:
    return lambda: lake(s3, f"orchard-{next(_NUMBERS)}")


@pytest.fixture(scope="session")
def approved(spark: SparkSession, new_lake: Callable[[], Lake], tmp_path_factory: pytest.TempPathFactory) -> Approved:
    return approve_orchard(tmp_path_factory.mktemp("approved"), new_lake())
