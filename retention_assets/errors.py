"""Every error this project raises on purpose: one tree, a class per reaction, each with its exit code."""

from typing import ClassVar


class RetentionError(Exception):
    """Something ended the run. The message says where, what, what was not done, and the remedy."""

    exit_code: ClassVar[int] = 3


class GuardRefused(RetentionError):
    """A guard refused the run; nothing was deleted."""

    exit_code = 1


class ConfigurationError(RetentionError):
    """The configuration or a policy is wrong; nothing was read or deleted."""

    exit_code = 2


class SourceError(RetentionError):
    """A source of references (lakeFS, a dump) answered with an error, or with what cannot be true."""


class StoreError(RetentionError):
    """An object store denied, failed or lacked what was asked for."""


class ObjectMissing(StoreError):
    """An object that must exist is not in the store."""


class AccessDenied(StoreError):
    """The store or the server refused the credentials, or what they may do."""


class CorruptFile(RetentionError):
    """A file is truncated, altered, renamed or not of its format. Nothing in it was believed."""


class TableContractError(RetentionError):
    """A table of the warehouse lacks columns, has others, or is not there."""
