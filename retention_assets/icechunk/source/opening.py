"""Opens a configured Icechunk repository: its store, its source and its policy."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from retention_assets.config.configuration import Repository, policy_text, to_correct
from retention_assets.config.timestamps import Clock
from retention_assets.icechunk.source.repository import IcechunkSource
from retention_assets.objectstore.access import StoreAccess, open_store
from retention_assets.policy.documents import join_snapshot_documents, read_snapshot_document
from retention_assets.policy.snapshots import SnapshotPolicy


@dataclass(frozen=True, slots=True)
class OpenIcechunk:
    """A configured Icechunk repository with its opened store and source."""

    repository: Repository
    access: StoreAccess
    source: IcechunkSource

    def policy(self) -> SnapshotPolicy:
        """Return the policy joined from all files in `policy:`. Errors: ConfigurationError with the file and key."""
        return snapshot_policy(self.repository)


def snapshot_policy(repository: Repository) -> SnapshotPolicy:
    """Return the policy of an Icechunk repository without opening its store. Errors: ConfigurationError."""
    return snapshot_policy_in([repository.path(name) for name in repository.settings.policy], to_correct(repository))


def snapshot_policy_in(files: Sequence[Path], remedy: str = "Name a policy file") -> SnapshotPolicy:
    """Return the policy of these files together. Errors: ConfigurationError that names file and key."""
    texts = [(policy_text(path, remedy), str(path)) for path in files]
    return join_snapshot_documents([read_snapshot_document(text, source) for text, source in texts])


def open_icechunk(repository: Repository, clock: Clock) -> OpenIcechunk:
    """Open the store of an Icechunk repository; this reads nothing from the store yet."""
    access = open_store(repository)
    return OpenIcechunk(repository, access, IcechunkSource(access, clock))
