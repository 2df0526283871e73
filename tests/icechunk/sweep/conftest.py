"""Buckets for tests of what several writers do at once."""

from tests.objectstore.conftest import bucket, s3_endpoint

__all__ = ["bucket", "s3_endpoint"]
