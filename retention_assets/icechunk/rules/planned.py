"""The edits in a plan. They are approved with the plan, and applied before any file is deleted."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from retention_assets.core.amounts import HistoryChanges
from retention_assets.errors import GuardRefused
from retention_assets.icechunk.formats.ids import decode_id, is_canonical
from retention_assets.icechunk.rules.expiration import Expiration
from retention_assets.icechunk.rules.retention import NOTHING_UNAPPROVED, Unapproved
from retention_assets.icechunk.rules.snapshots import Reference
from retention_assets.policy.rules import RefKind

_TIMESTAMPS = ("as_of", "cutoff")
_IDS = ("known", "released", "dropped")
_LATER_IDS = ("in_use",)  # earlier versions did not write these lists, so they are written only if they are not empty
_NAMES = ("deleted_branches", "deleted_tags")
_KEYS = {"known": "seen"}  # the key of a field in the document, if it is not the name of the field


@dataclass(frozen=True, slots=True)
class PlannedEdits:
    """The planned changes of references and snapshots. Ids are texts of 20 characters, and all lists are sorted."""

    format: int
    as_of: datetime  # aware, UTC: the time at which the policy is applied
    cutoff: datetime  # aware, UTC: files that the store wrote earlier may be deleted
    known: tuple[str, ...]  # every snapshot that existed when the plan was made
    released: tuple[str, ...]  # snapshots that the expiration releases
    dropped: tuple[str, ...]  # snapshots that the collection removes from the repo object
    deleted: frozenset[Reference]  # with the snapshots that they named when the plan was made
    in_use: tuple[str, ...] = ()  # snapshots that the plan keeps only because sessions may be open on them

    @property
    def deleted_branches(self) -> tuple[str, ...]:
        """The names of the branches that the plan deletes."""
        return self._deleted("branch")

    @property
    def deleted_tags(self) -> tuple[str, ...]:
        """The names of the tags that the plan deletes."""
        return self._deleted("tag")

    def _deleted(self, kind: RefKind) -> tuple[str, ...]:
        return tuple(sorted(one.name for one in self.deleted if one.kind == kind))

    def history_changes(self) -> HistoryChanges:
        """Return how many snapshots, branches and tags the plan removes."""
        snapshots = {*self.released, *self.dropped}
        return HistoryChanges(len(snapshots), len(self.deleted_branches), len(self.deleted_tags))

    def document(self) -> dict[str, Any]:
        """Return the edits as a document for JSON."""
        names = (*_IDS, *_NAMES, *(name for name in _LATER_IDS if getattr(self, name)))
        lists = {_KEYS.get(name, name): list(getattr(self, name)) for name in names}
        timestamps = {name: getattr(self, name).isoformat() for name in _TIMESTAMPS}
        return {"format": self.format, **timestamps, **lists}

    @classmethod
    def read(cls, document: Mapping[str, Any], branches: Mapping[str, str], tags: Mapping[str, str]) -> Self:
        """Return the edits in `document`. `branches`, `tags`: the snapshot that each one named when the plan was made.

        Errors: GuardRefused if the method `document` cannot have written the document, or if a deleted reference is not
        in `branches` or `tags`.
        """
        try:
            values: dict[str, Any] = {name: datetime.fromisoformat(document[name]) for name in _TIMESTAMPS}
            values |= {name: tuple(document[_KEYS.get(name, name)]) for name in _IDS}
            values |= {name: tuple(document.get(name, ())) for name in _LATER_IDS}
            deleted = [Reference("branch", one, decode_id(branches[one])) for one in document["deleted_branches"]]
            deleted += [Reference("tag", one, decode_id(tags[one])) for one in document["deleted_tags"]]
            planned = cls(format=document["format"], deleted=frozenset(deleted), **values)
        except (KeyError, TypeError, ValueError) as error:
            raise _corrupt(f"{type(error).__name__}: {error}") from None
        texts = (*planned.known, *planned.released, *planned.dropped, *planned.in_use)
        if planned.format not in (1, 2) or planned.as_of.tzinfo is None or planned.cutoff.tzinfo is None:
            raise _corrupt("its format or a time is not valid")
        if not all(map(is_canonical, texts)) or planned.document() != document:
            raise _corrupt("no plan writes such a document")
        return planned


def more_than_planned(planned: PlannedEdits, expiration: Expiration) -> Unapproved:
    """Return the snapshots and references that an expiration would release or delete beyond the plan.

    A reference that was moved, or created again on another snapshot, is not the reference that the plan deletes.
    """
    approved = {one.deletion for one in planned.deleted}
    return Unapproved(expiration.released - raw_ids(planned.released), frozenset(expiration.deletions) - approved)


def expiration_within(
    planned: PlannedEdits, expire: Callable[[Unapproved], Expiration]
) -> tuple[Expiration, Unapproved]:
    """Return an expiration within the plan, and the expired snapshots and references beyond the plan, which stay.

    A commit after the plan may push another snapshot out of the newest N. Only the next plan may release that snapshot.
    A snapshot that stays can change which other snapshots are reachable. So the expiration is computed again until it
    is within the plan.
    `expire` returns the expiration in which the given snapshots and references stay. Errors: as `expire`.
    """
    stays = NOTHING_UNAPPROVED
    while True:
        expiration = expire(stays)
        grown = stays.with_more(more_than_planned(planned, expiration))
        if grown == stays:  # `publish` refuses an expiration that is still not within the plan
            return expiration, stays
        stays = grown


def raw_ids(texts: Collection[str]) -> frozenset[bytes]:
    """Return ids of 20 characters as their 12 bytes."""
    return frozenset(map(decode_id, texts))


def _corrupt(what: str) -> GuardRefused:
    return GuardRefused(
        f"the plan's document of edits is corrupt: {what}. Nothing was changed. Plan again: `retention plan REPO "
        "--as-of DAY`."
    )
