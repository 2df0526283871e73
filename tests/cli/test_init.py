"""`init` writes a valid configuration, and `access` names missing permissions. Neither changes existing objects."""

import json
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console
from werkzeug.wrappers import Request, Response

from retention_assets.cli import initializing
from retention_assets.config.configuration import load_configuration
from retention_assets.config.settings import FromEnvironment
from retention_assets.config.starter import Starter, configuration_text, options_of_environment
from tests.end_to_end.command import Answer, environment, files_below, run
from tests.end_to_end.s3_server import Lake, S3Server, error, is_listing, lake, s3_server
from tests.icechunk_repositories import create_repository
from tests.lakefs.source.fake_lakefs_repository import saved
from tests.lakefs.source.fake_lakefs_server import ACCESS_KEY, SECRET_KEY, FakeLakeFSServer, serving
from tests.lakefs.source.fake_lakefs_server import Answer as ServerAnswer
from tests.saved_repositories import api, copy_saved_repository

CREDENTIALS = {"LAKECTL_CREDENTIALS_ACCESS_KEY_ID": ACCESS_KEY, "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": SECRET_KEY}


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def s3(clean_environment: None) -> Iterator[S3Server]:
    with s3_server() as running:
        yield running


@pytest.fixture(scope="module")
def bucket(s3: S3Server) -> Lake:
    return lake(s3, "orchard-of-init")


@pytest.fixture(scope="module")
def server(bucket: Lake) -> Iterator[FakeLakeFSServer]:
    repository = saved("orchard")
    repository.namespace = bucket.storage
    with serving(repository) as running:
        yield running


def init(server: FakeLakeFSServer, bucket: Lake, *arguments: str, **variables: str) -> Answer:
    keys = {"AWS_ENDPOINT_URL": bucket.server.endpoint, **CREDENTIALS, **variables}
    with environment(**keys):
        return run("init", "orchard", "--server", server.url, *arguments)


def states(answer: Answer) -> dict[str, str]:
    return {f"{one['place']} {one['permission']}": one["state"] for one in answer.document()["checks"]}


def test_init_for_a_server_and_a_bucket_needs_only_credentials(
    server: FakeLakeFSServer, bucket: Lake, empty_folder: Path
) -> None:
    before = bucket.listing()
    answer = init(server, bucket)
    assert answer.status == 0, answer.err
    assert answer.out.endswith("Next: retention lint\n")
    assert "plan: nothing is missing" in answer.out
    assert bucket.listing() == before
    assert {call.method for call in server.calls} == {"GET"}
    repository = load_configuration(empty_folder / "retention.yaml").repository("orchard")
    assert repository.namespace == bucket.storage
    assert repository.settings.mode == "plan"
    written = "".join(file.read_text("utf-8") for file in empty_folder.glob("*.yaml"))
    assert "AWS_SECRET_ACCESS_KEY" in written
    assert not [secret for secret in (SECRET_KEY, ACCESS_KEY, "testing") if secret in written]
    rules = api("orchard")["gc_rules"]
    assert f"default: {rules['default_retention_days']}d" in written
    assert all(
        f"{{branch: {rule['branch_id']}, keep: {rule['retention_days']}d}}" in written for rule in rules["branches"]
    )


def test_an_existing_file_is_overwritten_only_with_overwrite(
    server: FakeLakeFSServer, bucket: Lake, empty_folder: Path
) -> None:
    (empty_folder / "policy.yaml").write_text("mine", encoding="utf-8")
    answer = init(server, bucket)
    assert answer.status == 2
    assert "policy.yaml: exists already. Nothing was written." in answer.err
    assert files_below(empty_folder).keys() == {"policy.yaml"}
    assert init(server, bucket, "--overwrite").status == 0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        pytest.param(
            ("--option", "secret_access_key=hunter2"), "is a secret: write `{env: NAME}`", id="a literal secret"
        ),
        pytest.param(("--secret-key-env", "hunter2/"), "the name of an environment variable", id="not a variable"),
        pytest.param(("--access-key-env", "NOT_SET"), "environment variable NOT_SET is not set", id="no credentials"),
        pytest.param(("--keep", "long"), "--keep", id="no duration"),
    ],
)
def test_bad_input_writes_nothing_and_shows_no_secret(
    server: FakeLakeFSServer, bucket: Lake, empty_folder: Path, arguments: tuple[str, ...], problem: str
) -> None:
    answer = init(server, bucket, *arguments)
    assert answer.status == 2
    assert problem in " ".join(answer.err.split())
    assert "hunter2" not in answer.err
    assert not list(empty_folder.iterdir())


def test_without_a_terminal_the_missing_option_is_named(empty_folder: Path) -> None:
    answer = run("init", "orchard")
    assert answer.status == 2
    assert "--server is missing" in answer.err


class Terminal(StringIO):
    """Standard input of a terminal with the answers of a person."""

    def isatty(self) -> bool:
        return True


def test_on_a_terminal_init_asks_for_missing_options(
    server: FakeLakeFSServer, bucket: Lake, empty_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(f"orchard\n{server.url}\n"))
    with environment(AWS_ENDPOINT_URL=bucket.server.endpoint, **CREDENTIALS):
        answer = run("init")
    assert answer.status == 0, answer.out + answer.err
    assert load_configuration(empty_folder / "retention.yaml").repository("orchard").namespace == bucket.storage


@pytest.mark.parametrize(
    ("place", "variables", "options"),
    [
        ("gs://lake/x", {"GOOGLE_APPLICATION_CREDENTIALS": "/k.json"}, {"application_credentials"}),
        (
            "https://lake.blob.core.windows.net/c/x",
            {"AZURE_STORAGE_ACCOUNT_NAME": "lake", "AZURE_STORAGE_SAS_TOKEN": "sig"},
            {"account_name", "sas_key"},
        ),
        ("s3://lake/x", {"AWS_SESSION_TOKEN": "t"}, {"access_key_id", "secret_access_key", "session_token", "region"}),
        ("/srv/lake", {}, set()),
    ],
    ids=["gcs", "azure", "s3", "local"],
)
def test_storage_options_refer_to_the_environment_variables_that_are_set(
    place: str, variables: dict[str, str], options: set[str]
) -> None:
    with environment(**variables):
        found = options_of_environment(place)
    assert found.keys() == options
    assert all(isinstance(value, FromEnvironment) for value in found.values())


@pytest.mark.parametrize("location", ["s3://lake/orchard", "s3a://lake/orchard"])
def test_a_first_configuration_shows_the_options_of_s3_in_a_comment_if_no_variable_is_set(location: str) -> None:
    starter = Starter("orchard", "lakefs", timedelta(days=30), namespace=location, dump="refs_dump.json")
    text = configuration_text(starter, "policy.yaml")
    assert "# storage_options: {access_key_id: {env: AWS_ACCESS_KEY_ID}, " in text


DENIALS: dict[str, Any] = {
    "storage s3:ListBucket": is_listing,
    "storage s3:GetObject": lambda request: request.method == "HEAD" and "quarantine" not in request.path,
    "quarantine s3:PutObject": lambda request: request.method == "PUT",
    "storage s3:DeleteObject": lambda request: _names_the_repository(request),
}
NEEDED = {
    "storage s3:ListBucket": {"plan", "quarantine", "delete"},
    "storage s3:GetObject": {"plan", "quarantine", "delete"},
    "quarantine s3:PutObject": {"quarantine"},
    "storage s3:DeleteObject": {"quarantine", "delete"},
}


def _names_the_repository(request: Request) -> bool:
    named = f"{request.path}{request.get_data().decode()}" if request.method in ("POST", "DELETE") else ""
    return "orchard/.retention" in named


@pytest.mark.parametrize("denied", DENIALS)
def test_a_denied_permission_is_named_with_the_modes_that_need_it(
    server: FakeLakeFSServer, bucket: Lake, denied: str
) -> None:
    def deny(request: Request) -> Response | None:
        return error("AccessDenied", 403) if DENIALS[denied](request) else None

    before = bucket.listing()
    with bucket.server.answering(deny):
        answer = init(server, bucket, "--json", "--try-writes")
    assert states(answer)[denied] == "refused"
    modes = {mode for mode, of in answer.document()["modes"].items() if denied.replace(" ", ": ") in of["lacking"]}
    assert modes == NEEDED[denied]
    assert answer.status == (3 if "plan" in modes else 0)
    assert bucket.listing() == before


def test_a_test_file_that_cannot_be_deleted_is_named(server: FakeLakeFSServer, bucket: Lake) -> None:
    def deny(request: Request) -> Response | None:
        text = f"{request.path}{request.get_data().decode()}" if request.method in ("POST", "DELETE") else ""
        return error("AccessDenied", 403) if "orchard.quarantine/.retention" in text else None

    before = set(bucket.listing())
    with bucket.server.answering(deny):
        answer = init(server, bucket, "--json", "--try-writes")
    (detail,) = [one["detail"] for one in answer.document()["checks"] if one["state"] == "refused"]
    (left,) = set(bucket.listing()) - before
    assert f"The file of this test, {left.rpartition('/')[2]}, stays in s3://" in detail


def test_a_deletion_that_the_store_did_not_deny_is_failed_and_not_refused(
    server: FakeLakeFSServer, bucket: Lake
) -> None:
    def fail(request: Request) -> Response | None:
        return error("InvalidRequest", 400) if request.method in ("POST", "DELETE") else None

    with bucket.server.answering(fail):
        answer = init(server, bucket, "--json", "--try-writes")
    assert {name: state for name, state in states(answer).items() if state in ("refused", "failed")} == {
        "storage s3:DeleteObject": "failed",
        "quarantine s3:DeleteObject": "failed",
    }
    details = [one["detail"] for one in answer.document()["checks"] if one["state"] == "failed"]
    assert all("No object of the repository was deleted." in detail for detail in details)
    for detail, url in zip(details, ("storage", "quarantine.url"), strict=True):
        assert detail.endswith(f"check `{url}` and `storage_options`.")
    assert sum("The file of this test, " in detail for detail in details) == 1


def test_plans_and_sweeps_that_write_results_need_the_permission_to_create_objects(
    server: FakeLakeFSServer, bucket: Lake, empty_folder: Path
) -> None:
    assert init(server, bucket).status == 0
    file = empty_folder / "retention.yaml"
    for write_results, modes, needed_by in (
        (False, set(), "only a restore needs it"),
        (True, {"plan", "quarantine", "delete"}, "plans and sweeps write results, and a restore needs it too"),
    ):
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
        document["repositories"]["orchard"]["write_results"] = write_results
        file.write_text(yaml.safe_dump(document), encoding="utf-8")
        with environment(AWS_ENDPOINT_URL=bucket.server.endpoint, **CREDENTIALS):
            answer = run("access", "orchard", "--json")
        (check,) = [
            one
            for one in answer.document()["checks"]
            if (one["place"], one["permission"]) == ("storage", "s3:PutObject")
        ]
        assert check["detail"] == f"it would create an object; {needed_by}"
        assert {
            mode for mode, of in answer.document()["modes"].items() if "storage: s3:PutObject" in of["not_tried"]
        } == modes


def test_a_directory_without_write_permission_is_reported(empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create_repository(empty_folder / "field")
    monkeypatch.setattr("os.access", lambda *_: False)  # as the operating system answers, but not for root
    answer = run("init", "field", "--kind", "icechunk", "--storage", "field", "--json")
    assert answer.status == 3, answer.err
    assert (
        "no plan can be made, because these checks failed: create files (warehouse). Nothing was deleted." in answer.err
    )
    assert not (empty_folder / "warehouse").exists()
    details = {one["detail"] for one in answer.document()["checks"] if one["state"] == "refused"}
    assert details == {
        f"{place}: this user may not write to this directory. Nothing was written. Let the user create and delete "
        "files."
        for place in (empty_folder / "field", empty_folder)
    }


def test_writing_is_tested_only_with_try_writes_and_leaves_no_objects(server: FakeLakeFSServer, bucket: Lake) -> None:
    before = bucket.listing()
    assert init(server, bucket).status == 0
    with environment(AWS_ENDPOINT_URL=bucket.server.endpoint, **CREDENTIALS):
        untried, tried = run("access", "orchard", "--json"), run("access", "orchard", "--json", "--try-writes")
        told, not_told = run("access", "orchard"), run("access", "orchard", "--try-writes")
    named = "To test writing and deleting too, with new names only: retention access orchard --try-writes"
    assert named in told.out
    assert named not in not_told.out
    assert states(untried)["storage s3:DeleteObject"] == "not tried"
    assert states(tried)["storage s3:DeleteObject"] == "allowed"
    assert [state for name, state in states(tried).items() if name.startswith("quarantine")] == ["allowed"] * 3
    assert bucket.listing() == before


def test_permissions_that_no_mode_needs_are_shown_with_what_needs_them(
    server: FakeLakeFSServer, bucket: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(initializing, "screen", Console(width=120))
    assert init(server, bucket).status == 0
    with environment(AWS_ENDPOINT_URL=bucket.server.endpoint, **CREDENTIALS):
        lines = [line.split() for line in run("access", "orchard").out.splitlines()]
    assert ["storage", "s3:PutObject", "not", "tried", "only", "restore"] in lines
    assert ["server", "fs:ListRepositories", "allowed", "no", "mode:", "without", "it,", "plans", "warn"] in lines


def test_a_permission_that_the_server_denies_is_named(server: FakeLakeFSServer, bucket: Lake) -> None:
    server.override["/repositories/orchard/tags"] = ServerAnswer(403, {"message": "no"})
    try:
        answer = init(server, bucket)
    finally:
        server.override.clear()
    assert answer.status == 3
    assert "plan: missing: fs:ListTags (server)" in answer.out
    assert "retention access orchard" in answer.err


def test_another_storage_location_than_that_of_the_server_is_detected(server: FakeLakeFSServer, bucket: Lake) -> None:
    bucket.client().create_bucket(Bucket="elsewhere")
    answer = init(server, bucket, "--storage", "s3://elsewhere/orchard")
    assert answer.status == 3
    assert "does not have the newest commit of the server" in answer.out


def test_init_for_a_dump_and_local_files_needs_no_server(empty_folder: Path) -> None:
    copy_saved_repository("orchard", empty_folder / "lake")
    (empty_folder / "dump.json").write_text(json.dumps(api("orchard")["refs_dump"]), encoding="utf-8")
    before = files_below(empty_folder / "lake")
    where = ("--dump", "dump.json", "--namespace", "s3://lake/orchard", "--storage", "lake")
    answer = run("--config", "conf/retention.yaml", "init", "orchard", *where)
    assert answer.status == 0, answer.out + answer.err
    assert "Next: retention --config conf/retention.yaml lint" in answer.out
    assert run("--config", "conf/retention.yaml", "lint", "--json").document().keys() == {"orchard"}
    assert files_below(empty_folder / "lake") == before


def test_init_reads_an_icechunk_repository(empty_folder: Path) -> None:
    storage = empty_folder / "field"
    create_repository(storage)
    answer = run("init", "field", "--kind", "icechunk", "--storage", str(storage), "--json")
    assert answer.status == 0, answer.out + answer.err
    assert states(answer)["storage is an Icechunk repository"] == "allowed"
    assert run("lint").status == 0
    refused = run("init", "field", "--kind", "icechunk", "--storage", str(empty_folder), "--overwrite")
    assert refused.status == 3
    assert "there is no Icechunk repository" in refused.out


@pytest.mark.parametrize("name", ["2024", "null", "yes", "0x1F", "1e3"])
def test_a_name_that_yaml_reads_as_another_value_is_written_in_quotes(empty_folder: Path, name: str) -> None:
    create_repository(empty_folder / "field")
    answer = run("init", name, "--kind", "icechunk", "--storage", "field", "--json")
    assert answer.status == 0, answer.out + answer.err
    assert list(load_configuration(empty_folder / "retention.yaml").repositories) == [name]


@pytest.mark.parametrize("file", ["/proc/none/retention.yaml", f"{'a' * 300}/retention.yaml"])
def test_a_file_that_cannot_be_written_is_refused_with_the_remedy(file: str) -> None:
    answer = run("--config", file, "init", "field", "--kind", "icechunk", "--storage", "field")
    assert answer.status == 2
    assert f"{Path(file).parent}" in answer.err
    assert "cannot be written: " in answer.err
    assert "`--config FILE` before `init`" in answer.err


def test_a_policy_that_cannot_be_written_is_refused_with_the_remedy(empty_folder: Path) -> None:
    (empty_folder / "policy.yaml").mkdir()
    answer = run("init", "field", "--kind", "icechunk", "--storage", "field", "--overwrite")
    assert answer.status == 2
    assert "policy.yaml: cannot be written: Is a directory. " in answer.err


def test_a_storage_of_init_is_a_path_from_the_working_directory_and_no_other_spelling(empty_folder: Path) -> None:
    for storage in ("lake", "file://lake"):
        run(
            "--config",
            "other/retention.yaml",
            "init",
            "field",
            "--kind",
            "icechunk",
            "--storage",
            storage,
            "--overwrite",
        )
        configuration = load_configuration(empty_folder / "other" / "retention.yaml")
        assert configuration.repository("field").storage == f"file://{empty_folder.resolve()}/lake"
    answer = run("--config", "new/retention.yaml", "init", "field", "--kind", "icechunk", "--storage", "file:/lake")
    assert answer.status == 2
    assert "'file:/lake' is not a URL: write file:///lake, or the path /lake" in answer.err
    assert not (empty_folder / "new").exists()


def test_options_that_are_only_for_lakefs_are_refused_for_icechunk(empty_folder: Path) -> None:
    answer = run("init", "f", "--kind", "icechunk", "--storage", "field", "--dump", "y.json", "--namespace", "s3://q")
    assert answer.status == 2
    assert "--dump, --namespace: only for lakeFS. An Icechunk repository needs" in " ".join(answer.err.split())
    assert list(empty_folder.iterdir()) == []
