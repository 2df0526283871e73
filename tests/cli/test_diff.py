"""`retention diff`: it compares two plans, or the current plan with the effect of another policy."""

import csv
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path

import pytest

from retention_assets.cli.comparing import warnings_of
from retention_assets.core.amounts import Amount, human_cost
from retention_assets.lakefs.sweep.diff import Difference, Outlook
from retention_assets.policy.lint import Finding
from tests.end_to_end.command import DAY, Answer, Json, Project, files_below, orchard_on_disk, run
from tests.saved_repositories import api, objects_by_commit

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark")]

# A change of each kind: main is kept shorter, other branches longer, and a rule of its own covers part of raw.
PROPOSED = """
retention: {default: 60d, branches: [{branch: main, keep: 15d}, {branch: dev, keep: 3d}]}
lifecycle: [{id: old-weeks, prefix: raw, keep: 60d}]
"""
EVERYTHING = """
retention: {default: 3d, branches: [{branch: dve, keep: 3d}]}
lifecycle: [{id: all, prefix: '', keep: 1d}]
"""
CHANGES = ("newly_freed", "no_longer_freed", "freed_otherwise", "freed_alike")
PRICE = 0.5


@dataclass(frozen=True)
class World:
    """A project with two plans of one day, the second under `PROPOSED`, and the diff of the first and `PROPOSED`."""

    project: Project
    first: str
    second: str
    candidates: tuple[dict[str, Json], dict[str, Json]]  # of each plan, by address
    staged: frozenset[str]
    proposed: Answer  # the objects that `PROPOSED` would change; neither store nor server could be reached
    excessive: Answer  # the diff with `EVERYTHING`, as JSON
    untouched: bool  # whether proposing left every file of the warehouse as it was

    def diff(self, *arguments: str | Path) -> Answer:
        return run("--config", self.project.file, "diff", "orchard", *arguments)

    def file(self, name: str) -> Path:
        return self.project.directory / name


def unreachable(project: Project) -> Path:
    """Return a configuration of the same warehouse whose store and server do not exist."""
    server = {"url": "http://127.0.0.1:9", "access_key": "nobody", "secret_key": {"env": "NEVER_SET"}}
    changes = {"storage": "nowhere", "source": {"api": server}, "price_per_gb_month": PRICE}
    settings = {key: value for key, value in project.settings.items() if key != "staged"}
    document = {"warehouse": "warehouse", "repositories": {"orchard": {**settings, **changes}}}
    file = project.directory / "unreachable.yaml"
    file.write_text(json.dumps(document), encoding="utf-8")
    return file


def planned(project: Project) -> tuple[str, dict[str, Json]]:
    """Plan, and return the plan's hash and its candidates by address."""
    return project.plan(), {row["address"]: row for row in project.rows("deletion_candidates")}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    project = orchard_on_disk(tmp_path_factory.mktemp("diff"))
    for name, text in {"new.yaml": PROPOSED, "everything.yaml": EVERYTHING}.items():
        (project.directory / name).write_text(text, encoding="utf-8")
    first, before = planned(project)
    standing = files_below(project.warehouse)
    propose = ("--config", unreachable(project), "diff", "orchard", "--as-of", DAY, "--policy")
    proposed = run(*propose, project.directory / "new.yaml", "--format", "csv")
    excessive = run(*propose, project.directory / "everything.yaml", "--json")
    untouched = files_below(project.warehouse) == standing
    project.write(policy=["new.yaml"])
    second, after = planned(project)
    staged = frozenset(row["address"] for row in project.rows("uncommitted_objects"))
    return World(project, first, second, (before, after), staged, proposed, excessive, untouched)


def table(answer: Answer) -> dict[str, dict[str, str]]:
    """Return the rows of a CSV by address."""
    assert answer.status == 0, answer.err
    return {row["address"]: row for row in csv.DictReader(StringIO(answer.out))}


def change_of(before: Json | None, after: Json | None) -> str:
    if before is None or after is None:
        return "newly_freed" if before is None else "no_longer_freed"
    shown = ("reason", "rule_ids")
    return "freed_alike" if all(before[name] == after[name] for name in shown) else "freed_otherwise"


def truth(world: World) -> dict[str, str]:
    """Return the change of each candidate of the two plans, computed from their tables."""
    before, after = world.candidates
    return {address: change_of(before.get(address), after.get(address)) for address in before | after}


def at_heads() -> dict[str, set[str]]:
    """Return the addresses inside the namespace at the head of each branch and tag, as the server lists them."""
    by_commit: dict[str, set[str]] = {}
    for row in objects_by_commit("orchard").to_pylist():
        _, inside, address = row["physical_address"].partition("/orchard/")
        by_commit.setdefault(row["commit_id"], set()).update([address] if inside else [])
    answers = api("orchard")
    named = {branch["id"]: branch["commit_id"] for branch in answers["branches"]}
    named |= {f"tag {tag['id']}": tag["commit_id"] for tag in answers["tags"]}
    return {name: by_commit.get(commit_id, set()) for name, commit_id in named.items()}


# ---- two plans


def test_diff_shows_each_object_with_its_change_and_both_reasons(world: World) -> None:
    expected = {address: change for address, change in truth(world).items() if change != "freed_alike"}
    assert set(expected.values()) == set(CHANGES) - {"freed_alike"}
    rows = table(world.diff(world.first[:8], world.second[:12], "--format", "csv"))
    assert {address: row["change"] for address, row in rows.items()} == expected
    before, after = world.candidates
    for address, row in rows.items():
        sides = before.get(address, {}).get("reason", ""), after.get(address, {}).get("reason", "")
        assert (row["reason_before"], row["reason_after"]) == sides
        assert row["size"] == str((after.get(address) or before[address])["size"])


def test_json_has_both_plans_and_the_amount_of_each_change(world: World) -> None:
    answer = world.diff(world.first, world.second, "--json")
    document = answer.document()
    sides = [document[side] for side in ("first", "second")]
    assert [side["plan_hash"] for side in sides] == [world.first, world.second]
    assert {side["day"] for side in sides} == {DAY}
    assert sides[0]["references_hash"] == sides[1]["references_hash"]
    assert sides[0]["policy_hash"] != sides[1]["policy_hash"]
    either = world.candidates[0] | world.candidates[1]
    for change in CHANGES:
        sizes = [either[address]["size"] for address, found in truth(world).items() if found == change]
        assert (document[change]["objects"], document[change]["bytes"]) == (len(sizes), sum(sizes))
        for groups in ("by_reason", "by_top_prefix"):
            assert sum(group["bytes"] for group in document[change][groups]) == sum(sizes)


def test_a_plan_equals_itself_and_a_reversed_comparison_has_the_reversed_changes(world: World) -> None:
    itself = world.diff(world.first, world.first, "--json").document()
    assert {change: itself[change]["objects"] for change in CHANGES} == {
        **dict.fromkeys(CHANGES, 0),
        "freed_alike": len(world.candidates[0]),
    }
    back = table(world.diff(world.second, world.first, "--format", "csv"))
    newly = {address for address, row in back.items() if row["change"] == "newly_freed"}
    assert newly == {address for address, change in truth(world).items() if change == "no_longer_freed"}


def test_a_limit_shows_the_largest_objects(world: World) -> None:
    rows = list(table(world.diff(world.first, world.second, "--format", "csv", "--limit", "3")).values())
    either = world.candidates[0] | world.candidates[1]
    sizes = [either[address]["size"] for address, change in truth(world).items() if change != "freed_alike"]
    assert [int(row["size"]) for row in rows] == sorted(sizes, reverse=True)[:3]


def test_costs_are_shown_only_with_a_price(world: World) -> None:
    plans = (world.first, world.second)
    unpriced = world.diff(*plans)
    assert unpriced.status == 0, unpriced.err
    assert "per month" not in unpriced.out
    assert world.diff(*plans, "--json").document()["newly_freed"]["per_month"] is None
    priced = world.diff(*plans, "--price", "1000000").out  # a thousandth for each byte
    newly = [address for address, change in truth(world).items() if change == "newly_freed"]
    freed = sum(world.candidates[1][address]["size"] for address in newly)
    assert "per month" in priced
    assert f"{freed / 1000:,.2f}" in priced


# ---- another policy


def test_the_changes_of_a_proposed_policy_equal_those_of_a_plan_under_it(world: World) -> None:
    proposed, made = table(world.proposed), table(world.diff(world.first, world.second, "--format", "csv"))
    assert made.keys() == proposed.keys() != set()
    for address, row in made.items():
        assert row == {name: value for name, value in proposed[address].items() if name != "heads"}


def test_a_comparison_with_a_proposed_policy_changes_no_file(world: World) -> None:
    assert world.proposed.status == 0
    assert world.untouched


def test_newly_freed_objects_are_shown_with_the_branches_and_tags_that_have_them_now(world: World) -> None:
    rows = table(world.proposed)
    for address, row in rows.items():
        now = sorted(name for name, addresses in at_heads().items() if address in addresses)
        assert row["heads"].split(";") == (now if row["change"] == "newly_freed" and now else [""])
    assert {bool(row["heads"]) for row in rows.values() if row["change"] == "newly_freed"} == {True, False}


def test_a_comparison_with_a_policy_that_guards_would_refuse_is_complete_and_exits_with_1(world: World) -> None:
    document = world.excessive.document()
    assert world.excessive.status == 1
    assert document["refused_by"] == ["live_not_shrunk"]
    assert {"ranges_complete", "live_not_empty", "nothing_live"} < {one["guard"] for one in document["guards"]}
    assert "a plan under this policy would be refused" in world.excessive.err
    assert "live_not_shrunk: " in world.excessive.err
    assert [finding["rule_id"] for finding in document["findings"]] == ["dve"]
    assert "there is no branch 'dve'" in world.excessive.err


def test_endangered_objects_are_counted_by_head(world: World) -> None:
    endangered = world.excessive.document()["endangered"]
    shown = {group["name"]: group["objects"] for group in endangered["by_head"]}
    kept = {name: addresses - world.candidates[0].keys() - world.staged for name, addresses in at_heads().items()}
    assert shown == {name: len(addresses) for name, addresses in kept.items() if addresses}
    assert endangered["at_heads"]["objects"] == len(set().union(*kept.values()))


def test_the_configured_price_is_for_a_gb_of_a_billion_bytes(world: World) -> None:
    document = world.excessive.document()
    assert document["price_per_gb_month"] == PRICE
    assert document["newly_freed"]["per_month"] == pytest.approx(document["newly_freed"]["bytes"] / 1e9 * PRICE)


def test_the_policy_of_the_plan_itself_changes_nothing_and_no_guard_refuses(world: World) -> None:
    answer = world.diff("--policy", world.file("new.yaml"), "--as-of", DAY)
    assert answer.status == 0, answer.err
    shown = {line.split("│")[1].strip(): line.split("│")[2].strip() for line in answer.out.splitlines() if "│" in line}
    assert shown["newly freed"] == shown["no longer freed"] == shown["freed by both, for another reason or rule"] == "0"
    assert shown["freed by both, for the same reason"] == str(len(world.candidates[1]))
    assert "endangered" not in answer.out
    assert "No guard would refuse" in answer.out


def test_the_warning_about_a_blocked_plan_precedes_the_findings() -> None:
    finding = Finding("warning", "dve", "there is no branch 'dve'")
    found = Outlook(Difference(None, {}, None), Amount(), (), (), "no staged list is known.", (finding,))  # type: ignore[arg-type]
    assert warnings_of(found) == [
        "warning: a plan under this policy must not be executed: no staged list is known.",
        "warning: dve: there is no branch 'dve'",
    ]
    assert len(warnings_of(replace(found, blocked=None))) == 1


@pytest.mark.parametrize(
    ("cost", "shown"),
    [
        pytest.param(0.0, "0.00", id="nothing"),
        pytest.param(0.0099, "< 0.01", id="less_than_a_cent_is_not_nothing"),
        pytest.param(0.01, "0.01", id="a_cent"),
        pytest.param(1234.5, "1,234.50", id="thousands"),
    ],
)
def test_costs_are_shown_to_the_cent(cost: float, shown: str) -> None:
    assert human_cost(cost) == shown


# ---- refusals


@pytest.mark.parametrize(
    ("arguments", "status", "names"),
    [
        pytest.param(["0" * 64, "FIRST"], 1, "no plan", id="an_unknown_hash"),
        pytest.param(["FIRST", "0" * 7], 1, "at least 8 digits", id="a_hash_too_short"),
        pytest.param(["FIRST"], 2, "Name two plans", id="one_plan"),
        pytest.param(["FIRST", "FIRST", "FIRST"], 2, "Name two plans", id="three_plans"),
        pytest.param([], 2, "Name two plans", id="nothing_to_compare"),
        pytest.param(["FIRST", "FIRST", "--policy", "NEW"], 2, "Name two plans", id="plans_and_a_policy"),
        pytest.param(["FIRST", "FIRST", "--as-of", DAY], 2, "--as-of", id="a_day_for_plans"),
        pytest.param(["FIRST", "FIRST", "--json", "--format", "csv"], 2, "choose one", id="two_output_formats"),
        pytest.param(["FIRST", "FIRST", "--limit", "1"], 2, "--limit", id="a_limit_without_rows"),
        pytest.param(["--policy", "NEW", "--price", "-1"], 2, "--price", id="a_negative_price"),
        pytest.param(
            ["--policy", "NEW", "--as-of", "2026-10-31"], 1, "retention plan orchard --as-of 2026-10-31", id="no_plan"
        ),
        pytest.param(["--policy", "MALFORMED", "--as-of", DAY], 2, "malformed.yaml", id="a_malformed_policy"),
        pytest.param(["--policy", "NOWHERE", "--as-of", DAY], 2, "nowhere.yaml: cannot be read", id="no_policy_file"),
    ],
)
def test_the_error_for_an_impossible_comparison_is_one_line(
    world: World, arguments: list[str], status: int, names: str
) -> None:
    world.file("malformed.yaml").write_text("retention: {default: soon}", encoding="utf-8")
    files = {word: str(world.file(f"{word.lower()}.yaml")) for word in ("NEW", "MALFORMED", "NOWHERE")}
    meant = {"FIRST": world.first, **files}
    answer = world.diff(*(meant.get(argument, argument) for argument in arguments))
    assert answer.status == status
    assert answer.out == ""
    assert names in answer.err


def copied(world: World, directory: Path) -> World:
    """Return a copy in another directory, which a test may change."""
    shutil.copytree(world.project.directory, directory, dirs_exist_ok=True, ignore=shutil.ignore_patterns("lake"))
    return replace(world, project=Project(directory, world.project.settings))


def change_document(file: Path, change: Callable[[Json], Json]) -> None:
    file.write_text(json.dumps(change(json.loads(file.read_text("utf-8")))), encoding="utf-8")


def test_an_abbreviation_of_two_plan_hashes_is_refused_as_ambiguous(world: World, tmp_path: Path) -> None:
    copy = copied(world, tmp_path)
    plans = copy.project.warehouse / "orchard" / "plans"
    twin = f"{world.first[:8]}{'0' * 56}"
    (plans / "2026-10-30").mkdir()
    shutil.copy(plans / DAY / "current.json", file := plans / "2026-10-30" / f"20261030T000000000000-{twin[:12]}.json")
    change_document(file, lambda plan: {**plan, "plan_hash": twin})
    answer = copy.diff(world.first[:8], world.second)
    assert (answer.status, answer.out) == (1, "")
    assert "2 plans were found whose hash begins with" in answer.err
