"""The definitions as plain text: assets, what each depends on, guards, jobs, schedules, for one repository.

`python -m tests.assets.graph` updates `graph.json`. Review the difference before you commit it.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import dagster as dg
import yaml

from retention_assets.config.configuration import Configuration, load_configuration
from retention_assets.definitions import build_definitions

GOLDEN = Path(__file__).with_name("graph.json")
REPOSITORY = {"kind": "lakefs", "namespace": "s3://lake/orchard", "source": {"dump": "dump.json"}, "policy": "p.json"}


def configuration(directory: Path, *names: str) -> Configuration:
    """Return a configuration of repositories that do not exist: definitions open nothing."""
    entries = {name: {**REPOSITORY, "namespace": f"s3://lake/{name}"} for name in names}
    file = directory / "retention.yaml"
    file.write_text(yaml.safe_dump({"warehouse": "warehouse", "repositories": entries}), encoding="utf-8")
    return load_configuration(file)


def snapshot(definitions: dg.Definitions) -> dict[str, Any]:
    """Return the graph of a repository as JSON."""
    graph = definitions.resolve_asset_graph()
    repository = definitions.get_repository_def()
    return {
        "assets": {
            key.to_user_string(): {
                "depends_on": sorted(parent.to_user_string() for parent in graph.get(key).parent_keys),
                "group": graph.get(key).group_name,
                "kinds": sorted(graph.get(key).kinds),
                "owners": sorted(graph.get(key).owners),
                "tags": {name: value for name, value in graph.get(key).tags.items() if name.startswith("retention/")},
                "partitions": str(graph.get(key).partitions_def),
                "description": graph.get(key).description,
                "blocking_checks": sorted(check.name for check in graph.get(key).check_keys),
            }
            for key in sorted(graph.get_all_asset_keys())
        },
        "checks_that_do_not_block": sorted(
            key.to_user_string() for key in graph.asset_check_keys if not graph.get_check_spec(key).blocking
        ),
        "jobs": {
            job.name: sorted(key.to_user_string() for key in job.asset_layer.executable_asset_keys)
            for job in repository.get_all_jobs()
            if not job.name.startswith("__")
        },
        "schedules": {
            one.name: [one.job_name, one.cron_schedule, one.default_status.value] for one in repository.schedule_defs
        },
        "sensors": sorted(one.name for one in repository.sensor_defs),
        "executor": definitions.executor.name if isinstance(definitions.executor, dg.ExecutorDefinition) else None,
    }


def written(found: dict[str, Any]) -> str:
    """Return the text of `graph.json`."""
    return json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        GOLDEN.write_text(written(snapshot(build_definitions(configuration(Path(place), "orchard")))), encoding="utf-8")
