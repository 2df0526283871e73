"""The message for a corrupt file."""

from retention_assets.errors import CorruptFile


def corrupt(name: str, what: str) -> CorruptFile:
    """Return the error for the file `name`, with `what` as the problem. The caller raises it."""
    return CorruptFile(
        f"{name}: {what}. The file was not used. Nothing was deleted. "
        "Read it again from the store. If the error persists, restore the file from a backup."
    )
