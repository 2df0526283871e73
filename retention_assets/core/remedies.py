"""The result of a check, and the remedy if the check fails. The commands in remedies do not name the repository."""

from collections.abc import Mapping
from dataclasses import dataclass

INCOMPLETE_LISTING = "Plan again. If the check fails again, check that the credentials may list the whole `storage`."
_NEWER = (
    "Take a new dump if references come from a dump, and plan again. If the check fails again, the repository is "
    "damaged: bring the files that it names back from a backup, or from older versions in the bucket."
)
_DAMAGED = (
    "Run again. If the check fails again, the repository is damaged: bring the files that it names back from a backup, "
    "or from older versions in the bucket."
)  # Icechunk has no dumps
_FAULT = "Plan again. If the check fails again, this is a bug of retention_assets: keep the warehouse and report it."
_BRING_BACK = (
    "Check `storage` and what its credentials may list. Bring the objects back from a backup or from quarantine "
    "(`retention restore`)."
)
_LOST = f"{_BRING_BACK} If they are lost for good: `retention acknowledge`."
_LOST_OR_DELETED = (
    f"{_LOST} If a sweep deleted them, and a branch or tag was created from an expired commit since, you can also "
    "delete that branch or tag. If the policy now keeps versions that were swept before (a longer period, `tags: "
    "protect`, a hold): restore them from quarantine, or accept the loss with `retention acknowledge`."
)
_CHANGED = (
    "If a command is named above, run it, and verify again. Otherwise a file of the warehouse was damaged, or "
    "changed by somebody else: approve and sweep nothing, and find out who can write to the warehouse. Then bring "
    "this file back from a backup. A whole warehouse from a backup lacks the ledgers and withdrawals since then."
)

REMEDIES: Mapping[str, str] = {
    "listing_complete": INCOMPLETE_LISTING,
    "namespaces_apart": (
        "Correct `namespace` and `storage` of both repositories: no location may contain another. If a lakeFS server "
        "has two repositories at one location, delete the one that nobody needs any more (`lakectl repo delete`): its "
        "branches and commits are then lost."
    ),
    "clock_agrees": "Set the clock of this machine or of the store, and plan again.",
    "heads_present": _NEWER,
    "ranges_complete": _NEWER,
    "metadata_exists": _LOST,
    "manifests_whole": _DAMAGED,
    "chunks_exist": _LOST,
    "live_listed": _LOST,
    "live_not_empty": "Check that `source` and `storage` are of the same repository, and plan again.",
    "live_not_shrunk": (
        "Find out what changed since the last plan: the policy, or the branches, tags and commits. If the change is "
        "intended, raise guards.max_live_shrink, plan again, look at the candidates, and set the old value again."
    ),
    "nothing_young": _FAULT,
    "nothing_unknown": "Name the folder of the server's staged list in `staged`, or use `source.api`. Then plan again.",
    "only_generated_names": _FAULT,
    "nothing_live": _FAULT,
    "only_listed": _FAULT,
    "totals_balance": _FAULT,
    "none_failed": (
        "Read the column `detail` of `deletion_report` (`retention show`). Remove the cause, and sweep again: "
        "`retention sweep`."
    ),
    "staged_read": (
        "Let the server write a staged list before the dump, name its folder in `staged`, and verify again. Or use "
        "`source.api`."
    ),
    "live_exist": _LOST_OR_DELETED,
    "references_resolve": _DAMAGED,
    "kept_exist": _LOST,
    "logs_exist": "Bring the transaction logs back from quarantine (`retention restore`) or from a backup.",
    "deleted_are_gone": (
        "Find out who put the objects back. They have a time from before the deletion, like an object whose delete "
        "marker was removed. Plan again: the plan decides about these objects again. If they must stay, copy each of "
        "them to its own key, so that it has a new time."
    ),
    "quarantine_is_whole": (
        "If copies are missing after an interrupted purge, purge again. Else check that the quarantine is mounted, or "
        "find out who removed them. If copies in an earlier quarantine were not checked, mount it or give access to "
        "it, and verify again. If purged objects have copies: `retention purge`, with `quarantine.url` set to their "
        "quarantine."
    ),
    "totals_hold": _CHANGED,
    "records_follow": _CHANGED,
    "records_signed": (
        "Correct records.signing_key, records.earlier_keys or records.signed_since. If they are correct, a record is "
        "forged: approve and sweep nothing, and find out who can write to the warehouse."
    ),
    "records_copied": (
        "If only the newest records have no copy, the next run copies them. Otherwise find out who removed or changed "
        "records, here or at the witness. Nobody may change the copies at the witness, so they are the right ones."
    ),
}


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one guard or check: its name, whether it passed, and a sentence about what it found."""

    guard: str
    passed: bool
    detail: str
    value: float | None = None  # the number that the guard counted or measured; None: the guard has no number
    limit: float | None = 0  # the largest `value` that passes; None: the guard does not compare `value` with a limit
    remedy: str = ""  # for a cause that has another remedy than the guard's own

    @property
    def message(self) -> str:
        """What the guard found and, if it failed, the remedy."""
        remedy = "" if self.passed else self.remedy or REMEDIES.get(self.guard, "")
        return f"{self.detail.rstrip('.')}. {remedy}" if remedy else self.detail
