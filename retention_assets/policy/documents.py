"""Reads policy documents: detects the form from the keys, validates each document, and joins them to one policy."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from retention_assets.config.durations import format_duration
from retention_assets.errors import ConfigurationError
from retention_assets.policy.rules import BranchRetention, CommittedRetention, Policy
from retention_assets.policy.schemas import Form, OwnForm, SeedForm, ServerForm
from retention_assets.policy.validation import checked
from retention_assets.policy.yaml_loader import mapping_of

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
    """The rules of one document, and the source of the document."""

    source: str  # a file's name, for errors
    policy: Policy


def read_document(text: str, source: str) -> Document:
    """Return the rules in `text`: YAML or JSON in one of three forms. Error messages call the text `source`.

    Errors: ConfigurationError. One line has the source and every wrong key.
    """
    mapping = mapping_of(text, source)
    document = _checked(_form_of(mapping, source), mapping, source)
    _require_agreement([document])
    return document


def from_server(default_days: int, branches: Mapping[str, int]) -> Document:
    """Return the rules of a lakeFS server, given in days. Errors: ConfigurationError, also for zero days (H13)."""
    entries = [{"branch_id": branch, "retention_days": days} for branch, days in branches.items()]
    return _checked(ServerForm, {"default_retention_days": default_days, "branches": entries}, SERVER)


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
    _require_one_span_per_branch(documents)  # checked first: its message says more than one about a duplicated id
    _require_unique(documents)


def _require_unique(documents: Sequence[Document]) -> None:
    for section, ids in (
        ("retention", [(rule.rule_id, doc) for doc in documents for rule in _retention_rules(doc)]),
        ("lifecycle", [(rule.rule_id, doc) for doc in documents for rule in doc.policy.lifecycle]),
        ("holds", [(hold.hold_id, doc) for doc in documents for hold in doc.policy.holds]),
    ):
        first: dict[str, str] = {}
        for rule_id, document in ids:
            if rule_id in first:
                raise ConfigurationError(
                    f"{document.source}: {section}: the id {rule_id!r} stands a second time (first in "
                    f"{first[rule_id]}). Nothing was deleted. Keep one of the two, or give it an id of its own."
                )
            first[rule_id] = document.source


def _require_one_span_per_branch(documents: Sequence[Document]) -> None:
    spans: dict[str, tuple[timedelta | None, str]] = {}
    for document in documents:
        for rule in _retention_rules(document):
            span, source = spans.setdefault(rule.branch, (rule.span, document.source))
            if span != rule.span:
                raise ConfigurationError(
                    f"{document.source}: retention: branch {rule.branch!r} is kept {format_duration(rule.span)}, but "
                    f"{format_duration(span)} in {source}. Nothing was deleted. Keep one of the two."
                )


def _default_of(documents: Sequence[Document]) -> tuple[timedelta | None, bool]:
    stated: list[tuple[timedelta | None, str]] = [
        (retention.default, document.source)
        for document in documents
        if (retention := document.policy.retention) and retention.has_default
    ]
    for span, source in stated:
        if span != stated[0][0]:
            raise ConfigurationError(
                f"{source}: retention.default is {format_duration(span)}, but {format_duration(stated[0][0])} in "
                f"{stated[0][1]}. Nothing was deleted. Keep one of the two."
            )
    return (stated[0][0], True) if stated else (None, False)


def _joined(retentions: Iterable[CommittedRetention], default: tuple[timedelta | None, bool]) -> CommittedRetention:
    rules = sorted((rule for retention in retentions for rule in retention.rules), key=lambda rule: rule.rule_id)
    return CommittedRetention(tuple(rules), default[0], has_default=default[1])


def _retention_rules(document: Document) -> Sequence[BranchRetention]:
    return document.policy.retention.rules if document.policy.retention else ()
