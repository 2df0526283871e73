"""What the other configured repositories refer to, as their last plans found it: none of that may be deleted here.

Their tables in the warehouse are read, whoever made them last. A table that is too old says nothing of references that
were made since. A plan then warns, and a sweep refuses. Source: DESIGN.md, invariant 6.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from retention_assets.config.configuration import Repository, canonical_namespace
from retention_assets.config.durations import format_duration
from retention_assets.core.liveness import Liveness
from retention_assets.core.other_references import OtherReferences, last_parts, referenced
from retention_assets.core.paths import below_any
from retention_assets.errors import AccessDenied, ConfigurationError, GuardRefused
from retention_assets.icechunk.source.opening import snapshot_policy
from retention_assets.icechunk.source.tables import manifest_chunks
from retention_assets.lakefs.rules.lifecycle import with_lifecycle
from retention_assets.lakefs.rules.names import is_outside
from retention_assets.lakefs.source.opening import SERVER, policy_of_files
from retention_assets.lakefs.source.repository import LakeFSSource
from retention_assets.objectstore.access import StoreAccess
from retention_assets.policy.rules import Policy
from retention_assets.policy.snapshots import SnapshotPolicy
from retention_assets.state.plan import POLICY_HASH, REFERENCES_HASH
from retention_assets.state.table_cache import TableCache
from retention_assets.state.warehouse import FACTS, REFUSED, Warehouse
from retention_assets.tables import (
    ADDRESSES,
    COMMIT_GRAPH,
    REACHABLE_CHUNKS,
    REACHABLE_MANIFESTS,
    UNCOMMITTED_OBJECTS,
)

_LEAST_AGE = timedelta(days=1)  # repositories that are planned daily must be able to sweep, whatever their grace is
_Policy = Policy | SnapshotPolicy
_SCHEMES = {"s3": "s3", "gs": "gs", "gcs": "gs", "file": "local", "local": "local", "mem": "mem"}


@dataclass(frozen=True, slots=True)
class _Table:
    """The newest complete table of another repository."""

    repository: str
    day: date
    taken_at: datetime
    notes: Mapping[str, str] = field(hash=False)


@dataclass(frozen=True, slots=True)
class OtherRepositories:
    """The other repositories of the configuration, for one of them. `clock` is this machine's."""

    spark: SparkSession
    warehouse: Warehouse
    repository: Repository
    others: Sequence[Repository]
    run_id: str
    clock: Callable[[], datetime]
    _kept_by: dict[_Table, DataFrame] = field(default_factory=dict)  # the objects of a sweep that each table keeps

    def last_parts(self) -> DataFrame | None:
        """Return `last_part` of what the others refer to by their newest tables; None when there is no such table.

        What their policies let go does not count, unless the mode is `plan` or the policy is another one than the table
        was made under.
        """
        found = [self._references(other, table) for other in self.others if (table := self._newest(other))]
        return last_parts(found)

    def unknown(self) -> list[str]:
        """Return, for each repository whose references are not known or known too long ago, one sentence and why."""
        most = max(self.repository.settings.grace, _LEAST_AGE)
        told = []
        for other in filter(self._may_refer, self.others):
            table = self._newest(other)
            if table is None:
                told.append(f"{other.name} has no complete plan yet. Make one: `retention plan {other.name}`.")
            elif self.clock() - table.taken_at > most:
                told.append(
                    f"The last complete plan of {other.name} is of {table.taken_at:%Y-%m-%d %H:%M} UTC, more than "
                    f"{format_duration(most)} ago. Plan it again: `retention plan {other.name}`."
                )
            elif not _is_of(table, other, _policy(other)):
                told.append(
                    f"The policy of {other.name} changed since its last complete plan. Plan it again: "
                    f"`retention plan {other.name}`."
                )
        return told

    def for_plan(self) -> OtherReferences:
        """Return what a plan takes of the others. In mode `plan` nothing can be swept, so nothing is warned about."""
        warnings: list[str] = []
        if self.repository.settings.mode != "plan":
            warnings = [
                f"Whether another repository refers to objects of {self.repository.name} is not known, so a sweep will "
                f"refuse. {reason}"
                for reason in self.unknown()
            ]
        return OtherReferences(self.last_parts(), tuple(warnings))

    def require_known(self) -> None:
        """Refuse when it is not known what another repository refers to. Errors: GuardRefused."""
        if unknown := self.unknown():
            raise GuardRefused(
                f"{self.repository.name}: another repository may refer to objects that would be deleted. "
                f"{' '.join(unknown)} Nothing was deleted."
            )

    def added_to(self, liveness: Liveness, objects: DataFrame) -> Liveness:
        """Return what is live with those of `objects` (column `address`) that another repository refers to.

        It is called with the same objects each time. What a table was found to keep stays, also if the other repository
        is planned again meanwhile. Errors: GuardRefused when the table of another repository changes while it is read.
        """
        for other in self.others:
            table = self._newest(other)
            if table is None or table in self._kept_by:
                self._require_one(other)
                continue
            parts = last_parts([self._references(other, table)])
            assert parts is not None
            found = referenced(objects.select("address"), parts).cache()
            found.count()
            if self._newest(other) != table:  # it may have been read while it was written
                raise self._being_planned(other)
            self._kept_by[table] = found
        live = reduce(DataFrame.unionByName, self._kept_by.values(), liveness.live)
        return Liveness(live.distinct(), liveness.committed, liveness.checked_at)

    def release(self) -> None:
        """Let go of what was read: what `added_to` returned must not be used any more."""
        for found in self._kept_by.values():
            found.unpersist()
        self._kept_by.clear()

    def _require_one(self, other: Repository) -> None:
        """Refuse when no table of `other` was read, since its day is being planned again."""
        if self._may_refer(other) and other.name not in {table.repository for table in self._kept_by}:
            raise self._being_planned(other)

    def _being_planned(self, other: Repository) -> GuardRefused:
        return GuardRefused(
            f"{self.repository.name}: what {other.name} refers to is not known while it is planned. Nothing more was "
            "deleted. Run the same command again when that plan is made."
        )

    def _may_refer(self, other: Repository) -> bool:
        """Return whether entries of `other` can name objects here: a lakeFS server reads one kind of store."""
        here = {_scheme(self.repository.namespace), _scheme(self.repository.storage)}
        there = _scheme(other.namespace)
        return other.is_icechunk or there is None or None in here or there in here

    def _newest(self, other: Repository) -> _Table | None:
        """Return the newest table that a complete plan of `other` has, as far as its references go.

        Days are looked at backwards, until one is new: reading the facts of every day of a year takes long.
        """
        name = REACHABLE_CHUNKS.name if other.is_icechunk else ADDRESSES.name
        newest: _Table | None = None
        for day in map(date.fromisoformat, reversed(self.warehouse.directories(other.name, name))):
            table = self._table(other, name, day)
            if table and (newest is None or table.taken_at > newest.taken_at):
                newest = table
            if newest and self.clock() - newest.taken_at <= _LEAST_AGE:
                break
        return newest

    def _table(self, other: Repository, name: str, day: date) -> _Table | None:
        """Return a table of a day; None when its writing was cut off or a guard refused it."""
        document = self.warehouse.read_document(other.name, name, day.isoformat(), FACTS)
        is_complete = self.warehouse.is_complete(other.name, name, day.isoformat())
        if document is None or not is_complete or REFUSED in document["notes"]:
            return None
        return _Table(other.name, day, datetime.fromisoformat(document["taken_at"]).astimezone(UTC), document["notes"])

    def _references(self, other: Repository, table: _Table) -> DataFrame:
        """Return what `other` refers to by full address or by virtual chunk references (column `address`)."""
        policy = _policy(other)
        if other.settings.mode == "plan" or not _is_of(table, other, policy):  # mode `plan` lets nothing go
            policy = None  # then the references of every commit and manifest count, which only keeps more
        return (self._of_icechunk if other.is_icechunk else self._of_lakefs)(other, table, policy)

    def _of_lakefs(self, other: Repository, table: _Table, policy: _Policy | None) -> DataFrame:
        pairs = self._rows(other, ADDRESSES.name, table, ["address"]).where(is_outside(F.col("address")))
        if set(ADDRESSES.schema.names) - set(pairs.columns):
            policy = None  # an older version wrote the table: then every reference counts, which only keeps more
        graph = self._table(other, COMMIT_GRAPH.name, table.day)
        same = graph is not None and graph.notes.get(REFERENCES_HASH) == table.notes.get(REFERENCES_HASH)
        if isinstance(policy, Policy) and same:
            heads = self._rows(other, COMMIT_GRAPH.name, table).select(F.explode("head_of").alias("branch"))
            gone = pairs.select(F.explode("branches").alias("branch"))  # and still counted: see `reflog`
            branches = sorted(row["branch"] for row in heads.unionByName(gone).distinct().collect())
            today = self.clock().date()
            as_of = datetime(today.year, today.month, today.day, tzinfo=UTC)
            pairs = with_lifecycle(pairs, policy.lifecycle, branches, as_of)
            pairs = pairs.where(
                _is_live([one.value for one in policy.holds if one.kind == "prefix" and one.in_force(today)])
            )
        references = pairs.select("address")
        if self._table(other, UNCOMMITTED_OBJECTS.name, table.day):
            staged = self._rows(other, UNCOMMITTED_OBJECTS.name, table).where(is_outside(F.col("address")))
            references = references.unionByName(staged.select("address"))
        return references

    def _of_icechunk(self, other: Repository, table: _Table, policy: _Policy | None) -> DataFrame:
        manifests = self._rows(other, REACHABLE_MANIFESTS.name, table)
        if policy is not None:
            manifests = manifests.where("live")
        # The plan that wrote the table has every manifest in the cache, so the store is not asked.
        cache = TableCache(self.spark, self.warehouse, other.name, StoreAccess(other.storage, {}), self.run_id)
        named, _ = cache.rows(manifests, manifest_chunks())
        return named.where("location IS NOT NULL").select(F.col("location").alias("address"))

    def _rows(self, other: Repository, name: str, table: _Table, needed: Sequence[str] | None = None) -> DataFrame:
        return self.warehouse.rows(self.spark, other.name, name, table.day, needed).frame


def not_configured(source: LakeFSSource, configured: Collection[Repository]) -> str | None:
    """Return a warning with the names of the server's repositories that are not configured; None: there are none.

    They may refer to objects of any repository by full address, also those whose namespace is elsewhere.
    """
    try:
        known = source.repositories()
    except AccessDenied:  # only a warning is lost
        return (
            "Whether the server has repositories that are not configured is not known: the user may not list them "
            "(fs:ListRepositories)."
        )
    places = {repository.namespace for repository in configured}
    others = sorted(name for name, namespace in known.items() if canonical_namespace(namespace) not in places)
    if not others:
        return None
    return (
        f"{len(others):,} repositories of the server are not configured: {', '.join(others)}. If they refer to objects "
        "of this repository by full address, those objects can be deleted. Add these repositories to the configuration."
    )


def _is_live(held_prefixes: Sequence[str]) -> Column:
    """Return whether a pair with the columns of `with_lifecycle` keeps its address."""
    kept = F.col("active") & ~F.col("lifecycle_due")
    return kept | F.col("protected") | below_any(F.col("key"), held_prefixes)


def _policy(other: Repository) -> _Policy | None:
    """Return what the policy files say; None when they cannot be read."""
    try:
        return snapshot_policy(other) if other.is_icechunk else policy_of_files(other)
    except ConfigurationError:  # then every reference counts, and a sweep refuses
        return None


def _is_of(table: _Table, other: Repository, policy: _Policy | None) -> bool:
    """Return whether the table was made under the policy. Of a policy that a server has a part of, it is believed."""
    if policy is None or SERVER in other.settings.policy:
        return policy is not None
    return table.notes.get(POLICY_HASH) == policy.policy_hash


def _scheme(place: str) -> str | None:
    """Return what kind of store a URL names; None for one that is not told apart from others."""
    return _SCHEMES.get(place.partition("://")[0])
