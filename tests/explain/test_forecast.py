"""The forecast for files of an Icechunk repository, from its state and without a plan."""

from dataclasses import replace
from datetime import timedelta

import pytest

from retention_assets.config.timestamps import utc_now
from retention_assets.icechunk.formats.ids import decode_id
from retention_assets.icechunk.source.opening import open_icechunk
from retention_assets.icechunk.sweep.forecast import Forecast, needs_file, needs_reference
from tests.assets.icechunk_lake import DAY, NAME, at, new_icechunk_lake
from tests.icechunk_repositories import Commit

# root <- a <- b <- c (main);  a <- x (a branch)
COMMITS = (Commit("a", None, at(30)), Commit("b", "a", at(20)), Commit("c", "b", at(1)), Commit("x", "a", at(22)))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Forecast, dict[str, str]]:
    """A repository of format 1 whose expired branches are deleted, and its snapshots by name."""
    lake, ids = new_icechunk_lake(tmp_path_factory.mktemp(NAME), 1, COMMITS, {"main": "c", "side": "x"}, {"v1": "a"})
    lake.configure({"snapshots": {"default": {"keep_newer": "28d"}, "delete_expired_branches": True}})
    opened = open_icechunk(lake.configuration().repository(NAME), utc_now)
    return Forecast(opened.source.state(), opened.policy(), DAY, utc_now() - timedelta(days=1)), ids


@pytest.mark.parametrize(
    ("name", "days"),
    [
        pytest.param("b", 9, id="the first day on which it is older than 28 days"),
        pytest.param("x", 7, id="the tip of a branch is released with its branch"),
        pytest.param("c", None, id="the tip of main stays"),
        pytest.param("a", None, id="a tag stays"),
    ],
)
def test_a_snapshot_is_released_on_the_first_day_on_which_no_reference_keeps_it(
    made: tuple[Forecast, dict[str, str]], name: str, days: int | None
) -> None:
    forecast, ids = made
    expected = None if days is None else DAY + timedelta(days=days)
    assert forecast.released_on(needs_file(f"snapshots/{ids[name]}", ())) == expected
    assert forecast.released_on(needs_file(f"transactions/{ids[name]}", ())) == expected


def test_the_file_of_a_branch_is_released_when_the_branch_expires(made: tuple[Forecast, dict[str, str]]) -> None:
    forecast, _ = made
    assert forecast.released_on(needs_reference("refs/branch.side/ref.json")) == DAY + timedelta(days=7)
    assert forecast.released_on(needs_reference("refs/branch.main/ref.json")) is None
    assert forecast.released_on(needs_reference("refs/tag.v1/ref.json")) is None


def test_the_file_of_a_tag_stays_although_the_tag_expires(made: tuple[Forecast, dict[str, str]]) -> None:
    forecast, ids = made
    policy = replace(forecast.policy, delete_expired_tags=True)
    tags_expire = Forecast(forecast.state, policy, DAY, forecast.cutoff)
    assert tags_expire.released_on(needs_file(f"snapshots/{ids['a']}", ())) is not None
    assert tags_expire.released_on(needs_reference("refs/tag.v1/ref.json")) is None
    assert tags_expire.released_on(needs_reference("refs/tag.v1/ref.json.deleted")) is None


def test_a_file_that_several_snapshots_need_is_released_with_the_last_of_them(
    made: tuple[Forecast, dict[str, str]],
) -> None:
    forecast, ids = made
    both = [decode_id(ids[name]) for name in ("b", "x")]
    assert forecast.released_on(needs_file("chunks/ZZZZZZZZZZZZZZZZZZZG", both)) == DAY + timedelta(days=9)
