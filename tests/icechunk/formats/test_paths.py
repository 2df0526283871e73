import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_assets.icechunk.formats.paths import Backup, Original, backup_named
from tests.icechunk.formats.conftest import Varied

NAMES = [
    pytest.param(
        "repo.30708391075843.000G40R40M30E209185G", Backup(Original.REPO, 1795288924157, bytes(range(12))), id="a_repo"
    ),
    pytest.param(
        "config.yaml.32503680000000.00000000000000000000", Backup(Original.CONFIG, 0, bytes(12)), id="a_configuration"
    ),
    pytest.param(
        "repo.00000000000000.ZZZZZZZZZZZZZZZZZZZG", Backup(Original.REPO, 32503680000000, b"\xff" * 12), id="last"
    ),
]


@pytest.mark.parametrize(("name", "backup"), NAMES)
def test_a_name_and_its_backup_belong_together(name: str, backup: Backup) -> None:
    assert backup_named(name) == backup
    assert backup.name == name


def test_the_backups_of_a_repository_are_recognised(varied: Varied) -> None:
    for path in (varied.directory / "overwritten").iterdir():
        backup = backup_named(path.name)
        assert backup is not None
        assert backup.name == path.name
        assert backup.original is (Original.CONFIG if varied.spec_version == 1 else Original.REPO)
        assert abs(backup.written_at - path.stat().st_mtime_ns // 10**6) < 600_000


@given(st.lists(st.integers(0, 32503680000000), min_size=2, max_size=2))
def test_a_newer_backup_comes_before_an_older_one(times: list[int]) -> None:
    first, second = (Backup(Original.REPO, time, bytes(12)).name for time in times)
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
    assert backup_named(name) is None


@pytest.mark.parametrize("backup", [(10**15, bytes(12)), (-(10**15), bytes(12)), (0, bytes(8))], ids=repr)
def test_a_backup_that_could_not_be_named_is_not_made(backup: tuple[int, bytes]) -> None:
    with pytest.raises(ValueError, match="no backup can be written"):
        Backup(Original.REPO, *backup)
