"""Retention for versioned data lakes: plans which objects may be deleted, deletes them, and verifies the result.

`import retention_assets as ra` offers the names of `retention_assets.library`. A name is imported at its first use:
Python runs this file before it imports any module of the package, and most modules do not need the library.
"""

from importlib import import_module

__all__ = ["Lake", "LakeRepository", "load"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("retention_assets.library"), name)
