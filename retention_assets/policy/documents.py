"""Reads policy documents, validates each of them, and joins them to the policy of one repository.

A document of a lakeFS repository has one of three forms. The keys of the document show which. A document of an Icechunk
repository has one form.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from retention_assets.config.durations import format_duration
from retention_assets.errors import ConfigurationError
from retention_assets.policy.rules import CommittedRetention, Hold, Policy
from retention_assets.policy.schemas import Form, OwnForm, SeedForm, ServerForm, SnapshotForm, SnapshotsSection
from retention_assets.policy.snapshots import NOT_BY_AGE, Keep, SnapshotPolicy, SnapshotRule
from retention_assets.policy.validation import checked, mapping_of

SERVER = "the rules of the lakeFS server"

_SEED_KEYS = {"prefix", "days", "branch_days"}
_ACCEPTED = (
    "this tool's form (`retention:`, `holds:`, `lifecycle:`), lakeFS's rules (`default_retention_days`, `branches`), "
    'and lifecycle rules by id (`{"rule1": {"prefix": ..., "days": ..., "enabled": ..., "branch_days": {...}}}`)'
)


@dataclass(frozen=True, slots=True)
class Document:
    """The rules of one document of a lakeFS repository, and the source of the document."""

    source: str  # a file's name or `SERVER`, for errors
    policy: Policy


@dataclass(frozen=True, slots=True)
class SnapshotDocument:
    """The rules of one document of an Icechunk repository, and the source of the document."""

    source: str  # a file's name, for errors
    section: SnapshotsSection | None
    rules: tuple[SnapshotRule, ...]
    holds: tuple[Hold, ...]


def read_document(text: str, source: str) -> Document:
    """Return the rules in `text`: YAML or JSON in one of three forms. `source`: the name of the text in messages.

    Errors: ConfigurationError, whose message has the source and every wrong key in one line.
    """
    mapping = mapping_of(text, source)
    document = _checked(_form_of(mapping, source), mapping, source)
    _require_agreement([document])
    return document


def from_server(default_days: int, branches: Mapping[str, int]) -> Document:
    """Return the rules of a lakeFS server, which counts in days. Errors: ConfigurationError, also for zero days."""
    entries = [{"branch_id": branch, "retention_days": days} for branch, days in branches.items()]
    return _checked(ServerForm, {"default_retention_days": default_days, "branches": entries}, SERVER)


def read_snapshot_document(text: str, source: str) -> SnapshotDocument:
    """Return the rules in `text` (YAML or JSON). `source` and errors: as `read_document`."""
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
    stated = [(doc.policy.retention, doc.source) for doc in documents if doc.policy.retention]
    defaults = (("default", retention.default, source) for retention, source in stated if retention.has_default)
    default = _agreed("retention.{} is", defaults, format_duration)
    rules = (rule for retention, _ in stated for rule in retention.rules)
    lifecycle = (rule for document in documents for rule in document.policy.lifecycle)
    holds = (hold for document in documents for hold in document.policy.holds)
    retention = CommittedRetention(
        tuple(sorted(rules, key=lambda rule: rule.rule_id)),
        default.get("default"),
        has_default=bool(default),
    )
    return Policy(
        retention if stated else None,
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
    sections = [(doc.section, doc.source) for doc in documents if doc.section]
    defaults = (("default", keep, source) for section, source in sections if (keep := section.default_keep()))
    flags = (
        (name, flag, source)
        for section, source in sections
        for name in ("delete_expired_branches", "delete_expired_tags")
        if (flag := getattr(section, name)) is not None
    )
    agreed_flags = _agreed("snapshots.{} is", flags, lambda flag: str(flag).lower())
    return SnapshotPolicy(
        tuple(sorted(rules, key=lambda rule: rule.rule_id)),
        _agreed("snapshots.{} is", defaults, _text).get("default"),
        tuple(sorted(holds, key=lambda hold: hold.hold_id)),
        delete_expired_branches=agreed_flags.get("delete_expired_branches", False),
        delete_expired_tags=agreed_flags.get("delete_expired_tags", False),
    )


def _form_of(mapping: Mapping[str, Any], source: str) -> type[Form]:
    keys = set(mapping)
    is_rule = [isinstance(value, dict) and not _SEED_KEYS.isdisjoint(value) for value in mapping.values()]
    if all(is_rule):  # checked before the other forms: a rule may be called `retention`
        return SeedForm
    if keys & OwnForm.model_fields.keys():
        return OwnForm
    if keys & ServerForm.model_fields.keys():
        return ServerForm
    if any(is_rule):
        return SeedForm
    raise ConfigurationError(
        f"{source}: unknown form, its keys are {sorted(keys)}. Nothing was deleted. The accepted forms are {_ACCEPTED}."
    )


def _checked(form: type[Form], mapping: Mapping[str, Any], source: str) -> Document:
    return Document(source, checked(form, mapping, source).policy())


def _require_agreement(documents: Sequence[Document]) -> None:
    rules = [(rule, doc.source) for doc in documents if doc.policy.retention for rule in doc.policy.retention.rules]
    durations = ((rule.branch, rule.duration, source) for rule, source in rules)
    _agreed("retention: branch {!r} is kept", durations, format_duration)  # says more than "the id is duplicated"
    _require_unique("retention", [(rule.rule_id, source) for rule, source in rules])
    _require_unique("lifecycle", [(rule.rule_id, doc.source) for doc in documents for rule in doc.policy.lifecycle])
    _require_unique("holds", [(hold.hold_id, doc.source) for doc in documents for hold in doc.policy.holds])


def _require_snapshot_agreement(documents: Sequence[SnapshotDocument]) -> None:
    rules = [(rule, doc.source) for doc in documents for rule in doc.rules]
    keeps = ((f"{rule.kind} {rule.pattern!r}", rule.keep._replace(rule_id=None), source) for rule, source in rules)
    _agreed("snapshots: {} keeps", keeps, _text)  # says more than "the id is duplicated"
    _require_unique("snapshots", [(rule.rule_id, source) for rule, source in rules])
    _require_unique("holds", [(hold.hold_id, doc.source) for doc in documents for hold in doc.holds])


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


def _agreed[T](what: str, stated: Iterable[tuple[str, T, str]], text_of: Callable[[T], str]) -> dict[str, T]:
    """Return the value of each name. `stated`: the name, value and source of each statement.

    `what`: the beginning of the message, with `{}` for the name. `text_of`: returns a value as text.
    Errors: ConfigurationError if two statements about one name differ.
    """
    first: dict[str, tuple[T, str]] = {}
    for name, value, source in stated:
        known, its_source = first.setdefault(name, (value, source))
        if value != known:
            raise ConfigurationError(
                f"{source}: {what.format(name)} {text_of(value)}, but {text_of(known)} in {its_source}. Nothing was "
                "deleted. Keep one of the two."
            )
    return {name: value for name, (value, _) in first.items()}


def _text(keep: Keep) -> str:
    by_age = [] if keep.newer == NOT_BY_AGE else [f"keep_newer {format_duration(keep.newer)}"]
    return " and ".join(by_age + ([f"keep_last {keep.last}"] if keep.last else []))
