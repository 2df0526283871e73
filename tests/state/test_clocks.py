"""The clocks of this machine and of the store are compared."""

from datetime import UTC, datetime, timedelta

import pytest

from retention_assets.state.clocks import clock_agrees

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("counts", "detail"),
    [
        pytest.param(NOW, "", id="the_same"),
        pytest.param(NOW - timedelta(seconds=61), "", id="the_most_allowed_behind_a_truncated_second"),
        pytest.param(NOW - timedelta(seconds=63), "differ by 62 s; at most 60 s is allowed", id="ahead_of_the_store"),
        pytest.param(NOW + timedelta(seconds=64), "differ by 62 s; at most 60 s is allowed", id="behind_the_store"),
        pytest.param(None, "http://store:9000/ does not return its time", id="a_store_without_a_clock"),
    ],
)
def test_clocks_that_differ_are_refused(counts: datetime | None, detail: str) -> None:
    check_result = clock_agrees("http://store:9000/", NOW, counts, NOW + timedelta(seconds=2), timedelta(minutes=1))
    assert check_result.passed is (not detail)
    assert detail in check_result.message
