"""In every commit, the entries that the readers find are those that the server lists."""

from functools import cache

import pyarrow as pa
import pytest

from retention_assets.lakefs.formats.ranges import FULL, read_metarange, read_range
from tests.lakefs.formats.tables import read_table
from tests.saved_repositories import REPOSITORIES, api, namespace, objects_by_commit


@cache
def entries_of(name: str, range_id: str) -> pa.RecordBatch:
    file = namespace(name) / "_lakefs" / range_id
    return read_range(file.read_bytes(), str(file))


def ranges_of(name: str, metarange_id: str) -> pa.RecordBatch:
    file = namespace(name) / "_lakefs" / metarange_id
    return read_metarange(file.read_bytes(), str(file))


def listed(name: str, commit_id: str, metarange_id: str) -> list[tuple[object, ...]]:
    """Return the objects of a commit as the server lists them, in order."""
    root = api(name)["repository"]["storage_namespace"]
    found: list[tuple[object, ...]] = []
    for range_id in ranges_of(name, metarange_id)["range_id"].to_pylist():
        for row in entries_of(name, range_id).to_pylist():
            address = row["address"] if row["address_type"] == FULL else f"{root}/{row['address']}"
            mtime = int(row["last_modified"].timestamp())
            found.append((commit_id, row["key"], address, row["size"], row["etag"], mtime))
    return found


@pytest.mark.parametrize("name", REPOSITORIES)
def test_every_commit_has_the_objects_that_the_server_lists(name: str) -> None:
    found = [
        row
        for commit in api(name)["commits"]
        if commit["meta_range_id"]
        for row in listed(name, commit["id"], commit["meta_range_id"])
    ]
    truth = objects_by_commit(name).select(["commit_id", "path", "physical_address", "size_bytes", "checksum", "mtime"])
    assert sorted(found) == sorted(zip(*(column.to_pylist() for column in truth.columns), strict=True))


@pytest.mark.parametrize("name", REPOSITORIES)
def test_a_metarange_has_the_correct_counts_and_bounds_of_its_ranges(name: str) -> None:
    for metarange_id in {commit["meta_range_id"] for commit in api(name)["commits"]} - {""}:
        for row in ranges_of(name, metarange_id).to_pylist():
            keys = entries_of(name, row["range_id"])["key"]
            first, last = keys[0].as_py().encode(), keys[-1].as_py().encode()
            assert (len(keys), first, last) == (row["count"], row["min_key"], row["max_key"])


@pytest.mark.parametrize("name", REPOSITORIES)
def test_every_table_under_the_prefix_has_the_id_it_is_named_by(name: str) -> None:
    files = [path for path in (namespace(name) / "_lakefs").iterdir() if len(path.name) == 64]
    assert len(files) > 10
    for file in files:
        assert read_table(file.read_bytes(), str(file)).content_id == file.name
