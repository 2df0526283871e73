"""The result of `retention explain`: the plan, and for each object why it is kept or gone."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any

from retention_assets.config.documents import plain
from retention_assets.core.keepers import Keeper
from retention_assets.objectstore.outcomes import Outcome

# States in addition to those of `core.states`.
GONE = "gone"  # a sweep or a purge removed the object
ABSENT = "absent"  # the plan did not list the object, and no ledger shows that it was removed
MISSING = "missing"  # as `absent`, but something refers to the object
OUTSIDE = "outside"  # entries refer to the object only by addresses that can lie outside the namespace
RESTORED = "restored"  # a person brought the object back after the plan was made
_STILL_THERE = (Outcome.RESTORED, Outcome.FAILED, Outcome.SKIPPED)  # after these outcomes, the object is in the store


@dataclass(frozen=True, slots=True)
class UsedPlan:
    """The plan that an explanation uses."""

    day: date
    plan_hash: str
    made_at: datetime
    references_at: datetime  # when the references of the plan were read (UTC)
    approved_by: str | None


@dataclass(frozen=True, slots=True)
class CommitState:
    """The state of a commit in the plan."""

    commit_id: str
    created_at: datetime
    active: bool
    until: datetime | None  # UTC: end of its retention; None: never
    rule_id: str | None
    heads: tuple[str, ...]
    protected_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EntryState:
    """A path at which commits have an object."""

    path: str
    branches: tuple[str, ...]
    added_at: datetime
    commits: int
    active_commits: int
    shown: tuple[CommitState, ...]  # the newest commits
    lifecycle_rule: str | None  # the first lifecycle rule that releases the entry
    lifecycle_due: datetime | None


@dataclass(frozen=True, slots=True)
class Removal:
    """The ledger row with the outcome of an object, and its plan, approval and record."""

    outcome: str
    at: datetime
    detail: str | None
    plan_hash: str
    day: date
    fence: int
    reason: str | None
    rule_ids: tuple[str, ...]
    paths: tuple[str, ...]
    due_since: datetime | None
    approved_by: str | None
    approved_at: str | None
    record: str | None  # the name of the audit record of the run
    run_id: str | None
    copy: str | None = None  # the URL in quarantine
    purge_after: datetime | None = None  # the time after which `purge` may delete the copy (UTC)


@dataclass(frozen=True, slots=True)
class ObjectExplanation:
    """Why one object is kept or gone."""

    address: str
    state: str  # one of `core.states.STATES`, or `gone`, `restored`, `absent`, `missing` or `outside`
    listed: bool
    size: int | None = None
    last_modified: datetime | None = None
    kept_by: tuple[Keeper, ...] = ()
    goes_on: date | None = None  # the first day whose plan may delete the object if nothing changes; None: never
    reason: str | None = None  # of a candidate or a waiting object
    rule_ids: tuple[str, ...] = ()
    due_since: datetime | None = None
    waits_until: datetime | None = None
    entries: tuple[EntryState, ...] = ()
    removal: Removal | None = None
    acknowledged: bool = False  # a person acknowledged the missing object as lost

    @property
    def is_needed_and_missing(self) -> bool:
        """Whether something refers to the object, and the store did not have it when the plan was made."""
        return self.state in (MISSING, GONE) and not self.listed and bool(self.kept_by)

    def with_removal(self, removal: Removal | None, made_at: datetime) -> "ObjectExplanation":
        """Return the explanation with a removal from a ledger. `made_at`: the time of the plan (UTC)."""
        if removal is None:
            return self
        is_after = removal.at >= made_at
        if removal.outcome == Outcome.RESTORED and is_after:
            return replace(self, removal=removal, state=RESTORED, goes_on=None)
        # the result of an attempt is unknown: only a plan that does not list the object shows that it is gone
        is_shown = not self.listed or (is_after and removal.outcome != Outcome.ATTEMPTED)
        if removal.outcome in _STILL_THERE or not is_shown:
            return replace(self, removal=removal)
        return replace(self, removal=removal, state=GONE, goes_on=None)

    def document(self) -> dict[str, Any]:
        """Return the values for JSON."""
        return plain(self)


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of a name: of all objects with this name, or of a commit or snapshot."""

    repository: str
    asked: str
    kind: str  # address, path, commit, snapshot, manifest or chunk
    plan: UsedPlan
    objects: tuple[ObjectExplanation, ...]
    notes: tuple[str, ...] = ()  # sentences about limits of the explanation, and about the plan that was used
    commit: CommitState | None = None  # if the name is a commit
    snapshot: Mapping[str, Any] | None = None  # if the name is a snapshot: its row of `expired_snapshots`

    def document(self) -> dict[str, Any]:
        """Return the values for JSON."""
        return plain(self)
