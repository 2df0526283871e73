from dataclasses import replace

import pytest

from retention_assets.icechunk.rules.updates import CREATE_TAG, DELETE_TAG, is_enabled
from tests.icechunk.rules.graphs import history
from tests.icechunk.rules.icechunk_files import repo_of

REPO = repo_of(history({"root": (None, 0)}, {"main": "root"}))


@pytest.mark.parametrize(
    ("enabled", "disabled", "on"),
    [
        pytest.param(None, None, True, id="never_set"),
        pytest.param(None, {DELETE_TAG}, False, id="off"),
        pytest.param(None, {CREATE_TAG}, True, id="another_is_off"),
        pytest.param({DELETE_TAG}, set(), True, id="on"),
        pytest.param({DELETE_TAG}, {DELETE_TAG}, True, id="in_both_lists_as_icechunk_reads_them"),
    ],
)
def test_a_flag_is_on_unless_it_was_turned_off(enabled, disabled, on):
    repo = replace(REPO, enabled_feature_flags=enabled, disabled_feature_flags=disabled)
    assert is_enabled(repo, DELETE_TAG) is on
