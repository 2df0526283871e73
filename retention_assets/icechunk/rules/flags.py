"""Feature flags of a repo object: what a repository lets its users do. Source: Icechunk facts 2, Feature flag ids."""

from retention_assets.icechunk.formats.model import Repo

MOVE_NODE, CREATE_TAG, DELETE_TAG = 3, 4, 5  # all on unless turned off


def is_enabled(repo: Repo, flag: int) -> bool:
    """Tell whether a flag is on: as it was set, on where it never was."""
    if flag in (repo.enabled_feature_flags or ()):
        return True
    return flag not in (repo.disabled_feature_flags or ())
