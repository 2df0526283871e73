"""One contract for both sources of references: a dump and a server return the same for the saved repositories."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from retention_assets.lakefs.rules.references import Commit
from retention_assets.lakefs.source.api import ApiSource
from retention_assets.lakefs.source.dump import DumpSource
from retention_assets.lakefs.source.repository import LakeFSSource, staged_folder
from retention_assets.objectstore.access import StoreAccess
from retention_assets.policy.rules import ServerRules
from tests.lakefs.source.fake_lakefs_repository import saved
from tests.lakefs.source.fake_lakefs_server import ACCESS_KEY, SECRET_KEY, serving
from tests.saved_repositories import REPOSITORIES, api, copy_saved_repository, listing

NOW = datetime(2026, 11, 21, 4, tzinfo=UTC)

Known = dict[str, Any]


@pytest.fixture(scope="module", params=REPOSITORIES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def known(name: str) -> Known:
    """What the real server answered."""
    return api(name)


@pytest.fixture(scope="module")
def lake(name: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_saved_repository(name, tmp_path_factory.mktemp("lake") / name)


def folder(known: Known) -> str:
    return staged_folder(known["prepare_uncommitted"][0]["run_id"])


class SourceContract:
    """The tests that both sources must pass."""

    def test_all_commits_are_returned_dangling_commits_too(self, source: LakeFSSource, known: Known) -> None:
        commits = source.references().commits.values()
        assert {replace(commit, created_at=commit.created_at.replace(microsecond=0)) for commit in commits} == {
            Commit(
                commit_id=commit["id"],
                parents=tuple(commit["parents"]),
                created_at=datetime.fromtimestamp(commit["creation_date"], UTC),  # the API cuts the second off
                metarange_id=commit["meta_range_id"],
                version=commit["version"],
            )
            for commit in known["commits"]
        }

    def test_each_commit_is_found_by_its_id(self, source: LakeFSSource) -> None:
        commits = source.references().commits
        assert {commit_id: commit.commit_id for commit_id, commit in commits.items()} == {key: key for key in commits}

    def test_all_branches_are_returned_hidden_branches_too(self, source: LakeFSSource, known: Known) -> None:
        assert source.references().branches == {branch["id"]: branch["commit_id"] for branch in known["branches"]}

    def test_all_tags_are_returned(self, source: LakeFSSource, known: Known) -> None:
        assert source.references().tags == {tag["id"]: tag["commit_id"] for tag in known["tags"]}

    def test_the_files_of_the_staged_list_have_the_staged_objects_of_the_branches(
        self, source: LakeFSSource, known: Known, lake: Path
    ) -> None:
        staged = source.staged()
        assert staged is not None
        assert all(file.startswith(f"{folder(known)}/") for file in staged.files)
        addresses = [
            address for file in staged.files for address in pq.read_table(lake / file)["physical_address"].to_pylist()
        ]
        namespace = known["repository"]["storage_namespace"] + "/"
        expected = [change["physical_address"] for change in known["staged"] if change["physical_address"]]
        assert sorted(addresses) == sorted(address.removeprefix(namespace) for address in expected)

    def test_the_rules_equal_those_of_the_server(self, source: LakeFSSource, known: Known) -> None:
        rules = known["gc_rules"]
        days = {rule["branch_id"]: rule["retention_days"] for rule in rules["branches"]}
        assert source.rules() == ServerRules(rules["default_retention_days"], days)


class TestServer(SourceContract):
    @pytest.fixture(scope="class")
    def source(self, name: str, known: Known, lake: Path) -> Iterator[LakeFSSource]:
        with serving(saved(name)) as server:
            yield ApiSource(
                url=server.url,
                access_key=ACCESS_KEY,
                secret_key=SECRET_KEY,
                repository=name,
                namespace=known["repository"]["storage_namespace"],
                access=StoreAccess(f"file://{lake}"),
                clock=lambda: NOW,
            )

    def test_references_and_staged_list_are_read_now(self, source: LakeFSSource) -> None:
        staged = source.staged()
        assert staged is not None
        assert staged.taken_at == source.references().taken_at == NOW


class TestDump(SourceContract):
    @pytest.fixture(scope="class")
    def source(self, known: Known, lake: Path) -> LakeFSSource:
        return DumpSource(StoreAccess(f"file://{lake}"), known["refs_dump"], folder(known))

    def test_references_are_as_old_as_the_oldest_table_of_the_dump(
        self, source: LakeFSSource, name: str, known: Known
    ) -> None:
        tables = {f"_lakefs/{metarange_id}" for metarange_id in known["refs_dump"].values()}
        written = [entry.last_modified for entry in listing(name) if entry.address in tables]
        assert len(written) == 3
        assert source.references().taken_at == min(written)

    def test_the_staged_list_is_as_old_as_its_newest_file(self, source: LakeFSSource, name: str, known: Known) -> None:
        staged = source.staged()
        assert staged is not None
        written = [entry.last_modified for entry in listing(name) if entry.address.startswith(folder(known))]
        assert staged.taken_at == max(written)
