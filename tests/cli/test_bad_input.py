"""Invalid input of commands: one clear line of error, the exit status, and an empty standard output."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from retention_assets.lakefs.formats.ranges import read_metarange
from tests.end_to_end.command import DAY, Answer, Project, files_below, orchard_on_disk, run
from tests.saved_repositories import api

pytestmark = pytest.mark.usefixtures("spark")

Damage = Callable[[Project], object]

HEAD = next(branch["commit_id"] for branch in api("orchard")["branches"] if branch["id"] == "main")
METARANGE = next(commit["meta_range_id"] for commit in api("orchard")["commits"] if commit["id"] == HEAD)
COMMITS = api("orchard")["refs_dump"]["commits_meta_range_id"]
TOMORROW = (datetime.now(UTC) + timedelta(days=2)).date().isoformat()


def table(project: Project, table_id: str) -> Path:
    return project.directory / "lake" / "_lakefs" / table_id


def a_range(project: Project) -> Path:
    """Return the file of a range in the head of main."""
    ranges = read_metarange(table(project, METARANGE).read_bytes(), METARANGE)
    return table(project, ranges["range_id"][0].as_py())


def spoil(file: Path) -> None:
    """Corrupt a file by changing a byte in its middle."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.write_bytes(content)


def policy(text: str) -> Damage:
    """Return a function that replaces the policy by `text`."""

    def replace(project: Project) -> None:
        (project.directory / "gc_rules.json").write_text(text, encoding="utf-8")

    return replace


def dump(text: str) -> Damage:
    """Return a function that replaces the dump by `text`."""

    def replace(project: Project) -> None:
        (project.directory / "dump.json").write_text(text, encoding="utf-8")

    return replace


def without_a_head(project: Project) -> None:
    """Let the dump name the table of its tags as the table of its branches."""
    document = api("orchard")["refs_dump"]
    broken = {**document, "branches_meta_range_id": document["commits_meta_range_id"]}
    (project.directory / "dump.json").write_text(json.dumps(broken), encoding="utf-8")


@dataclass(frozen=True)
class Bad:
    """An invalid input, the exit status, and the words that the message must have: the thing and the remedy."""

    damage: Damage
    status: int
    names: tuple[str, ...]


FILES = {
    "a missing range": Bad(lambda project: a_range(project).unlink(), 3, ("_lakefs/", "not in the store", "Check")),
    "a corrupted range": Bad(lambda project: spoil(a_range(project)), 3, ("_lakefs/", "Nothing")),
    "a missing metarange": Bad(lambda project: table(project, METARANGE).unlink(), 3, (METARANGE, "not in the store")),
    "a corrupted metarange": Bad(lambda project: spoil(table(project, METARANGE)), 3, (METARANGE, "Nothing")),
    "a table of the dump is missing": Bad(lambda project: table(project, COMMITS).unlink(), 3, (COMMITS, "Check")),
    "a table of the dump is corrupted": Bad(lambda project: spoil(table(project, COMMITS)), 3, (COMMITS, "Nothing")),
    "the dump names other tables": Bad(without_a_head, 3, ("_lakefs/", "Nothing")),
    "the staged list has no file": Bad(
        lambda project: project.write(staged="_lakefs/no/"), 3, ("_lakefs/no", "staged:")
    ),
    "the storage is elsewhere": Bad(lambda project: project.write(storage="nowhere"), 3, ("nowhere", "storage")),
}
DUMPS = {
    "no dump": Bad(lambda project: project.write(source={"dump": "gone.json"}), 2, ("gone.json", "lakectl refs-dump")),
    "a dump cut off": Bad(dump('{"commits_meta_ra'), 2, ("dump.json", "lakectl refs-dump")),
    "a dump that is a list": Bad(dump("[]"), 2, ("dump.json", "lakectl refs-dump")),
    "a dump without tags": Bad(
        dump(json.dumps({"commits_meta_range_id": METARANGE})), 2, ("dump.json", "tags_meta_range_id")
    ),
}
POLICIES = {
    "no policy": Bad(lambda project: project.write(policy=["gone.yaml"]), 2, ("gone.yaml", "policy")),
    "a policy that is no document": Bad(policy("{"), 2, ("gc_rules.json",)),
    "our schema, a duration without a unit": Bad(policy("retention: {default: 30}"), 2, ("gc_rules.json", "30d")),
    "our schema, an unknown key": Bad(policy("retention: {defualt: 30d}"), 2, ("gc_rules.json", "defualt")),
    "lakeFS's form, days as text": Bad(
        policy('{"default_retention_days": "thirty", "branches": []}'), 2, ("gc_rules.json", "default_retention_days")
    ),
    "lakeFS's form, a negative number": Bad(
        policy('{"default_retention_days": -1, "branches": []}'), 2, ("gc_rules.json", "default_retention_days")
    ),
    "the older JSON schema, no days": Bad(policy('[{"prefix": "raw/"}]'), 2, ("gc_rules.json",)),
    "an empty policy": Bad(policy(""), 2, ("gc_rules.json",)),
}
SETTINGS = {
    "a variable that is not set": Bad(
        lambda project: project.write(
            storage="s3://lake/orchard", storage_options={"secret_access_key": {"env": "UNSET"}}
        ),
        2,
        ("storage_options.secret_access_key", "export UNSET="),
    ),
    "a secret in the file": Bad(
        lambda project: project.write(storage_options={"secret_access_key": "hunter2"}), 2, ("secret_access_key", "env")
    ),
    "an unknown setting": Bad(lambda project: project.write(tagz="protect"), 2, ("repositories.orchard.tagz",)),
    "an unknown mode": Bad(lambda project: project.write(mode="destroy"), 2, ("repositories.orchard.mode", "delete")),
    "a grace period without a unit": Bad(
        lambda project: project.write(grace=24), 2, ("repositories.orchard.grace", "no unit")
    ),
    "a configuration that is no YAML": Bad(
        lambda project: project.file.write_text("repositories: [", encoding="utf-8"), 2, ("retention.yaml", "YAML")
    ),
    "an empty configuration": Bad(lambda project: project.file.write_text(""), 2, ("retention.yaml",)),
    "no configuration": Bad(lambda project: project.file.unlink(), 2, ("retention.yaml", "--config")),
}


_QUICK = {name for name in FILES if "corrupted" not in name} - {"a missing metarange"}


def assert_one_clear_line(answer: Answer, status: int, names: tuple[str, ...]) -> None:
    assert answer.status == status, answer
    assert answer.out == ""
    assert answer.err.startswith("error: ")
    assert len(answer.err.splitlines()) == 1, answer.err
    assert "Traceback" not in answer.err
    for name in names:
        assert name in answer.err


@pytest.mark.long
@pytest.mark.parametrize(
    "bad",
    [
        # `lint` finds what is wrong in other files at once. A corrupted file ends as a missing one does, and a missing
        # metarange as a missing range.
        pytest.param(bad, id=name, marks=[] if name in _QUICK else pytest.mark.slow)
        for name, bad in {**FILES, **DUMPS, **POLICIES, **SETTINGS}.items()
    ],
)
def test_the_error_of_a_plan_is_one_line_with_the_cause_and_the_remedy(bad: Bad, tmp_path: Path) -> None:
    project = orchard_on_disk(tmp_path)
    bad.damage(project)
    before = files_below(tmp_path / "lake")
    assert_one_clear_line(project.run("plan"), bad.status, bad.names)
    assert files_below(tmp_path / "lake") == before


@pytest.mark.parametrize("bad", [pytest.param(bad, id=name) for name, bad in {**DUMPS, **POLICIES, **SETTINGS}.items()])
def test_lint_reports_the_bad_input_in_one_line(bad: Bad, tmp_path: Path) -> None:
    project = orchard_on_disk(tmp_path)
    bad.damage(project)
    assert_one_clear_line(run("--config", project.file, "lint"), bad.status, bad.names)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return orchard_on_disk(tmp_path_factory.mktemp("healthy"))


@pytest.mark.parametrize("command", ["plan", "sweep", "report", "approve", "show", "lint"])
def test_the_error_for_an_unknown_repository_lists_the_configured_repositories(healthy: Project, command: str) -> None:
    more = {"approve": ["0" * 64], "show": ["addresses"]}.get(command, [])
    answer = run("--config", healthy.file, command, "nowhere", *more)
    assert_one_clear_line(answer, 2, ("nowhere", "orchard"))


def test_a_future_day_cannot_be_planned(healthy: Project) -> None:
    answer = run("--config", healthy.file, "plan", "orchard", "--as-of", TOMORROW)
    assert_one_clear_line(answer, 2, (TOMORROW, "today"))


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["show", "orchard", "adresses"], ["adresses", "addresses"]),
        (["plan", "orchard", "--as-of", "yesterday"], ["yesterday", "YYYY-MM-DD"]),
        (["plan", "orchard", "--as-of", "2026-13-01"], ["2026-13-01", "YYYY-MM-DD"]),
        (["plan", "orchard", "--config", "x.yaml"], ["before the command: retention --config FILE plan …"]),
        (
            ["icechunk", "field", "status", "--config", "x.yaml"],
            ["before the command: retention --config FILE icechunk REPOSITORY status …"],
        ),
        (["plan"], ["Name one or more repositories", "--all"]),
        (["show", "orchard", "addresses", "--limit", "-1"], ["--limit", "-1"]),
        (["destroy"], ["destroy"]),
    ],
)
def test_the_error_for_a_wrong_argument_names_the_allowed_values(
    healthy: Project, arguments: list[str], names: list[str]
) -> None:
    answer = run("--config", healthy.file, *arguments)
    assert answer.status == 2
    assert answer.out == ""
    assert answer.err.splitlines()[-1].startswith("Error: ")
    for name in names:
        assert name in answer.err


@pytest.mark.parametrize(
    ("command", "more", "status", "remedy"),
    [
        ("show", ["deletion_candidates"], 3, "retention plan orchard"),
        ("report", [], 1, "retention plan orchard"),
        ("approve", ["0" * 64], 1, "retention plan orchard"),
        ("withdraw", [], 1, "retention plan orchard"),
    ],
)
def test_a_command_that_needs_a_plan_names_the_command_that_makes_one(
    healthy: Project, command: str, more: list[str], status: int, remedy: str
) -> None:
    assert_one_clear_line(healthy.run(command, *more), status, (DAY, remedy))


def test_a_sweep_without_a_plan_names_the_command_that_makes_one(tmp_path: Path) -> None:
    project = orchard_on_disk(tmp_path)
    project.write(mode="delete")
    assert_one_clear_line(project.run("sweep"), 1, (DAY, "retention plan orchard"))
