"""The saved repositories in places of their own, with the policies, tags and inventories that a test wants."""

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
from tests.repositories import AS_OF, DATA, REPOSITORIES, api, expected, expected_of_plan, place_repository

DAY = AS_OF.date()
SAVED_AT = datetime(2026, 11, 21, 4, tzinfo=UTC)  # after the dump and the staged list of all three were written


@dataclass(frozen=True, slots=True)
class Case:
    """One file of `expected/`: what it asks, and what brute force answers."""

    repository: str
    stem: str

    @property
    def policies(self) -> list[str]:
        """The policy files."""
        lifecycle = [self.stem.split("_")[0]] if self.stem.startswith("lifecycle") else []
        return [*lifecycle, *(["gc_rules"] if "retention" in self.stem else [])]

    @property
    def tags(self) -> str:
        """Whether tags protect."""
        return "protect" if self.stem.endswith("tags_protect") else "ignore"

    @property
    def commits(self) -> tuple[bool, str]:
        """What decides which commits keep: whether there is committed retention, and the tags."""
        return "gc_rules" in self.policies, self.tags

    def answer(self) -> set[Found]:
        """The candidates, with their kind instead of a reason."""
        return {(row.address, row.size, row.kind) for row in expected(self.repository, f"{self.stem}.csv")}

    def answer_of_plan(self) -> set[Found]:
        """The candidates that a plan may name; see `expected_of_plan`."""
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
class Place:
    """A saved repository below a directory: `lake/`, `dump.json`, and what tests add."""

    name: str
    directory: Path

    def configure(self, policies: list[str], **settings: Any) -> Configuration:
        """Write a configuration with these policy files of the repository and return it, read."""
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
        """Return the configuration that asks what the case asks."""
        return self.configure(case.policies, tags=case.tags, **settings)

    def add_policy(self, name: str, document: Mapping[str, Any]) -> None:
        """Add a policy file to those of the repository."""
        (self.directory / f"{name}.json").write_text(json.dumps(document), encoding="utf-8")

    def deliver(self, file_format: str, created_at: datetime = SAVED_AT) -> dict[str, str]:
        """Deliver an inventory that lists the repository; return the setting that names it."""
        made = make_inventory(listed_rows(self.name), "lake", created_at, file_format)
        return {"url": made.write_to(self.directory / f"deliveries-{file_format}"), "format": file_format}


def placed(name: str, directory: Path) -> Place:
    """Place a saved repository with its policies and its dump."""
    place_repository(name, directory / "lake")
    for policy in (DATA / name / "policies").iterdir():
        (directory / policy.name).write_bytes(policy.read_bytes())
    (directory / "dump.json").write_text(json.dumps(api(name)["refs_dump"]), encoding="utf-8")
    return Place(name, directory)
