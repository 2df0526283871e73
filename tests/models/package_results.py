"""Runs the package on many worlds at once: they share one set of frames, so that few Spark jobs classify them all."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from zlib import crc32

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from retention_assets.core.age import AgeCutoff
from retention_assets.core.settle import candidates
from retention_assets.lakefs.names.columns import issued_at
from retention_assets.lakefs.rules.candidates import (
    classified,
    commits_by_address,
    due,
    live_addresses,
    with_names,
)
from retention_assets.lakefs.rules.committed import activity, commit_graph, protected_commits
from retention_assets.lakefs.rules.lifecycle import whole_pairs, with_lifecycle
from retention_assets.lakefs.rules.ranges import active_ranges, addresses
from retention_assets.lakefs.rules.references import Commit, References
from retention_assets.lakefs.rules.tables import commit_graph_rows, potential_commits_rows
from retention_assets.lakefs.source.ranges import METARANGE_RANGES, RANGE_ENTRIES
from retention_assets.policy.documents import join, read_document
from retention_assets.policy.rules import Policy
from retention_assets.tables import STORAGE_INVENTORY, UNCOMMITTED_OBJECTS
from tests.models.truth import Truth
from tests.models.walks import BRANCHES
from tests.models.world import Objects, World


@dataclass(frozen=True, slots=True)
class Found:
    """The result of the package: candidates with their reasons, and the live addresses."""

    candidates: Mapping[str, str]
    live: set[str]


def policy_of(document: Mapping[str, Any]) -> Policy:
    """Return the policy of a document, or None for an empty document."""
    if not any(document.values()):
        return Policy(None, (), ())
    return join([read_document(json.dumps(document), "model.json")])


def found(spark: SparkSession, truths: Sequence[Truth]) -> Found:
    """Find the candidates of many worlds at once. Their rules differ only in holds on branches, tags and commits."""
    rules, as_of, now = truths[0].rules, truths[0].as_of, truths[0].world.now
    policy = policy_of(rules.document())
    prefixes = [hold.value for hold in policy.holds if hold.kind == "prefix"]
    commits = spark.createDataFrame(pa.concat_tables(_commits(truth) for truth in truths))
    tables = Tables(objects for truth in truths for objects in (c.objects for c in truth.world.commits.values()))
    held = active_ranges(commits, tables.metaranges(spark))
    rows = whole_pairs(addresses(held, tables.entries(spark)).cache())
    pairs = with_lifecycle(rows, policy.lifecycle, BRANCHES, as_of).cache()
    staged = _staged(spark, [truth.world for truth in truths])
    inventory = _inventory(spark, [truth.world for truth in truths])
    age_cutoff = AgeCutoff(now, rules.grace, rules.token_life, issued=issued_at)
    objects = classified(inventory, commits_by_address(pairs, prefixes), staged, age_cutoff, staged_known=True)
    chosen = {
        row["address"]: row["reason"]
        for row in candidates(with_names(due(objects), pairs)).select("address", "reason").collect()
    }
    live = {row["address"] for row in live_addresses(pairs, staged, prefixes).select("address").collect()}
    pairs.unpersist()
    return Found(chosen, live)


class Tables:
    """Ranges and metaranges with ids by content, as in lakeFS. Equal ones exist once."""

    def __init__(self, versions: Iterator[Objects]) -> None:
        self._ranges: dict[str, list[tuple[str, str]]] = {}
        self._metaranges: dict[str, list[str]] = {}
        for objects in versions:
            ids = [range_id for range_id, _ in _ranges(objects)]
            self._ranges.update(_ranges(objects))
            self._metaranges[metarange_id(objects)] = ids

    def metaranges(self, spark: SparkSession) -> DataFrame:
        rows = [
            {"metarange_id": name, "range_id": range_id, "count": len(self._ranges[range_id]), "file_bytes": 0}
            for name, ids in self._metaranges.items()
            for range_id in ids
        ]
        return spark.createDataFrame(pa.Table.from_pylist(rows, METARANGE_RANGES))

    def entries(self, spark: SparkSession) -> DataFrame:
        # The checksum differs between the ranges of a pair, as if clients had linked the object with other checksums.
        rows = [
            {"range_id": name, "key": path, "address": address, "size": 1, "last_modified": None, "etag": name[0]}
            for name, pairs in self._ranges.items()
            for path, address in pairs
        ]
        return spark.createDataFrame(pa.Table.from_pylist(rows, RANGE_ENTRIES))


def metarange_id(objects: Objects) -> str:
    """Return the id of the metarange with these objects; empty if there are none."""
    return _name([range_id for range_id, _ in _ranges(objects)]) if objects else ""


def _ranges(objects: Objects) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield ranges with their entries. The ends depend only on paths, so that commits share most ranges."""
    part: list[tuple[str, str]] = []
    for path, address in sorted(objects.items()):
        part.append((path, address))
        if crc32(path.encode()) % 3 == 0:
            yield _name(part), part
            part = []
    if part:
        yield _name(part), part


def _name(content: object) -> str:
    return sha256(repr(content).encode()).hexdigest()


def references_of(world: World) -> References:
    """Return the references as a source returns them."""
    commits = {
        name: Commit(name, made.parents, made.at, metarange_id(made.objects), 0 if made.main_is_last else 1)
        for name, made in world.commits.items()
    }
    return References(commits, world.branches, world.tags, world.now)


def _commits(truth: Truth) -> pa.Table:
    policy, references = policy_of(truth.rules.document()), references_of(truth.world)
    nodes = commit_graph(references)
    kept = activity(references, policy.retention, truth.as_of)
    protects = truth.rules.tags == "protect"
    protected = protected_commits(references, policy, tags_protect=protects, as_of=truth.as_of)
    potential = frozenset(name for name in references.commits if crc32(name.encode()) % 2)  # must not matter
    return potential_commits_rows(commit_graph_rows(nodes), kept, protected, potential)


def _staged(spark: SparkSession, worlds: Sequence[World]) -> DataFrame:
    rows = [{"address": name, "created_at": world.now} for world in worlds for name in world.staged_addresses()]
    return spark.createDataFrame(pa.Table.from_pylist(rows, UNCOMMITTED_OBJECTS.schema))


def _inventory(spark: SparkSession, worlds: Sequence[World]) -> DataFrame:
    rows = [
        {"address": name, "size": stored.size, "last_modified": stored.at, "etag": None, "source": "listing"}
        for world in worlds
        for name, stored in world.store.items()
    ]
    return spark.createDataFrame(pa.Table.from_pylist(rows, STORAGE_INVENTORY.schema))
