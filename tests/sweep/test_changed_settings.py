"""A sweep notices settings and policies that a deployment changes by switching a link to the configuration file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from retention_assets.config.configuration import load_configuration
from retention_assets.errors import GuardRefused
from retention_assets.lakefs.source.opening import policy_of_files
from retention_assets.sweep.sweep_run import require_same_settings
from tests.sweep.small_world import a_plan

POLICY: dict[str, Any] = {"retention": {"default": "7d"}}
HOLD: dict[str, Any] = {"id": "audit", "prefix": "reference/", "reason": "yearly audit"}


def release(directory: Path, mode: str, **of_policy: object) -> Path:
    """Write a configuration and its policy into a new directory."""
    directory.mkdir()
    entry = {
        "kind": "lakefs",
        "namespace": "s3://lake/orchard",
        "source": {"dump": "dump.json"},
        "mode": mode,
        "policy": "policy.yaml",
    }
    document = {"warehouse": "s3a://lake/tables", "repositories": {"orchard": entry}}
    (directory / "retention.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    (directory / "policy.yaml").write_text(yaml.safe_dump({**POLICY, **of_policy}), encoding="utf-8")
    return directory


def switch(link: Path, target: Path) -> None:
    link.unlink(missing_ok=True)
    link.symlink_to(target)


def of_directory(tmp_path: Path, target: Path) -> Path:
    """As `current -> releases/N` and git-sync: the directory of the file is a link."""
    switch(tmp_path / "current", target)
    return tmp_path / "current" / "retention.yaml"


def of_file(tmp_path: Path, target: Path) -> Path:
    """As a ConfigMap: the file is a link to a file in a directory, which is a link."""
    of_directory(tmp_path, target)
    switch(tmp_path / "retention.yaml", Path("current") / "retention.yaml")
    return tmp_path / "retention.yaml"


Deploy = Callable[[Path, Path], Path]


@pytest.mark.parametrize("deploy", [of_directory, of_file])
def test_a_sweep_is_refused_if_a_switched_link_leads_to_other_settings(tmp_path: Path, deploy: Deploy) -> None:
    first, second = release(tmp_path / "r1", "delete"), release(tmp_path / "r2", "plan")
    file = deploy(tmp_path, first)
    used = load_configuration(file).repository("orchard")
    require_same_settings(a_plan(), used)
    deploy(tmp_path, second)
    with pytest.raises(GuardRefused, match="were changed during the sweep") as refused:
        require_same_settings(a_plan(), used)
    assert f"the settings of the repository in {file} were changed" in str(refused.value)


@pytest.mark.parametrize("deploy", [of_directory, of_file])
def test_a_hold_is_read_from_the_release_that_a_switched_link_leads_to(tmp_path: Path, deploy: Deploy) -> None:
    first, second = release(tmp_path / "r1", "delete"), release(tmp_path / "r2", "delete", holds=[HOLD])
    used = load_configuration(deploy(tmp_path, first)).repository("orchard")
    assert not policy_of_files(used).holds
    deploy(tmp_path, second)
    require_same_settings(a_plan(), used)
    assert [hold.hold_id for hold in policy_of_files(used).holds] == ["audit"]
