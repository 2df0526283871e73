"""The metadata of a partition and its JSON document. Documents of earlier versions can be read."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any, TypedDict

from retention_assets.config.documents import problem_in
from retention_assets.core.remedies import CheckResult
from retention_assets.errors import TableContractError


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """The inputs of a table's rows, and figures about the rows. None: the detail is not known, and is not stored."""

    refused: str | None = None  # the guards that refused the rows; they are still written, for inspection
    check_results: tuple[CheckResult, ...] | None = None  # of the table's guards
    digest: str | None = None  # of the rows, where later tables and plans are compared by it: see `core.digest`
    inputs: str | None = None  # the digest of everything from which the rows were made: see `state.reuse`
    computed_at: datetime | None = None  # when the rows were computed, and not copied (UTC)
    plan_hash: str | None = None  # of `deletion_report`
    policy_hash: str | None = None
    policy_run: str | None = None  # of `policy_table`: the run whose rows are the current policy
    references_hash: str | None = None  # of the branches, tags and commits or snapshots
    snapshots_digest: str | None = None  # of the snapshots that stay or leave, from which a table was made
    memory_digest: str | None = None  # of what earlier plans of lakeFS found, and the references no longer show
    terms_hash: str | None = None  # of the settings under which a table of references was made
    instance: str | None = None  # of `commit_graph`: identifies the repository; empty: the source does not know it
    known: bool | None = None  # of `uncommitted_objects`: whether there is a staged list
    # Of `uncommitted_objects`: the time until which the list has every staged object; None: `taken_at`
    complete_until: datetime | None = None
    staged_warning: str | None = None  # of `uncommitted_objects`: why a page of the staged list may be missing
    legacy_kinds: frozenset[str] | None = None  # of `addresses`: the kinds of old names that lakeFS gave
    unusual_entries: str | None = None  # of `addresses`: entries that clients made with impossible values
    # Of `repository_history` and tables of references: why the repository is in an older state than at an earlier plan
    replaced: str | None = None
    # Of `storage_inventory`:
    unusual_names: str | None = None  # keys that are not valid paths
    fell_back: str | None = None  # why the whole store was listed although an optimized run was configured
    clean_at: datetime | None = None  # when the whole store was last listed (UTC)
    storage: str | None = None  # the URL of the listed store; `repository_history` has it too
    # Of `repository_history`:
    cutoff: datetime | None = None  # files that the store wrote before this time may be deleted
    format: int | None = None  # of Icechunk
    deleted_tags: tuple[str, ...] | None = None
    availability: str | None = None
    limits: str | None = None  # why the availability is limited; empty: no reason is given
    tags_deletable: bool | None = None  # the feature flag `delete_tag`
    moved: tuple[str, ...] | None = None  # the branches and tags that were made or moved within `grace`
    not_before: tuple[str, ...] | None = None  # the snapshots that cannot be as old as their writer says, with times
    logged_until: datetime | None = None  # the newest entry of the ops log
    # Of tables of references: how many references may be to objects of other repositories; 0: certainly none
    outside: int | None = None
    # Of `reachable_manifests` and `reachable_chunks`:
    lost: int | None = None  # files that must stay but are acknowledged as lost
    unread: int | None = None  # lost files that no run has ever read
    # Of `reachable_chunks`: the references by kind. Not hashed: details can be part of a key, a mapping cannot
    by_kind: Mapping[str, int] | None = field(default=None, hash=False)

    @classmethod
    def of_texts(cls, texts: Mapping[str, str]) -> "Details":
        """Return the details from their texts in a document. Details that only other versions know are ignored."""
        known = (one.name for one in fields(cls) if one.name in texts)
        return cls(**{name: _CODECS.get(name, _TEXT).read(texts[name]) for name in known})

    def differing(self, origin: "Details") -> list[str]:
        """Return the names of the details of `origin` that are not the same here, sorted."""
        known = (one.name for one in fields(self) if getattr(origin, one.name) is not None)
        return sorted(name for name in known if getattr(self, name) != getattr(origin, name))

    def texts(self) -> dict[str, str]:
        """Return the details as texts, for the key `notes` of a document and for Dagster."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: _CODECS.get(name, _TEXT).write(value) for name, value in values.items() if value is not None}


_OPTIONAL = ("files", "bytes", "content")  # keys of a partition's document that earlier versions did not write


class _Document(TypedDict):
    """The keys that the JSON document of a partition must have."""

    taken_at: datetime
    rows: int
    run_id: str
    notes: dict[str, str]


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """The metadata of a partition. Timestamps are UTC, from this machine's clock unless stated otherwise."""

    taken_at: datetime  # the data in the table is not older than this
    rows: int
    run_id: str
    details: Details = field(default_factory=Details)
    files: str | None = None  # the digest of the names and sizes of the rows' files; None: they are not known
    size: int | None = None  # the total size in bytes of the objects in the rows; None: as for `files`
    content: str | None = None  # the digest of the files' contents, if the rows may be reused

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> "PartitionMetadata":
        """Return the metadata in a document that this version or an earlier version wrote.

        Without the digest of the files, it is unknown whether `digest` and `inputs` belong to the rows. Then they are
        left out. Errors: ValueError if the document is damaged.
        """
        if problem := problem_in(document, _Document):
            raise ValueError(problem)
        taken_at = datetime.fromisoformat(document["taken_at"]).astimezone(UTC)
        files, size, content = (document.get(name) for name in _OPTIONAL)
        details = Details.of_texts(document["notes"])
        if files is None:
            details = replace(details, digest=None, inputs=None)
        return cls(taken_at, document["rows"], document["run_id"], details, files, size, content)

    def document(self) -> dict[str, Any]:
        """Return the metadata as the JSON document of a partition."""
        written = {"taken_at": self.taken_at.isoformat(), "rows": self.rows, "run_id": self.run_id}
        optional = dict(zip(_OPTIONAL, (self.files, self.size, self.content), strict=True))
        known = {name: value for name, value in optional.items() if value is not None}
        return {**written, **known, "notes": self.details.texts()}


def needed[Value](value: Value | None, table: str, name: str) -> Value:
    """Return the detail `name`, which `table` must have. Errors: TableContractError if it is not known."""
    if value is None:
        raise TableContractError(
            f"{table}: its metadata has no {name}: another version made the table, or its metadata was changed. "
            "Nothing was deleted. Make the table again: `retention plan REPO --as-of DAY`."
        )
    return value


@dataclass(frozen=True, slots=True)
class _Codec:
    """Writes and reads the values of one type as text."""

    write: Callable[[Any], str] = str
    read: Callable[[str], Any] = str


def _read_checks(text: str) -> tuple[CheckResult, ...]:
    names = {one.name for one in fields(CheckResult)}
    return tuple(CheckResult(**{name: one[name] for name in names & one.keys()}) for one in json.loads(text))


def _written_checks(results: tuple[CheckResult, ...]) -> str:
    """Return the results as JSON. A remedy that is the guard's own is left out, as earlier versions did."""
    documents = [asdict(one) for one in results]
    return json.dumps([{name: one[name] for name in one if name != "remedy" or one[name]} for one in documents])


_FLAG = _Codec(lambda value: str(value).lower(), lambda text: text == "true")
_NUMBER = _Codec(read=int)
_TIME = _Codec(datetime.isoformat, datetime.fromisoformat)
_TEXT = _Codec()
_NAMES = _Codec(json.dumps, lambda text: tuple(json.loads(text)))
_CODECS: Mapping[str, _Codec] = {  # of the details that are not texts
    "by_kind": _Codec(json.dumps, lambda text: {name: int(number) for name, number in json.loads(text).items()}),
    "check_results": _Codec(_written_checks, _read_checks),
    "known": _FLAG,
    "tags_deletable": _FLAG,
    "legacy_kinds": _Codec(lambda kinds: " ".join(sorted(kinds)), lambda text: frozenset(text.split())),
    "clean_at": _TIME,
    "complete_until": _TIME,
    "computed_at": _TIME,
    "cutoff": _TIME,
    "logged_until": _TIME,
    "format": _NUMBER,
    "lost": _NUMBER,
    "unread": _NUMBER,
    "outside": _NUMBER,
    "deleted_tags": _NAMES,
    "moved": _NAMES,
    "not_before": _NAMES,
}
