"""UI, page, terminal and tables show the same figures for a plan, and these are the figures of brute force."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retention_assets.core.amounts import Amount, human_amount, sum_of
from retention_assets.core.states import STATES
from retention_assets.errors import TableContractError
from retention_assets.explain.plans import newest_plan
from retention_assets.report.groups import _ALL_AGES, OTHERS, groups_of
from retention_assets.warehouse.warehouse import Warehouse
from tests.acceptance.cases import DAY
from tests.browser import CHROMIUM, DRIVER, browser
from tests.end_to_end.command import Json, run
from tests.explain.truth import Truth
from tests.report.planned import CASE, Planned, plan_icechunk, plan_lakefs
from tests.saved_repositories import listing

pytestmark = pytest.mark.usefixtures("spark", "forgetful")
BY = {"reason": "by_reason", "prefix": "by_top_prefix", "branch": "by_branch"}  # on the page, in the terminal

GROUPS = {"reason": "reason", "rule": "rule", "folders": "folder", "branch": "branch", "age": "age"}  # by plot
PLOTS = {"over_time", "reclaimable", *GROUPS, "forecast", "history"}

Amounts = dict[str, tuple[int, int]]


@pytest.fixture(
    scope="module",
    params=[plan_lakefs, pytest.param(plan_icechunk, marks=pytest.mark.slow)],
    ids=["lakefs", "icechunk"],
)
def planned(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Planned:
    make: Callable[[Path], Planned] = request.param
    return make(tmp_path_factory.mktemp("planned"))


def rows(planned: Planned, table: str) -> pa.Table:
    return pq.read_table(Path(planned.configuration.warehouse) / planned.name / table / planned.day)


def grouped(named: Iterable[tuple[str, int]]) -> Amounts:
    objects, size = Counter[str](), Counter[str]()
    for name, bytes_ in named:
        objects[name] += 1
        size[name] += bytes_
    return {name: (objects[name], size[name]) for name in objects}


def test_totals_are_the_same_in_ui_page_terminal_and_tables(planned: Planned) -> None:
    terminal = {state: (one["objects"], one["bytes"]) for state, one in planned.terminal["totals"].items()}
    ui = planned.metadata["deletion_candidates"]
    of_ui = {state: (ui[f"{state}_objects"], ui[f"{state}_bytes"]) for state in STATES if ui[f"{state}_objects"]}
    listed, candidates = rows(planned, "storage_inventory"), rows(planned, "deletion_candidates")
    of_page = {state: amounts[0] for state, amounts in planned.cells("All listed objects by state").items()}
    document = planned.figures()
    assert of_ui == of_page == terminal
    assert document["plan"]["totals"] == planned.terminal["totals"]
    assert document["over_time"][-1]["totals"] == planned.terminal["totals"]
    assert terminal["candidate"] == (candidates.num_rows, sum(candidates["size"].to_pylist()))
    assert (
        sum(one for one, _ in terminal.values())
        == listed.num_rows
        == planned.metadata["storage_inventory"]["dagster/row_count"]
    )
    hashes = {planned.metadata[one]["plan_hash"] for one in ("deletion_candidates", "retention_report")}
    assert hashes == {planned.terminal["plan_hash"], document["plan"]["plan_hash"]}
    of_report = planned.metadata["retention_report"]
    assert (of_report["candidate_objects"], of_report["candidate_bytes"]) == terminal["candidate"]


@pytest.mark.parametrize("kind", BY)
def test_groups_are_the_same_on_the_page_in_the_terminal_and_in_the_table(planned: Planned, kind: str) -> None:
    summary = planned.terminal["summary"]
    terminal = {one["name"]: (one["objects"], one["bytes"]) for one in summary[BY[kind]]}
    page = {one["name"]: tuple(one["candidate"].values()) for one in planned.figures()["groups"][kind]}
    table = {name: amounts[0] for name, amounts in planned.cells(f"By {kind}").items()}
    found = rows(planned, "deletion_candidates").to_pylist()
    if kind == "reason":
        counted = grouped((row["reason"], row["size"]) for row in found)
    elif kind == "branch":
        counted = grouped((name, row["size"]) for row in found for name in row["branches"] or ["(no branch)"])
    else:
        paths = [row["paths"][0] if row["paths"] else row["address"] for row in found]
        tops = [path.partition("/")[0] + "/" if "/" in path else path for path in paths]
        counted = grouped(zip(tops, (row["size"] for row in found), strict=True))
    assert terminal == counted
    assert {name: one for name, one in page.items() if one[0]} == counted
    assert {name: one for name, one in table.items() if one[0]} == counted


def test_waiting_objects_are_the_same_on_the_page_and_in_the_terminal(planned: Planned) -> None:
    waiting = planned.terminal["summary"].get("waiting", {"by_reason": []})["by_reason"]
    page = {one["name"]: one["waiting"]["objects"] for one in planned.figures()["groups"]["reason"]}
    assert {name: objects for name, objects in page.items() if objects} == {
        one["name"]: one["objects"] for one in waiting
    }
    assert bool(waiting) is (planned.name == "orchard")


def test_ages_add_up_to_all_listed_objects(planned: Planned) -> None:
    ages = planned.figures()["groups"]["age"]
    parts = [part for one in ages for part in (one["candidate"], one["waiting"], one["stays"])]
    listed = rows(planned, "storage_inventory")
    assert sum(one["objects"] for one in parts) == listed.num_rows
    assert sum(one["bytes"] for one in parts) == sum(listed["size"].to_pylist())


def test_guards_are_on_the_page_with_their_values(planned: Planned) -> None:
    guards = {one["guard"]: one for one in planned.figures()["guards"]}
    assert {"listing_complete", "nothing_live", "totals_balance"} <= guards.keys()
    assert all(one["passed"] for one in guards.values())
    assert (guards["listing_complete"]["value"], guards["listing_complete"]["limit"]) == (0, 0)
    assert len(guards) == len(planned.figures()["guards"])


def test_the_graph_has_expired_commits_and_every_branch(planned: Planned) -> None:
    nodes = planned.figures()["history"]
    assert {"head", "expired"} <= {one["state"] for one in nodes}
    assert {parent for one in nodes for parent in one["parents"]} <= {one["name"] for one in nodes}
    assert "main" in {name for one in nodes for name in one["names"]}


def test_the_page_loads_no_other_file_and_is_small(planned: Planned) -> None:
    text = planned.page.read_text(encoding="utf-8")
    assert "default-src 'none'" in text
    markup = text.split('<script type="application/json"')[0]
    assert 'src="' not in markup
    assert {"data:,"} == {part.split('"')[0] for part in markup.split('href="')[1:]}
    assert len(text) < 700_000


def test_the_command_writes_the_page_of_the_newest_plan(planned: Planned, tmp_path: Path) -> None:
    answer = run("--config", planned.configuration.file, "report", planned.name, "--html", tmp_path / "page.html")
    assert answer.status == 0, answer.err
    assert planned.terminal["plan_hash"] in (tmp_path / "page.html").read_text(encoding="utf-8")
    refused = run("--config", planned.configuration.file, "report", planned.name, "--html", tmp_path / "no" / "page")
    assert refused.status == 2
    assert "cannot be written" in refused.err


def test_the_kept_amount_of_each_prefix_equals_the_live_objects_of_brute_force(planned: Planned) -> None:
    if planned.name != "orchard":
        pytest.skip("only lakeFS has paths")
    tables, _ = newest_plan(
        Warehouse(planned.configuration.warehouse), planned.configuration.repository("orchard"), DAY
    )
    sizes = {one.address: one.size for one in listing("orchard")}
    pairs = Truth("orchard", CASE.policies, CASE.tags).live_entries(date.fromisoformat(planned.day))
    tops = (
        (path.partition("/")[0] + "/" if "/" in path else path, sizes[address])
        for path, address in pairs
        if address in sizes
    )
    stays = {one.name: one.stays for one in groups_of(tables).prefix if one.stays}
    assert {name: (one.objects, one.bytes) for name, one in stays.items() if one.objects} == grouped(tops)


@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_with_too_many_groups_the_amounts_of_the_others_add_up_and_none_is_negative(
    planned: Planned, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    tables, _ = newest_plan(
        Warehouse(planned.configuration.warehouse),
        planned.configuration.repository(planned.name),
        date.fromisoformat(planned.day),
    )
    complete = groups_of(tables).by_kind()
    monkeypatch.setattr("retention_assets.report.groups._MOST", most)
    monkeypatch.setattr("retention_assets.report.groups._ALL_AGES", (*_ALL_AGES, OTHERS))
    for kind, groups in groups_of(tables).by_kind().items():
        amounts = [amount for one in groups for amount in (one.stays, one.waiting, one.candidate) if amount]
        assert all(amount.objects >= 0 and amount.bytes >= 0 for amount in amounts), kind
        for part in ("stays", "waiting", "candidate"):
            of_all, of_some = (
                [amount for one in of if (amount := getattr(one, part))] for of in (complete[kind], groups)
            )
            assert sum_of(of_some) == sum_of(of_all), (kind, part)
        same = {one.name: one for one in complete[kind]}
        assert all(one == same[one.name] for one in groups if one.name != OTHERS), kind


def test_no_report_is_written_of_a_plan_whose_objects_are_no_longer_stored(planned: Planned) -> None:
    warehouse, repository = Warehouse(planned.configuration.warehouse), planned.configuration.repository(planned.name)
    tables, _ = newest_plan(warehouse, repository, date.fromisoformat(planned.day))
    with pytest.raises(TableContractError) as refused:
        groups_of(replace(tables, plan=replace(tables.plan, plan_hash="f" * 64)))
    message = str(refused.value)
    assert f"{planned.name}: the objects of the plan of {planned.day} are no longer stored" in message
    assert "Nothing was deleted" in message
    assert message.endswith(f"Plan again: `retention plan {planned.name} --as-of {planned.day}`.")


def test_a_page_that_cannot_be_written_is_named(planned: Planned, tmp_path: Path) -> None:
    page = tmp_path / "nowhere" / "page.html"
    answer = run("--config", planned.configuration.file, "report", planned.name, "--html", page)
    assert answer.status == 2
    assert f"{page}: the report cannot be written: No such file or directory. Name another file." in answer.err


def pair(amount: Json) -> tuple[int, int]:
    return amount["objects"], amount["bytes"]


def drawn(document: Json, plot: str) -> list[list[object]]:
    """Return the rows of the plot that `page.js` draws."""
    if plot in GROUPS:
        groups = document["groups"][GROUPS[plot]]
        parts = ("candidate", "waiting", *(("stays",) if any(one["stays"] for one in groups) else ()))
        return [[one["name"], *(pair(one[part]) for part in parts)] for one in groups]
    if plot == "forecast":
        return [
            [day["day"], one["name"], pair(one)] for day in document["forecast"]["days"] for one in day["by_prefix"]
        ]
    if plot == "history":
        return [[one["name"], ", ".join(one["names"])] for one in document["history"]]
    plans: list[list[object]] = []
    for one in document["over_time"]:
        totals = {state: pair(amount) for state, amount in one["totals"].items()}
        reclaimable = [totals.pop(state, (0, 0)) for state in ("candidate", "waiting")]
        plans.append([one["day"], *reclaimable, tuple(map(sum, zip(*totals.values(), strict=True)))])
    return plans


def test_each_plot_has_a_table_with_its_numbers(planned: Planned) -> None:
    tables = planned.plots()
    assert tables.keys() == PLOTS
    for plot, rows in tables.items():
        found = [[row[0], row[3]] for row in rows] if plot == "history" else rows
        assert sorted(found) == sorted(drawn(planned.figures(), plot)), plot
    assert tables["reason"]
    assert tables["folders"]


def test_the_forecast_on_the_page_equals_the_output_of_simulate(planned: Planned) -> None:
    answer = run("--config", planned.configuration.file, "simulate", planned.name, "--days", "60", "--json")
    assert answer.status == 0, answer.err
    assert planned.figures()["forecast"] == answer.document()["current"]
    assert answer.document()["current"]["days"]


def test_the_sentence_of_the_forecast_has_every_listed_object(planned: Planned) -> None:
    document = planned.figures()
    forecast, listed = document["forecast"], document["over_time"][-1]["totals"].values()
    later = [pair(one) for one in forecast["days"] if one["day"] > forecast["first"]]
    parts = [pair(one) for one in forecast["days"] if one["day"] == forecast["first"]] or [(0, 0)]
    parts += [(sum(one[0] for one in later), sum(one[1] for one in later))]
    parts += [pair(forecast["later"]), pair(forecast["never"])]
    assert tuple(map(sum, zip(*parts, strict=True))) == tuple(map(sum, zip(*map(pair, listed), strict=True)))
    first, until_last, after, never = (human_amount(Amount(*part)) for part in parts)
    sentence = (
        f"On the day of the plan: {first}. Later, until {forecast['last']}: {until_last}. "
        f"After {forecast['last']}: {after}. Never: {never}."
    )
    assert sentence in planned.page.read_text(encoding="utf-8")


def test_dagster_links_the_page_and_shows_the_totals_of_the_plan(planned: Planned) -> None:
    shown = planned.metadata["retention_report"]
    assert shown["report"] == planned.page.as_uri()
    assert planned.page.name == "report.html"
    assert shown["totals"] == planned.metadata["deletion_candidates"]["totals"]


def comes_due(planned: Planned) -> bool:
    """Return whether objects come due after the day of the plan. If not, the page has a sentence instead of a plot."""
    forecast = planned.figures()["forecast"]
    return any(one["day"] > forecast["first"] for one in forecast["days"])


@pytest.mark.browser
@pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no chromium and chromedriver here")
@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(390, 844), (1280, 900)], ids=["phone", "desktop"])
def test_the_page_fits_the_screen_and_sends_no_request(
    planned: Planned, width: int, height: int, is_dark: bool
) -> None:
    with browser(width, height, is_dark=is_dark) as opened:
        opened.open(planned.page.as_uri())
        assert opened.evaluate("innerWidth") == width
        for shown in ("closed", "open"):
            assert opened.evaluate("document.documentElement.scrollWidth") <= width, shown
            opened.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true })")
        with_plot = opened.evaluate(
            "[...document.querySelectorAll('[data-plot]')].filter((one) => one.querySelector('svg'))"
            ".map((one) => one.dataset.plot)"
        )
        assert set(with_plot) == PLOTS - (set() if comes_due(planned) else {"forecast"})
        back = opened.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (back == "rgb(255, 255, 255)") is not is_dark
        assert opened.console() == []
        own = ("data:", "chrome:")  # the empty tab that a browser begins with
        assert {url for url in opened.requested() if not url.startswith(own)} == {planned.page.as_uri()}
