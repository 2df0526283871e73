"""Keeps the connections to Dagster's event log while a command runs a job."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import dagster as dg
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
from dagster._core.storage.sqlite import SQLITE_BUSY_TIMEOUT_SECONDS
from sqlalchemy import Connection, Engine, create_engine


@contextmanager
def kept_connections(instance: dg.DagsterInstance) -> Iterator[None]:
    """Keep the connections to the event log until the block ends, if the log is in SQLite.

    Dagster makes an SQLAlchemy engine and opens a file for each of the 400 statements of a plan. In a running session,
    this takes a tenth of the time of a small plan.
    """
    log = instance.event_log_storage
    if not isinstance(log, SqliteEventLogStorage):
        yield
        return
    opened, engines = log._connect, dict[str, Engine]()

    def connect(shard: str) -> AbstractContextManager[Connection]:
        if shard in engines:
            return engines[shard].begin()
        limits = {"timeout": SQLITE_BUSY_TIMEOUT_SECONDS}
        engines[shard] = create_engine(log.conn_string_for_shard(shard), connect_args=limits)
        return opened(shard)  # makes the tables of a new file

    vars(log)["_connect"] = connect
    try:
        yield
    finally:
        del vars(log)["_connect"]
        for engine in engines.values():
            engine.dispose()
