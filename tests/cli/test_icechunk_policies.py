"""`lint` and `explain` for the policy of an Icechunk repository without a plan."""

from pathlib import Path

from tests.end_to_end.command import run
from tests.icechunk_repositories import create_repository

CONFIGURATION = """
warehouse: warehouse
repositories:
  field: {kind: icechunk, storage: repository, policy: policy.yaml}
"""


def laid(root: Path, policy: str) -> Path:
    create_repository(root / "repository")
    (root / "policy.yaml").write_text(policy, encoding="utf-8")
    (root / "retention.yaml").write_text(CONFIGURATION, encoding="utf-8")
    return root / "retention.yaml"


def test_lint_compares_a_policy_with_the_references_of_the_repository(tmp_path: Path) -> None:
    file = laid(tmp_path, "snapshots: {branches: [{branch: mian, keep_newer: 7d, id: slip}]}")
    answer = run("--config", file, "lint")
    assert answer.status == 0
    assert (
        "field: warning: slip: there is no branch 'mian' (did you mean 'main'?); the rule has no effect" in answer.out
    )


def test_a_hold_on_what_does_not_exist_is_an_error(tmp_path: Path) -> None:
    file = laid(tmp_path, "holds: [{id: audit, tag: v1, reason: asked for}]")
    answer = run("--config", file, "lint", "field")
    assert answer.status == 2
    assert "field: error: audit: the hold names the tag 'v1', which does not exist" in answer.out


def test_a_policy_of_lakefs_is_refused_with_its_file(tmp_path: Path) -> None:
    file = laid(tmp_path, "retention: {default: 7d}")
    answer = run("--config", file, "lint")
    assert answer.status == 2
    assert f"{tmp_path}/policy.yaml: " in answer.err.replace("\n", "")


def test_diff_with_a_policy_is_refused_for_an_icechunk_repository(tmp_path: Path) -> None:
    file = laid(tmp_path, "snapshots: {default: {keep_newer: 7d}}")
    answer = run("--config", file, "diff", "field", "--policy", tmp_path / "policy.yaml")
    assert answer.status == 2
    assert "--policy works only for lakeFS, and this is an Icechunk repository" in answer.err
