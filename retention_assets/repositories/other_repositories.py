"""Reads which objects the other configured repositories refer to. Sweeps keep these objects.

The references come from the newest tables of the other repositories in the warehouse, whichever run wrote the tables.
If the newest table is old, newer references are missing from it. Then a plan has a warning, and a sweep is refused.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from retention_assets.config.configuration import Repository, load_configuration
from retention_assets.config.durations import format_duration
from retention_assets.config.timestamps import start_of_day
from retention_assets.core.amounts import counted
from retention_assets.core.liveness import Liveness
from retention_assets.core.other_references import OtherReferences, last_parts, referenced
from retention_assets.core.paths import covered_by_hold
from retention_assets.errors import ConfigurationError, GuardRefused, RetentionError
from retention_assets.icechunk.rules.retention import LOST_UNREACHED
from retention_assets.icechunk.source.opening import snapshot_policy
from retention_assets.icechunk.source.tables import manifest_chunks
from retention_assets.lakefs.names.columns import is_inside
from retention_assets.lakefs.rules.lifecycle import whole_pairs, with_lifecycle
from retention_assets.lakefs.source.opening import SERVER, open_repository, policy_of_files
from retention_assets.lakefs.source.repository import LakeFSSource
from retention_assets.objectstore.access import StoreAccess, open_store
from retention_assets.policy.rules import Policy
from retention_assets.policy.snapshots import SnapshotPolicy
from retention_assets.state.acknowledged import acknowledged_addresses, known_addresses
from retention_assets.state.approval import differences, planned_terms, terms_hash
from retention_assets.state.lease import MARGIN
from retention_assets.state.plan import documents_of_plans, last_terms, made_at_name
from retention_assets.tables import (
    ADDRESSES,
    COMMIT_GRAPH,
    REACHABLE_CHUNKS,
    REACHABLE_MANIFESTS,
    REPOSITORY_HISTORY,
    UNCOMMITTED_OBJECTS,
)
from retention_assets.warehouse.metadata import Details, PartitionMetadata
from retention_assets.warehouse.table_cache import TableCache
from retention_assets.warehouse.warehouse import METADATA, Rows, Warehouse

_LEAST_AGE = timedelta(days=1)  # tables up to this age are new enough, so that daily plans suffice
_Policy = Policy | SnapshotPolicy
_SCHEMES = {"s3": "s3", "gs": "gs", "gcs": "gs", "file": "local", "local": "local", "mem": "mem"}


@dataclass(frozen=True, slots=True)
class _Table:
    """The newest complete table with references of another repository, as its metadata describe the table."""

    repository: str
    day: date
    taken_at: datetime
    details: Details
    unread: int  # lost Icechunk files that no run has read: the references in them are unknown
    # Why the repository was in an older state than at an earlier plan. The newer state may come back, and its
    # references are unknown.
    replaced: str | None
    run_id: str
    mode: str  # the mode of the repository when the table was found
    rows: int  # how many rows the run wrote
    # The run that wrote the staged list of this day; None: the list is missing, or the repository has none (Icechunk).
    staged_by: str | None = None
    # The table of a later run is missing or refused, or the staged list is missing, or a later plan wrote the list. An
    # object that was committed after this table and before that list is in neither of them.
    is_mixed: bool = False
    refused: str | None = None  # the guards that refused the table of a later run


@dataclass(frozen=True, slots=True)
class OtherRepositories:
    """The repositories of the configuration other than `repository`. `clock` is this machine's clock."""

    spark: SparkSession
    warehouse: Warehouse
    repository: Repository
    others: Sequence[Repository]
    run_id: str
    clock: Callable[[], datetime]
    _kept_by: dict[_Table, DataFrame] = field(default_factory=dict)  # the objects of a sweep that each table keeps
    _read: list[Rows] = field(default_factory=list)  # the partitions from which references were read

    def last_parts(self) -> DataFrame | None:
        """Return the last path segments (column `last_part`) of all references in the others' newest tables.

        None if there are no references. References that expired under a repository's policy do not count. They do count
        if the repository's mode is `plan`, or if its policy or a setting changed after the table was made.
        """
        found = [self._known_references(other, table) for other in self._others_now() if (table := self._newest(other))]
        return last_parts([references for references in found if references is not None])

    def unknown(self) -> list[str]:
        """Return a message with reason and remedy for each repository whose references are unknown or too old."""
        return [reason for other in self._others_now() if (reason := self._why_unknown(other))]

    def _why_unknown(self, other: Repository) -> str | None:
        """Return why the references of `other` are unknown or too old, with the remedy; None: they are known."""
        if not self._may_refer(other):
            return None
        settings = self.repository.settings
        # A plan found the objects of a sweep unreferenced at least `settle` ago. In a table that is older, references
        # can be missing that already existed when that plan was made.
        most = max(min(settings.grace, settings.settle), _LEAST_AGE)
        table = self._newest(other)
        if table is None:
            return f"{other.name} has no complete plan yet. Make one: `retention plan {other.name}`."
        if table.refused:
            return (
                f"A guard refused the last plan of {other.name} ({table.refused}), so its newest references are "
                f"unknown. Remove the cause. Then plan it again: `retention plan {other.name}`."
            )
        if self.clock() - table.taken_at > most:
            return (
                f"The last complete plan of {other.name} is of {table.taken_at:%Y-%m-%d %H:%M} UTC, more than "
                f"{format_duration(most)} ago. Plan it again: `retention plan {other.name}`."
            )
        if changed := self._change_since(table, other):
            return f"{changed} {self._plan_again(other)}"
        return _incomplete(other, table)

    def for_plan(self) -> OtherReferences:
        """Return the others' references for a plan, with warnings. Mode `plan` has no warnings: it sweeps nothing."""
        warnings: list[str] = []
        if self.repository.settings.mode != "plan":
            warnings = [
                f"It is unknown whether another repository refers to objects of {self.repository.name}. A sweep will "
                f"be refused. {reason}"
                for reason in self.unknown()
            ]
        parts = self.last_parts()
        return OtherReferences(parts, tuple(warnings), tuple(rows.require_unchanged for rows in self._read))

    def require_known(self) -> None:
        """Raise GuardRefused if the references of another repository are unknown or too old."""
        if unknown := self.unknown():
            raise GuardRefused(
                f"{self.repository.name}: another repository may refer to objects that would be deleted. Nothing was "
                f"deleted. {' '.join(unknown)}"
            )

    def extended(self, liveness: Liveness, objects: DataFrame) -> Liveness:
        """Return `liveness` plus the `objects` (column `address`) that another repository refers to.

        Callers pass the same objects each time. An object that one table kept stays live, even if the other repository
        is planned again later. Errors: GuardRefused if the table of another repository changes while it is read; if
        the policy or a setting of that repository changed since the plan of its newest table; or if a repository was
        added to the configuration file, and its references are unknown or too old.
        """
        configured = {other.name for other in self.others}
        for other in self._others_now():
            is_read = other.name in configured or any(table.repository == other.name for table in self._kept_by)
            if not is_read and (reason := self._why_unknown(other)):
                raise GuardRefused(
                    f"{self.repository.name}: another repository, which was added to {self.repository.file}, may refer "
                    f"to objects that would be deleted. Nothing more was deleted. {reason} Then run the same command "
                    "again."
                )
            table = self._newest(other)
            if table is None or table.is_mixed or table in self._kept_by:
                self._require_unchanged(other)
                continue
            references = self._references(other, table)
            parts = None if references is None else last_parts([references])
            kept = objects.limit(0) if parts is None else referenced(objects, parts)
            found = kept.select("address").cache()
            try:
                found.count()
                if self._newest(other) != table:  # a plan may have written the table during the read
                    raise self._being_planned(other)
            except Exception:
                found.unpersist()
                raise
            self._kept_by[table] = found
        live = reduce(DataFrame.unionByName, self._kept_by.values(), liveness.live)
        return Liveness(live.distinct(), liveness.committed, liveness.checked_at)

    def release(self) -> None:
        """Release the cached rows. After this, results of `extended` must not be used."""
        for found in self._kept_by.values():
            found.unpersist()
        self._kept_by.clear()

    def _others_now(self) -> list[Repository]:
        """Return the other repositories as in the configuration file now, also those that were added to it.

        Someone may change the file during a sweep, or after Dagster loaded the code location. A repository that was
        removed from the file still counts. A file that cannot be read is ignored, because someone may be writing it, or
        only Dagster can read it.
        """
        now: Mapping[str, Repository] = {}
        with suppress(ConfigurationError):
            now = load_configuration(self.repository.file).repositories
        known = {self.repository.name, *(other.name for other in self.others)}
        added = [one for name, one in now.items() if name not in known]
        return [*(now.get(other.name, other) for other in self.others), *added]

    def _plan_again(self, other: Repository) -> str:
        """Return the remedy if `other` was changed. Dagster plans it as it was when the code location was loaded."""
        reload = "" if other in self.others else "If Dagster plans it, reload the code location first. "
        return f"{reload}Plan it again: `retention plan {other.name}`."

    def _require_unchanged(self, other: Repository) -> None:
        """Raise GuardRefused if the references that were read from the newest table of `other` no longer count.

        They no longer count if the policy or a setting of `other` changed since. This method also refuses if no table
        was read because `other` is being planned. The age of the table is not tested again: whether the table is newer
        than the plan that found the objects unreferenced does not change during a sweep.
        """
        if not self._may_refer(other):
            return
        tables = [table for table in self._kept_by if table.repository == other.name]
        if not tables:
            raise self._being_planned(other)
        if changed := self._change_since(max(tables, key=lambda table: table.taken_at), other):
            raise self._unknown(f"{changed} {self._plan_again(other)} Then run the same command again.")

    def _being_planned(self, other: Repository) -> GuardRefused:
        return GuardRefused(
            f"{self.repository.name}: the references of {other.name} are unknown while {other.name} is being planned. "
            "Nothing more was deleted. Run the same command again after that plan is made. If no run is making it, the "
            f"last run was interrupted or refused. Plan {other.name} again: `retention plan {other.name}`. If "
            f"{other.name} is read from a dump, first make a dump that is newer than that run."
        )

    def _may_refer(self, other: Repository) -> bool:
        """Return whether `other` can refer to objects here.

        An Icechunk repository can refer to objects in any store. A lakeFS repository can refer only to objects in its
        own kind of store, because a lakeFS server uses only one kind.
        """
        here = {_scheme(self.repository.namespace), _scheme(self.repository.storage)}
        there = _scheme(other.namespace)
        return other.is_icechunk or there is None or None in here or there in here

    def _newest(self, other: Repository) -> _Table | None:
        """Return the newest complete table with references of `other`; None if there is none.

        The table with the newest references can be of any day: somebody may have planned an older day again. The
        references of an Icechunk repository are found in two steps, each with a table. Both must be complete.
        """
        newest: _Table | None = None
        missing: dict[date, datetime] = {}  # when the references of days without a usable table were written
        for day, written_at in self._days(other):
            if newest and written_at and written_at + MARGIN < newest.taken_at:
                break
            table = self._table_of_day(other, day)
            if table and (newest is None or table.taken_at > newest.taken_at):
                newest = table
            if table is None and written_at:
                missing[day] = written_at
        if newest is None:
            return None
        later = [day for day, at in missing.items() if newest.taken_at < at <= self.clock() + MARGIN]
        if later or self._misses_a_plan(other, newest.taken_at):  # `later` also has days without a plan
            refused = next((guards for day in later if (guards := self._refused(other, day))), None)
            return replace(newest, is_mixed=True, refused=refused)
        return newest if other.is_icechunk else self._with_staged_list(other, newest)

    def _days(self, other: Repository) -> list[tuple[date, datetime | None]]:
        """Return the days that have a table of `other`, and when the references of each day were written; newest first.

        The references are read before they are written, so `taken_at` of a day's table is earlier than this time. None:
        the table with the references of the day is missing, so the time is unknown. These days come first. Reading the
        metadata of a whole year would be slow, but one listing of the small tables with references has all these times.
        """
        read = REPOSITORY_HISTORY.name if other.is_icechunk else COMMIT_GRAPH.name
        files = self.warehouse.tree(other.name, read).items()
        written = {path.split("/")[-2]: file.written_at for path, file in files if path.endswith(f"/{METADATA}")}
        days = self.warehouse.directories(other.name, _table_name(other))[::-1]
        known = sorted((day for day in days if day in written), key=lambda day: written[day], reverse=True)
        unknown = [day for day in days if day not in written]
        return [(date.fromisoformat(day), written.get(day)) for day in (*unknown, *known)]

    def _misses_a_plan(self, other: Repository, taken_at: datetime) -> bool:
        """Return whether the table of a plan of `other` that was made after `taken_at` is missing.

        This is so while the day of that plan is planned again, and after such a run was interrupted. A plan whose time
        is in the future does not count.
        """
        newest, now = made_at_name(taken_at), made_at_name(self.clock() + MARGIN)
        days = {day for name, day in documents_of_plans(self.warehouse, other.name) if newest < name <= now}
        return any(self._table_of_day(other, date.fromisoformat(day)) is None for day in days)

    def _table_of_day(self, other: Repository, day: date) -> _Table | None:
        """Return the table of a day, of Icechunk the two tables as one; None as `_metadata`."""
        table = self._table(other, _table_name(other), day)
        if table is None or not other.is_icechunk:
            return table
        manifests = self._table(other, REACHABLE_MANIFESTS.name, day)
        return _of_both(manifests, table) if manifests else None

    def _refused(self, other: Repository, day: date) -> str | None:
        """Return the guards that refused the table of a day, of Icechunk either table; None: none did."""
        names = (REACHABLE_MANIFESTS.name, REACHABLE_CHUNKS.name) if other.is_icechunk else (ADDRESSES.name,)
        found = (self.warehouse.metadata_if_there(other.name, name, day.isoformat()) for name in names)
        return next((table.details.refused for table in found if table and table.details.refused), None)

    def _with_staged_list(self, other: Repository, table: _Table) -> _Table:
        """Return the table with `staged_by` and `is_mixed`. Only a plan from a dump may have a newer staged list."""
        staged = self._metadata(other, UNCOMMITTED_OBJECTS.name, table.day)
        if staged is None:
            return replace(table, is_mixed=True)
        is_newer = staged.run_id != table.run_id and staged.taken_at > table.taken_at
        return replace(table, staged_by=staged.run_id, is_mixed=is_newer and staged.details.known is not False)

    def _table(self, other: Repository, name: str, day: date) -> _Table | None:
        """Return the table of a day; None as `_metadata`."""
        found = self._metadata(other, name, day)
        if found is None:
            return None
        details, mode = found.details, other.settings.mode
        unread, replaced = details.unread or 0, details.replaced
        return _Table(other.name, day, found.taken_at, details, unread, replaced, found.run_id, mode, found.rows)

    def _metadata(self, other: Repository, name: str, day: date) -> PartitionMetadata | None:
        """Return the metadata of a table; None if it cannot be used.

        This is so if the table is incomplete or has files of another run, if a guard refused it, or if its time is in
        the future. A table whose time is in the future was made while a clock was wrong. It would hide tables that are
        made later.
        """
        metadata = self.warehouse.metadata_if_there(other.name, name, day.isoformat())
        if metadata is None or not self.warehouse.is_complete(other.name, name, day.isoformat()):
            return None
        if metadata.details.refused is not None or metadata.taken_at > self.clock() + MARGIN:
            return None
        return metadata if self.warehouse.has_files(metadata.files, other.name, name, day.isoformat()) else None

    def _references(self, other: Repository, table: _Table) -> DataFrame | None:
        """Return the references of `other` (`address`): virtual references, and addresses that may be outside it.

        None: there are none. Errors: GuardRefused if some references are unknown.
        """
        if reason := _incomplete(other, table):
            raise self._unknown(reason)
        return self._known_references(other, table)

    def _known_references(self, other: Repository, table: _Table) -> DataFrame | None:
        """Return the references of `other`, without those in its lost files that no run has read; None: no reference.

        The rows of a table are not read if its plan counted no reference (`outside`). Errors: TableContractError if the
        table has another number of rows than its plan wrote.
        """
        found = []
        if table.details.outside == 0:
            self.warehouse.require_rows(other.name, _table_name(other), table.day, table.rows)
        else:
            # Without a policy, the references of all commits and manifests count, which keeps more.
            policy = None if table.mode == "plan" else self._policy_of(table, other)  # mode `plan` deletes nothing
            found.append((self._of_icechunk if other.is_icechunk else self._of_commits)(other, table, policy))
        staged = None if other.is_icechunk else self._table(other, UNCOMMITTED_OBJECTS.name, table.day)
        if staged and staged.details.outside != 0:
            rows = self._rows(other, UNCOMMITTED_OBJECTS.name, table).where(~is_inside(F.col("address")))
            found.append(rows.select("address"))
        return reduce(DataFrame.unionByName, found) if found else None

    def _policy_of(self, table: _Table, other: Repository) -> _Policy | None:
        """Return the policy of `other`; None if the table was made under another policy or under other settings.

        Also None if the files of its policy, or the rules of its server, cannot be read.
        """
        try:
            policy = self._policy_now(other)
        except RetentionError:  # then every reference counts, and a sweep is refused
            return None
        return None if self._difference(table, other, policy) else policy

    def _policy_now(self, other: Repository) -> _Policy:
        if other.is_icechunk:
            return snapshot_policy(other)
        return (
            open_repository(other, self.clock).policy() if SERVER in other.settings.policy else policy_of_files(other)
        )

    def _change_since(self, table: _Table, other: Repository) -> str | None:
        """Return why `_policy_of` has no policy of `other`, as one or more sentences; None if it has one."""
        try:
            policy = self._policy_now(other)
        except RetentionError as error:
            return f"The policy of {other.name} cannot be read: {error}"
        return self._difference(table, other, policy)

    def _difference(self, table: _Table, other: Repository, policy: _Policy) -> str | None:
        """Return what differs between this policy or the settings and those of the table; None: nothing."""
        details, now = table.details, planned_terms(other)
        if details.policy_hash is None:
            return f"The newest tables of {other.name} are of different plans, or an earlier version made them."
        if details.policy_hash != policy.policy_hash:
            return f"The policy of {other.name} is not the one of its last plan."
        if details.terms_hash == terms_hash(now):
            return None
        then = last_terms(self.warehouse, other.name)
        named = f": {differences(then, now)}" if details.terms_hash == terms_hash(then) else ""
        return f"Settings of {other.name} are not those of its last plan{named}."

    def _of_commits(self, other: Repository, table: _Table, policy: _Policy | None) -> DataFrame:
        pairs = self._rows(other, ADDRESSES.name, table, ["address"]).where(~is_inside(F.col("address")))
        if set(ADDRESSES.schema.names) - set(pairs.columns):
            policy = None  # a table of an older version: all references count, which keeps more
        graph = self._table(other, COMMIT_GRAPH.name, table.day)
        same = graph is not None and graph.details.references_hash == table.details.references_hash
        if isinstance(policy, Policy) and same:
            graph_rows = self._rows(other, COMMIT_GRAPH.name, table)
            # Deleted branches still count, see `reflog`. Their names are only in the pairs.
            lists = (graph_rows.select("head_of"), pairs.select("branches"), pairs.select("left_branches"))
            names = reduce(DataFrame.union, (one.select(F.explode(one.columns[0]).alias("name")) for one in lists))
            branches = sorted(row["name"] for row in names.distinct().collect())
            today = self.clock().date()
            pairs = whole_pairs(pairs) if policy.lifecycle else pairs
            pairs = with_lifecycle(pairs, policy.lifecycle, branches, start_of_day(today))
            pairs = pairs.where(_is_live(policy.held_prefixes(today)))
        return pairs.select("address")

    def _of_icechunk(self, other: Repository, table: _Table, policy: _Policy | None) -> DataFrame:
        manifests = self._rows(other, REACHABLE_MANIFESTS.name, table)
        if policy is not None:
            manifests = manifests.where("live")
        # The plan that wrote the table put every manifest into the cache, so the store is not read. If the cache was
        # removed since then, the manifests are fetched, except those that are acknowledged as lost.
        is_any_lost = known_addresses(self.warehouse, other.name)
        lost = acknowledged_addresses(self.spark, self.warehouse, other.name) if is_any_lost else None
        run_id = f"{self.run_id}-for-{self.repository.name}"  # a step of the same run may write the same cache now
        cache = TableCache(self.spark, self.warehouse, other.name, _access(other), run_id, lost=lost)
        references, fetched = cache.rows(manifests, manifest_chunks())
        if fetched.unread and not table.unread:
            raise self._unknown(_unread(other, len(fetched.unread)))
        return references.where("location IS NOT NULL").select(F.col("location").alias("address"))

    def _unknown(self, reason: str) -> GuardRefused:
        """Return the error that ends a sweep because references are unknown. `reason`: why, with the remedy."""
        return GuardRefused(
            f"{self.repository.name}: another repository may refer to objects that would be deleted. Nothing more was "
            f"deleted. {reason}"
        )

    def _rows(self, other: Repository, name: str, table: _Table, needed: Sequence[str] | None = None) -> DataFrame:
        rows = self.warehouse.rows(self.spark, other.name, name, table.day, needed)
        self._read.append(rows)
        return rows.frame


def not_configured(source: LakeFSSource, configured: Collection[Repository]) -> str | None:
    """Return a warning with the names of the server's repositories that are not configured; None if all are.

    If the user may not list the repositories, the warning says that it is unknown. Any repository can refer to objects
    of another one by full address, whatever its own namespace is.
    """
    known = source.other_repositories()
    if known is None:
        return (
            "It is unknown whether the server has repositories that are not configured, or that have the same "
            "namespace: the user may not list repositories. To know it, grant fs:ListRepositories to the user of "
            "`source.api`."
        )
    others = sorted(name for name, namespace in known.items() if not _is_configured(name, namespace, configured))
    if not others:
        return None
    return (
        f"{counted(len(others), 'repository of the server is', 'repositories of the server are')} not configured: "
        f"{', '.join(others)}. If such a repository refers to objects here by full address, those objects can be "
        "deleted. Add it to the configuration."
    )


def _is_configured(name: str, namespace: str, configured: Collection[Repository]) -> bool:
    """Return whether the repository `name` of the server is in the configuration, where it can have another name."""
    found = [one for one in configured if one.namespace == namespace and not one.is_icechunk]
    names = [one.lakefs.source.api and (one.lakefs.source.api.repository or one.name) for one in found]
    return name in names or None in names  # a dump does not have the name of its repository


def _table_name(other: Repository) -> str:
    return REACHABLE_CHUNKS.name if other.is_icechunk else ADDRESSES.name


def _of_both(manifests: _Table, chunks: _Table) -> _Table:
    """Return the two tables of an Icechunk repository as one, with the time of the older one.

    The tables can be of different policies or settings if a plan was interrupted after it wrote the manifests. Then the
    result has no details, because the policy and settings decide which manifests are live. If two runs planned the day
    at the same time, the tables can be of different runs. Then the result has no count of references (`outside`),
    because the run of the chunks did not count the references in these manifests.
    """
    of_both = {(one.details.policy_hash, one.details.terms_hash) for one in (manifests, chunks)}
    details = chunks.details if len(of_both) == 1 else Details()
    if manifests.run_id != chunks.run_id:
        details = replace(details, outside=None)
    taken_at = min(manifests.taken_at, chunks.taken_at)
    unread, replaced = chunks.unread + manifests.unread, manifests.replaced or chunks.replaced
    return replace(chunks, details=details, unread=unread, replaced=replaced, taken_at=taken_at)


def _is_live(hold_prefixes: Sequence[str]) -> Column:
    """Return the condition under which a (path, address) pair is live. It needs the columns of `with_lifecycle`."""
    kept = F.col("active") & ~F.col("lifecycle_due")
    return kept | F.col("protected") | covered_by_hold(F.col("key"), hold_prefixes)


def _access(other: Repository) -> StoreAccess:
    """Return the access to the store of `other`; without its options if a variable of them is not set here."""
    try:
        return open_store(other)
    except ConfigurationError:  # enough for files that are in the cache; reading another file ends with an error
        return StoreAccess(other.storage, {})


def _incomplete(other: Repository, table: _Table) -> str | None:
    """Return why references of `other` may be missing from its newest table, with the remedy; None: none are."""
    if table.replaced:
        return (
            f"At its last plan, {other.name} was in an older state than before. The newer state may come back, and it "
            f"is unknown what that state refers to. {table.replaced} Then plan it again: `retention plan {other.name}`."
        )
    return _unread(other, table.unread) if table.unread else None


def _unread(other: Repository, files: int) -> str:
    """Return why the references of `other` are unknown, and the remedy."""
    return (
        f"{other.name} needs {counted(files, 'lost file')} that no run has read, so it is unknown what these files "
        f"reference. Restore the files, or delete the branches and tags that need them. {LOST_UNREACHED} Then plan it "
        f"again: `retention plan {other.name}`."
    )


def _scheme(url: str) -> str | None:
    """Return the kind of store of a URL; None if the kind is unknown."""
    return _SCHEMES.get(url.partition("://")[0])
