"""Making a plan's edits of references and snapshots, before any file is deleted.

The edits are made again from the policy, on the repository as it stands: nobody's commit is lost, and what would take
more than was approved is refused. Source: DESIGN.md, Invariants; Icechunk facts 4, Design doc 011.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from retention_assets.errors import GuardRefused
from retention_assets.formats.icechunk.ids import encode_id
from retention_assets.formats.icechunk.model import Repo
from retention_assets.history.icechunk.collection import collected
from retention_assets.history.icechunk.expiration import BranchDeleted, Expiration, TagDeleted, edited
from retention_assets.history.icechunk.expire_v1 import expire_v1
from retention_assets.history.icechunk.expire_v2 import expire_v2
from retention_assets.history.icechunk.planned import PlannedEdits, raw_ids
from retention_assets.history.icechunk.snapshots import History, history_of, reachable
from retention_assets.history.icechunk.updates import Stamp
from retention_assets.policy.snapshots import SnapshotPolicy
from retention_assets.stores.access import StoreAccess
from retention_assets.stores.icechunk import IcechunkSource
from retention_assets.sweep.icechunk.commits import RepoCommits
from retention_assets.sweep.icechunk.rewriting import carry_out_v1

Clock = Callable[[], datetime]
Log = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Published:
    """What publishing did."""

    conflicts: int  # with other writers; each was tried again
    written: tuple[str, ...]  # addresses of the backups that were written
    references_removed: tuple[str, ...]  # `refs/branch.NAME`, `refs/tag.NAME`
    etag: str | None  # of the repo object afterwards; format 1 has none


def publish(access: StoreAccess, planned: PlannedEdits, policy: SnapshotPolicy, clock: Clock, log: Log) -> Published:
    """Make the planned edits on the repository as it stands. Done again, it does what is left of them.

    Fewer edits than planned are fine: a snapshot or a reference may be gone already. The lease is the caller's.
    Errors: GuardRefused when more would be released or deleted than was planned, when a snapshot that is to go is
    reached again, or a new one stands on it, when the format is another one, and as `expire_v1`, `expire_v2` and
    `collected`; SourceError, StoreError and CorruptFile as reading and writing raise them.
    """
    found = IcechunkSource(access, clock).repo_object()
    if planned.format != (1 if found is None else 2):
        raise _refusal(f"the repository is not of format {planned.format} any more")
    if planned.format == 1:
        return _publish_v1(access, planned, policy, clock, log)
    commits = RepoCommits(access, clock, log)
    removed: set[str] = set()
    expired = commits.commit(partial(_expired, planned, policy, removed))
    dropped = commits.commit(partial(_dropped, planned))
    written = tuple(one.backup for one in (expired, dropped) if one.backup is not None)
    return Published(expired.conflicts + dropped.conflicts, written, tuple(sorted(removed)), dropped.etag)


def _expired(planned: PlannedEdits, policy: SnapshotPolicy, removed: set[str], repo: Repo, stamp: Stamp) -> Repo:
    """Return `repo` after the planned expiration, and leave in `removed` which references that took."""
    removed.clear()
    history = history_of(repo)
    _require_nobody_stands_on_the_doomed(planned, history)
    if not raw_ids(planned.released) & history.snapshots.keys() and not _references_left(planned, history):
        return repo
    after, expiration = expire_v2(repo, policy, planned.as_of, stamp)
    _require_within(planned, history, expiration)
    removed.update(references_removed(expiration))
    return after


def _dropped(planned: PlannedEdits, repo: Repo, stamp: Stamp) -> Repo:
    return collected(repo, raw_ids(planned.seen), raw_ids(planned.dropped), stamp)


def _publish_v1(
    access: StoreAccess, planned: PlannedEdits, policy: SnapshotPolicy, clock: Clock, log: Log
) -> Published:
    def expiration_of(history: History) -> Expiration | None:
        _require_nobody_stands_on_the_doomed(planned, history)
        reached = reachable(history, history.tips())
        if not raw_ids(planned.released) & reached and not _references_left(planned, history):
            return None
        expiration = expire_v1(history, policy, planned.as_of)
        _require_within(planned, history, expiration)
        return expiration

    done = carry_out_v1(access, expiration_of, clock, log)
    return Published(done.conflicts, (), done.references_removed, None)


def references_removed(expiration: Expiration) -> Iterable[str]:
    """Yield the references that an expiration deletes, as reports name them."""
    for edit in expiration.edits:
        if isinstance(edit, TagDeleted):
            yield f"refs/tag.{edit.name}"
        elif isinstance(edit, BranchDeleted):
            yield f"refs/branch.{edit.name}"


def _references_left(planned: PlannedEdits, history: History) -> bool:
    """Return whether a reference that is to go is still there."""
    tags, branches = set(planned.deleted_tags), set(planned.deleted_branches)
    return bool(tags & history.tags.keys() or branches & history.branches.keys())


def _doomed(planned: PlannedEdits) -> frozenset[bytes]:
    return raw_ids(planned.released) | raw_ids(planned.dropped)


def _require_nobody_stands_on_the_doomed(planned: PlannedEdits, history: History) -> None:
    """Refuse when a snapshot that the plan did not see stands on one that is to go: it may use the same files."""
    seen, doomed = raw_ids(planned.seen), _doomed(planned)
    for snapshot_id in sorted(history.snapshots.keys() - seen):
        parent = history.snapshots[snapshot_id].parent_id
        if parent is not None and parent in doomed:
            new, old = encode_id(snapshot_id), encode_id(parent)
            raise _refusal(f"the new snapshot {new} stands on {old}, which is to go")


def _require_within(planned: PlannedEdits, history: History, expiration: Expiration) -> None:
    """Refuse an expiration that takes more than was planned, or one that leaves within reach what is to go."""
    after = edited(history, expiration.edits)
    more = expiration.released - raw_ids(planned.released)
    tags = history.tags.keys() - after.tags.keys() - set(planned.deleted_tags)
    branches = history.branches.keys() - after.branches.keys() - set(planned.deleted_branches)
    reached = reachable(after, after.tips()) & _doomed(planned)
    for found, complaint in (
        (sorted(map(encode_id, more)), "snapshots more than planned would be released"),
        (sorted(tags), "tags more than planned would be deleted"),
        (sorted(branches), "branches more than planned would be deleted"),
        (sorted(map(encode_id, reached)), "snapshots that are to go are reached by a branch or tag again"),
    ):
        if found:
            raise _refusal(f"{len(found):,} {complaint}, {found[0]} first")


def _refusal(what: str) -> GuardRefused:
    return GuardRefused(f"{what}. Nothing more was changed or deleted. Plan again, and approve that plan.")
