"""A command ends with a message and exit status 3 when Java runs out of memory. It does not hang."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.command import DAY, Project, orchard_on_disk

# Java is asked for an array that does not fit: before a step's rows are made, or while they are written.
_RUN = """
import sys
from pyspark.core.context import SparkContext
from retention_assets.cli.main import main
from {module} import {name} as original
import {module} as module

def greedy(*arguments, **options):
    gateway = SparkContext._gateway
    arrays = [gateway.new_array(gateway.jvm.long, 2**27) for _ in range(4)]  # 4 GiB
    return original(*arguments, **options)

module.{name} = greedy
main(sys.argv[1:])
"""


@pytest.mark.slow  # each command starts a Spark of its own
@pytest.mark.parametrize(
    ("module", "name", "command"),
    [
        pytest.param("retention_assets.assets.lakefs", "take_snapshot", ("plan", "orchard"), id="a_step"),
        pytest.param("retention_assets.warehouse.table_writer", "conform", ("plan", "orchard"), id="a_table"),
        pytest.param("retention_assets.sweep.copies", "Undo", ("quarantined", "orchard"), id="a_command"),
    ],
)
def test_a_command_whose_java_is_out_of_memory_ends_and_names_the_setting(
    tmp_path: Path, module: str, name: str, command: tuple[str, ...]
) -> None:
    project: Project = orchard_on_disk(tmp_path)
    day = ("--as-of", DAY) if command[0] == "plan" else ()
    done = subprocess.run(
        [sys.executable, "-c", _RUN.format(module=module, name=name), "--config", str(project.file), *command, *day],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 3, done.stderr
    assert "Java used up its memory" in done.stderr
    assert "spark.driver.memory" in done.stderr
    assert "Traceback" not in done.stderr
