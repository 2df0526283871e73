"""The forms of a policy document, as pydantic models that convert to rules: three of lakeFS and one of Icechunk."""

import re
from datetime import date, datetime, timedelta
from typing import Annotated, ClassVar, Self

from pydantic import BaseModel, BeforeValidator, Field, RootModel, model_validator

from retention_assets.config.durations import FOREVER, duration_of_days, parse_positive_duration
from retention_assets.errors import ConfigurationError, as_value_error
from retention_assets.policy.matching import canonical_prefix, is_glob
from retention_assets.policy.rules import (
    DEFAULT_RULE,
    HOLD_IDS,
    RETENTION_IDS,
    BranchRetention,
    CommittedRetention,
    Hold,
    HoldKind,
    LifecycleRule,
    Policy,
    RefKind,
)
from retention_assets.policy.snapshots import NOT_BY_AGE, SNAPSHOT_HOLDS, Keep, SnapshotRule
from retention_assets.policy.validation import STRICT

_SNAPSHOT_ID = re.compile(r"[0-9A-HJKMNP-TV-Z]{19}[0G]")  # Source: docs/icechunk-formats.md, "Ids"


def _duration(value: object) -> timedelta | None:
    return None if value == FOREVER else parse_positive_duration(value)


def _days(value: object) -> timedelta:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigurationError(f"{value!r} is not a whole number of days, which this form requires")
    return duration_of_days(value)


def _rule_id(value: object) -> object:
    if isinstance(value, str) and (not value.strip() or value.startswith((RETENTION_IDS, HOLD_IDS))):
        raise ConfigurationError(
            f"{value!r} is not a rule id: an id is not blank and does not begin with `{RETENTION_IDS}` or `{HOLD_IDS}`"
        )
    return value


def _given_id(value: object) -> object:
    if value == DEFAULT_RULE:
        raise ConfigurationError(f"the id {DEFAULT_RULE!r} is reserved for the default rule; choose another")
    return _rule_id(value)


def _branch(value: object) -> object:
    if isinstance(value, str) and (not value.strip() or set(value) & set("[]{}\\ ")):
        raise ConfigurationError(f"{value!r} is not a branch name: write a name, or a glob with `*` and `?`")
    return value


def _branch_name(value: object) -> object:
    if isinstance(value, str) and is_glob(value):
        raise ConfigurationError(f"{value!r}: lakeFS accepts only branch names here; write globs into `retention:`")
    return _branch(value)


def _pattern(value: object) -> object:
    if isinstance(value, str) and (not value.strip() or value != value.strip() or set(value) & set("[]{}\\")):
        raise ConfigurationError(f"{value!r} is not a branch or tag name: write a name, or a glob with `*` and `?`")
    return value


def _snapshot_id(value: object) -> object:
    if isinstance(value, str) and not _SNAPSHOT_ID.fullmatch(value):
        raise ConfigurationError(
            f"{value!r} is not a snapshot id: an id has 20 characters, such as 1CECHNKREP0F1RSTCMT0"
        )
    return value


def _prefix(value: object) -> object:
    if not isinstance(value, str):
        return value
    if value.startswith("/") or value.endswith("//"):
        raise ConfigurationError(
            f"{value!r}: a prefix must not begin with `/` or end with `//`; write it like raw/2024, or '' for all paths"
        )
    return canonical_prefix(value)


def _day(value: object) -> object:
    # JSON has no dates. pydantic's strict mode reads no dates from text; its lax mode reads 20270101 as seconds.
    if isinstance(value, datetime):
        raise ValueError(f"{value} is a timestamp; write a day, such as 2027-01-01")
    try:
        return date.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        raise ValueError(f"{value!r} is not a day; write it like 2027-01-01") from None


Duration = Annotated[timedelta | None, BeforeValidator(as_value_error(_duration))]
Days = Annotated[timedelta, BeforeValidator(as_value_error(_days))]
RuleId = Annotated[str, BeforeValidator(as_value_error(_rule_id))]
GivenId = Annotated[str, BeforeValidator(as_value_error(_given_id))]
Branch = Annotated[str, BeforeValidator(as_value_error(_branch))]
BranchName = Annotated[str, BeforeValidator(as_value_error(_branch_name))]
Prefix = Annotated[str, BeforeValidator(as_value_error(_prefix))]
Pattern = Annotated[str, BeforeValidator(as_value_error(_pattern))]
SnapshotId = Annotated[str, BeforeValidator(as_value_error(_snapshot_id))]
Day = Annotated[date, BeforeValidator(_day)]


class _Form(BaseModel):
    model_config = STRICT


class _DocumentForm(_Form):
    """A policy document in this project's form. At least one of its keys has content."""

    @model_validator(mode="after")
    def _has_content(self) -> Self:
        if not any(getattr(self, name) for name in type(self).model_fields):
            raise ValueError("no rule at all: write one, or remove the document from the list of policies")
        return self


# ---- the form of this project


class BranchEntry(_Form):
    """`{branch: "exp-*", keep: 7d, id: experiments}`."""

    branch: Branch  # a name, or a glob with `*` and `?`
    keep: Duration  # how long commits are kept after the branch has moved on; `forever`: always
    id: GivenId | None = None  # name of the rule in tables; default: the branch

    def rule(self) -> BranchRetention:
        """Return the rule. A rule without an id is named after its branch."""
        return BranchRetention(self.id or id_of_branch(self.branch), self.branch, self.keep)


class RetentionSection(_Form):
    """`retention:` with a default, rules per branch, or both."""

    default: Duration = None  # for branches without a rule, and dangling commits; if absent, they are kept for ever
    branches: list[BranchEntry] = []  # an exact name wins over globs; of several globs, the longest time counts

    @model_validator(mode="after")
    def _has_content(self) -> "RetentionSection":
        if not self.model_fields_set or (self.model_fields_set == {"branches"} and not self.branches):
            raise ValueError("neither a default nor branches: write one, or leave the section out")
        return self

    def retention(self) -> CommittedRetention:
        """Return the section's rules."""
        rules = tuple(entry.rule() for entry in self.branches)
        return CommittedRetention(rules, self.default, has_default="default" in self.model_fields_set)


class _HoldEntry(_Form):
    """The fields that holds on lakeFS and Icechunk share. A hold has exactly one of the fields `kinds`."""

    kinds: ClassVar[tuple[HoldKind, ...]]

    id: RuleId  # name of the hold in tables
    reason: str = Field(min_length=1)  # why; shown beside everything that the hold keeps
    until: Day | None = None  # the last day (UTC) of the hold; if absent, the hold has no end

    @model_validator(mode="after")
    def _holds_one_thing(self) -> Self:
        named = [kind for kind in self.kinds if getattr(self, kind) is not None]
        if len(named) != 1:
            raise ValueError(f"a hold names exactly one of {', '.join(self.kinds)}; this one names {len(named)}")
        if is_glob(getattr(self, named[0])):
            what = "a directory, and keeps all below it" if named[0] == "prefix" else f"one {named[0]}"
            raise ValueError(f"{named[0]}: a hold names {what}; a glob is not allowed")
        return self

    def hold(self) -> Hold:
        """Return the hold."""
        kind, value = next((kind, value) for kind in self.kinds if (value := getattr(self, kind)) is not None)
        return Hold(self.id, kind, value, self.reason, self.until)


class HoldEntry(_HoldEntry):
    """`{id: audit, prefix: reference/, reason: yearly audit, until: 2027-01-01}`."""

    kinds: ClassVar = ("prefix", "branch", "tag", "commit")

    prefix: Prefix | None = None  # keeps all objects at paths below this directory
    branch: Branch | None = None  # keeps all commits that this branch reaches
    tag: str | None = Field(default=None, min_length=1)  # keeps all objects of this tag's commit
    commit: str | None = Field(default=None, min_length=1)  # keeps all objects of this commit


class LifecycleEntry(_Form):
    """`{id: raw, prefix: raw, keep: 60d, branches: {dev: 14d, gold: forever}, enabled: true}`."""

    id: RuleId  # name of the rule in tables
    prefix: Prefix | None = None  # a directory: `raw` covers `raw/…` but not `rawest`; empty: everything
    glob: str | None = Field(default=None, min_length=1)  # instead of a prefix; `*` does not match `/`, `**` does
    keep: Duration = None  # for branches that are not in `branches`; if absent, they keep the path for ever
    branches: dict[Branch, Duration] = {}  # by branch or glob; of the branches that have the object, the longest counts
    enabled: bool = True  # false: the rule makes nothing due

    @model_validator(mode="after")
    def _covers_one_thing(self) -> "LifecycleEntry":
        if (self.prefix is None) == (self.glob is None):
            raise ValueError("a rule names exactly one of prefix and glob")
        if self.glob is not None and self.glob.startswith("/"):
            raise ValueError("glob: paths of a repository do not begin with `/`")
        return self

    def rule(self) -> LifecycleRule:
        """Return the rule."""
        return LifecycleRule(self.id, self.prefix or "", self.keep, self.branches, self.enabled, self.glob)


class OwnForm(_DocumentForm):
    """A document in this project's form. Source: docs/retention.md, "Policy"; docs/lifecycle.md."""

    retention: RetentionSection | None = None  # which commits are active
    holds: list[HoldEntry] = []  # what is kept whatever the rules say
    lifecycle: list[LifecycleEntry] = []  # which paths are due, and when

    def policy(self) -> Policy:
        """Return the document's rules."""
        return Policy(
            self.retention.retention() if self.retention else None,
            tuple(entry.rule() for entry in self.lifecycle),
            tuple(entry.hold() for entry in self.holds),
        )


# ---- lakeFS's own document


class ServerBranch(_Form):
    """`{"branch_id": "main", "retention_days": 45}`."""

    branch_id: BranchName  # the name of a branch
    retention_days: Days  # days for which commits are kept after the branch has moved on


class ServerForm(_Form):
    """The rules as lakeFS stores them. Source: docs/lakefs-formats.md, "Rules"."""

    default_retention_days: Days  # for all other branches
    branches: list[ServerBranch] | None  # null: all branches have the default

    def policy(self) -> Policy:
        """Return the document's rules. Each rule is named after its branch."""
        entries = self.branches or []
        rules = tuple(
            BranchRetention(id_of_branch(entry.branch_id), entry.branch_id, entry.retention_days) for entry in entries
        )
        return Policy(CommittedRetention(rules, self.default_retention_days, has_default=True), (), ())


# ---- the older JSON form of lifecycle rules


class SeedRule(_Form):
    """`{"prefix": "foo/bar", "days": 10, "enabled": true, "branch_days": {"b1": 5}}`."""

    prefix: Prefix  # a directory; empty: everything
    enabled: bool  # no default: the document must say whether the rule deletes
    days: Days | None = None  # for branches that are not in `branch_days`; if absent, they keep the path for ever
    branch_days: dict[Branch, Days] = {}  # days by branch


class SeedForm(RootModel[dict[RuleId, SeedRule]]):
    """Lifecycle rules by their ids: the older JSON form. Source: docs/lifecycle.md."""

    def policy(self) -> Policy:
        """Return the document's rules."""
        rules = tuple(
            LifecycleRule(rule_id, rule.prefix, rule.days, rule.branch_days, rule.enabled)
            for rule_id, rule in self.root.items()
        )
        return Policy(None, rules, ())


Form = OwnForm | ServerForm | SeedForm


def id_of_branch(branch: str) -> str:
    """Return the id of a rule without one: the branch's name, or `branch:default` for a branch called `default`."""
    return f"branch:{branch}" if branch == DEFAULT_RULE else branch


# ---- the form of Icechunk


class KeepEntry(_Form):
    """`{keep_newer: 30d, keep_last: 5}`: one key or both."""

    keep_newer: Duration = NOT_BY_AGE  # snapshots younger than this are kept; `forever`: all
    keep_last: int = Field(default=0, ge=1)  # this many of the newest snapshots are kept, whatever their age

    @model_validator(mode="after")
    def _keeps_something(self) -> "KeepEntry":
        if self.model_fields_set.isdisjoint(KeepEntry.model_fields):
            raise ValueError("write keep_newer, keep_last, or both")
        return self


class _ReferenceEntry(KeepEntry):
    id: GivenId | None = None  # name of the rule in tables; default: `branch:` or `tag:` and the pattern

    def rule_of(self, kind: RefKind, pattern: str) -> SnapshotRule:
        """Return the rule. A rule without an id is named after its kind and pattern."""
        return SnapshotRule(self.id or f"{kind}:{pattern}", kind, pattern, self.keep_newer, self.keep_last)


class SnapshotBranchEntry(_ReferenceEntry):
    """`{branch: "exp-*", keep_newer: 7d, keep_last: 3, id: experiments}`."""

    branch: Pattern  # a name, or a glob with `*` and `?`


class SnapshotTagEntry(_ReferenceEntry):
    """`{tag: "v*", keep_newer: forever}`."""

    tag: Pattern  # a name, or a glob with `*` and `?`


class SnapshotsSection(_Form):
    """`snapshots:` with a default, rules for branches and tags, and what happens to expired references."""

    default: KeepEntry | None = None  # for branches and tags that no rule names
    branches: list[SnapshotBranchEntry] = Field(default_factory=list)  # rules for branches
    tags: list[SnapshotTagEntry] = Field(default_factory=list)  # rules for tags
    delete_expired_branches: bool | None = None  # true: a branch whose tip has expired is deleted, but never main
    delete_expired_tags: bool | None = None  # true: a tag whose snapshot has expired is deleted

    @model_validator(mode="after")
    def _has_content(self) -> "SnapshotsSection":
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


class SnapshotHoldEntry(_HoldEntry):
    """`{id: audit, snapshot: 1CECHNKREP0F1RSTCMT0, reason: yearly audit, until: 2027-01-01}`."""

    kinds: ClassVar = SNAPSHOT_HOLDS

    snapshot: SnapshotId | None = None  # keeps this snapshot
    branch: str | None = Field(default=None, min_length=1)  # keeps this branch and its whole history
    tag: str | None = Field(default=None, min_length=1)  # keeps this tag and its snapshot


class SnapshotForm(_DocumentForm):
    """A policy document of an Icechunk repository."""

    snapshots: SnapshotsSection | None = None  # which snapshots are kept
    holds: list[SnapshotHoldEntry] = Field(default_factory=list)  # what is kept whatever the rules say

    def rules(self) -> tuple[SnapshotRule, ...]:
        """Return the rules of branches and tags."""
        return self.snapshots.rules() if self.snapshots else ()
