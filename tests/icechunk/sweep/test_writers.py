"""icechunk writers in other processes commit without pause while this package edits: no commit is lost."""

from itertools import count as count_up
from pathlib import Path

import icechunk as ic
import pytest

from retention_assets.icechunk.administration.operations import Operations
from retention_assets.icechunk.edits.publishing import publish
from retention_assets.icechunk.formats.ids import decode_id
from retention_assets.icechunk.rules.snapshots import reachable
from retention_assets.icechunk.source.repository import IcechunkSource
from tests.icechunk.sweep.repositories import POLICY, histories, now, planned, tree, uploaded
from tests.icechunk.sweep.writer import storage_of
from tests.icechunk.sweep.writers import WRITERS, Writers, refused
from tests.icechunk_repositories import FORMATS, Format
from tests.objectstore.s3 import Bucket

__all__ = ["refused"]


def write_and_publish(directory: Path, bucket: Bucket, spec_version: Format, count: int) -> int:
    """Edit while icechunk commits, require that no edit and no commit is lost, and return the number of conflicts."""
    repository = tree(directory / "r", spec_version)
    for name in WRITERS:
        repository.open().create_branch(name, repository.ids["f"])
    access = uploaded(repository.directory, bucket)
    plan = planned(IcechunkSource(access, now).state())
    ours = Operations(access, now, lambda line: None)
    made, conflicts = [], 0
    with Writers(bucket, count) as writers:
        published = publish(access, plan, POLICY, now, lambda line: None)
        for number in count_up():
            conflicts += ours.create_tag(f"t{number}", repository.ids["f"])
            made.append(f"t{number}")
            if not writers.at_work:
                break
    opened = ic.Repository.open(storage_of(bucket.endpoint, bucket.name, "repository"))
    assert published.references_removed == ("refs/branch.old", "refs/tag.v1")
    assert opened.list_tags() == {"v2", *made}
    for name, commits in writers.commits.items():
        assert len(commits) == count
        line = [one.id for one in opened.ancestry(branch=name)]
        assert line[:-3] == commits[::-1]
        assert histories(opened)[f"branch {name}"][-3:] == ["f", "e", "-"]
    history = IcechunkSource(access, now).state().history
    assert not {decode_id(one) for one in plan.released} & reachable(history, history.tips())
    return published.conflicts + conflicts


@pytest.mark.long
@pytest.mark.parametrize("spec_version", FORMATS, ids=["format_1", "format_2"])
def test_no_commit_is_lost_beside_writers_at_work(
    tmp_path: Path, bucket: Bucket, refused: list[str], spec_version: Format
):
    assert write_and_publish(tmp_path, bucket, spec_version, 8) == len(refused)


@pytest.mark.slow
@pytest.mark.parametrize("spec_version", FORMATS, ids=["format_1", "format_2"])
def test_no_commit_is_lost_beside_writers_that_work_for_long(
    tmp_path: Path, bucket: Bucket, refused: list[str], spec_version: Format
):
    assert write_and_publish(tmp_path, bucket, spec_version, 150) == len(refused)
