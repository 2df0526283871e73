"""Secrets stay in the environment: after successful and failed runs, they are in no file and no output."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml
from werkzeug.wrappers import Request, Response

from tests.end_to_end.approved import SINGLE_MACHINE
from tests.end_to_end.command import DAY, Project, orchard
from tests.end_to_end.s3_server import REGION, Lake, error
from tests.end_to_end.test_refused_access import is_metarange
from tests.icechunk.sweep.repositories import tree, uploaded
from tests.lakefs.source.fake_lakefs_repository import saved
from tests.lakefs.source.fake_lakefs_server import ACCESS_KEY, SECRET_KEY, serving
from tests.objectstore.s3 import Bucket

SECRETS = {
    "RIGHT": "right/secret+of=the lake",
    "REFUSED": "refused/secret+of=the lake",
    "EXECUTORS": "secret/that+executors=use",
    "SERVER": SECRET_KEY,
    "WRONG_SERVER": "wrong/secret+of=the server",
}
# The access key of each run, and the variables of its two secrets. The store refuses requests by their access key.
RUNS = {
    "key-refused": ("REFUSED", "SERVER"),
    "key-failing-on-executors": ("EXECUTORS", "SERVER"),
    "key-of-no-user": ("RIGHT", "WRONG_SERVER"),
    "key-right": ("RIGHT", "SERVER"),
}
PLAN_EACH = """
import sys
from retention_assets.cli.main import main
for file in sys.argv[2:]:
    try:
        main(["--config", file, "plan", "orchard", "--as-of", sys.argv[1]])
    except SystemExit as ended:
        print("status", ended.code)
"""


def refusing(request: Request) -> Response | None:
    """Refuse the request with an error that has the access key and the signature."""
    authorization = request.headers.get("Authorization", "")
    if "key-refused/" in authorization:
        return error("SignatureDoesNotMatch", 403, authorization)
    if "key-failing-on-executors/" in authorization and is_metarange(request):
        return error("AccessDenied", 403, authorization)
    return None


@dataclass(frozen=True, slots=True)
class RunResults:
    """The results of the runs: exit statuses, output, and every file below one directory."""

    statuses: list[str]
    output: str
    files: dict[str, bytes]


@pytest.fixture(scope="module")
def results(new_lake: Callable[[], Lake], tmp_path_factory: pytest.TempPathFactory) -> RunResults:
    root, lake = tmp_path_factory.mktemp("secrets"), new_lake()
    temporary = root / "temporary"
    temporary.mkdir()
    files = []
    with serving(saved("orchard")) as server, lake.server.answering(refusing):
        for key, (secret, server_secret) in RUNS.items():
            options = {"endpoint": lake.server.endpoint, "region": REGION, "access_key_id": key}
            project = orchard(root / key, lake.storage, {**options, "secret_access_key": {"env": secret}})
            api = {"url": server.url, "access_key": ACCESS_KEY, "secret_key": {"env": server_secret}}
            project.write(source={"api": api}, staged=None)
            files.append(str(project.file))
        ended = subprocess.run(
            [sys.executable, "-c", PLAN_EACH, DAY, *files],
            env={**os.environ, **SECRETS, "DAGSTER_HOME": str(root), "TMPDIR": str(temporary)},
            cwd=root,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
    statuses = [line.removeprefix("status ") for line in ended.stdout.splitlines() if line.startswith("status ")]
    written = {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    return RunResults(statuses, ended.stdout + ended.stderr, written)


def forms_of(secret: str) -> list[bytes]:
    """Return a secret in plain and URL-encoded form."""
    return [secret.encode(), quote(secret, safe="").encode(), quote(secret).encode()]


@pytest.mark.slow
def test_three_runs_fail_as_expected_and_one_succeeds(results: RunResults) -> None:
    assert results.statuses == ["3", "3", "3", "0"], results.output


@pytest.mark.slow
def test_the_output_holds_no_secret_and_no_traceback(results: RunResults) -> None:
    for secret in SECRETS.values():
        assert not any(spelling.decode() in results.output for spelling in forms_of(secret))
    assert "Traceback" not in results.output
    assert "Exception" not in results.output


@pytest.mark.slow
def test_each_failure_is_printed_once_in_one_line(results: RunResults) -> None:
    errors = [line for line in results.output.splitlines() if line.startswith("error: ")]
    assert len(errors) == 3
    assert "SignatureDoesNotMatch" in errors[0]
    assert "AccessDenied" in errors[1]
    assert "401" in errors[2]


@pytest.mark.slow
def test_no_file_holds_a_secret(results: RunResults) -> None:
    for name, content in results.files.items():
        for secret in SECRETS.values():
            assert not any(spelling in content for spelling in forms_of(secret)), name


@pytest.mark.slow
def test_the_search_for_secrets_includes_the_files_of_the_runs(results: RunResults) -> None:
    assert any(name.endswith(".db") and b"s3:GetObject" in content for name, content in results.files.items())
    assert any("/plans/" in name for name in results.files)
    assert any("/deletion_candidates/" in name and name.endswith(".parquet") for name in results.files)


@pytest.mark.slow
def test_the_output_has_no_lines_of_spark_or_dagster(results: RunResults) -> None:
    noise = ("Telemetry", "log4j", "WARN ", "INFO ", "Setting", "SPARK_LOCAL_IP", "dagster.yaml")
    assert [line for line in results.output.splitlines() if any(word in line for word in noise)] == []


# ---- complete scenarios of both kinds of repository, watched from beginning to end

CANARIES = {
    "CANARY_LAKE": "canary/of+the=lake",
    "CANARY_FIELD": "canary/of+the=field",
    "CANARY_TABLES": "canary/of+the=tables",
    "CANARY_SERVER": SECRET_KEY,
}
WATCHED = pytest.mark.slow
ROOT = Path(__file__).parents[2]


def spark_of(root: Path) -> dict[str, Any]:
    """Return the settings of a session with secrets, whose event log and files are below `directory`."""
    (root / "events").mkdir(exist_ok=True)
    return {
        "spark.hadoop.fs.s3a.access.key": "a-key",
        "spark.hadoop.fs.s3a.secret.key": {"env": "CANARY_TABLES"},
        "spark.local.dir": str(root / "local"),
        "spark.eventLog.enabled": True,
        "spark.eventLog.dir": (root / "events").as_uri(),
    }


def icechunk_field(root: Path, lake: Lake) -> Project:
    """Return a project for an Icechunk repository in a bucket of the lake's server."""
    made = tree(root / "made", 2)
    bucket = Bucket(lake.server.endpoint, f"{lake.bucket}-field", "key-of-the-field", "none")
    bucket.client().create_bucket(Bucket=bucket.name)
    access = uploaded(made.directory, bucket)
    options = {name: value for name, value in access.options.items() if "secret" not in name}
    options["secret_access_key"] = {"env": "CANARY_FIELD"}
    own = {"storage": access.url, "storage_options": options, "policy": "policy.yaml", "grace": "1s"}
    field = Project(
        root,
        {"kind": "icechunk", "mode": "delete", "sweep": SINGLE_MACHINE, **own},
        spark=spark_of(root.parent),
        name="field",
    )
    policy = {"snapshots": {"default": {"keep_newer": "300d"}, "delete_expired_branches": True}}
    (root / "policy.yaml").write_text(yaml.safe_dump(policy), encoding="utf-8")
    field.write()
    return field


@pytest.fixture(scope="module")
def watched(new_lake: Callable[[], Lake], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root, lake = tmp_path_factory.mktemp("watched"), new_lake()
    for name in ("temporary", "dagster", "local", "orchard", "field"):
        (root / name).mkdir()
    field = icechunk_field(root / "field", lake)
    with serving(saved("orchard")) as server:
        options = {"endpoint": lake.server.endpoint, "region": REGION, "access_key_id": "key-of-the-lake"}
        project = orchard(root / "orchard", lake.storage, {**options, "secret_access_key": {"env": "CANARY_LAKE"}})
        project.spark = spark_of(root)
        api = {"url": server.url, "access_key": ACCESS_KEY, "secret_key": {"env": "CANARY_SERVER"}}
        project.write(source={"api": api}, staged=None, mode="quarantine", sweep=SINGLE_MACHINE)
        time.sleep(2)  # the field's files are then older than its grace period
        driver = [sys.executable, "-m", "tests.end_to_end.secrets_driver", str(root), DAY]
        ended = subprocess.run(
            [*driver, str(project.file), str(field.file)],
            env={
                **os.environ,
                **CANARIES,
                "PYTHONPATH": str(ROOT),
                "DAGSTER_HOME": str(root / "dagster"),
                "TMPDIR": str(root / "temporary"),
            },
            cwd=root,
            capture_output=True,
            text=True,
            timeout=1_500,
            check=False,
        )
    assert ended.returncode == 0, ended.stderr[-3_000:]
    document: dict[str, Any] = json.loads(ended.stdout)
    return {**document, "stderr": ended.stderr}


@WATCHED
def test_both_repositories_were_planned_approved_swept_and_verified(watched: dict[str, Any]) -> None:
    assert watched["statuses"] == [0] * 17, watched["output"]


@WATCHED
def test_no_file_held_a_secret_at_any_moment_of_the_runs(watched: dict[str, Any]) -> None:
    assert watched["found_in_files"] == []
    seen = "\n".join(watched["files"])
    for project in ("/local/", "/dagster/", "/events/", "/warehouse/orchard/ledger/", "/warehouse/field/"):
        assert project in seen


@WATCHED
def test_neither_output_nor_logs_nor_snapshots_nor_process_lists_show_a_secret(watched: dict[str, Any]) -> None:
    assert not watched["found_in_output"]
    assert not watched["found_in_arguments"]
    assert not watched["found_in_snapshots"]
    assert watched["shown"] > 10_000
    for canary in CANARIES.values():
        assert not any(spelling.decode() in watched["stderr"] for spelling in forms_of(canary))
