"""The connections to Dagster's event log."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
from sqlalchemy import Engine, event, text

from retention_assets.cli.runs import kept_connections


@dg.asset(check_specs=[dg.AssetCheckSpec("fine", asset="berries")])
def berries() -> dg.MaterializeResult:
    return dg.MaterializeResult(check_results=[dg.AssetCheckResult(check_name="fine", passed=True)])


@contextmanager
def counted_connections() -> Iterator[list[str]]:
    """Yield the files of the connections that SQLAlchemy opens until the block ends."""
    opened: list[str] = []

    def note(connection: object, _: object) -> None:
        opened.append(str(connection.execute("PRAGMA database_list").fetchone()[2]))  # type: ignore[attr-defined]

    event.listen(Engine, "connect", note)
    try:
        yield opened
    finally:
        event.remove(Engine, "connect", note)


def of_a_run(instance: dg.DagsterInstance) -> tuple[dg.ExecuteInProcessResult, list[str]]:
    with counted_connections() as opened:
        result = dg.materialize([berries], instance=instance)
    return result, [file for file in opened if "history" in file and "runs.db" not in file]


def test_a_run_opens_each_file_of_the_event_log_only_a_few_times(tmp_path: Path) -> None:
    with dg.instance_for_test(temp_dir=str(tmp_path)) as instance:
        _, before = of_a_run(instance)
        with kept_connections(instance):
            result, files = of_a_run(instance)
        assert len(files) < len(before) / 2
        _, after = of_a_run(instance)
        assert len(after) > 2 * len(files)
    with dg.instance_for_test(temp_dir=str(tmp_path)) as instance:
        events = [entry.dagster_event_type for entry in instance.all_logs(result.run_id) if entry.is_dagster_event]
        check = instance.get_latest_materialization_event(dg.AssetKey("berries"))
        assert events[-1] == dg.DagsterEventType.RUN_SUCCESS
        assert dg.DagsterEventType.ASSET_CHECK_EVALUATION in events
        assert check is not None


def waits_for_disk(instance: dg.DagsterInstance) -> bool:
    with instance.event_log_storage.index_connection() as connection:  # type: ignore[attr-defined]
        return connection.execute(text("PRAGMA synchronous")).scalar() != 1


def test_a_run_does_not_wait_for_the_disk_after_each_event(tmp_path: Path) -> None:
    def in_full(connection: object, _: object) -> None:
        connection.execute("PRAGMA synchronous = FULL")  # type: ignore[attr-defined]  # SQLite's default

    event.listen(Engine, "connect", in_full)
    try:
        with dg.instance_for_test(temp_dir=str(tmp_path)) as instance:
            with kept_connections(instance):
                assert not waits_for_disk(instance)
            assert waits_for_disk(instance)
    finally:
        event.remove(Engine, "connect", in_full)


def test_a_log_that_is_not_in_sqlite_files_stays_as_it_is() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        with kept_connections(instance):
            assert dg.materialize([berries], instance=instance).success
        assert "_connect" not in vars(instance.event_log_storage)
