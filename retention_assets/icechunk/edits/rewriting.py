"""Makes the edits of an expiration in format 1: rewrites snapshot files and removes references, one after the other.

The repository is consistent after each edit. So a run that stops between two edits needs no repair: the next run makes
the remaining edits. Source: Icechunk facts 3, v1.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from random import Random

from retention_assets.errors import GuardRefused, StoreError
from retention_assets.icechunk.edits.commits import FIRST_WAIT, LONGEST_WAIT, TRIES
from retention_assets.icechunk.edits.references import ReferenceFiles
from retention_assets.icechunk.edits.unconditional_writes import unguarded_writers
from retention_assets.icechunk.formats.ids import encode_id
from retention_assets.icechunk.formats.paths import SNAPSHOTS
from retention_assets.icechunk.formats.snapshots import read_snapshot, with_parent
from retention_assets.icechunk.rules.expiration import Edit, Expiration, Reparented, TagDeleted
from retention_assets.icechunk.rules.snapshots import History
from retention_assets.icechunk.source.repository import IcechunkSource
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.mutate.replacing import ObjectReplacer
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.objectstore.rate_limiter import backoffs


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The result of the edits."""

    conflicts: int  # with other writers; after each the repository was read again
    references_removed: tuple[str, ...]  # `refs/branch.NAME`, `refs/tag.NAME`


def carry_out_v1(
    access: StoreAccess,
    expiration_of: Callable[[History], Expiration | None],
    clock: Callable[[], datetime],
    log: Callable[[str], None],
    *,
    random: Random | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Rewritten:
    """Make the edits that `expiration_of` returns for the current history; None: nothing is left to do.

    Changes by another writer are never overwritten. After a conflict the repository is read again, and `expiration_of`
    is called again.
    Errors: as `expiration_of` and `IcechunkSource.state`; StoreError after too many conflicts.
    """
    rewriter = _Rewriter(access)
    waits = backoffs(random or Random(), FIRST_WAIT, LONGEST_WAIT)
    for conflicts in range(TRIES):
        state = IcechunkSource(access, clock).state()
        if state.format != 1:
            raise GuardRefused(f"{access.url}: it is of format 2 by now. Nothing more was changed. Plan again.")
        expiration = expiration_of(state.history)
        edits = () if expiration is None else expiration.edits
        if edits and not conflicts and (warning := unguarded_writers(access, None)):
            log(warning)
        if all(rewriter.made(edit, state.history) for edit in edits):
            return Rewritten(conflicts, tuple(sorted(rewriter.removed)))
        log(f"{access.url}: another writer was quicker; reading all again ({conflicts + 1})")
        sleep(next(waits))
    raise StoreError(
        f"{access.url}: other writers were quicker {TRIES} times. Some edits of the expiration are made, no file was "
        f"deleted. Run again when fewer write."
    )


class _Rewriter:
    def __init__(self, access: StoreAccess) -> None:
        self._reader = ObjectReader(access)
        self._replacer = ObjectReplacer(access)
        self._references = ReferenceFiles(access)
        self.removed: set[str] = set()

    def made(self, edit: Edit, history: History) -> bool:
        """Make one edit; return False when the snapshot or branch to change is no longer as in `history`."""
        if isinstance(edit, Reparented):
            return self._reparented(edit, history)
        if isinstance(edit, TagDeleted):
            self._references.write_tombstone(edit.name)
            self.removed.add(f"refs/tag.{edit.name}")
            return True
        is_gone = self._references.try_delete_branch(edit.name, history.branches[edit.name])
        if is_gone:
            self.removed.add(f"refs/branch.{edit.name}")
        return is_gone

    def _reparented(self, edit: Reparented, history: History) -> bool:
        path = f"{SNAPSHOTS}{encode_id(edit.snapshot_id)}"
        where = self._reader.describe(path)
        content, metadata = self._reader.read_with_metadata(path)
        if read_snapshot(content, where).parent_id != history.snapshots[edit.snapshot_id].parent_id:
            return False
        return self._replacer.replace(path, with_parent(content, edit.parent_id, where), metadata.e_tag or "")
