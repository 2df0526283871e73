"""Edits warn if the configuration of a repository lets icechunk write without conditions."""

from pathlib import Path

import icechunk as ic

from retention_assets.icechunk.edits.commits import unconditional_writes_warning
from retention_assets.icechunk.formats.repo_reader import read_repo
from retention_assets.objectstore.access import StoreAccess
from tests.icechunk.sweep.writer import storage_of
from tests.icechunk_repositories import create_repository
from tests.objectstore.s3 import Bucket

IN_A_BUCKET = StoreAccess("s3://lake/r", {"region": "us-east-1"})


def test_a_configuration_with_unconditional_writes_causes_a_warning(tmp_path: Path):
    create_repository(tmp_path).save_config()
    config = read_repo((tmp_path / "repo").read_bytes(), "repo").config
    assert config is not None
    message = unconditional_writes_warning(IN_A_BUCKET, config)
    assert message is not None and "storage.unsafe_use_conditional_update" in message
    assert unconditional_writes_warning(StoreAccess(f"file://{tmp_path}"), None) is not None


def test_a_repository_that_was_created_in_a_bucket_causes_no_warning(bucket: Bucket):
    repository = ic.Repository.create(storage_of(bucket.endpoint, bucket.name, "repository"))
    config = repository.config
    config.inline_chunk_threshold_bytes = 3
    repository.reopen(config=config).save_config()
    content = bucket.client().get_object(Bucket=bucket.name, Key="repository/repo")["Body"].read()
    stored = read_repo(content, "repo").config
    assert stored is not None
    assert unconditional_writes_warning(IN_A_BUCKET, stored) is None
    assert unconditional_writes_warning(IN_A_BUCKET, None) is None
