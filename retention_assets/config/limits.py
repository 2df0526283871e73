"""The limits that an owner sets for sweeps: approval, budget, rate, quarantine and guards."""

import re
from datetime import timedelta
from functools import partial
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from retention_assets.config.durations import format_duration, parse_duration, parse_positive_duration
from retention_assets.errors import as_value_error

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(B|KiB|MiB|GiB|TiB|PiB)")
_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50}

_MOST_BYTES = 2**63
_LONGEST = timedelta(days=365_000)  # a thousand years: times are computed with durations, up to the year 9999


def _bytes(value: object) -> object:
    """Return the number of bytes of a size such as `10 GiB`. Errors: ValueError, also for a number without a unit."""
    found = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"{value!r} is not a size: write a number and B, KiB, MiB, GiB, TiB or PiB, such as `10 GiB`")
    size = float(found[1]) * _UNITS[found[2]]
    if size >= _MOST_BYTES:
        raise ValueError(f"{found[0][:40]!r} is too large: write less than 8192 PiB")
    return int(size)


def _no_truth_value(value: object) -> object:
    """Return the value. Errors: ValueError for a truth value, which pydantic would take for 1 or 0."""
    if isinstance(value, bool):
        raise ValueError("must be a number: `true`, `yes` and `on` are truth values in YAML")
    return value


# A URL with a password (`:`) is refused elsewhere, by a message that does not show the URL.
_BUCKET_USER = re.compile(r"((?:s3[an]?|gc?s)://)[^/:]*@")


def _location(value: str) -> str:
    """Return the URL or path of a folder. Errors: ValueError for a spelling that would be read as a relative path."""
    if value.startswith("file:") and not value.startswith("file://"):
        path = value.removeprefix("file:")
        raise ValueError(f"{value!r} is not a URL: write file://{path}, or the path {path}")
    if value.startswith("~"):
        raise ValueError(f"{value!r} begins with `~`, which only a shell reads as a home folder: write the full path")
    return value


def _not_empty(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be empty: write a URL, or a path")
    return value


def _without_user(value: str) -> str:
    """Return the URL or path. Errors: ValueError for a URL with a user before the bucket, which stores ignore.

    Some functions compare locations as they are written, and would not notice that two spellings name one location.
    """
    if found := _BUCKET_USER.match(value):
        raise ValueError(
            f"{value!r} has a user before the bucket, which stores ignore: write {found[1]}{value[found.end() :]}"
        )
    return value


# As the lakeFS server has it, even with a user before the bucket.
Namespace = Annotated[str, AfterValidator(_not_empty), AfterValidator(_location)]
# A URL, or a path that is relative to the configuration file.
Location = Annotated[str, AfterValidator(_location), AfterValidator(_without_user)]
PositiveDuration = Annotated[
    timedelta, BeforeValidator(as_value_error(partial(parse_positive_duration, longest=_LONGEST)))
]
Duration = Annotated[timedelta, BeforeValidator(as_value_error(partial(parse_duration, longest=_LONGEST)))]
Bytes = Annotated[int, BeforeValidator(_bytes), Field(ge=0)]
Number = Annotated[float, BeforeValidator(_no_truth_value), Field(allow_inf_nan=False)]
Count = Annotated[int, BeforeValidator(_no_truth_value)]
Share = Annotated[Number, Field(ge=0, le=1)]
LONGEST_WINDOW = timedelta(hours=1)  # the maximum of `sweep.window`


class Model(BaseModel):
    """The base of the sections of `retention.yaml`. Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ApprovalSettings(Model):
    """How long an approval is valid, what invalidates it, and whether Dagster may approve."""

    life: PositiveDuration = timedelta(days=7)  # the maximum age of an approval, and of its plan
    max_revived: Share = 0.25  # share of the planned objects that may be live again
    in_dagster: bool = True  # false: no job approves, acknowledges or purges, because jobs accept any name


class BudgetSettings(Model):
    """The limits within which a plan is approved automatically. A person must approve a plan that exceeds any limit.

    A limit that is not set is not checked. If none of `objects`, `bytes` and `share` is set, there is no budget, and a
    person must approve every plan.
    """

    objects: Count | None = Field(default=None, ge=0)
    bytes: Bytes | None = None
    share: Share | None = None  # of the listed objects, and of the listed bytes

    @property
    def is_set(self) -> bool:
        """Whether at least one limit is set."""
        return any(limit is not None for limit in (self.objects, self.bytes, self.share))


class SweepSettings(Model):
    """How a sweep executes a plan: its rate, its batches, and how long a liveness check is valid."""

    rate: Number | None = Field(default=None, gt=0)  # objects per second of all executors; null: only the store limits
    round: Count = Field(default=100_000, gt=0)  # batch size: objects per liveness check
    window: PositiveDuration = timedelta(minutes=15)  # the longest time from a liveness check to a change of an object
    lease: PositiveDuration = timedelta(minutes=30)  # longer than a liveness check; a crash blocks other runs this long
    single_machine: bool = False  # true: no other machine ever sweeps, so the lease may be on this machine's disk


class QuarantineSettings(Model):
    """Where quarantined objects go, and how long `purge` leaves them there."""

    url: Location | None = None  # null: beside the repository, `<storage>.quarantine`
    keep: Duration = timedelta(days=30)


class KeepSettings(Model):
    """How long the warehouse keeps tables and plans that no plan, sweep or verification needs any more."""

    tables: PositiveDuration = timedelta(days=90)  # tables of a day, and the object lists of plans that were not swept
    plans: PositiveDuration | None = None  # documents and approvals of plans that were not swept; null: for ever

    @model_validator(mode="after")
    def _at_least_a_day(self) -> "KeepSettings":
        if self.tables < timedelta(days=1):
            tables = format_duration(self.tables)
            raise ValueError(f"tables is {tables}, and must be at least 1d: a run may still read the tables of a day")
        if self.plans is not None and self.plans < self.tables:
            plans, tables = format_duration(self.plans), format_duration(self.tables)
            raise ValueError(
                f"plans is {plans}, and must be at least `tables` ({tables}): a plan stays as long as its tables"
            )
        return self


class GuardSettings(Model):
    """Limits for plans and sweeps. A plan or sweep that exceeds a limit is refused."""

    max_live_shrink: Share = 0.5  # share of the live addresses that may disappear between two plans
    max_clock_skew: Duration | None = timedelta(minutes=5)  # between this machine and the store; null: not checked


class Limits(Model):
    """All limits of a repository. In `retention.yaml` they are beside the repository's other keys."""

    approval: ApprovalSettings = ApprovalSettings()
    budget: BudgetSettings = BudgetSettings()
    sweep: SweepSettings = SweepSettings()
    quarantine: QuarantineSettings = QuarantineSettings()
    guards: GuardSettings = GuardSettings()

    @model_validator(mode="after")
    def _window_is_short(self) -> "Limits":
        if self.sweep.window > LONGEST_WINDOW:
            window = format_duration(self.sweep.window)
            raise ValueError(
                f"sweep.window is {window}, and must be at most 1h: after a longer time, objects may be live again"
            )
        return self
