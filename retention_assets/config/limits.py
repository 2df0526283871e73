"""What a repository's owner allows a sweep: how it is approved, how much, how fast, how it can be undone."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from retention_assets.config.durations import parse_duration, parse_span
from retention_assets.errors import ConfigurationError

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(B|KiB|MiB|GiB|TiB|PiB)")
_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50}


def _span(value: object) -> timedelta:
    return _as_value_error(parse_span, value)


def _duration(value: object) -> timedelta:
    return _as_value_error(parse_duration, value)


def _as_value_error(parse: Callable[[object], timedelta], value: object) -> timedelta:
    try:
        return parse(value)
    except ConfigurationError as error:
        raise ValueError(str(error)) from error


def _bytes(value: object) -> object:
    """Return a size written with its unit as bytes; a bare number would leave the unit to guessing."""
    found = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"{value!r} is not a size: write a number and B, KiB, MiB, GiB, TiB or PiB, such as `10 GiB`")
    return int(float(found[1]) * _UNITS[found[2]])


Span = Annotated[timedelta, BeforeValidator(_span)]
Duration = Annotated[timedelta, BeforeValidator(_duration)]
Bytes = Annotated[int, BeforeValidator(_bytes), Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]


class _Limits(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ApprovalSettings(_Limits):
    """How long an approval holds, and what makes it lapse."""

    life: Span = timedelta(days=7)  # counted from the making of the plan
    max_revived: Share = 0.25  # share of the planned objects that may have come back to life since


class BudgetSettings(_Limits):
    """Plans within every limit that is given approve themselves; above any of them a person must.

    Without `objects`, `bytes` and `share` there is no budget: a limit that nobody set is not zero and not infinite.
    """

    objects: int | None = Field(default=None, ge=0)
    bytes: Bytes | None = None
    share: Share | None = None  # of the objects and of the bytes that were listed

    @property
    def is_set(self) -> bool:
        """Whether there is a budget at all."""
        return any(limit is not None for limit in (self.objects, self.bytes, self.share))


class SweepSettings(_Limits):
    """How a plan is carried out: its pace, and how old a look at what is live may get."""

    rate: float | None = Field(default=None, gt=0)  # objects per second, all executors together; null: the store's own
    round: int = Field(default=100_000, gt=0)  # objects that one look at what is live is for
    window: Span = timedelta(minutes=15)  # no object is touched later than this after its look
    lease: Span = timedelta(minutes=30)  # longer than one look takes; after a crash nobody else begins sooner
    single_machine: bool = False  # no other machine ever sweeps: a warehouse on this machine's disk may hold the lease


class QuarantineSettings(_Limits):
    """Where what is quarantined goes, and for how long it can be brought back."""

    url: str | None = None  # null: beside the repository, `<storage>.quarantine`
    keep: Duration = timedelta(days=30)


class GuardSettings(_Limits):
    """Limits that a plan and a sweep must keep, or they are refused."""

    max_live_shrink: Share = 0.5  # share of the live addresses that may go between two runs
    max_clock_skew: Duration | None = timedelta(minutes=5)  # between this machine and the store; null: not looked at


class Limits(_Limits):
    """All of a repository's limits, as `retention.yaml` writes them beside its other keys."""

    approval: ApprovalSettings = ApprovalSettings()
    budget: BudgetSettings = BudgetSettings()
    sweep: SweepSettings = SweepSettings()
    quarantine: QuarantineSettings = QuarantineSettings()
    guards: GuardSettings = GuardSettings()

    @model_validator(mode="after")
    def _window_ends(self) -> "Limits":
        if self.sweep.window > timedelta(hours=1):
            raise ValueError("sweep.window is at most 1h: what was looked at longer ago may live again")
        return self
