"""The saved lakeFS repositories: orchard has a history by hand, meadow and thicket have random histories."""

import csv
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from retention_assets.demo.sample import place_sample

DATA = Path(__file__).parent / "data" / "lakefs"
TABLES = DATA / "tables"  # single SSTables, small and large
REPOSITORIES = ("orchard", "meadow", "thicket")
AS_OF = datetime(2026, 11, 1, tzinfo=UTC)  # the time from which every expected file counts


@dataclass(frozen=True, slots=True)
class ExpectedCandidate:
    """One row of an expected list of candidates, found by brute force."""

    address: str  # relative to the namespace, signature included
    size: int  # bytes
    kind: str  # committed (held by commits, by no active one) or uncommitted (in no commit, not staged)


@dataclass(frozen=True, slots=True)
class ListedObject:
    """One row of a listing of the namespace."""

    address: str  # relative to the namespace
    size: int  # bytes
    last_modified: datetime  # UTC, the store's clock
    etag: str


def copy_saved_repository(name: str, target: Path) -> Path:
    """Copy the namespace of `name` to `target` with the store's own times, and return `target`."""
    place_sample(DATA / name, target)
    return target


def namespace(name: str) -> Path:
    """Return the directory of the namespace. It is read only, and its files have the times of the checkout."""
    return DATA / name / "namespace"


def policy_file(name: str, policy: str) -> Path:
    """Return a policy file: `gc_rules.json` or `lifecycle-N.json`."""
    return DATA / name / "policies" / policy


@cache
def api(name: str) -> dict[str, Any]:
    """Return the recorded answers of the server. All tests share the object: do not change it."""
    answers: dict[str, Any] = json.loads((DATA / name / "api.json").read_text(encoding="utf-8"))
    return answers


@cache
def listing(name: str) -> tuple[ListedObject, ...]:
    """Return the S3 listing of the namespace, in its order, with `_lakefs/`."""
    return tuple(
        ListedObject(
            address=row["key"].removeprefix(f"{name}/"),
            size=int(row["size"]),
            last_modified=datetime.fromisoformat(row["last_modified"]),
            etag=row["etag"],
        )
        for row in _rows(DATA / name / "listing.csv")
    )


@cache
def objects_by_commit(name: str) -> pa.Table:
    """Return the objects of each commit, as the server lists them. Readers of ranges must find the same."""
    return pq.read_table(DATA / name / "objects_by_commit.parquet")


@cache
def active_commits(name: str) -> frozenset[str]:
    """Return the ids of the active commits under `gc_rules.json`, independent of the order of commit ids."""
    return frozenset(row["commit_id"] for row in _rows(DATA / name / "expected" / "active_commits.csv"))


@cache
def expected(name: str, file: str) -> frozenset[ExpectedCandidate]:
    """Return the expected candidates of one file, e.g. `retention.csv` or `lifecycle-1_alone.csv`."""
    rows = _rows(DATA / name / "expected" / file)
    return frozenset(ExpectedCandidate(row["address"], int(row["size"]), row["kind"]) for row in rows)


def expected_of_plan(name: str, file: str) -> frozenset[ExpectedCandidate]:
    """Return the expected candidates of one file that a plan may name.

    The sample of thicket has no content of its objects, so the checksums of its entries match no object. Then an
    uncommitted object with the size of an entry of a head may be staged.
    """
    found = expected(name, file)
    if name != "thicket":
        return found
    objects, heads = objects_by_commit(name), pa.array({head["commit_id"] for head in api(name)["branches"]})
    sizes = {*objects.filter(pc.is_in(objects["commit_id"], heads))["size_bytes"].to_pylist()}
    return frozenset(row for row in found if row.kind != "uncommitted" or row.size not in sizes)


def _rows(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))
