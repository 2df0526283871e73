"""Creates folders on this machine, with an error that names the folder and the remedy."""

import os
from pathlib import Path

from retention_assets.errors import ConfigurationError


def writable_folder(folder: Path, remedy: str) -> Path:
    """Create the folder and its parents if they do not exist, and return it.

    Errors: ConfigurationError with the `remedy` if it cannot be created or written.
    """
    problem = "it is not writable"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = str(error.strerror)
    else:
        if os.access(folder, os.W_OK):
            return folder
    raise ConfigurationError(f"{folder}: cannot write to this folder: {problem}. Nothing was read or deleted. {remedy}")
