from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_assets.config.durations import (
    duration_of_days,
    format_duration,
    later,
    parse_duration,
    parse_positive_duration,
)
from retention_assets.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("10d", timedelta(days=10)),
        ("36h", timedelta(hours=36)),
        ("2w", timedelta(days=14)),
        ("90m", timedelta(minutes=90)),
        ("45s", timedelta(seconds=45)),
    ],
)
def test_a_duration_is_a_number_and_a_unit(text, duration):
    assert parse_duration(text) == duration


@pytest.mark.parametrize("value", ["3", 3])
def test_a_number_without_a_unit_is_refused_with_the_correct_form(value):
    with pytest.raises(ConfigurationError, match="no unit, write 3d for days"):
        parse_duration(value)


@pytest.mark.parametrize(
    "text", ["", "d", "10", "10y", "10D", "10M", "1.5d", "1d12h", " 10d", "10d\n", "10 d", "٣d", "-3d", True, None]
)
def test_a_text_that_is_not_a_number_and_a_unit_is_refused(text):
    with pytest.raises(ConfigurationError, match="is not a duration"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["999999999999d", "9" * 5000 + "s"])
def test_a_duration_beyond_the_calendar_is_refused_not_a_crash(text):
    with pytest.raises(ConfigurationError, match="too long"):
        parse_duration(text)


def test_retention_of_zero_is_refused_while_a_grace_period_of_zero_is_not():
    assert parse_duration("0h") == timedelta(0)
    with pytest.raises(ConfigurationError, match="'0d' is zero"):
        parse_positive_duration("0d")


@pytest.mark.parametrize("days", [0, -1, 2**31 - 1])
def test_a_number_of_days_outside_the_allowed_range_is_refused(days):
    with pytest.raises(ConfigurationError, match="at least 1 day"):
        duration_of_days(days)


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(days=28), "28d"),
        (timedelta(hours=36), "36h"),
        (timedelta(minutes=90), "90m"),
        (timedelta(seconds=61), "61s"),
        (None, "forever"),
    ],
)
def test_a_duration_is_written_in_the_largest_unit_that_divides_it(duration, text):
    assert format_duration(duration) == text


def test_a_fraction_of_a_second_is_not_rounded_away():
    with pytest.raises(ConfigurationError, match="fraction of a second"):
        format_duration(timedelta(milliseconds=1500))


@given(st.integers(min_value=0, max_value=10**9))
def test_a_formatted_duration_is_parsed_to_the_same_value(seconds):
    assert parse_duration(format_duration(timedelta(seconds=seconds))) == timedelta(seconds=seconds)


def test_an_end_after_the_year_9999_becomes_its_last_second_and_for_ever_has_no_end():
    made = datetime(2026, 11, 1, tzinfo=UTC)
    assert later(made, timedelta(days=1)) == datetime(2026, 11, 2, tzinfo=UTC)
    assert later(made, timedelta.max) == datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert later(made, None) is None
