"""The files of brute force results (`expected/`), and copies of the saved repositories to plan with them."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from retention_assets.config.configuration import Configuration, load_configuration
from tests.acceptance.runs import Found
from tests.inventories import listed_rows, make_inventory
from tests.saved_repositories import AS_OF, DATA, REPOSITORIES, api, copy_saved_repository, expected, expected_of_plan

DAY = AS_OF.date()
SAVED_AT = datetime(2026, 11, 21, 4, tzinfo=UTC)  # after the dump and the staged list of all three were written


@dataclass(frozen=True, slots=True)
class Case:
    """One file of `expected/`: a repository, policy files, the setting `tags`, and the candidates by brute force."""

    repository: str
    stem: str

    @property
    def policies(self) -> list[str]:
        """The names of the policy files."""
        lifecycle = [self.stem.split("_")[0]] if self.stem.startswith("lifecycle") else []
        return [*lifecycle, *(["gc_rules"] if "retention" in self.stem else [])]

    @property
    def tags(self) -> str:
        """The setting `tags`."""
        return "protect" if self.stem.endswith("tags_protect") else "ignore"

    @property
    def commits(self) -> tuple[bool, str]:
        """Whether the policy has retention rules, and the setting `tags`. Together they decide the active commits."""
        return "gc_rules" in self.policies, self.tags

    def answer(self) -> set[Found]:
        """The expected candidates: address, size, kind."""
        return {(row.address, row.size, row.kind) for row in expected(self.repository, f"{self.stem}.csv")}

    def answer_of_plan(self) -> set[Found]:
        """The expected candidates that a plan may name; see `expected_of_plan`."""
        return {(row.address, row.size, row.kind) for row in expected_of_plan(self.repository, f"{self.stem}.csv")}

    def __str__(self) -> str:
        return f"{self.repository}-{self.stem}"


def _cases() -> Iterator[Case]:
    for name in REPOSITORIES:
        for file in sorted((DATA / name / "expected").glob("*.csv")):
            if file.stem != "active_commits":
                yield Case(name, file.stem)


CASES = tuple(_cases())


@dataclass(frozen=True, slots=True)
class RepositoryCopy:
    """A copy of a saved repository: `lake/`, `dump.json` and policy files below a directory."""

    name: str
    directory: Path

    def configure(self, policies: list[str], **settings: Any) -> Configuration:
        """Write and load a configuration with these policy files of the repository."""
        run_id = api(self.name)["prepare_uncommitted"][0]["run_id"]
        own = {
            "kind": "lakefs",
            "settle": "0s",
            "namespace": f"s3://lake/{self.name}",
            "storage": "lake",
            "source": {"dump": "dump.json"},
            "staged": f"_lakefs/retention/gc/uncommitted/{run_id}/uncommitted/",
            "policy": [str(self.directory / f"{policy}.json") for policy in policies],
        }
        document = {"warehouse": "warehouse", "repositories": {self.name: {**own, **settings}}}
        file = self.directory / "retention.yaml"
        file.write_text(yaml.safe_dump(document), encoding="utf-8")
        return load_configuration(file)

    def of_case(self, case: Case, **settings: Any) -> Configuration:
        """Return the configuration with the policy files and tags of a case."""
        return self.configure(case.policies, tags=case.tags, **settings)

    def add_policy(self, name: str, document: Mapping[str, Any]) -> None:
        """Add a policy file to the repository."""
        (self.directory / f"{name}.json").write_text(json.dumps(document), encoding="utf-8")

    def deliver(self, file_format: str, created_at: datetime = SAVED_AT) -> dict[str, str]:
        """Write an S3 inventory of the repository, and return the `inventory` setting for it."""
        made = make_inventory(listed_rows(self.name), "lake", created_at, file_format)
        return {"url": made.write_to(self.directory / f"deliveries-{file_format}"), "format": file_format}


def copy_repository(name: str, directory: Path) -> RepositoryCopy:
    """Copy a saved repository with its policies and its dump to `directory`."""
    copy_saved_repository(name, directory / "lake")
    for policy in (DATA / name / "policies").iterdir():
        (directory / policy.name).write_bytes(policy.read_bytes())
    (directory / "dump.json").write_text(json.dumps(api(name)["refs_dump"]), encoding="utf-8")
    return RepositoryCopy(name, directory)
