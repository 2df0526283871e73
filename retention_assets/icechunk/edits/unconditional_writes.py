"""Detects unconditional writes of icechunk's own writers: their commits and our edits can overwrite each other."""

from retention_assets.icechunk.formats.values import read_flexbuffer
from retention_assets.objectstore.access import StoreAccess

_SETTING = "unsafe_use_conditional_update"


def unguarded_writers(access: StoreAccess, config: bytes | None) -> str | None:
    """Return a warning if icechunk's own writers write unconditionally; None if they use conditional writes.

    On local files icechunk always writes unconditionally. A repository that was created there has this setting in its
    configuration, and keeps the setting when it is copied to a bucket.
    Source: Icechunk facts 6, Conditional updates.
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
