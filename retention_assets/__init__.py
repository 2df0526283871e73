"""Retention for versioned data lakes: which versions are kept, what goes, and proof of what was done.

`import retention_assets as ra` has the names of `retention_assets.library`. They are imported when they are first used,
because Spark and Dagster take seconds.
"""

from importlib import import_module

__all__ = ["Lake", "LakeRepository", "load"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("retention_assets.library"), name)
