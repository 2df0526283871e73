"""The form of a policy document for Icechunk snapshots, as pydantic models that convert to rules."""

import re
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from retention_assets.errors import ConfigurationError
from retention_assets.policy.matching import is_glob
from retention_assets.policy.rules import DEFAULT_RULE, Hold, HoldKind
from retention_assets.policy.schemas import Day, RuleId, Span, as_problem
from retention_assets.policy.snapshots import NOT_BY_AGE, Keep, RefKind, SnapshotRule
from retention_assets.policy.validation import STRICT

_HOLD_KINDS: tuple[HoldKind, ...] = ("snapshot", "branch", "tag")
_SNAPSHOT_ID = re.compile(r"[0-9A-HJKMNP-TV-Z]{19}[0G]")  # Source: Icechunk facts 1, Ids


def _pattern(value: object) -> object:
    if isinstance(value, str) and (not value.strip() or value != value.strip() or set(value) & set("[]{}\\")):
        raise ConfigurationError(f"{value!r} names no branch or tag: write a name, or a glob with `*` and `?`")
    return value


def _snapshot_id(value: object) -> object:
    if isinstance(value, str) and not _SNAPSHOT_ID.fullmatch(value):
        raise ConfigurationError(f"{value!r} is no snapshot id: it has 20 characters, such as 1CECHNKREP0F1RSTCMT0")
    return value


Pattern = Annotated[str, BeforeValidator(as_problem(_pattern))]
SnapshotId = Annotated[str, BeforeValidator(as_problem(_snapshot_id))]


class _Form(BaseModel):
    model_config = STRICT


class KeepEntry(_Form):
    """`{keep_newer: 30d, keep_last: 5}`: one key or both."""

    keep_newer: Span = NOT_BY_AGE
    keep_last: int = Field(default=0, ge=1)

    @model_validator(mode="after")
    def _keeps_something(self) -> "KeepEntry":
        if self.model_fields_set.isdisjoint(KeepEntry.model_fields):
            raise ValueError("write keep_newer, keep_last, or both")
        return self


class _ReferenceEntry(KeepEntry):
    id: RuleId | None = None

    @model_validator(mode="after")
    def _default_is_taken(self) -> "_ReferenceEntry":
        if self.id == DEFAULT_RULE:
            raise ValueError(f"the id {DEFAULT_RULE!r} is the default's own; choose another")
        return self

    def rule_of(self, kind: RefKind, pattern: str) -> SnapshotRule:
        """Return the rule. A rule without an id is named after its kind and pattern."""
        return SnapshotRule(self.id or f"{kind}:{pattern}", kind, pattern, self.keep_newer, self.keep_last)


class BranchEntry(_ReferenceEntry):
    """`{branch: "exp-*", keep_newer: 7d, keep_last: 3, id: experiments}`."""

    branch: Pattern


class TagEntry(_ReferenceEntry):
    """`{tag: "v*", keep_newer: forever}`."""

    tag: Pattern


class SnapshotsSection(_Form):
    """`snapshots:` with a default, rules for branches and tags, and what happens to expired references."""

    default: KeepEntry | None = None
    branches: list[BranchEntry] = Field(default_factory=list)
    tags: list[TagEntry] = Field(default_factory=list)
    delete_expired_branches: bool | None = None
    delete_expired_tags: bool | None = None

    @model_validator(mode="after")
    def _says_something(self) -> "SnapshotsSection":
        if not (self.default or self.branches or self.tags):
            raise ValueError("neither a default nor branches nor tags: write one, or leave the section out")
        return self

    def rules(self) -> tuple[SnapshotRule, ...]:
        """Return the rules of branches and tags."""
        branches = (entry.rule_of("branch", entry.branch) for entry in self.branches)
        return (*branches, *(entry.rule_of("tag", entry.tag) for entry in self.tags))

    def default_keep(self) -> Keep | None:
        """Return the default, if there is one."""
        return None if self.default is None else Keep(DEFAULT_RULE, self.default.keep_newer, self.default.keep_last)


class SnapshotHoldEntry(_Form):
    """`{id: audit, snapshot: 1CECHNKREP0F1RSTCMT0, reason: yearly audit, until: 2027-01-01}`."""

    id: RuleId
    reason: str = Field(min_length=1)
    snapshot: SnapshotId | None = None
    branch: str | None = Field(default=None, min_length=1)
    tag: str | None = Field(default=None, min_length=1)
    until: Day | None = None

    @model_validator(mode="after")
    def _holds_one_thing(self) -> "SnapshotHoldEntry":
        named = [kind for kind in _HOLD_KINDS if getattr(self, kind) is not None]
        if len(named) != 1:
            raise ValueError(f"a hold names exactly one of {', '.join(_HOLD_KINDS)}; this one names {len(named)}")
        if is_glob(getattr(self, named[0])):
            raise ValueError(f"{named[0]}: a hold names one {named[0]}, no glob")
        return self

    def hold(self) -> Hold:
        """Return the hold."""
        kind, value = next((kind, value) for kind in _HOLD_KINDS if (value := getattr(self, kind)) is not None)
        return Hold(self.id, kind, value, self.reason, self.until)


class SnapshotForm(_Form):
    """A policy document of an Icechunk repository."""

    snapshots: SnapshotsSection | None = None
    holds: list[SnapshotHoldEntry] = Field(default_factory=list)

    @model_validator(mode="after")
    def _says_something(self) -> "SnapshotForm":
        if not (self.snapshots or self.holds):
            raise ValueError("no rule at all: write one, or take the document off the list of policies")
        return self

    def rules(self) -> tuple[SnapshotRule, ...]:
        """Return the rules of branches and tags."""
        return self.snapshots.rules() if self.snapshots else ()
