"""Opens a configured lakeFS repository: its object store, its source of references and its policy."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from retention_assets.config.configuration import INTERNAL, Repository, policy_text, to_correct
from retention_assets.config.timestamps import Clock
from retention_assets.errors import ConfigurationError, ObjectMissing, brief
from retention_assets.lakefs.names.generated import namespace_urls
from retention_assets.lakefs.source.api import ApiSource
from retention_assets.lakefs.source.dump import DumpSource
from retention_assets.lakefs.source.repository import LakeFSSource
from retention_assets.objectstore.access import StoreAccess, open_store
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.policy.documents import Document, from_server, join, read_document
from retention_assets.policy.rules import Policy

SERVER = "server"


@dataclass(frozen=True, slots=True)
class OpenRepository:
    """An open repository: its configuration, object store and source of references."""

    repository: Repository
    access: StoreAccess
    source: LakeFSSource

    @property
    def namespace_urls(self) -> tuple[str, ...]:
        """All URLs with which an absolute address inside the namespace can begin."""
        return namespace_urls(self.repository.namespace, self.repository.storage)

    def policy(self) -> Policy:
        """Return the policy of all files in `policy:` together, with the rules of the server if `policy:` names them.

        Errors: ConfigurationError that names file and key. For the rules of the server, the errors of the source.
        """
        return join([self._document(name) for name in self.repository.settings.policy])

    def _document(self, name: str) -> Document:
        if name == SERVER:
            rules = self.source.rules()
            return Document(SERVER, Policy(None, (), ())) if rules is None else from_server(*rules)
        return _document_in(self.repository.path(name), to_correct(self.repository))


def policy_of_files(repository: Repository) -> Policy:
    """Return the policy of the files in `policy:`, without the rules of the server. Errors: as `policy_in`."""
    files = [repository.path(name) for name in repository.settings.policy if name != SERVER]
    return policy_in(files, to_correct(repository))


def policy_in(files: Sequence[Path], remedy: str = "Name a policy file") -> Policy:
    """Return the policy of these files together. Errors: ConfigurationError that names file and key."""
    return join([_document_in(path, remedy) for path in files])


def _document_in(path: Path, remedy: str) -> Document:
    return read_document(policy_text(path, remedy), str(path))


def open_repository(repository: Repository, clock: Clock) -> OpenRepository:
    """Open the store and the source of `repository`. This reads only the dump file, if one is configured.

    Errors: ConfigurationError.
    """
    access = open_store(repository)
    return OpenRepository(repository, access, _source(repository, access, clock))


def _source(repository: Repository, access: StoreAccess, clock: Clock) -> LakeFSSource:
    settings = repository.lakefs
    if settings.source.api is not None:
        access_key, secret_key = repository.api_keys()
        return ApiSource(
            url=settings.source.api.url,
            access_key=access_key,
            secret_key=secret_key,
            repository=settings.source.api.repository or repository.name,
            namespace=repository.namespace,
            access=access,
            clock=clock,
        )
    document, where = _dump(repository, access)
    return DumpSource(access, document, settings.staged, where)


def _dump(repository: Repository, access: StoreAccess) -> tuple[Any, str]:
    """Return the parsed dump file, and its location for messages.

    A path that starts with `_lakefs/` is in the namespace, others are local.
    """
    name = repository.lakefs.source.dump or ""
    path, reader = repository.path(name), ObjectReader(access)
    in_namespace = name.startswith(f"{INTERNAL}/")
    where = reader.describe(name) if in_namespace else str(path)
    make = f"Make it with `lakectl refs-dump lakefs://REPOSITORY -o {path.name}` (the name on the server)"
    try:
        text = reader.read(name).decode() if in_namespace else path.read_text("utf-8")
        return json.loads(text), where
    except ObjectMissing as error:
        raise ObjectMissing(
            f"{where}: the dump is not in the store. Nothing was deleted. {make}, and upload it to this location."
        ) from error
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"{where}: the dump cannot be read ({brief(error)}). Nothing was deleted. {make} and name it in "
            f"repositories.{repository.name}.source.dump of {repository.file}."
        ) from error
