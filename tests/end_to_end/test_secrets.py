"""Secrets stay in the environment: after runs that failed, and one that did not, they are in no file and no output."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote

import pytest
from werkzeug.wrappers import Request, Response

from tests.end_to_end.command import DAY, orchard
from tests.end_to_end.s3_server import REGION, Lake, error
from tests.end_to_end.test_refused_access import is_metarange
from tests.stores.lakefs_server import ACCESS_KEY, SECRET_KEY, serving
from tests.stores.lakefs_world import saved

SECRETS = {
    "RIGHT": "right/secret+of=the lake",
    "REFUSED": "refused/secret+of=the lake",
    "EXECUTORS": "secret/that+executors=use",
    "SERVER": SECRET_KEY,
    "WRONG_SERVER": "wrong/secret+of=the server",
}
# The access key of each run, and the variables of its two secrets. The store knows by the access key what to refuse.
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
    """Refuse by the access key, and show the request's own signature as an unkind store would."""
    authorization = request.headers.get("Authorization", "")
    if "key-refused/" in authorization:
        return error("SignatureDoesNotMatch", 403, authorization)
    if "key-failing-on-executors/" in authorization and is_metarange(request):
        return error("AccessDenied", 403, authorization)
    return None


@dataclass(frozen=True, slots=True)
class Left:
    """What the runs left behind: their exit statuses, output, and every file below one directory."""

    statuses: list[str]
    output: str
    files: dict[str, bytes]


@pytest.fixture(scope="module")
def left(new_lake: Callable[[], Lake], tmp_path_factory: pytest.TempPathFactory) -> Left:
    root, lake = tmp_path_factory.mktemp("secrets"), new_lake()
    temporary = root / "temporary"
    temporary.mkdir()
    files = []
    with serving(saved("orchard")) as server, lake.server.answering(refusing):
        for key, (secret, server_secret) in RUNS.items():
            options = {"endpoint": lake.server.endpoint, "region": REGION, "access_key_id": key}
            place = orchard(root / key, lake.storage, {**options, "secret_access_key": {"env": secret}})
            api = {"url": server.url, "access_key": ACCESS_KEY, "secret_key": {"env": server_secret}}
            place.write(source={"api": api}, staged=None)
            files.append(str(place.file))
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
    return Left(statuses, ended.stdout + ended.stderr, written)


def spellings(secret: str) -> list[bytes]:
    """Return a secret as it is and as URLs write it."""
    return [secret.encode(), quote(secret, safe="").encode(), quote(secret).encode()]


def test_three_runs_fail_as_they_should_and_one_does_not(left: Left) -> None:
    assert left.statuses == ["3", "3", "3", "0"], left.output


def test_the_output_holds_no_secret_and_no_traceback(left: Left) -> None:
    for secret in SECRETS.values():
        assert not any(spelling.decode() in left.output for spelling in spellings(secret))
    assert "Traceback" not in left.output
    assert "Exception" not in left.output


def test_each_failure_is_told_once_in_one_line(left: Left) -> None:
    errors = [line for line in left.output.splitlines() if line.startswith("error: ")]
    assert len(errors) == 3
    assert "SignatureDoesNotMatch" in errors[0]
    assert "AccessDenied" in errors[1]
    assert "401" in errors[2]


def test_no_file_holds_a_secret(left: Left) -> None:
    for name, content in left.files.items():
        for secret in SECRETS.values():
            assert not any(spelling in content for spelling in spellings(secret)), name


def test_the_files_that_were_searched_are_those_of_the_runs(left: Left) -> None:
    assert any(name.endswith(".db") and b"s3:GetObject" in content for name, content in left.files.items())
    assert any("/plans/" in name for name in left.files)
    assert any("/deletion_candidates/" in name and name.endswith(".parquet") for name in left.files)


def test_nothing_that_others_print_is_in_the_output(left: Left) -> None:
    noise = ("Telemetry", "log4j", "WARN ", "INFO ", "Setting", "SPARK_LOCAL_IP", "dagster.yaml")
    assert [line for line in left.output.splitlines() if any(word in line for word in noise)] == []
