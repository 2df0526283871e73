"""Errors of Spark for which the user can do something, from texts of real errors."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from retention_assets.errors import AccessDenied, StoreError, TableContractError, WorkerError
from retention_assets.spark.failures import explaining, refused_write
from retention_assets.tables import OF_LEDGER
from tests.warehouse.test_warehouse import flip_page

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
        explaining(),
    ):
        raise RuntimeError(TEMPORARY)


def test_another_full_disk_is_not_that_of_the_temporary_files() -> None:
    with pytest.raises(RuntimeError, match="No space left"), explaining():
        raise RuntimeError(NO_ROWS + FULL)


UNREAD = (
    "Job aborted due to stage failure: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file "
    "file:///tables%201/orchard/addresses/2026-11-01/part-0.snappy.parquet.  SQLSTATE: KD001\n\tat org\n"
)


def test_a_file_that_spark_cannot_read_is_named_with_the_remedy() -> None:
    with pytest.raises(TableContractError) as refused, explaining():
        raise RuntimeError(f"{UNREAD}Caused by: a.Decoding\nCaused by: java.io.IOException: FAILED_TO_UNCOMPRESS(5)\n")
    assert str(refused.value) == (
        "file:///tables 1/orchard/addresses/2026-11-01/part-0.snappy.parquet: Spark cannot read this file: "
        "java.io.IOException: FAILED_TO_UNCOMPRESS(5). Nothing more was deleted. Run the same command again. If it "
        "fails again, the file is damaged. Make the table again: `retention plan orchard --as-of 2026-11-01`."
    )


@pytest.mark.parametrize("cause", ["java.io.FileNotFoundException: gone", str(WorkerError(StoreError("a")))])
def test_a_missing_file_and_an_error_of_a_worker_are_not_called_damaged(cause: str) -> None:
    with pytest.raises(RuntimeError), explaining():
        raise RuntimeError(f"{UNREAD}Caused by: {cause}\n")


def test_spark_names_a_file_with_a_damaged_page(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "orchard" / "ledger" / "2026-11-01" / "a-hash" / "00000001-run" / "1-done.parquet"
    file.parent.mkdir(parents=True)
    pq.write_table(pa.table({"address": [f"data/{number:06}" for number in range(2000)]}), file)
    flip_page(file)
    with pytest.raises(TableContractError, match="Spark cannot read this file") as refused, explaining():
        spark.read.parquet(str(file)).agg({"address": "max"}).collect()
    assert str(file) in str(refused.value)
    assert OF_LEDGER in str(refused.value)
