from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_assets.lakefs.source.inventory_snapshot import is_closed, slice_began
from tests.lakefs_repositories import slice_name
from tests.saved_repositories import REPOSITORIES, listing

BEGAN = datetime(2026, 10, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = timedelta(hours=24)
MICROSECOND = timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("name", "began"),
    [
        ("gqv3epl4fd2o8m3men70", datetime(2022, 12, 7, 17, 21, 30, tzinfo=UTC)),
        ("g4uk6erfnfus73frbnqg", datetime(2025, 11, 10, 10, 34, 45, tzinfo=UTC)),
        ("gcoca17haabs73f2gtq0", datetime(2024, 10, 27, 13, 19, 56, tzinfo=UTC)),
    ],
)
def test_the_names_of_real_slices_contain_their_creation_time(name: str, began: datetime) -> None:
    assert slice_began(name) == began


@pytest.mark.parametrize("repository", REPOSITORIES)
def test_no_object_of_a_real_repository_was_written_before_its_slice_began_or_after_it_closed(repository: str) -> None:
    objects = [row for row in listing(repository) if row.address.startswith("data/")]
    assert objects
    for row in objects:
        name = row.address.split("/")[1]
        began = slice_began(name)
        assert began is not None
        assert began <= row.last_modified
        assert not is_closed(name, row.last_modified, DAY)


@given(
    st.datetimes(datetime(2020, 1, 1), datetime(2094, 7, 27), timezones=st.just(UTC)),  # noqa: DTZ001
    st.integers(0, 2**64 - 1),
)
def test_the_time_in_a_slice_name_is_read_to_the_second_whatever_follows_it(began: datetime, number: int) -> None:
    assert slice_began(slice_name(began, number)) == began.replace(microsecond=0)


@given(st.lists(st.datetimes(datetime(2020, 1, 1), datetime(2094, 7, 27), timezones=st.just(UTC)), min_size=2))  # noqa: DTZ001
def test_newer_slices_are_listed_first(times: list[datetime]) -> None:
    seconds = sorted({time.replace(microsecond=0) for time in times})
    assert sorted(map(slice_name, seconds)) == [slice_name(time) for time in reversed(seconds)]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("", id="nothing"),
        pytest.param("gqv3epl4fd2o8m3men7", id="too_short"),
        pytest.param("gqv3epl4fd2o8m3men700", id="too_long"),
        pytest.param("gqv3epl4fd2o8m3men7w", id="another_letter"),
        pytest.param("GQV3EPL4FD2O8M3MEN70", id="upper_case"),
        pytest.param("gqv3epl4fd2o8m3men7٣", id="a_digit_of_another_script"),
        pytest.param("!ab", id="a_shard"),
        pytest.param("orchard-main:0d8e4b4e-0000-0000-0000-000000000000", id="an_old_staging_token"),
    ],
)
def test_a_name_that_is_not_a_slice_has_no_creation_time_and_is_never_closed(name: str) -> None:
    assert slice_began(name) is None
    assert not is_closed(name, datetime.max.replace(tzinfo=UTC), DAY)


@pytest.mark.parametrize(
    ("token_life", "closes_after"),
    [
        pytest.param(DAY, HOUR + 2 * DAY, id="lakefs_own"),
        pytest.param(3 * DAY, HOUR + 4 * DAY, id="a_longer_one_keeps_slices_open"),
        pytest.param(HOUR, HOUR + 2 * DAY, id="a_shorter_token_life_closes_no_slice_earlier"),
    ],
)
def test_a_slice_closes_a_day_after_the_last_token_of_its_hour(token_life: timedelta, closes_after: timedelta) -> None:
    name = slice_name(BEGAN)
    assert not is_closed(name, BEGAN + closes_after, token_life)
    assert is_closed(name, BEGAN + closes_after + MICROSECOND, token_life)


def test_an_upload_25_hours_after_the_slice_began_finds_it_open() -> None:
    assert not is_closed(slice_name(BEGAN), BEGAN + 25 * HOUR, DAY)
