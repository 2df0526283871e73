"""Plans of both systems by the command, with their Dagster instance and their report pages."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import dagster as dg

from retention_assets.config.configuration import Configuration, load_configuration
from tests.acceptance.cases import DAY, Case, copy_repository
from tests.assets import icechunk_lake
from tests.end_to_end.command import Json, environment, run
from tests.icechunk_repositories import Commit

CASE = Case("orchard", "lifecycle-1_and_retention_tags_protect")
# root <- a <- b <- c <- d (main);  b <- x (an old branch);  v1 -> a
SNAPSHOTS = (
    Commit("a", None, icechunk_lake.at(30)),
    Commit("b", "a", icechunk_lake.at(25)),
    Commit("c", "b", icechunk_lake.at(20)),
    Commit("d", "c", icechunk_lake.at(2)),
    Commit("x", "b", icechunk_lake.at(22)),
)
_CELL = re.compile(r'data-objects="(\d+)" data-bytes="(\d+)"')
_ROW = re.compile(r"<tr>(.*?)</tr>", re.DOTALL)
_ANY_CELL = re.compile(r'<td(?: class="number" data-objects="(\d+)" data-bytes="(\d+)")?>(.*?)</td>', re.DOTALL)


@dataclass(frozen=True)
class Planned:
    """A plan: the output of the command, the Dagster instance, and the report page."""

    configuration: Configuration
    name: str
    day: str
    terminal: Json  # of `plan --json`
    metadata: Mapping[str, Mapping[str, Any]]  # by asset

    @property
    def page(self) -> Path:
        return Path(unquote(urlsplit(self.metadata["retention_report"]["report"]).path))

    def figures(self) -> Json:
        """The data of the plots on the page."""
        text = self.page.read_text(encoding="utf-8")
        found: Json = json.loads(text.split('id="figures">')[1].split("</script>")[0])
        return found

    def cells(self, title: str) -> dict[str, list[tuple[int, int]]]:
        """The amounts in a table of the page, by the text in the first column."""
        table = (
            self.page.read_text(encoding="utf-8").split(f"<summary>Table: {title}</summary>")[1].split("</table>")[0]
        )
        rows = [re.split("</td>", row, maxsplit=1) for row in table.split("<tr><td>")[1:]]
        return {first: [(int(one), int(size)) for one, size in _CELL.findall(rest)] for first, rest in rows}

    def plots(self) -> dict[str, list[list[Any]]]:
        """The rows of the first table below each plot, by the plot's name: texts, and amounts as (objects, bytes)."""
        names = self.page.read_text(encoding="utf-8").split("<script")[0].split('data-plot="')[1:]
        bodies = ["".join(names[copy:]).split("<tbody>")[1].split("</tbody>")[0] for copy in range(len(names))]
        return {
            name.split('"')[0]: list(map(_row, _ROW.findall(body))) for name, body in zip(names, bodies, strict=True)
        }


def _row(row: str) -> list[Any]:
    return [(int(objects), int(size)) if objects else unescape(text) for objects, size, text in _ANY_CELL.findall(row)]


def plan_lakefs(directory: Path) -> Planned:
    """Plan orchard under retention, lifecycle rules and tags. Uncommitted objects wait to settle."""
    configuration = copy_repository("orchard", directory).of_case(CASE, grace="1d", settle="1d", settle_expired=False)
    return _planned(configuration, "orchard", DAY.isoformat(), directory / "dagster")


def plan_icechunk(directory: Path) -> Planned:
    """Plan a small Icechunk repository with an expired branch."""
    lake, _ = icechunk_lake.new_icechunk_lake(directory, 2, SNAPSHOTS, {"main": "d", "side": "x"}, {"v1": "a"})
    configuration = load_configuration(lake.root / "retention.yaml")
    return _planned(configuration, icechunk_lake.NAME, icechunk_lake.DAY.isoformat(), directory / "dagster")


def _planned(configuration: Configuration, name: str, day: str, home: Path) -> Planned:
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n", encoding="utf-8")
    with environment(DAGSTER_HOME=str(home)):
        answer = run("--config", configuration.file, "plan", name, "--as-of", day, "--json")
        assert answer.status == 0, answer.err
        metadata = {}
        with dg.DagsterInstance.get() as instance:
            for asset in ("storage_inventory", "deletion_candidates", "retention_report"):
                event = instance.get_latest_materialization_event(dg.AssetKey([name, asset]))
                assert event is not None
                made = event.asset_materialization
                assert made is not None
                metadata[asset] = {key: value.value for key, value in made.metadata.items()}
    return Planned(configuration, name, day, answer.document(), metadata)
