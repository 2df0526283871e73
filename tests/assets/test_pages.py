"""Dagster's pages in a real browser: from the graph to a plan, its checks, its approval and its sweep."""

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import yaml

from tests.browser import CHROMIUM, DRIVER, Browser, browser, wait_until
from tests.end_to_end.command import files_below, orchard_on_disk
from tests.objectstore.programs import free_port

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no chromium and chromedriver here"),
    pytest.mark.timeout(900),
]
SCREENSHOTS = os.environ.get("SCREENSHOTS")  # a directory that keeps them, such as docs
_TIMEOUT = 300  # seconds for a start or a run
_RUNS = "{runsOrError {... on Runs {results {runId status jobName}}}}"
_LOADED = "{repositoriesOrError {... on RepositoryConnection {nodes {name}}}}"


@dataclass(frozen=True)
class Ui:
    """Dagster's web server for one project, with a browser."""

    url: str
    page: Browser
    screenshots: Path

    def open(self, path: str) -> None:
        self.page.open(f"{self.url}{path}")

    def ask(self, query: str) -> Any:
        body = json.dumps({"query": query}).encode()
        request = urllib.request.Request(f"{self.url}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:
            return json.load(answer)["data"]

    def runs(self) -> list[dict[str, str]]:
        """Return the runs, newest first."""
        found: list[dict[str, str]] = self.ask(_RUNS)["runsOrError"]["results"]
        return found

    def finished(self, number: int) -> dict[str, str]:
        """Wait until there are so many runs and the newest is finished; return the newest."""

        def newest() -> dict[str, str] | None:
            runs = self.runs()
            is_finished = len(runs) == number and runs[0]["status"] in {"SUCCESS", "FAILURE", "CANCELED"}
            return runs[0] if is_finished else None

        run: dict[str, str] = wait_until(newest, _TIMEOUT, lambda: f"run {number} is not finished: {self.runs()}")
        return run

    def materialize(self, job: str) -> dict[str, str]:
        """Materialize the newest partition on the page of a job, wait for the run, and return it."""
        before = len(self.runs())
        self.open(f"/locations/retention_assets.definitions/jobs/{job}")
        for label in ("Materialize", "Latest", "Launch 1 run"):
            self.page.click(label)
        return self.finished(before + 1)

    def keep(self, name: str) -> None:
        self.page.screenshot(self.screenshots / f"{name}.webp")


@pytest.fixture
def ui(tmp_path: Path) -> Iterator[Ui]:
    """Start `dagster dev` on a copy of orchard whose mode allows sweeps."""
    project = orchard_on_disk(tmp_path / "project")
    project.write(mode="delete")
    home = tmp_path / "home"
    home.mkdir()
    settings = {"telemetry": {"enabled": False}, "nux": {"enabled": False}}
    (home / "dagster.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    port = free_port()
    command = [sys.executable, "-m", "dagster", "dev", "-m", "retention_assets.definitions", "-p", str(port)]
    environment = {**os.environ, "DAGSTER_HOME": str(home), "RETENTION_CONFIG": str(project.file)}
    screenshots = Path(SCREENSHOTS) if SCREENSHOTS else tmp_path
    with (tmp_path / "dagster.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=log, stderr=log)
        try:
            with browser(1440, 900) as page:
                yield _loaded(Ui(f"http://127.0.0.1:{port}", page, screenshots))
        finally:
            process.terminate()  # `dagster dev` ends its web server, daemon and code server
            process.wait(_TIMEOUT)
    shutil.rmtree(home)


def _loaded(ui: Ui) -> Ui:
    """Wait until the web server has loaded the definitions."""

    def locations() -> Any:
        with suppress(OSError):
            return ui.ask(_LOADED)["repositoriesOrError"].get("nodes")

    wait_until(locations, _TIMEOUT, lambda: "dagster dev has not started")
    return ui


def test_a_person_can_plan_review_approve_and_sweep_in_the_dagster_ui(ui: Ui, tmp_path: Path) -> None:
    namespace = tmp_path / "project" / "lake"
    before = files_below(namespace)
    ui.open("/locations/retention_assets.definitions/asset-groups/orchard")
    for asset in ("policy_table", "storage_inventory", "potential_commits", "active_ranges", "deletion_report"):
        ui.page.wait_for(asset)
    ui.keep("ui-graph")

    assert ui.materialize("orchard_plan")["status"] == "SUCCESS"
    assert files_below(namespace) == before

    ui.open("/assets/orchard/deletion_candidates?" + urlencode({"view": "partitions", "partition": _newest(ui)}))
    plan = _metadata(ui.page.wait_for("candidate_objects"))
    assert int(plan["candidate_objects"]) > 0
    ui.keep("ui-plan")

    ui.open("/assets/orchard/deletion_candidates?view=checks&checkDetail=nothing_live")
    checks = ui.page.wait_for(f"no candidate is live ({plan['candidate_objects']} checked)")
    assert "No candidate is live." in checks
    ui.keep("ui-checks")

    options = {"ops": {"approve__orchard": {"config": {"plan_hash": plan["plan_hash"], "by": "anna"}}}}
    launchpad = "/locations/retention_assets.definitions/jobs/orchard_approve/playground/setup"
    ui.open(f"{launchpad}?{urlencode({'config': yaml.safe_dump(options)})}")
    ui.page.wait_for("No errors")
    ui.page.click("Launch Run")
    assert ui.finished(2) == {"runId": ui.runs()[0]["runId"], "status": "SUCCESS", "jobName": "orchard_approve"}

    assert ui.materialize("orchard_sweep")["status"] == "SUCCESS"
    ui.open("/assets/orchard/deletion_report?" + urlencode({"view": "partitions", "partition": _newest(ui)}))
    report = _metadata(ui.page.wait_for("deleted_objects"))
    assert report["deleted_objects"] == plan["candidate_objects"]
    ui.keep("ui-sweep")
    after = files_below(namespace)
    assert after.items() <= before.items()
    assert len(before) - len(after) == int(plan["candidate_objects"])


def _newest(ui: Ui) -> str:
    """Return the partition of the newest run."""
    tags = ui.ask("{runsOrError(limit: 1) {... on Runs {results {tags {key value}}}}}")["runsOrError"]["results"][0]
    return next(tag["value"] for tag in tags["tags"] if tag["key"] == "dagster/partition")


def _metadata(page: str) -> dict[str, str]:
    """Return the metadata that a page shows, by name."""
    lines = [line.strip() for line in page.partition("\nMetadata\n")[2].splitlines() if line.strip()]
    return dict(pairwise(lines))
