"""The error of a failed run."""

from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from dagster._utils.error import SerializableErrorInfo

from retention_assets.assets.runs import _OWN_ERRORS, daily, day_of, failure_of
from retention_assets.errors import ConfigurationError, GuardRefused, RetentionError

RANGE_START, RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"


def failed_step(message: str) -> Any:
    """Return the event of a step that failed with an unexpected error."""
    error = SerializableErrorInfo(message, stack=[], cls_name="ValueError")
    data = SimpleNamespace(error=error)
    return SimpleNamespace(
        event_type=None, is_step_failure=True, step_failure_data=data, step_key="orchard__commit_graph"
    )


@pytest.mark.parametrize("tags", [{}, {RANGE_START: "2026-11-01", RANGE_END: "2026-11-02"}], ids=["none", "several"])
def test_a_run_without_a_day_or_with_several_is_refused(tags: dict[str, str]) -> None:
    @dg.asset(partitions_def=daily)
    def dated(context: dg.AssetExecutionContext) -> None:
        day_of(context)

    job = dg.Definitions(assets=[dated]).resolve_implicit_global_asset_job_def()
    with (
        dg.DagsterInstance.ephemeral() as instance,
        pytest.raises(ConfigurationError, match="has no day, or several: "),
    ):
        job.execute_in_process(instance=instance, tags=tags)


@pytest.mark.parametrize("message", ["ValueError: no such column", "ValueError: no such column.\n\nDetails."])
def test_an_unexpected_error_of_a_step_is_one_sentence_of_the_message(message: str) -> None:
    error = failure_of([failed_step(message)], "orchard_plan", "r1")
    assert str(error) == (
        "commit_graph: ValueError: no such column. Nothing more was done. The Dagster UI has the details: run r1."
    )


def test_an_error_about_files_that_spark_no_longer_finds_names_the_other_run_that_may_have_removed_them() -> None:
    message = (
        "py4j.protocol.Py4JJavaError: An error occurred while calling o15.parquet.\n: org.apache.spark.SparkException:"
        " Job aborted.\n\tat org.apache\nCaused by: java.io.FileNotFoundException: File /w/a/_temporary/0 is gone\n"
    )
    error = failure_of([failed_step(message)], "orchard_plan", "r1")
    assert str(error) == (
        "commit_graph: py4j.protocol.Py4JJavaError: org.apache.spark.SparkException: Job aborted. Nothing more was "
        "done. Another run may have written or removed the same tables meanwhile, such as a second plan of the day. "
        "Wait until it ends, and run the same command again. The Dagster UI has the details: run r1."
    )


def test_only_errors_of_this_package_are_raised_again_for_a_failed_step() -> None:
    """Other names in the module of the errors, such as a type that it imports, are not errors of ours."""
    assert set(_OWN_ERRORS.values()) >= {RetentionError, GuardRefused}
    assert all(issubclass(one, RetentionError) for one in _OWN_ERRORS.values())


def test_a_run_whose_process_died_did_not_fail_before_any_step() -> None:
    started = SimpleNamespace(event_type=dg.DagsterEventType.STEP_START, is_step_failure=False)
    message = str(failure_of([started], "orchard_plan", "r1"))  # type: ignore[list-item]
    assert message.startswith("orchard_plan: the run r1 ended during a step, without an error. Its process may have")
    assert "failed before any step" in str(failure_of([], "orchard_plan", "r1"))
