"""An Icechunk repository on S3 is planned and swept while icechunk writers commit without pause."""

import time
from collections.abc import Mapping
from pathlib import Path

import icechunk as ic
import numpy as np
import pytest
import yaml
import zarr

from tests.end_to_end.command import Project
from tests.icechunk.sweep.repositories import tree, uploaded
from tests.icechunk.sweep.writer import storage_of
from tests.icechunk.sweep.writers import WRITERS, Writers, refused
from tests.icechunk_repositories import FORMATS, Format
from tests.objectstore.s3 import Bucket

__all__ = ["refused"]

pytestmark = pytest.mark.usefixtures("spark", "refused")

GRACE = 10.0  # seconds; no session of a writer lasts as long
PAUSE = 0.5  # seconds between two commits: server, writers and sweep share two processors
KEPT = {"main": ["f", "e", "-"], "dev": ["y", "-"]}
POLICY = {"snapshots": {"default": {"keep_newer": "300d"}, "delete_expired_branches": True}}  # from 5 January on


def keys(bucket: Bucket) -> set[str]:
    pages = bucket.client().get_paginator("list_objects_v2").paginate(Bucket=bucket.name, Prefix="repository/")
    return {one["Key"].removeprefix("repository/") for page in pages for one in page.get("Contents", ())}


def lines(repository: ic.Repository, names: Mapping[str, str]) -> dict[str, list[str]]:
    """Return each branch's history, newest first, with the names of known snapshots; `-` is the root."""
    found = {}
    for branch in repository.list_branches():
        line = list(repository.ancestry(branch=branch))
        found[branch] = ["-" if one.parent_id is None else names.get(one.id, one.id) for one in line]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("spec_version", FORMATS)
def test_a_sweep_beside_writers_at_work_loses_nothing_of_theirs(
    tmp_path: Path, bucket: Bucket, spec_version: Format
) -> None:
    made = tree(tmp_path / "r", spec_version)
    for name in WRITERS:
        made.open().create_branch(name, made.ids["f"])
    access = uploaded(made.directory, bucket)
    project = Project(
        tmp_path,
        {
            "kind": "icechunk",
            "storage": access.url,
            "storage_options": {
                **{name: value for name, value in access.options.items() if "secret" not in name},
                "secret_access_key": {"env": "LAKE_SECRET"},
            },
            "policy": "policy.yaml",
            "grace": f"{GRACE:.0f}s",
            "mode": "delete",
            "sweep": {"single_machine": True},
        },
        name="field",
    )
    project.write()
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(POLICY), encoding="utf-8")
    before = keys(bucket)
    time.sleep(GRACE + 1)
    with pytest.MonkeyPatch.context() as environment, Writers(bucket, 100_000, PAUSE) as writers:
        environment.setenv("LAKE_SECRET", bucket.secret_key)
        plan = project.plan()
        answers = [project.run("approve", plan), project.run("sweep")]
        assert writers.at_work
        writers.stop()
        assert [answer.status for answer in answers] == [0, 0], answers[-1].err
        verified = project.run("verify")
        assert verified.status == 0, verified.err
        report = project.rows("deletion_report")
    gone = before - keys(bucket)
    assert {f"snapshots/{made.ids[name]}" for name in "acx"} <= gone
    assert {row["address"] for row in report if row["outcome"] == "deleted"} - gone == {"refs/branch.old"}
    repository = ic.Repository.open(storage_of(bucket.endpoint, bucket.name, "repository"))
    names = {snapshot: name for name, snapshot in made.ids.items()}
    found = lines(repository, names)
    assert {branch: found[branch] for branch in KEPT} == KEPT
    for name, commits in writers.commits.items():
        assert len(commits) > 1
        assert found[name][-3:] == ["f", "e", "-"]
        assert found[name][:-3][::-1][: len(commits)] == commits
        for snapshot in (*commits[::10], commits[-1]):
            session = repository.readonly_session(snapshot_id=snapshot)
            assert np.asarray(zarr.open_array(session.store, path="a", mode="r")[:]).any()
