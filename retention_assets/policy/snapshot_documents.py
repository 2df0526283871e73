"""Reads policy documents of Icechunk repositories: validates each document, and joins them to one policy."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from retention_assets.config.durations import format_duration
from retention_assets.errors import ConfigurationError
from retention_assets.policy.rules import Hold
from retention_assets.policy.snapshot_schemas import SnapshotForm, SnapshotsSection
from retention_assets.policy.snapshots import NOT_BY_AGE, Keep, SnapshotPolicy, SnapshotRule
from retention_assets.policy.validation import checked
from retention_assets.policy.yaml_loader import mapping_of


@dataclass(frozen=True, slots=True)
class SnapshotDocument:
    """The rules of one document, and the source of the document."""

    source: str  # a file's name, for errors
    section: SnapshotsSection | None
    rules: tuple[SnapshotRule, ...]
    holds: tuple[Hold, ...]


def read_snapshot_document(text: str, source: str) -> SnapshotDocument:
    """Return the rules in `text` (YAML or JSON). Error messages call the text `source`.

    Errors: ConfigurationError. One line has the source and every wrong key.
    """
    form = checked(SnapshotForm, mapping_of(text, source), source)
    document = SnapshotDocument(source, form.snapshots, form.rules(), tuple(entry.hold() for entry in form.holds))
    _require_agreement([document])
    return document


def join_snapshot_documents(documents: Sequence[SnapshotDocument]) -> SnapshotPolicy:
    """Return the policy of all `documents` together. The order of the documents does not matter.

    Errors: ConfigurationError with the sources if two defaults or flags differ, an id is duplicated in its section, or
    one branch or tag has two different rules.
    """
    _require_agreement(documents)
    rules = (rule for document in documents for rule in document.rules)
    holds = (hold for document in documents for hold in document.holds)
    return SnapshotPolicy(
        tuple(sorted(rules, key=lambda rule: rule.rule_id)),
        _agreed(documents, "default", SnapshotsSection.default_keep, _text),
        tuple(sorted(holds, key=lambda hold: hold.hold_id)),
        delete_expired_branches=_flag(documents, "delete_expired_branches"),
        delete_expired_tags=_flag(documents, "delete_expired_tags"),
    )


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
            raise ConfigurationError(
                f"{document.source}: snapshots.{key} is {text_of(stated)}, but {text_of(found[0])} in {found[1]}. "
                f"Nothing was deleted. Keep one of the two."
            )
        found = found or (stated, document.source)
    return found and found[0]


def _require_agreement(documents: Sequence[SnapshotDocument]) -> None:
    _require_one_rule_per_name(documents)  # checked first: its message says more than one about a duplicated id
    for section, ids in (
        ("snapshots", [(rule.rule_id, document) for document in documents for rule in document.rules]),
        ("holds", [(hold.hold_id, document) for document in documents for hold in document.holds]),
    ):
        first: dict[str, str] = {}
        for rule_id, document in ids:
            if rule_id in first:
                raise ConfigurationError(
                    f"{document.source}: {section}: the id {rule_id!r} stands a second time (first in "
                    f"{first[rule_id]}). Nothing was deleted. Keep one of the two, or give it an id of its own."
                )
            first[rule_id] = document.source


def _require_one_rule_per_name(documents: Sequence[SnapshotDocument]) -> None:
    first: dict[tuple[str, str], tuple[Keep, str]] = {}
    for rule, source in _rules_with_source(documents):
        keep, place = first.setdefault((rule.kind, rule.pattern), (rule.keep, source))
        if keep[1:] != rule.keep[1:]:
            raise ConfigurationError(
                f"{source}: snapshots: {rule.kind} {rule.pattern!r} keeps {_text(rule.keep)}, but {_text(keep)} in "
                f"{place}. Nothing was deleted. Keep one of the two."
            )


def _rules_with_source(documents: Sequence[SnapshotDocument]) -> Iterator[tuple[SnapshotRule, str]]:
    for document in documents:
        for rule in document.rules:
            yield rule, document.source


def _text(keep: Keep) -> str:
    by_age = [] if keep.newer == NOT_BY_AGE else [f"keep_newer {format_duration(keep.newer)}"]
    return " and ".join(by_age + ([f"keep_last {keep.last}"] if keep.last else []))
