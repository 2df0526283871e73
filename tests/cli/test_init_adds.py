"""`init` adds a repository to a configuration that exists, and changes no other text of the file."""

import json
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

from retention_assets.cli import initializing
from retention_assets.config import starter
from retention_assets.config.configuration import load_configuration
from tests.end_to_end.command import Answer, files_below, run
from tests.icechunk_repositories import create_repository


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


FIELD = "{kind: icechunk, storage: lake/field, policy: field.yaml}"
MEADOW = ("--kind", "icechunk", "--storage", "lake/meadow")


def init(name: str = "meadow", *more: str) -> Answer:
    return run("init", name, *MEADOW, *more)


@pytest.fixture
def file(empty_folder: Path) -> Path:
    """A configuration with the repository `field`, in a folder with the two repositories `field` and `meadow`."""
    for name in ("field", "meadow"):
        create_repository(empty_folder / "lake" / name)
    (empty_folder / "field.yaml").write_text("snapshots: {default: {keep_newer: 30d}}\n", encoding="utf-8")
    made = empty_folder / "retention.yaml"
    made.write_text(f"warehouse: warehouse\nrepositories:\n  field: {FIELD}\n", encoding="utf-8")
    return made


def contents() -> dict[str, bytes]:
    """Return the content of every file of the folder, without the two repositories."""
    return {name: Path(name).read_bytes() for name in files_below(Path.cwd()) if not name.startswith("lake/")}


def test_init_adds_a_second_repository_to_the_file_that_it_wrote(empty_folder: Path) -> None:
    for name in ("field", "meadow"):
        create_repository(empty_folder / "lake" / name)
    assert run("init", "field", "--kind", "icechunk", "--storage", "lake/field").status == 0
    before = contents()
    answer = init()
    assert answer.status == 0, answer.out + answer.err
    after = contents()
    assert after.keys() - before.keys() == {"policy-meadow.yaml"}
    assert after["policy.yaml"] == before["policy.yaml"]
    assert after["retention.yaml"].startswith(before["retention.yaml"])
    assert "meadow was added to retention.yaml. Written: " in answer.out
    assert "Until meadow has a plan, sweeps and purges of the other repositories are refused." in answer.out
    assert answer.out.endswith("Next: retention lint\n")
    assert run("lint", "--json").document().keys() == {"field", "meadow"}


def test_lint_goes_on_after_a_repository_that_cannot_be_read(file: Path) -> None:
    assert init().status == 0
    shutil.rmtree(file.parent / "lake" / "field")
    answer = run("lint", "--json")
    assert answer.status == 3
    findings = answer.document()
    assert findings.keys() == {"field", "meadow"}
    assert [one["rule_id"] for one in findings["field"]] == ["(not checked)"]
    assert "lake/field" in findings["field"][0]["message"]
    assert not [one for one in findings["meadow"] if one["severity"] == "error"]
    assert run("lint", "field").status == 3


def test_init_adds_to_the_file_that_the_environment_names(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (file.parent / "elsewhere").mkdir()
    monkeypatch.setenv("RETENTION_CONFIG", str(file))
    monkeypatch.chdir(file.parent / "elsewhere")
    answer = run("init", "meadow", "--kind", "icechunk", "--storage", str(file.parent / "lake" / "meadow"))
    assert answer.status == 0, answer.out + answer.err
    assert load_configuration(file).repositories.keys() == {"field", "meadow"}
    assert files_below(Path.cwd()) == {}
    assert answer.out.endswith("Next: retention lint\n")


def test_the_json_output_names_the_changed_file_and_the_new_policy(file: Path) -> None:
    answer = init("meadow", "--json")
    assert answer.document()["files"] == ["retention.yaml", "policy-meadow.yaml"]


AFTER = "spark:\n  spark.driver.memory: 1g   # of the driver\n"
LAYOUTS = {
    "repositories at the end": ("warehouse: w\nrepositories:\n  field: {field}\n", ""),
    "no newline at the end": ("warehouse: w\nrepositories:\n  field: {field}", "\n"),
    "a key after the repositories": ("warehouse: w\nrepositories:\n  field: {field}\n" + AFTER, ""),
    "comments and blank lines": (
        "# mine\nwarehouse: w  # tables\n\nrepositories:  # all of them\n  # one\n  field: {field}\n"
        "  # other: {{}}\n    # deeper\n\n# of Spark\n\n" + AFTER,
        "",
    ),
    "other indentation": ("warehouse: w\nrepositories:\n      field: {field}\n" + AFTER, ""),
    "an indented document": ("---\n warehouse: w\n repositories:\n   field: {field}\n # end\n...\n", ""),
    "lines of Windows": ("warehouse: w\r\nrepositories:\r\n  field: {field}\r\n\r\n# end\r\n", ""),
    "quotes and anchors": (
        'warehouse: w\n"repositories": &all\n  &one field: &it {field}\n  copy:\n    <<: *it\n    storage: lake/c\n',
        "",
    ),
    "a byte order mark": ("\ufeffwarehouse: w\nrepositories:\n  field: {field}\n", ""),
    "a text of several lines": (
        "warehouse: w\nrepositories:\n  field:\n    kind: icechunk\n    storage: lake/field\n    policy: >-\n"
        "      field.yaml\n\n\n" + AFTER,
        "",
    ),
}


@pytest.mark.parametrize(("layout", "gap"), LAYOUTS.values(), ids=LAYOUTS)
def test_all_other_text_stays_in_each_layout_of_a_file(file: Path, layout: str, gap: str) -> None:
    old = layout.format(field=FIELD)
    file.write_text(old, encoding="utf-8", newline="")
    known = load_configuration(file).repositories
    answer = init()
    assert answer.status == 0, answer.out + answer.err
    new = file.read_bytes().decode()
    (place,) = {place for place in range(len(old) + 1) if _is_added_at(place, old, new, gap)}
    added = new[place + len(gap) : len(new) - len(old) + place]
    assert "meadow:" in added.splitlines()[0]
    assert not old[place:].lstrip().startswith(("field", "copy", "kind", "# other", "# deeper"))
    assert ("\r\n" in added) is ("\r\n" in old)
    found = load_configuration(file).repositories
    assert list(found) == [*known, "meadow"]
    assert {name: one for name, one in found.items() if name != "meadow"} == known
    assert found["meadow"].settings.policy == ["policy-meadow.yaml"]


def _is_added_at(place: int, old: str, new: str, gap: str) -> bool:
    """Return whether `new` is `old` with lines added at `place`, the first of which is the name."""
    rest = old[place:]
    added = new[place : len(new) - len(rest)]
    starts = added.startswith(gap) and added.removeprefix(gap).lstrip(" ").startswith("meadow:")
    at_line = gap or not place or old[place - 1] == "\n"
    return new.startswith(old[:place]) and new.endswith(rest) and starts and bool(at_line)


ENTRY: dict[str, Any] = {"kind": "icechunk", "storage": "lake/field", "policy": "field.yaml"}
IN_BRACES = f"warehouse: w\nrepositories: {{field: {FIELD}}}\n"
COMPONENT = f"type: a.B\nattributes:\n  warehouse: w\n  repositories:\n    field: {FIELD}\n"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(IN_BRACES, id="braces"),
        pytest.param(json.dumps({"warehouse": "w", "repositories": {"field": ENTRY}}), id="JSON"),
        pytest.param(
            json.dumps({"warehouse": "w", "repositories": {"field": ENTRY}}, indent="\t"), id="JSON with tabs"
        ),
        pytest.param(f"warehouse: w\n? repositories\n: {{field: {FIELD}}}\n", id="a key with a question mark"),
        pytest.param(COMPONENT, id="a component of Dagster"),
        pytest.param(f"warehouse: w\nrepositories:\n  ? field\n  : {FIELD}\n...\n...\n", id="two documents"),
        pytest.param(
            "warehouse: w\nrepositories:\n  field:\n    kind: icechunk\n    storage: lake/field\n"
            '    policy: "field.yaml\n\n# of it"\n',
            id="a quoted text that looks like a comment",
        ),
    ],
)
def test_a_file_to_which_no_entry_can_be_added_stays_and_the_message_has_the_lines(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")
    before = contents()
    answer = init()
    assert (answer.status, contents()) == (2, before), answer.err
    assert "retention.yaml: meadow cannot be added without a change of other lines. Nothing was changed." in answer.err
    assert "Write these lines to policy-meadow.yaml:\n\n# How long snapshots are kept." in answer.err
    assert "Then add these lines below `repositories:`:\n\n  meadow:\n    kind: icechunk\n" in answer.err
    by_hand = answer.err.split("below `repositories:`:\n\n")[1]
    file.write_text(f"warehouse: w\nrepositories:\n{by_hand}", encoding="utf-8")
    assert load_configuration(file).repository("meadow").storage == f"file://{file.parent}/lake/meadow"


def test_a_secret_in_clear_text_is_refused_and_not_among_the_lines_to_add(file: Path) -> None:
    file.write_text(IN_BRACES, encoding="utf-8")
    answer = init("meadow", "--option", "secret_access_key=hunter2")
    assert answer.status == 2
    assert "is a secret: write `{env: NAME}`" in " ".join(answer.err.split())
    assert "hunter2" not in answer.err


@pytest.mark.parametrize(("name", "known"), [("field", "field"), ("my-field", "my_field")])
def test_a_repository_that_the_file_has_is_not_added_again(file: Path, name: str, known: str) -> None:
    file.write_text(file.read_text(encoding="utf-8").replace("  field:", f"  {known}:"), encoding="utf-8")
    before = contents()
    answer = init(name)
    assert (answer.status, contents()) == (2, before)
    assert f"retention.yaml: has the repository {known} already. Nothing was written." in answer.err


def test_overwrite_replaces_the_whole_file(file: Path) -> None:
    assert init("meadow", "--overwrite").status == 0
    assert list(load_configuration(file).repositories) == ["meadow"]
    assert not Path("policy-meadow.yaml").exists()


def test_a_policy_that_exists_is_not_overwritten(file: Path) -> None:
    Path("policy-meadow.yaml").write_text("mine", encoding="utf-8")
    before = contents()
    answer = init()
    assert (answer.status, contents()) == (2, before)
    assert "policy-meadow.yaml: exists already. Nothing was written. Move the file away, " in answer.err
    assert "--overwrite" not in answer.err  # it would remove the other repositories from the file


def test_nothing_is_added_to_a_configuration_with_an_error(file: Path) -> None:
    file.write_text(file.read_text(encoding="utf-8") + "speling: 1\n", encoding="utf-8")
    before = contents()
    answer = init()
    assert (answer.status, contents()) == (2, before)
    assert "speling: unknown key" in answer.err


def test_a_change_of_the_file_by_another_program_is_not_lost(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = initializing._starter

    def changing(*arguments: Any) -> Any:
        with file.open("a", encoding="utf-8") as opened:
            opened.write("# of another program\n")
        return ask(*arguments)

    monkeypatch.setattr(initializing, "_starter", changing)
    before = contents()
    answer = init()
    assert answer.status == 2
    assert "retention.yaml: another program changed the file meanwhile. Nothing was changed." in answer.err
    expected = {**before, "retention.yaml": before["retention.yaml"] + b"# of another program\n"}
    assert contents() == expected


def test_nothing_is_changed_if_the_file_cannot_be_replaced(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "retention.yaml")

    before = contents()
    monkeypatch.setattr(starter.shutil, "copymode", full)
    answer = init()
    assert (answer.status, contents()) == (2, before)
    assert "retention.yaml: cannot be written: No space left on device. " in answer.err


def test_a_link_to_the_file_stays_and_the_file_keeps_its_permissions(file: Path) -> None:
    Path("conf").mkdir()
    target = file.rename("conf/release.yaml")
    target.write_text(target.read_text(encoding="utf-8").replace("lake/", "../lake/"), encoding="utf-8")
    target.chmod(0o640)
    file.symlink_to("conf/release.yaml")
    answer = init()
    assert answer.status == 0, answer.err
    assert file.readlink() == Path("conf/release.yaml")
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert Path("conf/policy-meadow.yaml").is_file()
    repository = load_configuration(file).repository("meadow")
    assert repository.path("policy-meadow.yaml") == file.parent.resolve() / "conf" / "policy-meadow.yaml"


def test_the_warehouse_of_the_file_is_tested_for_the_new_repository(file: Path) -> None:
    Path("warehouse").write_text("no directory", encoding="utf-8")
    answer = init("meadow", "--json")
    assert answer.status == 3
    assert answer.document()["modes"]["plan"]["lacking"] == ["warehouse: read files"]
