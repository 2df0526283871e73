"""`explain` is right for every object of the saved lakeFS repositories, against brute force."""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from retention_assets.config.configuration import Configuration, load_configuration
from retention_assets.config.timestamps import start_of_day
from retention_assets.core.keepers import old_enough_at
from retention_assets.errors import ConfigurationError, GuardRefused
from retention_assets.explain import explaining
from retention_assets.explain.explaining import explain
from retention_assets.explain.explanations import ObjectExplanation
from retention_assets.lakefs.names.generated import issued
from retention_assets.lakefs.rules import references
from retention_assets.state.plan import Plan, load_plan
from retention_assets.warehouse.warehouse import Warehouse
from tests.acceptance.cases import DAY, Case, copy_repository
from tests.acceptance.runs import Found
from tests.end_to_end.command import run
from tests.explain.objects import explain_objects
from tests.explain.truth import Truth
from tests.lakefs_repositories import NAME, build_repository, linked_again
from tests.saved_repositories import listing

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("spark", "forgetful")]

FAR = date(9000, 1, 1)
OLD_NAME = "d41d8cd98f00b204e9800998ecf8427e"
GRACE = timedelta(days=1)
ALWAYS = Case("orchard", "lifecycle-1_and_retention_tags_protect")
CASES = (
    Case("orchard", "retention"),
    Case("orchard", "lifecycle-2_and_retention"),
    ALWAYS,
    Case("meadow", "retention"),
    Case("meadow", "lifecycle-1_alone"),
    Case("meadow", "lifecycle-2_and_retention_tags_protect"),
    Case("thicket", "lifecycle-1_and_retention"),
    Case("thicket", "lifecycle-1_alone"),
    Case("thicket", "lifecycle-1_and_retention_tags_protect"),
)


@dataclass(frozen=True)
class Explained:
    """A planned repository with the answers for all its objects."""

    case: Case
    configuration: Configuration
    plan: Plan
    answers: Mapping[str, ObjectExplanation]

    @property
    def truth(self) -> Truth:
        return Truth(self.case.repository, self.case.policies, self.case.tags)


@pytest.fixture(
    scope="module",
    params=[pytest.param(case, id=str(case), marks=[] if case == ALWAYS else [pytest.mark.slow]) for case in CASES],
)
def explained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Explained:
    case: Case = request.param
    directory: Path = tmp_path_factory.mktemp(str(case))
    configuration = copy_repository(case.repository, directory).of_case(case, grace="1d")
    answer = run("--config", configuration.file, "plan", case.repository, "--as-of", DAY.isoformat())
    assert answer.status == 0, answer.err
    plan = load_plan(Warehouse(configuration.warehouse), case.repository, DAY)
    truth = Truth(case.repository, case.policies, case.tags)
    names = {one.address for one in listing(case.repository) if not one.address.startswith("_lakefs/")}
    names |= {address for _, address in truth.entries}
    answers = explain_objects(configuration, case.repository, names)
    assert {one.address for one in answers} == names
    return Explained(case, configuration, plan, {one.address: one for one in answers})


def test_explain_and_the_plan_count_the_same_states_of_objects(explained: Explained) -> None:
    counted = Counter(one.state for one in explained.answers.values() if one.listed)
    assert counted == {state: amount.objects for state, amount in explained.plan.totals.items() if amount.objects}


def test_an_object_outside_the_namespace_is_neither_missing_nor_absent(explained: Explained) -> None:
    states = {one.state for address, one in explained.answers.items() if "://" in address}
    assert states == {"outside"}


def test_the_candidates_are_those_that_brute_force_finds(explained: Explained) -> None:
    found: set[Found] = set()
    for one in explained.answers.values():
        if one.state == "candidate":
            assert one.size is not None
            found.add((one.address, one.size, "uncommitted" if one.reason == "unreferenced" else "committed"))
    assert found == explained.case.answer_of_plan()


def test_each_object_is_due_on_the_first_day_on_which_brute_force_finds_no_keeper(
    explained: Explained,
) -> None:
    truth = explained.truth
    by_day: defaultdict[date, set[str]] = defaultdict(set)
    for one in explained.answers.values():
        if one.state in ("kept", "held") and one.address not in truth.staged:
            by_day[one.goes_on or FAR].add(one.address)
    assert len(by_day) > 1
    live_for_ever = truth.live(FAR)
    for day, addresses in by_day.items():
        if day == FAR:
            assert addresses <= live_for_ever
            continue
        assert not addresses & truth.live(day)
        too_young = {one for one in addresses if _old_enough(explained.answers[one]) == day}
        assert addresses - too_young <= truth.live(day - timedelta(days=1))


def _old_enough(answer: ObjectExplanation) -> date:
    return old_enough_at((answer.last_modified, issued(answer.address)), GRACE).date()


def test_every_path_and_every_commit_with_an_object_is_counted(explained: Explained) -> None:
    by_address: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for (path, address), commits in explained.truth.entries.items():
        by_address[address][path] = len(commits)
    for one in explained.answers.values():
        assert {entry.path: entry.commits for entry in one.entries} == by_address[one.address]


def test_a_kept_object_names_its_keeper_and_a_candidate_names_its_rule(explained: Explained) -> None:
    for one in explained.answers.values():
        if one.listed and one.state not in ("candidate", "waiting"):
            assert one.kept_by
        if one.state == "candidate" and one.reason != "unreferenced":
            assert one.rule_ids
            assert one.due_since


def test_a_path_is_explained_by_all_objects_that_were_ever_at_it(explained: Explained) -> None:
    name = explained.case.repository
    versions: defaultdict[str, set[str]] = defaultdict(set)
    for path, address in explained.truth.entries:
        versions[path].add(address)
    path = max(versions, key=lambda one: (len(versions[one]), one))
    answer = explain(explained.configuration, name, path)
    assert answer.kind == "path"
    assert {one.address for one in answer.objects} == versions[path]


def test_explain_describes_an_address_as_text_and_as_json(explained: Explained) -> None:
    one = next(one for one in explained.answers.values() if one.state == "kept" and one.goes_on)
    command = ["--config", explained.configuration.file, "explain", explained.case.repository, one.address]
    text, document = run(*command), run(*command, "--json").document()
    assert text.status == 0, text.err
    assert "is kept" in text.out
    assert str(one.goes_on) in text.out
    assert explained.plan.plan_hash in text.out
    assert document["objects"][0]["goes_on"] == str(one.goes_on)
    assert document["plan"]["plan_hash"] == explained.plan.plan_hash


def test_a_commit_is_explained_by_what_keeps_it(explained: Explained) -> None:
    truth, name = explained.truth, explained.case.repository
    for branch, head in truth.branches.items():
        commit = explain(explained.configuration, name, head).commit
        assert commit is not None
        assert commit.active
        assert branch in commit.heads


def test_a_uri_of_lakefs_is_explained_as_its_path_or_commit(explained: Explained) -> None:
    name, configuration = explained.case.repository, explained.configuration
    path = next(path for path, _ in explained.truth.entries if "/" in path)
    by_path, by_uri = (explain(configuration, name, one) for one in (path, f"lakefs://{name}/main/{path}"))
    assert by_uri.objects == by_path.objects
    assert f"The explanation has all versions of {path} in the plan, not only the version of main." in by_uri.notes
    head = next(iter(explained.truth.branches.values()))
    assert explain(configuration, name, f"lakefs://{name}/{head}").commit == explain(configuration, name, head).commit
    with pytest.raises(
        ConfigurationError, match=r"has no path\. Nothing was explained\. Write lakefs://REPOSITORY/REF/"
    ):
        explain(configuration, name, f"lakefs://{name}/main")


def test_a_uri_of_another_repository_is_refused(tmp_path: Path) -> None:
    api = {"url": "http://127.0.0.1:9", "access_key": "a", "secret_key": {"env": "S"}, "repository": "fruit-orchard"}
    entry = {"kind": "lakefs", "namespace": "s3://lake/orchard", "source": {"api": api}, "policy": "policy.yaml"}
    file = tmp_path / "retention.yaml"
    file.write_text(yaml.safe_dump({"warehouse": "w", "repositories": {"orchard": entry}}), encoding="utf-8")
    configuration = load_configuration(file)
    message = (
        "in the server's repository orchard, but the configuration of orchard names the server's repository "
        r"fruit-orchard\. Nothing was explained\. Name the repository that is configured for orchard"
    )
    with pytest.raises(ConfigurationError, match=message):
        explain(configuration, "orchard", "lakefs://orchard/main/a.csv")
    with pytest.raises(GuardRefused, match="there is no valid plan"):
        explain(configuration, "orchard", "lakefs://fruit-orchard/main/a.csv")


def test_an_unknown_name_is_refused_with_the_day_of_the_plan(explained: Explained) -> None:
    answer = run("--config", explained.configuration.file, "explain", explained.case.repository, "no/such/path")
    assert answer.status == 2
    assert "no/such/path" in answer.err
    assert explained.plan.day.isoformat() in answer.err


def test_objects_that_need_not_settle_are_explained_as_candidates(tmp_path: Path) -> None:
    case = Case("orchard", "retention")
    settings = {"grace": "1d", "settle": "3d", "settle_expired": False}
    configuration = copy_repository(case.repository, tmp_path).of_case(case, **settings)
    answer = run("--config", configuration.file, "plan", case.repository, "--as-of", DAY.isoformat())
    assert answer.status == 0, answer.err
    plan = load_plan(Warehouse(configuration.warehouse), case.repository, DAY)
    names = {one.address for one in listing(case.repository) if not one.address.startswith("_lakefs/")}
    counted = Counter(one.state for one in explain_objects(configuration, case.repository, names))
    assert plan.candidates.objects
    for state in ("candidate", "waiting"):
        assert counted[state] == plan.totals[state].objects, state


def test_only_an_object_in_no_commit_is_called_a_young_upload(tmp_path: Path) -> None:
    configuration = copy_repository(ALWAYS.repository, tmp_path).of_case(ALWAYS, grace="3650d")
    answer = run("--config", configuration.file, "plan", ALWAYS.repository, "--as-of", DAY.isoformat())
    assert answer.status == 0, answer.err
    names = [one.address for one in listing(ALWAYS.repository) if not one.address.startswith("_lakefs/")]
    young = [one for one in explain_objects(configuration, ALWAYS.repository, names) if one.state == "young"]
    uploads = {one.address for one in young if any("an upload may" in keeper.detail for keeper in one.kept_by)}
    assert uploads == {one.address for one in young if not one.entries}
    assert 0 < len(uploads) < len(young)


def test_objects_that_are_staged_under_other_spellings_of_their_addresses_are_explained_as_staged(
    tmp_path: Path,
) -> None:
    copy = copy_repository(ALWAYS.repository, tmp_path)
    (file,) = (tmp_path / "lake" / "_lakefs/retention/gc/uncommitted").glob("*/uncommitted/*")
    staged = pq.read_table(file)
    name = staged.schema.get_field_index("physical_address")
    spelled = pa.array([f"./{one}" for one in staged[name].to_pylist()])
    pq.write_table(staged.set_column(name, "physical_address", spelled), file)
    configuration = copy.of_case(ALWAYS, grace="1d")
    answer = run("--config", configuration.file, "plan", ALWAYS.repository, "--as-of", DAY.isoformat())
    assert answer.status == 0, answer.err
    totals = load_plan(Warehouse(configuration.warehouse), ALWAYS.repository, DAY).totals
    names = [one.address for one in listing(ALWAYS.repository) if not one.address.startswith("_lakefs/")]
    answers = explain_objects(configuration, ALWAYS.repository, names)
    counted = Counter(one.state for one in answers)
    assert counted == {state: amount.objects for state, amount in totals.items() if amount.objects}
    truth = Truth(ALWAYS.repository, ALWAYS.policies, ALWAYS.tags)
    of_staged = {one.address for one in answers if any(keeper.kind == "staged" for keeper in one.kept_by)}
    assert of_staged == truth.staged & {*names}


def test_a_plan_and_explain_unite_the_branches_and_the_age_of_a_pair_with_two_checksums(tmp_path: Path) -> None:
    """The rows of the pair, each alone, are not active, or due by the shorter period of `dev`."""
    now = start_of_day(DAY)
    name, versions, branches, policy = linked_again(now)
    objects = {one: version.created_at for version in versions for one in version.objects.values()}
    built = build_repository(tmp_path, versions, branches, taken_at=now, objects=objects)
    configuration = built.configure(policy)
    answer = run("--config", configuration.file, "plan", NAME, "--as-of", DAY.isoformat())
    assert answer.status == 0, answer.err
    plan = load_plan(Warehouse(configuration.warehouse), NAME, DAY)
    (explained,) = explain_objects(configuration, NAME, [name])
    assert (plan.totals["kept"].objects, plan.candidates.objects) == (2, 0)
    assert (explained.state, explained.goes_on) == ("kept", DAY + timedelta(days=30))
    (entry,) = explained.entries
    assert (entry.branches, entry.added_at, entry.commits) == (("dev", "main"), versions[0].created_at, 2)


def test_a_folder_is_refused_with_one_of_its_paths(explained: Explained) -> None:
    path = next(path for path, _ in explained.truth.entries if "/" in path)
    folder = path.partition("/")[0]
    answer = run("--config", explained.configuration.file, "explain", explained.case.repository, folder)
    below = sorted({one for one, _ in explained.truth.entries if one.startswith(f"{folder}/")})
    assert answer.status == 2
    assert f"'{folder}' is a folder with {len(below):,} paths" in answer.err
    assert f"such as {below[0]!r}" in answer.err


def test_only_some_paths_of_a_large_folder_are_read(explained: Explained, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explaining, "_MANY", 1)
    paths = {path for path, _ in explained.truth.entries if "/" in path}
    folders = Counter(path.partition("/")[0] for path in paths)
    folder, _ = folders.most_common(1)[0]
    answer = run("--config", explained.configuration.file, "explain", explained.case.repository, folder)
    assert answer.status == 2
    assert f"'{folder}' is a folder with more than 1 paths" in answer.err


@pytest.fixture(scope="module")
def without_staged_list(tmp_path_factory: pytest.TempPathFactory) -> Configuration:
    """Orchard with references of a dump and no staged list, after a plan. The plan is blocked."""
    configuration = copy_repository("orchard", tmp_path_factory.mktemp("unstaged")).of_case(
        ALWAYS, grace="1d", staged=None
    )
    answer = run("--config", configuration.file, "plan", "orchard", "--as-of", DAY.isoformat())
    assert answer.status == 0, answer.err
    return configuration


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        pytest.param("tabels/nope.csv", "was not found", id="a path"),
        pytest.param("gr\udcfcn", "is not UTF-8. Nothing was explained", id="a name in another encoding"),
        pytest.param("0" * 64, "was not found", id="a commit"),
        pytest.param("data/gi0o44o9i5lc73cpslsg/cpslsg00000000000000", "was not found", id="an address"),
        pytest.param("folder", "is a folder with", id="a folder"),
    ],
)
def test_without_a_staged_list_a_name_that_nothing_lists_is_refused(
    without_staged_list: Configuration, name: str, problem: str
) -> None:
    if name == "folder":
        paths = {path for path, _ in Truth("orchard", ALWAYS.policies, ALWAYS.tags).entries if "/" in path}
        name = f"{min(paths).partition('/')[0]}/"
    with pytest.raises(ConfigurationError, match=re.escape(f"{name!r} {problem}")):
        explain(without_staged_list, "orchard", name)


def test_without_a_staged_list_a_listed_object_of_no_commit_may_be_staged(without_staged_list: Configuration) -> None:
    names = [one.address for one in listing("orchard") if not one.address.startswith("_lakefs/")]
    answers = explain_objects(without_staged_list, "orchard", names)
    details = {keeper.detail for one in answers if not one.entries for keeper in one.kept_by}
    assert "no staged list is known, so it may be staged" in details
    totals = load_plan(Warehouse(without_staged_list.warehouse), "orchard", DAY).totals
    states = Counter(one.state for one in answers)
    assert states == {state: amount.objects for state, amount in totals.items() if amount.objects}


def test_the_explanation_says_that_its_plan_must_not_be_executed(without_staged_list: Configuration) -> None:
    names = [one.address for one in listing("orchard") if not one.address.startswith("_lakefs/")]
    answers = explain_objects(without_staged_list, "orchard", names)
    candidate = next(one.address for one in answers if one.state == "candidate")
    text = run("--config", without_staged_list.file, "explain", "orchard", candidate).out
    assert "Note: The plan must not be executed: no staged list is known" in text
    assert "There is no sweep in mode `plan`, or if the plan must not be executed." in text


def test_an_object_that_an_old_server_may_have_staged_is_explained_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(references, "TYPED_ADDRESSES", start_of_day(FAR))  # every repository counts as old
    configuration = copy_repository("orchard", tmp_path).of_case(ALWAYS, legacy_names=True)
    (tmp_path / "lake" / OLD_NAME).write_bytes(b"staged")
    long_ago = start_of_day(DAY).timestamp() - 10**8
    os.utime(tmp_path / "lake" / OLD_NAME, (long_ago, long_ago))
    answer = run("--config", configuration.file, "plan", "orchard", "--as-of", DAY.isoformat())
    assert answer.status == 0, answer.err
    (explained,) = explain_objects(configuration, "orchard", [OLD_NAME])
    assert (explained.state, [keeper.kind for keeper in explained.kept_by]) == ("may_be_staged", ["old_name"])
    totals = load_plan(Warehouse(configuration.warehouse), "orchard", DAY).totals
    assert totals["may_be_staged"].objects >= 1
