"""Changes branches, tags and the status of a repository for a user, under the lease, with an audit record.

Source: docs/icechunk.md; docs/icechunk-formats.md, "Branches and tags".
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime
from threading import Lock
from typing import Any

from retention_assets.config.configuration import Repository
from retention_assets.config.timestamps import Clock
from retention_assets.errors import (
    ConfigurationError,
    GuardRefused,
    ObjectMissing,
    RetentionError,
    SourceError,
    StoreError,
    naming,
)
from retention_assets.icechunk.edits.commits import RepoCommits
from retention_assets.icechunk.edits.format_1 import ReferenceFiles
from retention_assets.icechunk.formats.ids import decode_id, encode_id, is_canonical
from retention_assets.icechunk.formats.model import Availability
from retention_assets.icechunk.formats.paths import SNAPSHOTS
from retention_assets.icechunk.formats.snapshots import read_snapshot
from retention_assets.icechunk.rules.operations import (
    CORRECT_THE_ID,
    NamedSnapshots,
    creation,
    deletion,
    reset,
    set_status,
    with_change,
)
from retention_assets.icechunk.rules.snapshots import ReferenceChange
from retention_assets.icechunk.source.repository import IcechunkSource
from retention_assets.objectstore.access import StoreAccess, open_store
from retention_assets.objectstore.conditional import BeforeWrite
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.state.binding import require_same_location
from retention_assets.state.clocks import require_clock
from retention_assets.state.lease import Lease, held_lease, renew_lease, require_seen_by_all
from retention_assets.state.records import record_without_plan, seal_of, write_record
from retention_assets.warehouse.warehouse import Warehouse

Result = Mapping[str, Any]


def recorded_change(
    warehouse: Warehouse,
    repository: Repository,
    kind: str,
    person: str,
    run_id: str,
    clock: Clock,
    change: Callable[[BeforeWrite], Result],
) -> Result:
    """Call `change` under the lease of the repository, write its result into an audit record, and return the result.

    No sweep runs at the same time: the function that `change` gets renews the lease, and raises GuardRefused if it is
    lost. `kind`: what is changed, for the record.

    Errors: the errors of `change`, after which there is no record; if only the record was not written, the message says
    that the change was made; GuardRefused as `require_same_location` and `held_lease`, when other machines would not
    see the lease, and when this machine's clock is wrong. With a clock that is ahead, this machine would take the lease
    of a running sweep, and icechunk would refuse later commits because of the times in the repository.
    """
    started, name, sweep, seal = clock(), repository.name, repository.settings.sweep, seal_of(repository)
    require_same_location(warehouse, repository)  # a lease under another name would exclude nobody
    access = open_store(repository)
    require_seen_by_all(warehouse, name, access, single_machine=sweep.single_machine)
    require_clock(repository, access, clock, "was changed")
    seal.copy_records(warehouse, name)  # if records cannot be copied, nothing is changed
    result: Result | None = None
    try:
        with held_lease(warehouse, name, run_id, clock, sweep.lease) as lease:
            with naming(name):
                result = change(_Renewed(warehouse, lease, clock))
            record = record_without_plan(kind, name, person, started, clock(), run_id, result)
            write_record(warehouse, replace(record, fence=lease.fence, longest_window_seconds=0.0), seal)
    except RetentionError as error:
        if result is not None:
            error.args = (
                f"{name}: the change was made: {kind}. Do not run the command again, whatever this message says at its "
                "end. Only the audit record of the change may be missing: note the change yourself. If the record "
                f"exists, and only its copy at the witness is missing, the next run makes the copy. The cause: {error}",
            )
        raise
    return result


class _Renewed:
    """Renews a lease at each call, also of several threads. Errors: GuardRefused when the lease is lost."""

    def __init__(self, warehouse: Warehouse, lease: Lease, clock: Clock) -> None:
        self._warehouse, self._lease, self._clock, self._lock = warehouse, lease, clock, Lock()

    def __call__(self) -> None:
        name = self._lease.repository
        with self._lock:
            try:
                self._lease = renew_lease(self._warehouse, self._lease, self._clock())
            except GuardRefused:
                raise GuardRefused(
                    f"{name}: this command lost the lease of the repository, because it took longer than sweep.lease, "
                    "or because another run or a person took the lease. Nothing more was changed. Check what was "
                    f"changed (`retention icechunk {name} status`), then run the same command again."
                ) from None


class Operations:
    """The operations on one repository. Each method makes its change and returns the number of conflicts.

    The caller holds the repository's lease: see `recorded_change`. Ids are texts of 20 characters. In format 2, an
    operation is tried again after a conflict with another writer. In format 1, an operation changes one reference file,
    and a conflict ends it.
    Errors: GuardRefused as in `icechunk.rules.operations`, and after a conflict in format 1; ConfigurationError for a
    text that is not an id; SourceError when there is no repository, or when it was upgraded to format 2 during the
    change; errors of the store.
    """

    def __init__(
        self,
        access: StoreAccess,
        clock: Callable[[], datetime],
        log: Callable[[str], None],
        before_write: BeforeWrite = lambda: None,
    ) -> None:
        self._url = access.url
        self._source = IcechunkSource(access, clock)
        self._reader = ObjectReader(access)
        self._references = ReferenceFiles(access, before_write)
        self._commits = RepoCommits(access, clock, log, before_write=before_write)

    def create_branch(self, name: str, snapshot: str) -> int:
        """Create a branch on a snapshot."""
        snapshot_id = _id(snapshot)
        return self._change(lambda references: creation(references, "branch", name, snapshot_id))

    def delete_branch(self, name: str) -> int:
        """Delete a branch; its snapshots stay until the next garbage collection."""
        return self._change(lambda references: deletion(references, "branch", name))

    def reset_branch(self, name: str, snapshot: str, expected: str | None = None) -> int:
        """Move a branch to another snapshot. If `expected` is given, the branch must be on that snapshot."""
        snapshot_id, old = _id(snapshot), None if expected is None else _id(expected)
        return self._change(lambda references: reset(references, name, snapshot_id, old))

    def create_tag(self, name: str, snapshot: str) -> int:
        """Create a tag on a snapshot."""
        snapshot_id = _id(snapshot)
        return self._change(lambda references: creation(references, "tag", name, snapshot_id))

    def delete_tag(self, name: str) -> int:
        """Delete a tag; its name can never be used again."""
        return self._change(lambda references: deletion(references, "tag", name))

    def set_status(self, availability: Availability, reason: str | None = None) -> int:
        """Set whether the repository accepts writes. Errors: GuardRefused in format 1, which has no status."""
        if self._source.repo_object() is None:
            self._source.references()  # raises when there is no repository
            raise GuardRefused(
                f"{self._url}: a repository of format 1 has no status. Nothing was changed. Upgrade it first: "
                "`retention icechunk REPO upgrade`."
            )
        return self._commits.commit(lambda repo, stamp: set_status(repo, availability, reason, stamp)).conflicts

    def _change(self, change_of: Callable[[NamedSnapshots], ReferenceChange]) -> int:
        """Make the change that `change_of` returns for the current references; return the number of conflicts."""
        if self._source.repo_object() is not None:
            return self._commits.commit(lambda repo, stamp: with_change(repo, change_of(repo), stamp)).conflicts
        references = self._source.references()
        change = change_of(references)
        if change.after is not None:
            self._require_history(change.after, {*references.branches.values(), *references.tags.values()})
        if not self._references.apply(change):
            raise GuardRefused(
                f"another writer {'created' if change.before is None else 'moved or deleted'} the {change.kind} "
                f"{change.name!r} just now. Nothing was changed or deleted. Check the branches and tags (`retention "
                "icechunk REPO status`), then run the same command again."
            )
        if self._was_upgraded():
            raise SourceError(
                f"{self._url}: the repository was upgraded to format 2 while this change was made. The change was made "
                "in the files of format 1, and may be missing in the upgraded repository. No snapshot was deleted. "
                "Make the change again."
            )
        return 0

    def _was_upgraded(self) -> bool:
        """Return whether the repository has format 2 after a change in format 1."""
        try:
            return self._source.repo_object() is not None
        except RetentionError as error:
            error.say_nothing_more()
            raise StoreError(
                f"{self._url}: the change was made in the files of format 1. It is unknown whether the repository was "
                f"upgraded to format 2 meanwhile: {error} No record of this tool has the change. When the repository "
                "can be read again, check that the change is there: `retention icechunk REPO status`."
            ) from error

    def _require_history(self, snapshot_id: bytes, tips: Collection[bytes]) -> None:
        """Raise GuardRefused when the file of the snapshot or of an ancestor is missing.

        A stopped sweep may have deleted ancestors of an expired snapshot. If a branch or tag named such a snapshot, all
        plans would be refused. The ancestors are read down to the first one in `tips`. This one and its ancestors are
        not read: if one of these is missing, all plans are refused already.
        """
        at, name = snapshot_id, encode_id(snapshot_id)
        seen = set(tips) - {at}
        while at not in seen:
            seen.add(at)
            path = f"{SNAPSHOTS}{encode_id(at)}"
            try:
                parent = read_snapshot(self._reader.read(path), self._reader.describe(path)).parent_id
            except ObjectMissing:
                if at == snapshot_id:
                    raise GuardRefused(
                        f"{self._url}: there is no snapshot {name}. Nothing was changed. {CORRECT_THE_ID}"
                    ) from None
                raise GuardRefused(
                    f"{self._url}: the snapshot {name} has an ancestor without a file, {encode_id(at)}: a sweep may "
                    "have deleted it. Nothing was changed. Choose another snapshot. Or bring the file back from "
                    "quarantine: `retention restore`."
                ) from None
            if parent is None or at in tips:
                return
            at = parent


def _id(text: str) -> bytes:
    if not is_canonical(text):
        raise ConfigurationError(
            f"{text!r} is not the id of a snapshot: an id has 20 characters, such as 1CECHNKREP0F1RSTCMT0. Nothing was "
            "changed. `retention show REPO expired_snapshots` lists the ids."
        )
    return decode_id(text)
