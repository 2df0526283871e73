"""Reading objects: cases that are not in the contract of all stores."""

from pathlib import Path

import pytest

from retention_assets.errors import StoreError
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.objects import ObjectReader
from tests.objectstore.s3 import Bucket


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no such directory"):
        ObjectReader(StoreAccess(f"file://{tmp_path}/none"))


def test_a_bucket_with_a_longer_name_is_another_location(bucket: Bucket) -> None:
    bucket.client().put_object(Bucket=bucket.name, Key="some/prefixed", Body=b"")
    assert not ObjectReader(bucket.access("some/prefix")).holds_objects("")
