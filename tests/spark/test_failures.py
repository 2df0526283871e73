"""Errors of Spark for which the user can do something, from texts of real errors."""

import pytest

from retention_assets.errors import AccessDenied, StoreError, WorkerError
from retention_assets.spark.failures import refused_write, reporting_exhaustion

NO_TASK = "Job aborted due to stage failure: Task 1 in stage 1.0 failed 1 times: "
NO_ROWS = "[TASK_WRITE_FAILED] Task failed while writing rows to file:/tables/t. SQLSTATE: 58030\n"
FULL = "java.io.IOException: No space left on device\n"
TEMPORARY = NO_TASK + FULL + "\tat org.apache.spark.storage.TimeTrackingOutputStream.write(:59)"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param(NO_ROWS + "Caused by: " + FULL, "No space left on device", id="full"),
        pytest.param(
            NO_TASK + "java.io.IOException: Mkdirs failed to create file:/tables/t/_temporary\n\tat org",
            "Mkdirs failed to create file:/tables/t/_temporary",
            id="denied_directory",
        ),
        pytest.param(
            "java.io.FileNotFoundException: /tables/t/part-0 (Read-only file system)\n",
            "Read-only file system)",
            id="read_only",
        ),
        pytest.param(
            "java.nio.file.AccessDeniedException: s3a://tables/t: PUT: Access Denied (Status Code: 403)\n",
            "AccessDeniedException: s3a://tables/t: PUT: Access Denied (Status Code: 403)",
            id="denied_bucket",
        ),
        pytest.param(TEMPORARY, None, id="full_disk_of_temporary_files"),
        pytest.param(
            NO_ROWS + "Caused by: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:/tables/other. "
            "Caused by: /tables/other (Permission denied)",
            None,
            id="denied_read",
        ),
        pytest.param(NO_ROWS + str(WorkerError(AccessDenied("a: AccessDenied"))), None, id="own_error_of_a_worker"),
        pytest.param(NO_ROWS + "Caused by: java.lang.NullPointerException", None, id="unknown"),
    ],
)
def test_an_error_of_spark_refuses_a_write_only_if_the_files_cannot_be_written(text: str, reason: str | None) -> None:
    assert refused_write(text) == reason


def test_a_full_disk_of_temporary_files_names_the_setting() -> None:
    remedy = r"Nothing more was done\. Free space on it.*spark\.local\.dir.*Then run the same command again"
    with (
        pytest.raises(StoreError, match=f"^The disk of Spark's temporary files is full.* {remedy}"),
        reporting_exhaustion(),
    ):
        raise RuntimeError(TEMPORARY)


def test_another_full_disk_is_not_that_of_the_temporary_files() -> None:
    with pytest.raises(RuntimeError, match="No space left"), reporting_exhaustion():
        raise RuntimeError(NO_ROWS + FULL)
