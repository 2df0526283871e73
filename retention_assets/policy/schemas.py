"""The three forms of a policy document, as pydantic models that convert to rules."""

from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, RootModel, model_validator

from retention_assets.config.durations import FOREVER, parse_span, span_of_days
from retention_assets.errors import ConfigurationError
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
)
from retention_assets.policy.validation import STRICT

_HOLD_KINDS: tuple[HoldKind, ...] = ("prefix", "branch", "tag", "commit")


def as_problem[T](parse: Callable[[Any], T]) -> Callable[[Any], T]:
    """Return `parse` with its ConfigurationError as a ValueError, to which pydantic adds the key path."""

    def parsed(value: Any) -> T:
        try:
            return parse(value)
        except ConfigurationError as error:
            raise ValueError(str(error)) from None

    return parsed


def _span(value: object) -> timedelta | None:
    return None if value == FOREVER else parse_span(value)


def _days(value: object) -> timedelta:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigurationError(f"{value!r} is not a whole number of days, which this form takes")
    return span_of_days(value)


def _rule_id(value: object) -> object:
    if isinstance(value, str) and (not value.strip() or value.startswith((RETENTION_IDS, HOLD_IDS))):
        raise ConfigurationError(
            f"{value!r} is no rule id: it is not blank and does not begin with {(RETENTION_IDS, HOLD_IDS)}"
        )
    return value


def _branch(value: object) -> object:
    if isinstance(value, str) and (not value.strip() or set(value) & set("[]{}\\ ")):
        raise ConfigurationError(f"{value!r} names no branch: write a name, or a glob with `*` and `?`")
    return value


def _branch_name(value: object) -> object:
    if isinstance(value, str) and is_glob(value):
        raise ConfigurationError(f"{value!r}: lakeFS takes branch names here, no globs; globs go into `retention:`")
    return _branch(value)


def _prefix(value: object) -> object:
    if not isinstance(value, str):
        return value
    if value.startswith("/") or value.endswith("//"):
        raise ConfigurationError(
            f"{value!r}: a prefix is written without slashes at its start, such as raw/2024; '' covers everything"
        )
    return canonical_prefix(value)


def _day(value: object) -> object:
    # JSON has no dates. pydantic's strict mode takes no dates from text; its lax mode takes 20270101 for seconds.
    if isinstance(value, datetime):
        raise ValueError(f"{value} is an instant; write a day, such as 2027-01-01")
    return date.fromisoformat(value) if isinstance(value, str) else value


Span = Annotated[timedelta | None, BeforeValidator(as_problem(_span))]
Days = Annotated[timedelta, BeforeValidator(as_problem(_days))]
RuleId = Annotated[str, BeforeValidator(as_problem(_rule_id))]
Branch = Annotated[str, BeforeValidator(as_problem(_branch))]
BranchName = Annotated[str, BeforeValidator(as_problem(_branch_name))]
Prefix = Annotated[str, BeforeValidator(as_problem(_prefix))]
Day = Annotated[date, BeforeValidator(_day)]


class _Form(BaseModel):
    model_config = STRICT


# ---- our own form


class BranchEntry(_Form):
    """`{branch: "exp-*", keep: 7d, id: experiments}`."""

    branch: Branch
    keep: Span
    id: RuleId | None = None

    @model_validator(mode="after")
    def _default_is_taken(self) -> "BranchEntry":
        if self.id == DEFAULT_RULE:
            raise ValueError(f"the id {DEFAULT_RULE!r} is the default's own; choose another")
        return self

    def rule(self) -> BranchRetention:
        """Return the rule. A rule without an id is named after its branch."""
        return BranchRetention(self.id or id_of_branch(self.branch), self.branch, self.keep)


class RetentionSection(_Form):
    """`retention:` with a default, rules per branch, or both."""

    default: Span = None
    branches: list[BranchEntry] = []

    @model_validator(mode="after")
    def _says_something(self) -> "RetentionSection":
        if not self.model_fields_set or (self.model_fields_set == {"branches"} and not self.branches):
            raise ValueError("neither a default nor branches: write one, or leave the section out")
        return self

    def retention(self) -> CommittedRetention:
        """Return the section's rules."""
        rules = tuple(entry.rule() for entry in self.branches)
        return CommittedRetention(rules, self.default, has_default="default" in self.model_fields_set)


class HoldEntry(_Form):
    """`{id: audit, prefix: reference/, reason: yearly audit, until: 2027-01-01}`."""

    id: RuleId
    reason: str = Field(min_length=1)
    prefix: Prefix | None = None
    branch: Branch | None = None
    tag: str | None = Field(default=None, min_length=1)
    commit: str | None = Field(default=None, min_length=1)
    until: Day | None = None

    @model_validator(mode="after")
    def _holds_one_thing(self) -> "HoldEntry":
        named = [kind for kind in _HOLD_KINDS if getattr(self, kind) is not None]
        if len(named) != 1:
            raise ValueError(f"a hold names exactly one of {', '.join(_HOLD_KINDS)}; this one names {len(named)}")
        if named[0] != "prefix" and is_glob(getattr(self, named[0])):
            raise ValueError(f"{named[0]}: a hold names one {named[0]}, no glob")
        return self

    def hold(self) -> Hold:
        """Return the hold."""
        kind, value = next((kind, value) for kind in _HOLD_KINDS if (value := getattr(self, kind)) is not None)
        return Hold(self.id, kind, value, self.reason, self.until)


class LifecycleEntry(_Form):
    """`{id: raw, prefix: raw, keep: 60d, branches: {dev: 14d, gold: forever}, enabled: true}`."""

    id: RuleId
    prefix: Prefix | None = None
    glob: str | None = Field(default=None, min_length=1)
    keep: Span = None
    branches: dict[Branch, Span] = {}
    enabled: bool = True

    @model_validator(mode="after")
    def _covers_one_thing(self) -> "LifecycleEntry":
        if (self.prefix is None) == (self.glob is None):
            raise ValueError("a rule names exactly one of prefix and glob")
        if self.glob is not None and self.glob.startswith("/"):
            raise ValueError("glob: paths of a repository have no slash at their start")
        return self

    def rule(self) -> LifecycleRule:
        """Return the rule."""
        return LifecycleRule(self.id, self.prefix or "", self.keep, self.branches, self.enabled, self.glob)


class OwnForm(_Form):
    """Our own document. Source: DESIGN.md, Decisions (policies)."""

    retention: RetentionSection | None = None
    holds: list[HoldEntry] = []
    lifecycle: list[LifecycleEntry] = []

    @model_validator(mode="after")
    def _says_something(self) -> "OwnForm":
        if not (self.retention or self.holds or self.lifecycle):
            raise ValueError("no rule at all: write one, or take the document off the list of policies")
        return self

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

    branch_id: BranchName
    retention_days: Days


class ServerForm(_Form):
    """The rules as lakeFS stores them. Source: lakeFS facts 4.1; H17 (`branches` may be null)."""

    default_retention_days: Days
    branches: list[ServerBranch] | None

    def policy(self) -> Policy:
        """Return the document's rules. Each is named after its branch."""
        entries = self.branches or []
        rules = tuple(
            BranchRetention(id_of_branch(entry.branch_id), entry.branch_id, entry.retention_days) for entry in entries
        )
        return Policy(CommittedRetention(rules, self.default_retention_days, has_default=True), (), ())


# ---- the lifecycle document of the seed


class SeedRule(_Form):
    """`{"prefix": "foo/bar", "days": 10, "enabled": true, "branch_days": {"b1": 5}}`."""

    prefix: Prefix
    enabled: bool  # no default: the document must say whether the rule deletes
    days: Days | None = None
    branch_days: dict[Branch, Days] = {}


class SeedForm(RootModel[dict[RuleId, SeedRule]]):
    """Lifecycle rules by their ids. Source: seed 002."""

    def policy(self) -> Policy:
        """Return the document's rules."""
        rules = tuple(
            LifecycleRule(rule_id, rule.prefix, rule.days, dict(rule.branch_days), rule.enabled)
            for rule_id, rule in self.root.items()
        )
        return Policy(None, rules, ())


Form = OwnForm | ServerForm | SeedForm


def id_of_branch(branch: str) -> str:
    """Return the id of a rule without one: the branch's name, or `branch:default` for a branch called `default`."""
    return f"branch:{branch}" if branch == DEFAULT_RULE else branch
