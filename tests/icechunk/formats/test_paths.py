import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_assets.icechunk.formats.paths import CONFIG, REPO, backup_name, backup_written_at
from tests.icechunk.formats.conftest import Varied

NAMES = [
    pytest.param("repo.30708391075843.000G40R40M30E209185G", REPO, 1795288924157, bytes(range(12)), id="a_repo"),
    pytest.param("config.yaml.32503680000000.00000000000000000000", CONFIG, 0, bytes(12), id="a_configuration"),
    pytest.param("repo.00000000000000.ZZZZZZZZZZZZZZZZZZZG", REPO, 32503680000000, b"\xff" * 12, id="last"),
]


@pytest.mark.parametrize(("name", "original", "written_at", "its_id"), NAMES)
def test_a_backup_is_named_by_its_original_its_time_and_its_id(
    name: str, original: str, written_at: int, its_id: bytes
) -> None:
    assert backup_name(written_at, its_id, original) == name
    assert backup_written_at(name) == written_at


def test_the_backups_of_a_repository_are_recognised(varied: Varied) -> None:
    for path in (varied.directory / "overwritten").iterdir():
        written_at = backup_written_at(path.name)
        assert written_at is not None
        assert path.name.startswith(CONFIG if varied.spec_version == 1 else REPO)
        assert abs(written_at - path.stat().st_mtime_ns // 10**6) < 600_000


@given(st.lists(st.integers(0, 32503680000000), min_size=2, max_size=2))
def test_a_newer_backup_comes_before_an_older_one(times: list[int]) -> None:
    first, second = (backup_name(time, bytes(12)) for time in times)
    assert (first < second) is (times[0] > times[1])


@pytest.mark.parametrize(
    "name",
    [
        "",
        "repo",
        "repo.30708391075843",
        "repo.3070839107584.000G40R40M30E209185G",
        "repo.307083910758431.000G40R40M30E209185G",
        "repo.-0708391075843.000G40R40M30E209185G",
        "repo.٣0708391075843.000G40R40M30E209185G",
        "repo.30708391075843.000g40r40m30e209185g",
        "repo.30708391075843.000G40R40M30E209185G.bak",
        "repo.30708391075843.000G40R40M30E209185G\n",
        "configXyaml.30708391075843.000G40R40M30E209185G",
        "snapshot.30708391075843.000G40R40M30E209185G",
    ],
)
def test_a_name_that_icechunk_does_not_make_is_no_backup(name: str) -> None:
    assert backup_written_at(name) is None
