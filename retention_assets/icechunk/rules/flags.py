"""Feature flags of a repo object: operations that users may do. Source: Icechunk facts 2, Feature flag ids."""

from retention_assets.icechunk.formats.model import Repo

MOVE_NODE, CREATE_TAG, DELETE_TAG = 3, 4, 5  # all on unless turned off


def is_enabled(repo: Repo, flag: int) -> bool:
    """Return whether a flag is on; a flag that was never set is on."""
    if flag in (repo.enabled_feature_flags or ()):
        return True
    return flag not in (repo.disabled_feature_flags or ())
