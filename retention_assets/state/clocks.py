"""Compares the clock of this machine with the clock of the store, which dates the objects of a repository.

A machine whose clock is ahead would take the lease of a running sweep, and would record times in the future.
Source: docs/stores.md, "Times and ETags".
"""

from datetime import datetime, timedelta

from retention_assets.config.configuration import Repository
from retention_assets.config.timestamps import Clock
from retention_assets.core.remedies import CheckResult
from retention_assets.errors import GuardRefused
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.clock import service_address, store_time


def clock_agrees(
    store: str, before: datetime, store_time: datetime | None, after: datetime, most: timedelta
) -> CheckResult:
    """Check that the clock of the store differs from the clock of this machine by at most `most`.

    `store`: the address of the store. `before` and `after`: this machine's times before the request and after the
    response. `store_time` is in whole seconds; None: the store does not return its time.
    """
    if store_time is None:
        detail = (
            f"{store} does not return its time: it cannot be reached, or its responses have no `Date` header (then "
            "guards.max_clock_skew: null switches the check off)"
        )
        return CheckResult("clock_agrees", False, detail, remedy="Check that the store can be reached, and plan again.")
    skew = max(before - store_time - timedelta(seconds=1), store_time - after, timedelta(0))
    seconds = f"{skew.total_seconds():.0f} s; at most {most.total_seconds():.0f} s is allowed"
    detail = f"the clocks of this machine and of the store differ by {seconds}"
    return CheckResult("clock_agrees", skew <= most, detail, skew.total_seconds(), most.total_seconds())


def clocks(repository: Repository, access: StoreAccess, clock: Clock) -> CheckResult:
    """Return the result of `clock_agrees` for the store of a repository. `guards.max_clock_skew` is the limit."""
    most = repository.settings.guards.max_clock_skew
    if most is None:
        return CheckResult("clock_agrees", True, "not checked: guards.max_clock_skew is null")
    before = clock()
    there = store_time(access, clock)
    return clock_agrees(service_address(access) or access.url, before, there, clock(), most)


def require_clock(repository: Repository, access: StoreAccess, clock: Clock, undone: str = "was deleted") -> None:
    """Raise GuardRefused when the clocks of this machine and of the store differ by more than is allowed.

    `undone`: completes the message "Nothing ...".
    """
    check_result = clocks(repository, access, clock)
    if not check_result.passed:
        remedy = "Set the clock of this machine or of the store"
        if check_result.value is None:
            remedy = "Check that the store can be reached"
        raise GuardRefused(
            f"{repository.name}: {check_result.guard}: {check_result.detail}. Nothing {undone}. {remedy}, then run the "
            "same command again."
        )
