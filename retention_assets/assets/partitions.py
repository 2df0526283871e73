"""One partition per day (UTC). The day is the run's `as_of`: age thresholds count from the start of the day."""

from datetime import UTC, date, datetime

import dagster as dg

# The start is before lakeFS existed, so every day of any repository is a partition. `end_offset` adds today.
daily = dg.DailyPartitionsDefinition(start_date="2020-01-01", timezone="UTC", end_offset=1)


def day_of(context: dg.AssetExecutionContext | dg.InputContext | dg.OutputContext) -> date:
    """Return the day of the partition that runs."""
    return date.fromisoformat(context.partition_key)


def as_of(day: date) -> datetime:
    """Return the start of the day (UTC). Source: DESIGN.md, Decisions (As of)."""
    return datetime(day.year, day.month, day.day, tzinfo=UTC)
