"""Copying a saved repository for the demo."""

import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from retention_assets.demo import sample
from retention_assets.demo.field import make_field
from retention_assets.demo.sample import copy_demo, place_sample
from retention_assets.errors import ConfigurationError, CorruptFile, StoreError
from tests.saved_repositories import DATA, REPOSITORIES, listing

PROJECT = Path(__file__).parents[2]


def tree(root: Path) -> dict[str, tuple[int, datetime]]:
    """Size and time of each file below `root`."""
    return {
        path.relative_to(root).as_posix(): (path.stat().st_size, datetime.fromtimestamp(path.stat().st_mtime, UTC))
        for path in root.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A sample of three files. One has a comma in its name, and one has no content in the sample."""
    source = tmp_path / "small"
    (source / "namespace" / "_lakefs").mkdir(parents=True)
    (source / "namespace" / "data").mkdir()
    (source / "namespace" / "_lakefs" / "dummy").write_bytes(b"d")
    (source / "namespace" / "data" / "a,signature").write_bytes(b"four")
    (source / "listing.csv").write_text(
        "key,size,last_modified,etag\n"
        "small/_lakefs/dummy,1,2026-06-01T06:00:00Z,x\n"
        '"small/data/a,signature",4,2026-06-02T06:00:00Z,x\n'
        "small/data/left_out,1000,2026-06-03T06:00:00Z,x\n",
        encoding="utf-8",
    )
    return source


@pytest.mark.parametrize("name", REPOSITORIES)
def test_a_sample_has_exactly_the_listed_files_with_their_sizes_and_times(name: str, tmp_path: Path) -> None:
    placed = place_sample(DATA / name, tmp_path / "lake")
    assert tree(tmp_path / "lake") == {entry.address: (entry.size, entry.last_modified) for entry in listing(name)}
    assert placed == len(listing(name))


def test_stored_files_are_copied_and_omitted_files_are_filled_with_zeros(small: Path, tmp_path: Path) -> None:
    place_sample(small, tmp_path / "lake")
    assert (tmp_path / "lake" / "data" / "a,signature").read_bytes() == b"four"
    assert (tmp_path / "lake" / "data" / "left_out").read_bytes() == bytes(1000)


def test_an_older_copy_is_replaced_with_all_its_changes(small: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    place_sample(small, lake)
    before = tree(lake)
    (lake / "data" / "left_out").unlink()
    (lake / "_lakefs" / "dummy").write_bytes(b"changed")
    (lake / "data" / "new").touch()
    place_sample(small, lake)
    assert tree(lake) == before


def test_files_of_an_interrupted_copy_are_removed(small: Path, tmp_path: Path) -> None:
    (tmp_path / "lake.placing").mkdir()
    (tmp_path / "lake.placing" / "half").touch()
    place_sample(small, tmp_path / "lake")
    assert not (tmp_path / "lake.placing").exists()
    assert not (tmp_path / "lake" / "half").exists()


def test_a_directory_with_other_files_is_refused_and_not_changed(small: Path, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("years", encoding="utf-8")
    with pytest.raises(StoreError, match="not a copy of the sample"):
        place_sample(small, tmp_path / "home")
    assert (tmp_path / "home" / "thesis.tex").read_text(encoding="utf-8") == "years"


def test_the_namespace_of_another_repository_is_refused_and_not_changed(small: Path, tmp_path: Path) -> None:
    (tmp_path / "lake" / "_lakefs").mkdir(parents=True)
    (tmp_path / "lake" / "_lakefs" / "0f3a").write_bytes(b"a range")
    before = tree(tmp_path / "lake")
    with pytest.raises(StoreError, match="not a copy of the sample"):
        place_sample(small, tmp_path / "lake")
    assert tree(tmp_path / "lake") == before


@pytest.mark.parametrize("inside", [".", "namespace", "..", "elsewhere"])
def test_a_sample_is_never_copied_over_itself(small: Path, inside: str) -> None:
    before = tree(small)
    with pytest.raises(StoreError, match=r"cannot be copied over .*\. Nothing was removed\. Choose another path"):
        place_sample(small, small / inside)
    assert tree(small) == before


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        pytest.param(
            ("data/a,signature", b"four\r\n"),
            r"6 bytes, but listing\.csv says 4\. Nothing was copied\. Restore the sample: remove \S+/retention\.yaml",
            id="line_ends_converted",
        ),
        pytest.param(
            ("data/stray", b"?"),
            r"does not name 1 file, such as 'data/stray'\. Nothing was copied\. Remove the files",
            id="a_file_that_is_not_listed",
        ),
    ],
)
def test_a_damaged_sample_is_refused_and_the_older_copy_stays(
    small: Path, tmp_path: Path, damage: tuple[str, bytes], message: str
) -> None:
    place_sample(small, tmp_path / "lake")
    before = tree(tmp_path / "lake")
    (small / "namespace" / damage[0]).write_bytes(damage[1])
    with pytest.raises(CorruptFile, match=message):
        place_sample(small, tmp_path / "lake")
    assert tree(tmp_path / "lake") == before
    assert not (tmp_path / "lake.placing").exists()


def test_a_folder_without_a_listing_is_refused_as_a_sample(small: Path, tmp_path: Path) -> None:
    (small / "listing.csv").unlink()
    with pytest.raises(StoreError, match=r"listing\.csv: the file does not exist.* Nothing was copied\. Restore"):
        place_sample(small, tmp_path / "lake")
    assert not (tmp_path / "lake").exists()


def test_a_damaged_sample_of_a_checkout_is_restored_with_git(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample, "_CHECKOUT", small.parent.resolve())
    (small / "listing.csv").unlink()
    with pytest.raises(StoreError, match=rf"Restore the sample: `git checkout {small}`"):
        place_sample(small, tmp_path / "lake")


def test_a_damaged_sample_is_copied_again_after_its_configuration_was_removed(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "packaged").mkdir()
    (tmp_path / "packaged" / "retention.yaml").touch()
    small.rename(tmp_path / "packaged" / "orchard")
    monkeypatch.setattr(sample, "_CHECKOUT", tmp_path / "nowhere")
    monkeypatch.setattr(sample, "_PACKAGED", tmp_path / "packaged")
    monkeypatch.chdir(tmp_path)
    file = copy_demo()
    (file.parent / "orchard" / "listing.csv").unlink()
    with pytest.raises(StoreError, match=rf"remove {file}, and run `retention demo`"):
        place_sample(file.parent / "orchard", tmp_path / "lake")
    file.unlink()
    assert copy_demo() == file
    assert place_sample(file.parent / "orchard", tmp_path / "lake") == 3


def test_the_demo_holds_the_same_repository_as_the_tests(tmp_path: Path) -> None:
    place_sample(PROJECT / "demo" / "orchard", tmp_path / "demo")
    place_sample(DATA / "orchard", tmp_path / "tests")
    assert tree(tmp_path / "demo") == tree(tmp_path / "tests")


def test_the_copy_of_a_read_only_sample_can_be_written_and_replaced(small: Path, tmp_path: Path) -> None:
    for path in (small / "namespace").rglob("*"):
        if path.is_file():
            path.chmod(0o444)
    place_sample(small, tmp_path / "lake")
    assert (tmp_path / "lake" / "_lakefs" / "dummy").stat().st_mode & stat.S_IWUSR
    (tmp_path / "lake" / "_lakefs" / "dummy").write_bytes(b"changed")
    place_sample(small, tmp_path / "lake")
    assert (tmp_path / "lake" / "_lakefs" / "dummy").read_bytes() == b"d"


def below_a_file(tmp_path: Path) -> Path:
    """Return a folder that nobody can make."""
    (tmp_path / "file").write_bytes(b"")
    return tmp_path / "file" / "folder"


UNWRITABLE = (
    r"file/folder: cannot write to this folder: Not a directory\. Nothing was read or deleted\. "
    r"Run `retention demo` in a folder that you can write\.$"
)


def test_a_sample_in_a_folder_that_cannot_be_written_names_the_folder_and_the_remedy(
    small: Path, tmp_path: Path
) -> None:
    folder = below_a_file(tmp_path)
    with pytest.raises(ConfigurationError, match=UNWRITABLE):
        place_sample(small, folder / "small")
    with pytest.raises(ConfigurationError, match=UNWRITABLE):
        make_field(folder / "field")


def test_an_installed_demo_in_a_folder_that_cannot_be_written_names_the_folder_and_the_remedy(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = below_a_file(tmp_path)
    monkeypatch.setattr(sample, "_PACKAGED", small)
    monkeypatch.setattr(sample, "demo_configuration", lambda: folder / "retention.yaml")
    with pytest.raises(ConfigurationError, match=UNWRITABLE):
        copy_demo()
