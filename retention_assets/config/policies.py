"""Reads the text of policy files, with the remedy for a file that cannot be read."""

from pathlib import Path

from retention_assets.config.configuration import Repository
from retention_assets.errors import ConfigurationError


def to_correct(repository: Repository) -> str:
    """Return the remedy for a policy file that cannot be read, without a full stop."""
    return f"Correct repositories.{repository.name}.policy in {repository.file}"


def policy_text(path: Path, remedy: str) -> str:
    """Return the text of a policy file. Errors: ConfigurationError that ends with `remedy`."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"{path}: cannot be read ({error.__class__.__name__}). Nothing was deleted. {remedy}."
        ) from error
