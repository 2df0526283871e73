"""A bucket of its own for each test that asks."""

from tests.objectstore.conftest import bucket, s3_endpoint

__all__ = ["bucket", "s3_endpoint"]
