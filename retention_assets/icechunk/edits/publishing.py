"""Applies a plan's edits of references and snapshots to the repository, before the sweep deletes any file.

The edits are computed again for the current state of the repository, so no new commit is lost. Snapshots and references
that have expired since the plan stay, because nobody approved their removal.
Source: docs/icechunk.md, "What is deleted"; docs/icechunk-formats.md, "Garbage collection".
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial

from retention_assets.config.timestamps import Clock
from retention_assets.errors import GuardRefused
from retention_assets.icechunk.edits.commits import RepoCommits
from retention_assets.icechunk.edits.format_1 import apply_edits_v1
from retention_assets.icechunk.formats.ids import encode_id
from retention_assets.icechunk.formats.model import Repo
from retention_assets.icechunk.rules.collection import collected, outdated, removed_parents
from retention_assets.icechunk.rules.expiration import (
    Expiration,
    edited,
    expiration_v1,
    expiration_v2,
    expired,
)
from retention_assets.icechunk.rules.planned import PlannedEdits, expiration_within, more_than_planned, raw_ids
from retention_assets.icechunk.rules.retention import Unapproved
from retention_assets.icechunk.rules.snapshots import History, Reference, history_of, reachable
from retention_assets.icechunk.rules.updates import Stamp
from retention_assets.icechunk.source.ops_log import former_parents, references_moved, tips_left, updates_since
from retention_assets.icechunk.source.repository import IcechunkSource, references_written_since
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.conditional import BeforeWrite
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.policy.rules import RefKind
from retention_assets.policy.snapshots import SnapshotPolicy

Log = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Published:
    """The result of applying a plan's edits."""

    conflicts: int  # with other writers; the edit was tried again after each
    written: tuple[str, ...]  # addresses of the backups that were written
    references_removed: tuple[str, ...]  # `refs/branch.NAME`, `refs/tag.NAME`
    etag: str | None  # of the repo object afterwards; None: format 1, or unknown
    left: int = 0  # snapshots and references that have expired but are not in the plan, and stay
    new: frozenset[Reference] = frozenset()  # planned, but made or moved since the plan: they stay
    released: int = 0  # snapshots that this call released: an earlier sweep of the plan may have released others


def publish(
    access: StoreAccess,
    planned: PlannedEdits,
    policy: SnapshotPolicy,
    clock: Clock,
    log: Log,
    before_write: BeforeWrite = lambda: None,
    accepted: Collection[Reference] | None = None,
) -> Published:
    """Make the planned edits on the current state of the repository. After an interruption, call this again.

    Snapshots and references of the plan that are already gone are skipped. References that name another snapshot than
    at planning stay, and so do references that were made again or moved since the plan (see `_new_references`).
    Snapshots and references that have expired since the plan stay for the next plan. The caller holds the repository's
    lease. `before_write` is called before each write, and raises an error if the lease is lost: after conflicts with
    other writers, the edits can take longer than a lease. `accepted`: all references that the plan deletes, also those
    that an earlier attempt removed or found gone; None: those of `planned`.
    Errors: as `before_write`; GuardRefused when a snapshot that the plan removes is reachable again, is the parent of a
    new snapshot, or (in format 2) was the tip of a reference since the plan, when the repository has another format
    than planned, and as `expiration_v1`, `expired` and `collected`; SourceError as
    `IcechunkSource.require_upgrade_complete`, `updates_since` and `former_parents`; SourceError, StoreError and
    CorruptFile of reading and writing.
    """
    source = IcechunkSource(access, clock)
    found = source.repo_object()
    if planned.format != (1 if found is None else 2):
        raise outdated(f"the repository no longer has format {planned.format}")
    if planned.format == 1:
        return _publish_v1(access, planned, policy, clock, log, before_write)
    assert found is not None
    # Every liveness check makes this check. It is made here, too, so that nothing is edited if a later one would fail.
    source.require_upgrade_complete(found.repo, _to_delete(planned))
    commits, reader = RepoCommits(access, clock, log, before_write=before_write), ObjectReader(access)
    done = _Done()
    unused = partial(_require_unused, reader, planned, planned.deleted if accepted is None else accepted)
    expiration = commits.commit(partial(_expired, reader, unused, planned, policy, done))
    dropped = commits.commit(partial(_dropped, unused, planned))
    written = tuple(one.backup for one in (expiration, dropped) if one.backup is not None)
    conflicts = expiration.conflicts + dropped.conflicts
    return Published(conflicts, written, done.removed, dropped.etag, done.left, done.new, done.released)


@dataclass(slots=True)
class _Done:
    """The result of the last try of the expiration. After a conflict with another writer, there is another try."""

    removed: tuple[str, ...] = ()  # the addresses of removed references
    left: int = 0  # see `Published`
    new: frozenset[Reference] = frozenset()  # see `Published`
    released: int = 0  # see `Published`


def _expired(
    reader: ObjectReader,
    require_unused: Callable[[Repo], None],
    planned: PlannedEdits,
    policy: SnapshotPolicy,
    done: _Done,
    repo: Repo,
    stamp: Stamp,
) -> Repo:
    """Return `repo` after the planned expiration, and store the result of this try in `done`."""
    require_unused(repo)
    history = history_of(repo)
    updates = updates_since(reader, repo, planned.cutoff) if planned.deleted else ()
    done.new = _new_references(planned, history, references_moved(updates, history))
    expire = partial(expiration_v2, history, policy, planned.as_of, in_use=raw_ids(planned.in_use))
    expiration, done.left = _approved(planned, done.new, history, history.snapshots.keys(), expire)
    done.removed, done.released = (), 0
    if expiration is None:
        return repo
    done.released = len(expiration.released)
    after = expired(repo, expiration, stamp)
    done.removed = tuple(sorted(one.address for one in expiration.deletions))
    return after


def _dropped(require_unused: Callable[[Repo], None], planned: PlannedEdits, repo: Repo, stamp: Stamp) -> Repo:
    require_unused(repo)
    return collected(repo, raw_ids(planned.known), raw_ids(planned.dropped), stamp)


def _publish_v1(
    access: StoreAccess,
    planned: PlannedEdits,
    policy: SnapshotPolicy,
    clock: Clock,
    log: Log,
    before_write: BeforeWrite,
) -> Published:
    done = _Done()

    def expiration_of(history: History) -> Expiration | None:
        written = references_written_since(ObjectReader(access), planned.cutoff) if planned.deleted else {}
        done.new = _new_references(planned, history, written)
        expire = partial(expiration_v1, history, policy, planned.as_of, in_use=raw_ids(planned.in_use))
        expiration, done.left = _approved(planned, done.new, history, reachable(history, history.tips()), expire)
        done.released = len(expiration.released) if expiration else 0
        return expiration

    edits = apply_edits_v1(access, expiration_of, clock, log, written_before=planned.cutoff, before_write=before_write)
    return Published(edits.conflicts, (), edits.references_removed, None, done.left, done.new, done.released)


def _approved(
    planned: PlannedEdits,
    new: frozenset[Reference],
    history: History,
    linked: Collection[bytes],
    expire: Callable[[Unapproved], Expiration],
) -> tuple[Expiration | None, int]:
    """Return the expiration that the plan allows, and the number of expired snapshots and references beyond the plan.

    The expiration is None if no edit is left. `new`: see `Published`. `linked`: the snapshots that are still in the
    history. Errors: GuardRefused as `publish`.
    """
    planned = replace(planned, deleted=planned.deleted - new)
    _require_no_new_child_of_removed(planned, history)
    if raw_ids(planned.released).isdisjoint(linked) and planned.deleted.isdisjoint(history.references()):
        return None, 0
    expiration, stays = expiration_within(planned, expire)
    _require_within(planned, history, expiration)
    beyond = stays.deletions - {one.deletion for one in new}
    return expiration, len(stays.snapshots) + len(beyond)


def _new_references(
    planned: PlannedEdits, history: History, moved: Collection[tuple[RefKind, str]]
) -> frozenset[Reference]:
    """Return the branches and tags that the plan deletes and that were made again or moved since the plan.

    `moved`: the references that were made or moved since the plan's cutoff. A plan deletes no reference that was made
    or moved between its cutoff and the plan. So a planned reference in `moved` was made or moved after the plan, for
    example by a person after a sweep of another plan, and nobody approved its deletion.
    """
    there = planned.deleted.intersection(history.references())
    return frozenset(one for one in there if (one.kind, one.name) in moved)


def _to_delete(planned: PlannedEdits) -> frozenset[bytes]:
    return raw_ids(planned.released) | raw_ids(planned.dropped)


def _require_unused(reader: ObjectReader, planned: PlannedEdits, accepted: Collection[Reference], repo: Repo) -> None:
    """Refuse when a session may be open on a snapshot that the plan removes, because of a change since the plan.

    Either a branch or tag was on the snapshot, and has left it. Or somebody committed on the snapshot, and icechunk's
    own expiration has then removed the snapshot from the history. The plan keeps snapshots that were left before it was
    made. A reference in `accepted` does not count, because the plan accepts that sessions on it end.
    """
    to_delete = _to_delete(planned)
    if not to_delete:
        return
    updates = list(updates_since(reader, repo, planned.cutoff))
    known = raw_ids(planned.known)
    new = {one.new_snapshot_id for one in updates} - known
    removed = former_parents(reader, repo, updates, known)
    for parent, child in (*removed_parents(repo), *((parent, child) for child, parent in removed.items())):
        if parent in to_delete and child in new:
            raise _based_on_removed(child, parent)
    if left := to_delete & tips_left(updates, accepted).keys():
        raise outdated(
            f"a branch or tag was on the snapshot {encode_id(min(left))}, which the plan removes, and has left it: "
            "sessions may be open on it"
        )


def _require_no_new_child_of_removed(planned: PlannedEdits, history: History) -> None:
    """Refuse when the plan removes the parent of a new snapshot, because both may use the same files."""
    known, to_delete = raw_ids(planned.known), _to_delete(planned)
    for snapshot_id in sorted(history.snapshots.keys() - known):
        parent = history.snapshots[snapshot_id].parent_id
        if parent is not None and parent in to_delete:
            raise _based_on_removed(snapshot_id, parent)


def _based_on_removed(new: bytes, old: bytes) -> GuardRefused:
    return outdated(f"the new snapshot {encode_id(new)} is based on {encode_id(old)}, which the plan removes")


def _require_within(planned: PlannedEdits, history: History, expiration: Expiration) -> None:
    """Refuse an expiration that removes more than the plan, or that leaves a snapshot of the plan reachable."""
    after, more = edited(history, expiration.edits), more_than_planned(planned, expiration)
    tags, branches = (sorted(one.name for one in more.deletions if one.kind == kind) for kind in ("tag", "branch"))
    reached = reachable(after, after.tips()) & _to_delete(planned)
    for found, violation in (
        (sorted(map(encode_id, more.snapshots)), "snapshots would be released that are not in the plan"),
        (tags, "tags would be deleted that are not in the plan"),
        (branches, "branches would be deleted that are not in the plan"),
        (sorted(map(encode_id, reached)), "snapshots would be removed that a branch or tag reaches again"),
    ):
        if found:
            more_names = f" and {len(found) - 1:,} more" if found[1:] else ""
            raise outdated(f"{violation}: {found[0]}{more_names}")
