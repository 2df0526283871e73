"""Whether icechunk's own writers write without looking: then a commit of theirs can undo an edit, and be undone."""

from retention_assets.icechunk.formats.flexbuffer import read_flexbuffer
from retention_assets.objectstore.access import StoreAccess

_SETTING = "unsafe_use_conditional_update"


def unguarded_writers(access: StoreAccess, config: bytes | None) -> str | None:
    """Return what to tell of writers that look at no condition; None where they do.

    On files of a machine they never do. A repository that was made there keeps the setting in its configuration, and
    takes it along into a bucket. Source: Icechunk facts 6, Conditional updates.
    Errors: CorruptFile for a configuration that cannot be read.
    """
    if access.is_local:
        return f"{access.url}: icechunk's own writers take no lock on files: let none of them commit meanwhile"
    found = {} if config is None else read_flexbuffer(config, "the configuration in the repo object")
    storage = found.get("storage") if isinstance(found, dict) else None
    if isinstance(storage, dict) and storage.get(_SETTING) is False:
        return (
            f"{access.url}: the repository's configuration (storage.{_SETTING}) tells icechunk's own writers to write "
            f"without conditions: let none of them commit meanwhile, and take that setting out"
        )
    return None
