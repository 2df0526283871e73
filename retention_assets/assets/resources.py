"""The Spark session as dagster-pyspark's lazy resource.

Dagster shows and stores a resource's configuration, so secrets stay names of environment variables until the session
starts.
"""

from collections.abc import Mapping

from dagster_pyspark import LazyPySparkResource
from pydantic import Field
from pyspark.sql import SparkSession

from retention_assets.config.settings import SparkValue
from retention_assets.core.sessions import SparkSettings, fit_to, prepared, spark_settings


class SparkResource(LazyPySparkResource):
    """The session's configuration. `secrets` has the environment variable of each key with a secret value."""

    secrets: dict[str, str] = Field(default_factory=dict)
    suits_few: bool = False  # whether `fit_to` may change the session's settings

    def _init_session(self) -> None:
        if self._spark_session is None:
            self._spark_session = SparkSettings(self.spark_config, self.secrets, self.suits_few).start()

    def fit_to(self, objects: int) -> None:
        """Set the session's SQL settings for a repository of this many listed objects.

        Sessions on a cluster, of other projects, and with settings of their own for this stay as they are.
        """
        if self.suits_few:
            fit_to(objects, session(self))


def spark_resource(settings: Mapping[str, SparkValue]) -> SparkResource:
    """Return the lazy Spark resource for `spark:` of the configuration. Use one per process: the session is global."""
    wanted = spark_settings(settings)
    return SparkResource(spark_config=dict(wanted.plain), secrets=dict(wanted.secrets), suits_few=wanted.suits_few)


def session(resource: LazyPySparkResource) -> SparkSession:
    """Return the session. Errors: as of `prepared`."""
    return prepared(lambda: resource.spark_session)
