"""Reads policy documents, validates each of them, and joins them to the policy of one repository.

A document of a lakeFS repository has one of three forms, which the code finds out from the keys. A document of an
Icechunk repository has one form.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from retention_assets.config.durations import format_duration
from retention_assets.errors import ConfigurationError
from retention_assets.policy.rules import BranchRetention, CommittedRetention, Hold, Policy
from retention_assets.policy.schemas import Form, OwnForm, SeedForm, ServerForm, SnapshotForm, SnapshotsSection
from retention_assets.policy.snapshots import NOT_BY_AGE, Keep, SnapshotPolicy, SnapshotRule
from retention_assets.policy.validation import checked, mapping_of

SERVER = "the rules of the lakeFS server"

_OWN_KEYS = {"retention", "holds", "lifecycle"}
_SERVER_KEYS = {"default_retention_days", "branches"}
_SEED_KEYS = {"prefix", "days", "branch_days"}
_ACCEPTED = (
    "our own form (`retention:`, `holds:`, `lifecycle:`), lakeFS's rules (`default_retention_days`, `branches`), "
    'or lifecycle rules by id (`{"rule1": {"prefix": ..., "days": ..., "enabled": ..., "branch_days": {...}}}`)'
)


@dataclass(frozen=True, slots=True)
class Document:
    """The rules of one document of a lakeFS repository, and the source of the document."""

    source: str  # a file's name, for errors
    policy: Policy


@dataclass(frozen=True, slots=True)
class SnapshotDocument:
    """The rules of one document of an Icechunk repository, and the source of the document."""

    source: str  # a file's name, for errors
    section: SnapshotsSection | None
    rules: tuple[SnapshotRule, ...]
    holds: tuple[Hold, ...]


def read_document(text: str, source: str) -> Document:
    """Return the rules in `text`: YAML or JSON in one of three forms. Error messages call the text `source`.

    Errors: ConfigurationError. One line has the source and every wrong key.
    """
    mapping = mapping_of(text, source)
    document = _checked(_form_of(mapping, source), mapping, source)
    _require_agreement([document])
    return document


def from_server(default_days: int, branches: Mapping[str, int]) -> Document:
    """Return the rules of a lakeFS server, which are in days. Errors: ConfigurationError, also for zero days (H13)."""
    entries = [{"branch_id": branch, "retention_days": days} for branch, days in branches.items()]
    return _checked(ServerForm, {"default_retention_days": default_days, "branches": entries}, SERVER)


def read_snapshot_document(text: str, source: str) -> SnapshotDocument:
    """Return the rules in `text` (YAML or JSON). Error messages call the text `source`. Errors: as `read_document`."""
    form = checked(SnapshotForm, mapping_of(text, source), source)
    document = SnapshotDocument(source, form.snapshots, form.rules(), tuple(entry.hold() for entry in form.holds))
    _require_snapshot_agreement([document])
    return document


def join(documents: Sequence[Document]) -> Policy:
    """Return the policy of all `documents` together. The order of the documents does not matter.

    Errors: ConfigurationError with the sources if two defaults differ, an id is duplicated in its section, or one
    branch has two different retention periods.
    """
    _require_agreement(documents)
    retentions = [document.policy.retention for document in documents if document.policy.retention]
    lifecycle = (rule for document in documents for rule in document.policy.lifecycle)
    holds = (hold for document in documents for hold in document.policy.holds)
    return Policy(
        _joined(retentions, _default_of(documents)) if retentions else None,
        tuple(sorted(lifecycle, key=lambda rule: rule.rule_id)),
        tuple(sorted(holds, key=lambda hold: hold.hold_id)),
    )


def join_snapshot_documents(documents: Sequence[SnapshotDocument]) -> SnapshotPolicy:
    """Return the policy of all `documents` together. The order of the documents does not matter.

    Errors: ConfigurationError with the sources if two defaults or flags differ, an id is duplicated in its section, or
    one branch or tag has two different rules.
    """
    _require_snapshot_agreement(documents)
    rules = (rule for document in documents for rule in document.rules)
    holds = (hold for document in documents for hold in document.holds)
    return SnapshotPolicy(
        tuple(sorted(rules, key=lambda rule: rule.rule_id)),
        _agreed(documents, "default", SnapshotsSection.default_keep, _text),
        tuple(sorted(holds, key=lambda hold: hold.hold_id)),
        delete_expired_branches=_flag(documents, "delete_expired_branches"),
        delete_expired_tags=_flag(documents, "delete_expired_tags"),
    )


def _form_of(mapping: Mapping[str, Any], source: str) -> type[Form]:
    keys = set(mapping)
    is_rule = [isinstance(value, dict) and not _SEED_KEYS.isdisjoint(value) for value in mapping.values()]
    if all(is_rule):  # checked before the other forms: a rule may be called `retention`
        return SeedForm
    if keys & _OWN_KEYS:
        return OwnForm
    if keys & _SERVER_KEYS:
        return ServerForm
    if any(is_rule):
        return SeedForm
    raise ConfigurationError(
        f"{source}: unknown form, its keys are {sorted(keys)}. Nothing was deleted. Accepted are {_ACCEPTED}."
    )


def _checked(form: type[Form], mapping: Mapping[str, Any], source: str) -> Document:
    return Document(source, checked(form, mapping, source).policy())


def _require_agreement(documents: Sequence[Document]) -> None:
    _require_one_duration_per_branch(documents)  # checked first: this message says more than "the id is duplicated"
    _require_unique("retention", [(rule.rule_id, doc.source) for doc in documents for rule in _retention_rules(doc)])
    _require_unique("lifecycle", [(rule.rule_id, doc.source) for doc in documents for rule in doc.policy.lifecycle])
    _require_unique("holds", [(hold.hold_id, doc.source) for doc in documents for hold in doc.policy.holds])


def _require_unique(section: str, ids: Iterable[tuple[str, str]]) -> None:
    """Raise ConfigurationError if an id is duplicated. `ids`: the ids of a section with their sources."""
    first: dict[str, str] = {}
    for rule_id, source in ids:
        if rule_id in first:
            raise ConfigurationError(
                f"{source}: {section}: the id {rule_id!r} is duplicated (first in {first[rule_id]}). Nothing was "
                "deleted. Keep one of the two, or give one of them another id."
            )
        first[rule_id] = source


def _require_one_duration_per_branch(documents: Sequence[Document]) -> None:
    durations: dict[str, tuple[timedelta | None, str]] = {}
    for document in documents:
        for rule in _retention_rules(document):
            duration, source = durations.setdefault(rule.branch, (rule.duration, document.source))
            if duration != rule.duration:
                what = f"{document.source}: retention: branch {rule.branch!r} is kept"
                raise _different(what, format_duration(rule.duration), format_duration(duration), source)


def _default_of(documents: Sequence[Document]) -> tuple[timedelta | None, bool]:
    stated: list[tuple[timedelta | None, str]] = [
        (retention.default, document.source)
        for document in documents
        if (retention := document.policy.retention) and retention.has_default
    ]
    for duration, source in stated:
        if duration != stated[0][0]:
            what = f"{source}: retention.default is"
            raise _different(what, format_duration(duration), format_duration(stated[0][0]), stated[0][1])
    return (stated[0][0], True) if stated else (None, False)


def _joined(retentions: Iterable[CommittedRetention], default: tuple[timedelta | None, bool]) -> CommittedRetention:
    rules = sorted((rule for retention in retentions for rule in retention.rules), key=lambda rule: rule.rule_id)
    return CommittedRetention(tuple(rules), default[0], has_default=default[1])


def _retention_rules(document: Document) -> Sequence[BranchRetention]:
    return document.policy.retention.rules if document.policy.retention else ()


def _flag(documents: Sequence[SnapshotDocument], key: str) -> bool:
    def read(section: SnapshotsSection) -> bool | None:
        return getattr(section, key)

    return bool(_agreed(documents, key, read, lambda flag: str(flag).lower()))


def _agreed[T](
    documents: Sequence[SnapshotDocument],
    key: str,
    read: Callable[[SnapshotsSection], T | None],
    text_of: Callable[[T], str],
) -> T | None:
    """Return the value that the documents set for `key`; None if no document sets it."""
    found: tuple[T, str] | None = None
    for document in documents:
        stated = None if document.section is None else read(document.section)
        if stated is None:
            continue
        if found and stated != found[0]:
            raise _different(f"{document.source}: snapshots.{key} is", text_of(stated), text_of(found[0]), found[1])
        found = found or (stated, document.source)
    return found and found[0]


def _require_snapshot_agreement(documents: Sequence[SnapshotDocument]) -> None:
    _require_one_rule_per_name(documents)  # checked first: this message says more than "the id is duplicated"
    _require_unique("snapshots", [(rule.rule_id, doc.source) for doc in documents for rule in doc.rules])
    _require_unique("holds", [(hold.hold_id, doc.source) for doc in documents for hold in doc.holds])


def _require_one_rule_per_name(documents: Sequence[SnapshotDocument]) -> None:
    first: dict[tuple[str, str], tuple[Keep, str]] = {}
    for document in documents:
        for rule in document.rules:
            keep, source = first.setdefault((rule.kind, rule.pattern), (rule.keep, document.source))
            if keep[1:] != rule.keep[1:]:
                what = f"{document.source}: snapshots: {rule.kind} {rule.pattern!r} keeps"
                raise _different(what, _text(rule.keep), _text(keep), source)


def _different(what: str, one: str, other: str, source: str) -> ConfigurationError:
    return ConfigurationError(f"{what} {one}, but {other} in {source}. Nothing was deleted. Keep one of the two.")


def _text(keep: Keep) -> str:
    by_age = [] if keep.newer == NOT_BY_AGE else [f"keep_newer {format_duration(keep.newer)}"]
    return " and ".join(by_age + ([f"keep_last {keep.last}"] if keep.last else []))
