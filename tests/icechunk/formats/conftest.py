"""One varied repository per format, written by icechunk once for all tests. Tests must not change it."""

from dataclasses import dataclass
from pathlib import Path

import icechunk as ic
import pytest

from tests.icechunk_repositories import FORMATS, Format, build_varied


@dataclass(frozen=True, slots=True)
class Varied:
    """A repository, and where its files are."""

    spec_version: Format
    directory: Path
    repository: ic.Repository

    def files(self, folder: str) -> dict[str, bytes]:
        """The files in one folder, by their paths below the repository."""
        return {f"{folder}/{path.name}": path.read_bytes() for path in sorted((self.directory / folder).iterdir())}


@pytest.fixture(scope="session")
def varied_of_each_format(tmp_path_factory: pytest.TempPathFactory) -> dict[Format, Varied]:
    made = {}
    for spec_version in FORMATS:
        directory = tmp_path_factory.mktemp("icechunk") / f"varied-{spec_version}"
        made[spec_version] = Varied(spec_version, directory, build_varied(directory, spec_version))
    return made


@pytest.fixture(params=FORMATS, ids=["format_1", "format_2"])
def varied(request: pytest.FixtureRequest, varied_of_each_format: dict[Format, Varied]) -> Varied:
    return varied_of_each_format[request.param]


@pytest.fixture
def varied_2(varied_of_each_format: dict[Format, Varied]) -> Varied:
    return varied_of_each_format[2]
