"""This package changes branches, tags and the status of real repositories of both formats, and icechunk reads them."""

from pathlib import Path
from typing import NoReturn

import icechunk as ic
import pytest

from retention_assets.errors import ConfigurationError, GuardRefused, SourceError, StoreError
from retention_assets.icechunk.administration.operations import Operations
from retention_assets.icechunk.formats.ids import encode_id
from retention_assets.icechunk.formats.model import Availability
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.mutate.writing import ObjectWriter
from retention_assets.objectstore.objects import ObjectReader
from tests.icechunk.sweep.repositories import IcechunkRepository, histories, now, tree
from tests.icechunk.sweep.writer import commit_to
from tests.icechunk_repositories import FORMATS, Format

both_formats = pytest.mark.parametrize("spec_version", FORMATS, ids=["format_1", "format_2"])
NOWHERE = encode_id(bytes(12))


def on(repository: IcechunkRepository) -> Operations:
    return Operations(repository.access, now, lambda line: None)


@both_formats
def test_references_are_created_moved_and_deleted_and_icechunk_still_works(tmp_path: Path, spec_version: Format):
    repository = tree(tmp_path / "r", spec_version)
    ids, ours = repository.ids, on(repository)
    ours.create_branch("side", ids["a"])
    ours.create_tag("v3", ids["c"])
    ours.reset_branch("side", ids["x"])
    ours.reset_branch("main", ids["d"], expected=ids["f"])
    ours.delete_branch("old")
    ours.delete_tag("v1")
    found = histories(repository.open())
    assert {name: line[0] for name, line in found.items()} == {
        "branch dev": "y", "branch main": "d", "branch side": "x", "tag v2": "f", "tag v3": "c",
    }  # fmt: skip
    opened = repository.open()
    with pytest.raises(ic.IcechunkError, match=r"already|deleted"):
        opened.create_tag("v1", ids["a"])
    for branch in ("main", "side"):
        commit_to(opened, branch)
    opened.delete_branch("side")
    opened.delete_tag("v3")
    opened.create_branch("old", ids["z"])
    assert histories(repository.open())["branch main"] == ["number 11", "d", "c", "b", "a", "-"]


def test_every_operation_is_an_entry_of_the_log_as_icechunk_reads_it(tmp_path: Path):
    repository = tree(tmp_path / "r", 2)
    ids, ours = repository.ids, on(repository)
    before = len(list(repository.open().ops_log()))
    ours.create_branch("side", ids["a"])
    ours.reset_branch("side", ids["b"])
    ours.delete_branch("side")
    ours.create_tag("v3", ids["c"])
    ours.delete_tag("v3")
    ours.set_status(Availability.READ_ONLY, "moving")
    ours.set_status(Availability.ONLINE)
    log = list(repository.open().ops_log())
    assert [type(entry.kind).__name__ for entry in log[:7]] == [
        "RepoStatusChanged", "RepoStatusChanged", "TagDeleted", "TagCreated", "BranchDeleted", "BranchReset",
        "BranchCreated",
    ]  # fmt: skip
    assert len(log) == before + 7


def test_a_repository_is_set_read_only_and_online_for_icechunk(tmp_path: Path):
    repository = tree(tmp_path / "r", 2)
    on(repository).set_status(Availability.READ_ONLY, "moving")
    status = repository.open().get_status()
    assert (status.availability, status.limited_availability_reason) == (ic.RepoAvailability.read_only, "moving")
    with pytest.raises(ic.IcechunkError):
        repository.open().create_tag("v3", repository.ids["a"])
    with pytest.raises(GuardRefused, match=r"read-only \(reason: moving\)"):
        on(repository).create_tag("v3", repository.ids["a"])
    on(repository).set_status(Availability.ONLINE)
    commit_to(repository.open())


@both_formats
@pytest.mark.parametrize(
    ("operation", "violation"),
    [
        ("create_branch dev a", "a branch 'dev' already"),
        ("create_branch new nowhere", f"no snapshot {NOWHERE}"),
        ("create_branch new q", "'q' is not the id of a snapshot"),
        ("delete_branch main", "'main' cannot be deleted"),
        ("delete_branch gone", "no branch 'gone'"),
        ("reset_branch gone a", "no branch 'gone'"),
        ("reset_branch dev nowhere", f"no snapshot {NOWHERE}"),
        ("reset_branch dev a b", "'dev' is on .*, not on"),
        ("create_tag v1 a", "a tag 'v1' already"),
        ("create_tag v3 nowhere", f"no snapshot {NOWHERE}"),
        ("delete_tag gone", "no tag 'gone'"),
    ],
)
def test_a_refused_operation_changes_nothing(tmp_path: Path, spec_version: Format, operation: str, violation: str):
    repository = tree(tmp_path / "r", spec_version)
    before = repository.files()
    ids = {**repository.ids, "nowhere": NOWHERE}
    name, *arguments = (ids.get(word, word) for word in operation.split())
    with pytest.raises((GuardRefused, ConfigurationError), match=f"{violation}.*Nothing"):
        getattr(on(repository), name)(*arguments)
    assert repository.files() == before


@pytest.mark.parametrize("operation", ["create_branch new", "create_tag new", "reset_branch main"])
def test_a_reference_of_format_1_is_not_put_on_a_snapshot_whose_ancestor_is_deleted(tmp_path: Path, operation: str):
    """A sweep that was stopped may have deleted only some of the snapshots that the plan released."""
    repository = tree(tmp_path / "r", 1)
    ids = repository.ids
    method, name = operation.split()
    repository.open().reset_branch("main", ids["c"])
    repository.open().delete_tag("v2")
    (repository.directory / "snapshots" / ids["d"]).unlink()
    before = repository.files()
    refused = f"the snapshot {ids['e']} has an ancestor without a file, {ids['d']}.*Nothing was changed"
    with pytest.raises(GuardRefused, match=refused):
        getattr(on(repository), method)(name, ids["e"])
    assert repository.files() == before
    getattr(on(repository), method)(name, ids["b"])
    assert repository.state().format == 1


@pytest.mark.parametrize(
    ("snapshot", "read"),
    [
        pytest.param("f", "f", id="tip_of_main"),
        pytest.param("b", "b", id="tip_of_a_tag_below_main"),
        pytest.param("e", "edc", id="ancestor_of_a_tip"),
    ],
)
def test_in_format_1_a_reference_reads_snapshots_only_up_to_the_first_tip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: str, read: str
):
    """The tag v1 is on b."""
    repository = tree(tmp_path / "r", 1)
    paths: list[str] = []
    read_object = ObjectReader.read

    def counted(self: ObjectReader, path: str) -> bytes:
        paths.append(path)
        return read_object(self, path)

    monkeypatch.setattr(ObjectReader, "read", counted)
    on(repository).create_tag("v3", repository.ids[snapshot])
    assert [path for path in paths if path.startswith("snapshots/")] == [f"snapshots/{repository.ids[n]}" for n in read]


@both_formats
def test_the_name_of_a_deleted_tag_is_never_used_again(tmp_path: Path, spec_version: Format):
    repository = tree(tmp_path / "r", spec_version)
    repository.open().delete_tag("v1")
    with pytest.raises(GuardRefused, match="the tag 'v1' was deleted"):
        on(repository).create_tag("v1", repository.ids["a"])
    with pytest.raises(GuardRefused, match="no tag 'v1'"):
        on(repository).delete_tag("v1")


@pytest.mark.parametrize("name", ["a/b", "é", "", "..", "a b"])
def test_format_1_cannot_have_names_that_icechunk_would_not_see(tmp_path: Path, name: str):
    repository = tree(tmp_path / "r", 1)
    before = repository.files()
    for make in (on(repository).create_branch, on(repository).create_tag):
        with pytest.raises(GuardRefused, match=r"cannot be a name in format 1. Nothing was changed"):
            make(name, repository.ids["a"])
    assert repository.files() == before


def test_format_1_has_no_status(tmp_path: Path):
    repository = tree(tmp_path / "r", 1)
    refused = rf"^{repository.access.url}: .* format 1 has no status\. Nothing was changed\. Upgrade it"
    with pytest.raises(GuardRefused, match=refused):
        on(repository).set_status(Availability.READ_ONLY)


def test_a_branch_of_format_1_that_moves_meanwhile_is_not_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    repository = tree(tmp_path / "r", 1)
    ours = on(repository)
    read = ObjectReader.read_with_metadata

    def read_and_let_another_commit(self: ObjectReader, path: str):
        found = read(self, path)
        if path == "refs/branch.dev/ref.json":
            commit_to(repository.open(), "dev")
        return found

    monkeypatch.setattr(ObjectReader, "read_with_metadata", read_and_let_another_commit)
    for act in (lambda: ours.delete_branch("dev"), lambda: ours.reset_branch("dev", repository.ids["a"])):
        with pytest.raises(GuardRefused, match="another writer moved or deleted the branch 'dev'"):
            act()
    assert histories(repository.open())["branch dev"][:2] == ["number 11", "number 11"]


def test_a_change_that_an_upgrade_may_have_missed_is_not_reported_as_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    repository = tree(tmp_path / "r", 1)
    create = ObjectWriter.create

    def upgrade_and_create(self: ObjectWriter, path: str, content: bytes) -> bool:
        ic.upgrade_icechunk_repository(repository.open(), dry_run=False)
        return create(self, path, content)

    monkeypatch.setattr(ObjectWriter, "create", upgrade_and_create)
    refused = r"was upgraded to format 2 while this change was made.*may be missing in the .*Make the change again\.$"
    with pytest.raises(SourceError, match=refused) as raised:
        on(repository).create_branch("side", repository.ids["a"])
    assert "Nothing was changed" not in str(raised.value)
    assert (repository.directory / "refs/branch.side/ref.json").is_file()
    monkeypatch.undo()
    on(repository).create_branch("side", repository.ids["a"])
    assert histories(repository.open())["branch side"] == ["a", "-"]


def test_a_change_in_format_1_says_that_it_was_made_if_the_repository_cannot_be_read_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    repository = tree(tmp_path / "r", 1)
    create = ObjectWriter.create

    def fail(self: ObjectReader, path: str) -> NoReturn:
        raise StoreError(f"cannot read {path!r}: down. Nothing was changed.")

    def create_and_fail(self: ObjectWriter, path: str, content: bytes) -> bool:
        done = create(self, path, content)
        monkeypatch.setattr(ObjectReader, "read_with_metadata", fail)
        return done

    monkeypatch.setattr(ObjectWriter, "create", create_and_fail)
    said = r"the change was made in the files of format 1\..*'repo': down\. Nothing more was.*No record of this tool"
    with pytest.raises(StoreError, match=said):
        on(repository).create_branch("side", repository.ids["a"])
    assert repository.open().lookup_branch("side") == repository.ids["a"]


def test_without_a_repository_nothing_is_created(tmp_path: Path):
    with pytest.raises(SourceError, match="there is no Icechunk repository"):
        Operations(StoreAccess(f"file://{tmp_path}"), now, print).create_branch("new", NOWHERE)
    assert not list(tmp_path.iterdir())
