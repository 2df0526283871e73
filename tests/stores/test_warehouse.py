"""Documents of the warehouse that only one of several writers may write."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from retention_assets.errors import StoreError
from retention_assets.stores.warehouse import Warehouse
from tests.stores.s3 import Bucket

PLACE = ("orchard", "leases", "00000001.json")


@pytest.fixture(params=["local", "url"])
def warehouse(request: pytest.FixtureRequest, tmp_path: Path, bucket: Bucket) -> Iterator[Warehouse]:
    """A warehouse in a directory, and one behind a URL, for which the environment has the options."""
    if request.param == "local":
        yield Warehouse(str(tmp_path))
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT", bucket.endpoint)
        patch.setenv("AWS_ALLOW_HTTP", "true")
        yield Warehouse(f"s3a://{bucket.name}/tables")


def test_a_document_that_is_there_is_not_created_again(warehouse: Warehouse) -> None:
    assert warehouse.create_document({"holder": "a"}, *PLACE) is True
    assert warehouse.create_document({"holder": "b"}, *PLACE) is False
    assert warehouse.create_document({"holder": "a"}, *PLACE) is False
    assert warehouse.read_document(*PLACE) == {"holder": "a"}


def test_of_several_writers_at_once_one_creates_it(warehouse: Warehouse) -> None:
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda number: warehouse.create_document({"holder": number}, *PLACE), range(8)))
    assert done.count(True) == 1
    assert warehouse.read_document(*PLACE) == {"holder": done.index(True)}


def test_where_it_cannot_be_written_nothing_is_said_to_be_there(tmp_path: Path) -> None:
    warehouse = Warehouse(str(tmp_path))
    (tmp_path / "orchard").write_text("no directory")
    with pytest.raises(StoreError, match=r"cannot write 'orchard/leases/00000001\.json'"):
        warehouse.create_document({"holder": "a"}, *PLACE)
