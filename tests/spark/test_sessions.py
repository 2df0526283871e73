"""Sessions whose executors run in other processes have this package."""

from typing import Any

import pytest
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from retention_assets.errors import ConfigurationError
from retention_assets.spark.sessions import prepared


class Settings(dict[str, str]):
    """The settings of a session on a cluster."""

    def set(self, key: str, value: str) -> None:
        """Change one setting."""
        self[key] = value


class ClusterSession:
    """The part of a session on a cluster that `prepared` uses. Its executors import the files in `sent`."""

    def __init__(self) -> None:
        self.conf = Settings({"spark.master": "spark://cluster:7077"})
        self.sent: list[str] = []

    def addArtifacts(self, path: str, *, pyfile: bool) -> None:
        """Send a file to the executors."""
        assert pyfile
        self.sent.append(path)


def test_every_new_session_gets_the_package_once() -> None:
    for _ in range(20):  # Python gives a new session the address of one that is gone
        session: Any = ClusterSession()
        for _ in range(2):
            prepared(lambda session=session: session)
        assert len(session.sent) == 1
        del session


def test_a_java_that_is_missing_is_reported_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark starts `java` in a process of its own, so the test does the same without a session of this process."""
    monkeypatch.setenv("JAVA_HOME", "/no/java")

    def start() -> SparkSession:
        launch_gateway()
        raise AssertionError("Java was started")

    with pytest.raises(ConfigurationError, match=r"^Java did not start\. JAVA_HOME is /no/java\..* Install Java 17 or"):
        prepared(start)
