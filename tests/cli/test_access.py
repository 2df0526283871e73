"""`access` tests the warehouse, the inventories and the witness, and leaves no file there that it may remove."""

import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml
from werkzeug.wrappers import Request, Response

from tests.end_to_end.command import Answer, Json, Project, environment, files_below, orchard_on_disk, run
from tests.end_to_end.s3_server import Lake, Listing, S3Server, deletions, empty_lake, error, is_listing, s3_server
from tests.inventories import MadeInventory, Row, make_inventory

PLACES = ("warehouse", "inventory", "witness")
EVERY, SWEEPS = {"plan", "quarantine", "delete"}, {"quarantine", "delete"}
SECRET = "the-secret-of-the-test"
READS = {
    "warehouse s3:ListBucket",
    "warehouse s3:GetObject",
    "inventory s3:ListBucket",
    "inventory s3:GetObject",
    "inventory lists the repository's bucket",
    "witness s3:ListBucket",
}
WRITES = {
    "warehouse s3:PutObject",
    "warehouse conditional writes",
    "warehouse s3:DeleteObject",
    "witness s3:PutObject",
    "witness s3:GetObject",
    "witness s3:DeleteObject",
}
_NUMBERS = count()


@pytest.fixture(scope="module")
def s3(clean_environment: None) -> Iterator[S3Server]:
    with s3_server() as running:
        yield running


@pytest.fixture
def places(s3: S3Server, tmp_path: Path) -> "Places":
    return Places(s3, tmp_path)


class Places:
    """A project of orchard on disk, with its warehouse, its inventory and its witness in three buckets."""

    def __init__(self, server: S3Server, directory: Path) -> None:
        self.server, number = server, next(_NUMBERS)
        self.buckets: dict[str, Lake] = {
            place: empty_lake(server, f"{place}-{number}", "inventories" if place == "inventory" else "below")
            for place in PLACES
        }
        options = {
            "endpoint": server.endpoint,
            "region": "us-east-1",
            "access_key_id": "any",
            "secret_access_key": {"env": "STORE_SECRET"},
        }
        self.project = orchard_on_disk(directory)
        self.project.tables = self.buckets["warehouse"].storage.replace("s3://", "s3a://")
        made = delivery()
        self.deliver(made)
        inventory = {"url": f"s3://{self.buckets['inventory'].bucket}/{made.folder}", "format": "CSV"}
        self.project.settings["inventory"] = {**inventory, "storage_options": options}
        self.records = {"witness": self.buckets["witness"].storage, "storage_options": options}

    def deliver(self, made: MadeInventory, *, without: str = " ") -> None:
        """Write a delivery in place of all others, without the objects whose key has the text `without`."""
        bucket = self.buckets["inventory"]
        for address in bucket.listing():
            bucket.delete(address)
        for key, content in made.objects.items():
            if without not in key:
                bucket.put(key.removeprefix("inventories/"), content)

    def access(self, *arguments: str) -> Answer:
        """Run `access`. Its output never has the secret."""
        with environment(AWS_ENDPOINT_URL=self.server.endpoint, STORE_SECRET=SECRET):
            answer = access(self.project, self.records, *arguments)
        assert SECRET not in answer.out + answer.err
        return answer

    def listings(self) -> dict[str, Listing]:
        """Return the objects of each bucket."""
        return {place: bucket.listing() for place, bucket in self.buckets.items()}

    def denying(self, place: str, denied: Callable[[Request], object]) -> Callable[[Request], Response | None]:
        """Return a rule that denies some requests to the bucket of a place."""
        bucket = self.buckets[place].bucket

        def deny(request: Request) -> Response | None:
            is_there = request.path.split("/")[1] == bucket
            return error("AccessDenied", 403) if is_there and denied(request) else None

        return deny


def delivery(bucket: str = "lake", file_format: str = "CSV") -> MadeInventory:
    """Return an inventory of a bucket with two files."""
    return make_inventory([Row("orchard/data/a"), Row("orchard/data/b")], bucket, datetime.now(UTC), file_format)


def access(project: Project, records: Json, *arguments: str) -> Answer:
    """Run `access --json` on a project with these settings of the records."""
    project.write()
    document = {**yaml.safe_load(project.file.read_text(encoding="utf-8")), "records": records}
    project.file.write_text(yaml.safe_dump(document), encoding="utf-8")
    return run("--config", project.file, "access", project.name, "--json", *arguments)


def checks(answer: Answer) -> dict[str, Json]:
    """Return the checks of the places of this module, by place and permission."""
    return {f"{one['place']} {one['permission']}": one for one in answer.document()["checks"] if one["place"] in PLACES}


def with_state(answer: Answer, state: str) -> set[str]:
    return {name for name, one in checks(answer).items() if one["state"] == state}


def lacking(answer: Answer) -> dict[str, set[str]]:
    """Return the modes that lack a permission, by place and permission."""
    found: dict[str, set[str]] = {}
    for mode, of in answer.document()["modes"].items():
        for name in of["lacking"]:
            found.setdefault(name.replace(": ", " ", 1), set()).add(mode)
    return found


def test_reading_is_always_tested_and_writing_only_with_try_writes_which_leaves_no_file(places: Places) -> None:
    before, methods = places.listings(), set()

    def record(request: Request) -> None:
        methods.add(request.method)

    with places.server.answering(record):
        untried = places.access()
    assert untried.status == 0, untried.err
    assert (with_state(untried, "allowed"), with_state(untried, "not tried")) == (READS, WRITES)
    assert methods <= {"GET", "HEAD"}
    tried = places.access("--try-writes")
    assert tried.status == 0, tried.err
    assert with_state(tried, "allowed") == READS | WRITES
    assert places.listings() == before


def test_every_mode_needs_the_warehouse_and_the_inventory_and_only_sweeps_need_the_witness(places: Places) -> None:
    modes = {name: set(one["modes"]) for name, one in checks(places.access()).items()}
    only_sweeps = {"warehouse conditional writes", "witness s3:ListBucket", "witness s3:PutObject"}
    only_sweeps |= {"witness s3:GetObject"}
    assert {name for name, needed_by in modes.items() if needed_by == SWEEPS} == only_sweeps
    assert {name for name, needed_by in modes.items() if needed_by == set()} == {"witness s3:DeleteObject"}
    assert {name for name, needed_by in modes.items() if needed_by == EVERY} == (READS | WRITES) - only_sweeps - {
        "witness s3:DeleteObject"
    }


def reads(request: Request) -> bool:
    return request.method in ("GET", "HEAD") and not is_listing(request)


def writes(request: Request) -> bool:
    return request.method == "PUT"


@pytest.mark.parametrize(
    ("check", "denied", "modes"),
    [
        pytest.param("warehouse s3:ListBucket", is_listing, EVERY, id="list the warehouse"),
        pytest.param("warehouse s3:GetObject", reads, EVERY, id="read the warehouse"),
        pytest.param("warehouse s3:PutObject", writes, EVERY, id="write to the warehouse"),
        pytest.param("warehouse s3:DeleteObject", deletions, EVERY, id="delete in the warehouse"),
        pytest.param("inventory s3:ListBucket", is_listing, EVERY, id="list an inventory"),
        pytest.param("inventory s3:GetObject", reads, EVERY, id="read an inventory"),
        pytest.param("witness s3:ListBucket", is_listing, SWEEPS, id="list the witness"),
        pytest.param("witness s3:PutObject", writes, SWEEPS, id="write to the witness"),
        pytest.param("witness s3:GetObject", reads, SWEEPS, id="read the witness"),
    ],
)
def test_a_denied_request_is_reported_with_the_modes_that_need_it(
    places: Places, check: str, denied: Callable[[Request], object], modes: set[str]
) -> None:
    before, place = places.listings(), check.split()[0]
    with places.server.answering(places.denying(place, denied)):
        answer = places.access("--try-writes")
    found = checks(answer)[check]
    assert found["state"] == "refused"
    assert places.buckets[place].bucket in found["detail"]
    assert lacking(answer)[check] == modes
    assert all(name.startswith(place) for name in lacking(answer))
    assert answer.status == (3 if "plan" in modes else 0)
    if check != "warehouse s3:DeleteObject":
        assert places.listings() == before


def test_the_test_file_is_named_if_the_credentials_may_not_delete_it_in_the_warehouse(places: Places) -> None:
    with places.server.answering(places.denying("warehouse", deletions)):
        answer = places.access("--try-writes")
    (left,) = places.buckets["warehouse"].listing()
    detail = checks(answer)["warehouse s3:DeleteObject"]["detail"]
    assert f"cannot remove '{left}': the store denied the request (AccessDenied). It was not removed. " in detail


def test_a_witness_that_lets_nobody_delete_files_is_complete_and_the_file_that_stays_is_named(places: Places) -> None:
    with places.server.answering(places.denying("witness", deletions)):
        answer = places.access("--try-writes")
    (left,) = places.buckets["witness"].listing()
    found = checks(answer)["witness s3:DeleteObject"]
    assert (answer.status, lacking(answer), found["state"]) == (0, {}, "refused")
    assert f"cannot delete {left!r}: " in found["detail"]
    assert found["detail"].endswith("A witness is safest if nobody may delete its files. No action is needed.")
    with places.server.answering(places.denying("witness", deletions)), environment(COLUMNS="150"):
        shown = run_as_text(places)
    assert "no mode: only this test" in shown.out
    assert "s3:DeleteObject (witness): s3://" in shown.out


def test_a_deletion_at_the_witness_that_failed_for_another_reason_needs_no_action_either(places: Places) -> None:
    bucket = places.buckets["witness"].bucket

    def fail(request: Request) -> Response | None:
        is_there = request.path.split("/")[1] == bucket
        return error("InvalidRequest", 400) if is_there and deletions(request) else None

    with places.server.answering(fail):
        answer = places.access("--try-writes")
    found = checks(answer)["witness s3:DeleteObject"]
    assert (answer.status, lacking(answer), found["state"]) == (0, {}, "failed")
    assert "The file of this test stays there. Nothing else was written. " in found["detail"]
    assert found["detail"].endswith("A witness is safest if nobody may delete its files. No action is needed.")


def run_as_text(places: Places) -> Answer:
    with environment(AWS_ENDPOINT_URL=places.server.endpoint, STORE_SECRET=SECRET):
        return run("--config", places.project.file, "access", places.project.name, "--try-writes")


@pytest.mark.parametrize("condition", ["If-None-Match", "If-Match"])
def test_a_warehouse_whose_store_ignores_conditions_is_not_good_for_sweeps(places: Places, condition: str) -> None:
    def ignore(request: Request) -> None:
        request.environ.pop(f"HTTP_{condition.upper().replace('-', '_')}", None)

    before = places.listings()
    with places.server.answering(ignore):
        answer = places.access("--try-writes")
    found = checks(answer)["warehouse conditional writes"]
    assert found["state"] == "failed"
    assert f"the store ignored the condition {condition}: " in found["detail"]
    assert lacking(answer) == {"warehouse conditional writes": SWEEPS}
    assert answer.status == 0
    assert places.listings() == before


def test_the_file_that_sweeps_use_to_test_conditions_stays_unchanged(places: Places) -> None:
    """If `access` removed it, a sweep that tests the store at the same time would be refused."""
    places.buckets["warehouse"].put("_conditions", b"of a sweep")
    before = places.listings()
    assert places.access("--try-writes").status == 0
    assert places.listings() == before


def test_after_a_first_request_that_fails_no_more_are_sent_to_the_warehouse(places: Places) -> None:
    places.project.tables = "s3a://no-such-bucket/tables"
    answer = places.access("--try-writes")
    of_warehouse = [one for name, one in checks(answer).items() if name.startswith("warehouse")]
    assert [one["state"] for one in of_warehouse] == ["failed"]
    assert "the bucket does not exist" in of_warehouse[0]["detail"]
    assert answer.status == 3


# ---- inventories that a plan could not use


@pytest.mark.parametrize(
    ("made", "without", "check", "problem"),
    [
        pytest.param(delivery(), "checksum", "s3:ListBucket", "no complete inventory has been delivered", id="partial"),
        pytest.param(delivery(), "manifest.json", "s3:GetObject", "cannot read", id="no manifest"),
        pytest.param(delivery(), "/data/", "s3:GetObject", "is missing. Nothing was deleted.", id="no files"),
        pytest.param(delivery("lake", "ORC"), " ", "s3:GetObject", "Correct `inventory.format`", id="another format"),
    ],
)
def test_an_unusable_inventory_is_reported_with_the_problem(
    places: Places, made: MadeInventory, without: str, check: str, problem: str
) -> None:
    places.deliver(made, without=without)
    answer = places.access()
    found = checks(answer)[f"inventory {check}"]
    assert (answer.status, found["state"]) == (3, "failed")
    assert problem in found["detail"]
    assert lacking(answer) == {f"inventory {check}": EVERY}


def test_an_inventory_of_another_bucket_than_that_of_the_repository_is_reported(places: Places) -> None:
    other = delivery("pond")
    places.deliver(other)
    places.project.settings["inventory"]["url"] = f"s3://{places.buckets['inventory'].bucket}/{other.folder}"
    answer = places.access()
    (found,) = lacking(answer).items()
    assert found == ("inventory lists the repository's bucket", EVERY)
    assert "list pond, not the bucket 'lake'" in checks(answer)[found[0]]["detail"]


def test_a_witness_whose_credentials_are_not_set_is_no_obstacle_to_a_plan(places: Places) -> None:
    places.records["storage_options"] = {"secret_access_key": {"env": "NOT_SET"}}
    answer = places.access()
    assert answer.status == 0, answer.err
    assert lacking(answer) == {"witness a location": SWEEPS}
    assert "NOT_SET" in checks(answer)["witness a location"]["detail"]


def test_an_inventory_whose_credentials_are_not_set_is_reported(places: Places) -> None:
    places.project.settings["inventory"]["storage_options"] = {"secret_access_key": {"env": "NOT_SET"}}
    answer = places.access()
    assert answer.status == 3
    assert lacking(answer) == {"inventory a location": EVERY}
    assert "NOT_SET" in checks(answer)["inventory a location"]["detail"]


# ---- directories of this machine


@pytest.fixture
def on_disk(tmp_path: Path) -> Project:
    """A project whose warehouse, inventory and witness are directories. Neither warehouse nor witness exists yet."""
    project = orchard_on_disk(tmp_path)
    url = delivery().write_to(tmp_path / "deliveries")
    project.settings["inventory"] = {"url": url, "format": "CSV"}
    return project


WITNESS: dict[str, Any] = {"witness": "witness"}


@pytest.mark.parametrize("exist", [False, True], ids=["directories that do not exist", "directories that exist"])
def test_directories_are_tested_without_writing_to_them(on_disk: Project, exist: bool) -> None:
    for name in ("warehouse", "witness") if exist else ():
        (on_disk.directory / name).mkdir()
    access(on_disk, WITNESS)
    before = files_below(on_disk.directory), sorted(on_disk.directory.iterdir())
    answer = access(on_disk, WITNESS, "--try-writes")
    assert answer.status == 0, answer.err
    assert with_state(answer, "allowed") == {
        "warehouse read files",
        "warehouse create files",
        "inventory list files",
        "inventory read files",
        "inventory lists the repository's bucket",
        "witness list files",
        "witness create files",
    }
    assert {name for name in before[0] if name != "retention.yaml"} == {
        name for name in files_below(on_disk.directory) if name != "retention.yaml"
    }
    assert sorted(on_disk.directory.iterdir()) == before[1]


def test_directories_in_which_this_user_may_not_write_are_reported(
    on_disk: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda _, mode: not mode & os.W_OK)  # as without root
    answer = access(on_disk, WITNESS)
    assert answer.status == 3
    assert with_state(answer, "refused") == {"warehouse create files", "witness create files"}
    assert lacking(answer)["warehouse create files"] == EVERY
    assert lacking(answer)["witness create files"] == SWEEPS


def test_a_warehouse_that_this_version_cannot_read_is_reported(on_disk: Project) -> None:
    (on_disk.directory / "warehouse").mkdir()
    (on_disk.directory / "warehouse" / "warehouse.json").write_text('{"layout": 99}', encoding="utf-8")
    answer = access(on_disk, WITNESS)
    assert answer.status == 3
    assert lacking(answer) == {"warehouse read files": EVERY}
    assert "has layout 99" in checks(answer)["warehouse read files"]["detail"]


@pytest.mark.parametrize(("place", "modes"), [("warehouse", EVERY), ("witness", SWEEPS)])
def test_a_file_in_the_place_of_a_directory_is_reported(on_disk: Project, place: str, modes: set[str]) -> None:
    (on_disk.directory / place).write_text("no directory", encoding="utf-8")
    answer = access(on_disk, WITNESS)
    (found,) = [needed_by for name, needed_by in lacking(answer).items() if name.startswith(place)]
    assert found == modes


def test_an_inventory_whose_directory_does_not_exist_is_reported(on_disk: Project) -> None:
    on_disk.settings["inventory"]["url"] = "nowhere"
    answer = access(on_disk, WITNESS)
    assert answer.status == 3
    assert lacking(answer) == {"inventory list files": EVERY}
