"""Loads and validates `retention.yaml`: the warehouse, the repositories and their settings. Also reads policy files."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

from pydantic import Field, ValidationError, field_validator

from retention_assets.config.documents import KeyPath, load_document, wrong_keys
from retention_assets.config.limits import KeepSettings, Location, Model
from retention_assets.config.locations import overlap
from retention_assets.config.settings import (
    CommonSettings,
    IcechunkSettings,
    InventorySettings,
    LakeFSSettings,
    RecordSettings,
    RepositorySettings,
    SparkValue,
    Text,
    holds_secret,
    require_known_counts,
    require_no_file_is_skipped,
    require_no_spark_secret,
    resolve,
)
from retention_assets.errors import ConfigurationError

_NAME = re.compile(r"[A-Za-z0-9_]+")
# Spark masters that run all processes on this machine. `local-cluster` starts its workers here too.
_ON_THIS_MACHINE = re.compile(r"local(\[.*\])?|local-cluster\[.*\]")
_SECRET_URL = (
    "the URL holds a password or a signature, which messages and the UI would show. Remove it from the URL. On Azure, "
    "put the signature into storage_options.sas_key as `{env: NAME}`"
)
_OF_COMPONENT = ("configuration", "project_spark")  # attributes of a Dagster component, not keys of `retention.yaml`


class Settings(Model):
    """The content of `retention.yaml`."""

    warehouse: Location
    shared_warehouse: bool = False  # true: all machines of the cluster see the local path, for example on NFS
    spark: dict[str, SparkValue] = Field(default_factory=dict)
    records: RecordSettings = RecordSettings()
    warehouse_keep: KeepSettings = KeepSettings()
    repositories: dict[str, RepositorySettings] = Field(min_length=1)

    @field_validator("spark")
    @classmethod
    def _no_secret_in_the_file(cls, value: dict[str, SparkValue]) -> dict[str, SparkValue]:
        require_no_spark_secret(value)
        require_no_file_is_skipped(value)
        require_known_counts(value)
        return value

    @field_validator("repositories")
    @classmethod
    def _plain_names(cls, value: dict[str, RepositorySettings]) -> dict[str, RepositorySettings]:
        for name in value:
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name!r}: a repository's name here has letters, digits and `_` only")
        return value


@dataclass(frozen=True, slots=True)
class Repository:
    """One repository with absolute paths. Secrets stay names of environment variables until they are needed."""

    name: str
    namespace: str  # canonical: no trailing slash, s3a:// and s3n:// as s3://; for Icechunk, the storage URL
    storage: str  # the URL of the objects
    settings: CommonSettings
    directory: Path  # the directory of `file` when it was loaded, with all links followed
    file: Path  # the configuration file as given: a link is followed at each read, because a deployment may switch it
    records: RecordSettings = field(default_factory=RecordSettings)

    @property
    def lakefs(self) -> LakeFSSettings:
        """The settings of a lakeFS repository. Errors: ConfigurationError if the repository is of another kind."""
        if not isinstance(self.settings, LakeFSSettings):
            raise self._other_kind("lakefs")
        return self.settings

    @property
    def icechunk(self) -> IcechunkSettings:
        """The settings of an Icechunk repository. Errors: ConfigurationError if the repository is of another kind."""
        if not isinstance(self.settings, IcechunkSettings):
            raise self._other_kind("icechunk")
        return self.settings

    @property
    def is_icechunk(self) -> bool:
        """Whether this is an Icechunk repository."""
        return isinstance(self.settings, IcechunkSettings)

    def _other_kind(self, wanted: str) -> ConfigurationError:
        return ConfigurationError(
            f"{self.file}: repositories.{self.name}.kind is not `{wanted}`, and this operation works only for "
            f"repositories of kind `{wanted}`. Nothing was read or deleted. Name a repository of this kind."
        )

    def storage_options(self) -> Mapping[str, str]:
        """Return the storage options with secrets resolved. Errors: ConfigurationError if a variable is not set."""
        where = f"{self.file}: repositories.{self.name}.storage_options"
        return _resolved(self.settings.storage_options, where)

    def inventories(self) -> list[tuple[InventorySettings, str, Mapping[str, str]]]:
        """Return each inventory that the store delivers, with its URL and its options. Secrets are resolved.

        Errors: ConfigurationError if an environment variable is not set, or if this is not a lakeFS repository.
        """
        found = []
        for number, inventory in enumerate(self.lakefs.inventory):
            where = f"{self.file}: repositories.{self.name}.inventory[{number}].storage_options"
            own = inventory.storage_options
            options = self.storage_options() if own is None else _resolved(own, where)
            found.append((inventory, _location(inventory.url, self.directory, as_url=True), options))
        return found

    def witness(self) -> tuple[str, Mapping[str, str]] | None:
        """Return the URL and options of the witness, which gets a copy of each record; None if none is configured.

        Errors: ConfigurationError if an environment variable is not set.
        """
        if self.records.witness is None:
            return None
        options = _resolved(self.records.storage_options, f"{self.file}: records.storage_options")
        return self.absolute(self.records.witness), options

    def locations(self) -> tuple[str, ...]:
        """Return the URLs where the objects of the repository are: its namespace, its storage, linked directories.

        A linked directory is the target of a symbolic link in a local storage, such as `chunks` on another disk. Files
        there are listed and deleted as if they were in the storage.
        """
        linked: list[str] = []
        if self.storage.startswith("file://"):
            directory = Path(self.storage.removeprefix("file://"))
            links = (one for one in directory.glob("*") if one.is_symlink() and one.is_dir())
            linked = sorted(f"file://{one.resolve()}" for one in links)
        return self.namespace, self.storage, *linked

    def api_keys(self) -> tuple[str, str]:
        """Return the access key and the secret key of the lakeFS server.

        Errors: ConfigurationError if the references do not come from a server, or a variable is not set.
        """
        api = self.lakefs.source.api
        if api is None:
            raise ConfigurationError(
                f"{self.file}: repositories.{self.name}.source has no `api`, so the lakeFS server cannot be asked. "
                "Nothing was read or deleted. Add `api` with the server's URL and keys."
            )
        where = f"{self.file}: repositories.{self.name}.source.api"
        return resolve(api.access_key, f"{where}.access_key"), resolve(api.secret_key, f"{where}.secret_key")

    def absolute(self, url: str) -> str:
        """Return a URL, or a directory relative to the configuration file, as an absolute URL."""
        return canonical_namespace(_location(url, self.directory, as_url=True))

    def path(self, name: str) -> Path:
        """Return the absolute path of `name`, which is relative to the configuration file.

        If a link to the configuration file was switched since the start, this is a path beside the new file.
        """
        return (_directory_of(self.file) / name).resolve()


@dataclass(frozen=True, slots=True)
class Configuration:
    """A validated configuration."""

    file: Path
    warehouse: str  # an absolute local path, or a URL
    spark: Mapping[str, SparkValue]  # secrets stay names of environment variables until the session starts
    repositories: Mapping[str, Repository]
    shared_warehouse: bool = False
    warehouse_keep: KeepSettings = field(default_factory=KeepSettings)

    def repository(self, name: str) -> Repository:
        """Return the repository with this name. Errors: ConfigurationError that lists the known names."""
        if name not in self.repositories:
            known = ", ".join(sorted(self.repositories))
            raise ConfigurationError(
                f"{self.file}: there is no repository {name!r}. Nothing was read or deleted. Name one of: {known}."
            )
        return self.repositories[name]

    def locations(self) -> dict[str, tuple[str, ...]]:
        """Return the locations of each repository, by its name."""
        return {name: repository.locations() for name, repository in self.repositories.items()}

    def others(self, name: str) -> tuple[Repository, ...]:
        """Return all repositories except the one with this name."""
        return tuple(repository for other, repository in self.repositories.items() if other != name)

    def with_dump_age(self, name: str, dump_age: timedelta) -> "Configuration":
        """Return the same configuration with another `source.dump_age` for one repository.

        Errors: ConfigurationError if the references of this repository do not come from a dump.
        """
        old = self.repository(name)
        if old.is_icechunk or old.lakefs.source.dump is None:
            raise ConfigurationError(
                f"{self.file}: repositories.{name} has no `source.dump`, so --dump-age has no effect. Nothing was "
                "read or deleted. Leave --dump-age out."
            )
        source = old.lakefs.source.model_copy(update={"dump_age": dump_age})
        new = replace(old, settings=old.lakefs.model_copy(update={"source": source}))
        return replace(self, repositories={**self.repositories, name: new})


def _resolved(options: Mapping[str, Text], where: str) -> Mapping[str, str]:
    """Return storage options with secrets resolved. `where`: file and key of the options. Errors: as `resolve`."""
    return {name: resolve(value, f"{where}.{name}") for name, value in options.items()}


def load_configuration(file: Path) -> Configuration:
    """Return the validated configuration of a `retention.yaml`, or of a `defs.yaml` of a Dagster project.

    Errors: ConfigurationError with a line for each problem: file, key and reason.
    """
    file = file.absolute()  # not resolved, so that a sweep notices if a link in the path is switched
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigurationError(
            f"{file}: there is no such file. Give the path of your configuration with --config FILE or "
            "RETENTION_CONFIG, or write a first configuration with `retention init`."
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"{file}: cannot be read: {error}. Nothing was read or deleted. Name a readable text file (UTF-8)."
        ) from error
    return configuration_in(text, file)


def configuration_in(text: str, file: Path) -> Configuration:
    """Return the validated configuration in `text`. Paths are relative to `file`, which need not exist.

    Errors: as `load_configuration`.
    """
    try:
        document = load_document(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"{file}: {error}. Nothing was read or deleted. Keep one of them.") from None
    except ValueError as error:
        raise ConfigurationError(
            f"{file}: cannot be read as YAML: {error}. Nothing was read or deleted. Correct the file."
        ) from error
    if document is None:
        raise ConfigurationError(
            f"{file}: is empty. Nothing was read or deleted. Write a first configuration with `retention init "
            "--overwrite`."
        )
    if isinstance(document, dict) and document.keys() >= {"type", "attributes"}:
        return configuration_of_component(document["attributes"], file)
    return _configuration(document, file)


def configuration_of_component(attributes: object, file: Path) -> Configuration:
    """Return the configuration of a component `RetentionRepository`. `file` is the `defs.yaml` with the attributes.

    Errors: as `load_configuration`.
    """
    if "{{" in str(attributes):
        raise ConfigurationError(
            f"{file}: has a template `{{{{ … }}}}`, which only Dagster resolves. Nothing was read or deleted. Write "
            "the value itself, or start the run in Dagster's UI."
        )
    if not isinstance(attributes, Mapping):
        return _configuration(attributes, file)
    document = {key: value for key, value in attributes.items() if key not in _OF_COMPONENT}
    if "configuration" not in attributes:
        return _configuration(document, file)
    if document:
        also = ", ".join(sorted(map(str, document)))
        raise ConfigurationError(
            f"{file}: has `configuration` and also {also}. Nothing was read or deleted. Give `configuration` alone, "
            "or leave it out."
        )
    named = file.parent / str(attributes["configuration"])
    if file.is_symlink() and not named.exists():  # the path is relative to the file that the link leads to
        named = _directory_of(file) / str(attributes["configuration"])
    return load_configuration(named)


def _directory_of(file: Path) -> Path:
    """Return the directory that paths in a configuration file are relative to. All links are followed."""
    return file.resolve().parent


def _configuration(document: object, file: Path) -> Configuration:
    """Return the validated configuration in `document`. Its paths are relative to the directory of `file`."""
    try:
        settings = Settings.model_validate(document)
    except ValidationError as error:
        wrong = wrong_keys(error, _in_file, Settings)
        raise ConfigurationError("\n".join(f"{file}: {one}" for one in wrong)) from None
    if found := [f"{file}: {key}: {_SECRET_URL}" for key in _secret_urls(document)]:
        raise ConfigurationError("\n".join(found))
    directory, records = _directory_of(file), settings.records
    repositories = {
        name: _located(name, entry, directory, file, records) for name, entry in settings.repositories.items()
    }
    warehouse = _location(settings.warehouse, directory)
    if not settings.shared_warehouse:
        masters = [str(settings.spark[key]) for key in ("spark.master", "spark.remote") if key in settings.spark]
        require_seen_by_executors(warehouse, masters, file)
    if records.witness is not None:
        _require_apart(warehouse, canonical_namespace(_location(records.witness, directory, as_url=True)), file)
    return Configuration(
        file, warehouse, settings.spark, repositories, settings.shared_warehouse, settings.warehouse_keep
    )


def _require_apart(warehouse: str, witness: str, file: Path) -> None:
    """Reject a witness inside the warehouse or around it: whoever can write to one could write to the other."""
    tables = canonical_namespace(warehouse if "://" in warehouse else f"file://{warehouse}")
    if overlap(witness, tables):
        raise ConfigurationError(
            f"{file}: records.witness: {witness} overlaps the warehouse {tables}: one is inside the other. "
            "Nothing was read or deleted. Choose a location that writers of the warehouse may not change, such as a "
            "bucket with Object Lock."
        )


def require_seen_by_executors(warehouse: str, masters: Iterable[str], file: Path | None = None) -> None:
    """Reject a warehouse on this machine's disk if Spark's executors run on other machines.

    Each executor would write its part of a table to its own disk, and the table would be read with parts missing.
    Errors: ConfigurationError.
    """
    remote = [master for master in masters if not is_on_this_machine(master)]
    if remote and ("://" not in warehouse or warehouse.startswith("file://")):
        raise ConfigurationError(
            f"{file or 'the Spark session'}: warehouse: {warehouse} is a directory of this machine, and {remote[0]} "
            "also runs on other machines, which do not see it. Nothing was read or deleted. Put the warehouse into a "
            "bucket, such as s3a://bucket/tables. If all machines see this directory, set `shared_warehouse: true`."
        )


def is_on_this_machine(master: str) -> bool:
    """Return whether a Spark master runs all executors on this machine."""
    return _ON_THIS_MACHINE.fullmatch(master) is not None


INTERNAL = "_lakefs"  # lakeFS's own files below a namespace. Source: docs/lakefs-formats.md, "Files of lakeFS"


def canonical_namespace(namespace: str) -> str:
    """Return the canonical spelling of a namespace: no trailing slash, s3a:// and s3n:// as s3://."""
    return canonical_scheme(namespace).rstrip("/")


def canonical_scheme(url: str) -> str:
    """Return the URL with s3:// if it begins with s3a:// or s3n://, which name the same bucket."""
    return re.sub(r"^s3[an]://", "s3://", url)


def _located(
    name: str, settings: RepositorySettings, directory: Path, file: Path, records: RecordSettings
) -> Repository:
    if isinstance(settings, IcechunkSettings):
        storage = namespace = canonical_namespace(_location(settings.storage, directory, as_url=True))
    else:
        namespace = canonical_namespace(settings.namespace)
        storage = canonical_namespace(_location(settings.storage or settings.namespace, directory, as_url=True))
    return Repository(name, namespace, storage, settings, directory, file, records)


def _location(text: str, directory: Path, *, as_url: bool = False) -> str:
    """Return a URL unchanged, and a path as an absolute path (with `as_url`, as a `file://` URL)."""
    if "://" in text and not text.startswith("file://"):
        return text
    absolute = (directory / text.removeprefix("file://")).resolve()
    return f"file://{absolute}" if as_url else str(absolute)


def _secret_urls(part: object, path: str = "") -> Iterator[str]:
    """Yield the key path of each URL with a password or a signature. `path` is the key path of `part`."""
    if isinstance(part, str) and holds_secret(part):
        yield path
    elif isinstance(part, Mapping):
        for key, value in part.items():
            yield from _secret_urls(value, f"{path}.{key}".lstrip("."))
    elif isinstance(part, list):
        for number, value in enumerate(part):
            yield from _secret_urls(value, f"{path}[{number}]")


def _in_file(path: KeyPath, problem: str) -> KeyPath:
    """Return the key path of a problem as it is in the file. `path` and `problem` are pydantic's path and type.

    pydantic adds the kind after the name of a repository, and the type after a value with several types. It leaves out
    the key `kind`.
    """
    if problem.startswith("union_tag"):
        return (*path, "kind")
    has_kind = path[:1] == ("repositories",) and path[2:3] in (("lakefs",), ("icechunk",))
    parts = path[:2] + path[3:] if has_kind else path
    return tuple(part for part in parts if part not in ("str", "FromEnvironment"))


def to_correct(repository: Repository) -> str:
    """Return the remedy for a policy file that cannot be read, without a full stop."""
    return f"Correct repositories.{repository.name}.policy in {repository.file}"


def policy_text(path: Path, remedy: str) -> str:
    """Return the text of a policy file. Errors: ConfigurationError that ends with `remedy`."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigurationError(f"{path}: cannot be read ({why}). Nothing was deleted. {remedy}.") from error
