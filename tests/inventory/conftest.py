"""A bucket of its own for each test that asks."""

from tests.objectstore.conftest import bucket, guarded, s3_endpoint

__all__ = ["bucket", "guarded", "s3_endpoint"]
