"""`retention.yaml`: where the tables go, which repositories there are, what may be done to them."""

import os
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from retention_assets.durations import parse_grace
from retention_assets.errors import ConfigurationError
from retention_assets.limits import Limits

_SECRET_OPTION = re.compile(r"secret|password|token|sas|account_key|private_key|credential", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z0-9_]+")


class _UniqueKeys(yaml.SafeLoader):
    """YAML's safe loader, except that of two equal keys the first does not silently vanish."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"{key.value} stands twice", problem_mark=key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FromEnvironment(_Model):
    """`{env: NAME}`: a value that is read from the environment, so that no file holds a secret."""

    env: str = Field(min_length=1)

    def resolve(self, where: str) -> str:
        """Return the variable's value. Errors: ConfigurationError when it is not set; `where` names the key."""
        value = os.environ.get(self.env)
        if not value:
            raise ConfigurationError(
                f"{where}: the environment variable {self.env} is not set. Nothing was read or deleted. "
                f"Set it: `export {self.env}=…`."
            )
        return value


Secret = FromEnvironment
Text = str | FromEnvironment


def _resolve(value: Text, where: str) -> str:
    return value.resolve(where) if isinstance(value, FromEnvironment) else value


class ApiSettings(_Model):
    """How to reach a lakeFS server."""

    url: str
    access_key: Text
    secret_key: Secret
    repository: str | None = None  # the server's name of it, when not the key in this file


class SourceSettings(_Model):
    """Where references come from: a dump's file, or a server."""

    dump: str | None = None
    api: ApiSettings | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> "SourceSettings":
        if (self.dump is None) == (self.api is None):
            raise ValueError("name exactly one of `dump` and `api`")
        return self


class InventorySettings(_Model):
    """An inventory that the store delivers: the folder `…/source-bucket/config-ID`, and how to reach it."""

    url: str
    format: Literal["CSV", "ORC", "Parquet"]
    storage_options: dict[str, Text] | None = None  # when other than the repository's

    @field_validator("format", mode="before")
    @classmethod
    def _any_case(cls, value: object) -> object:
        known = {name.lower(): name for name in ("CSV", "ORC", "Parquet")}
        return known.get(value.lower(), value) if isinstance(value, str) else value

    @field_validator("storage_options")
    @classmethod
    def _no_secret_in_the_file(cls, options: dict[str, Text] | None) -> dict[str, Text] | None:
        _require_no_secret(options or {})
        return options


def _require_no_secret(options: Mapping[str, Text]) -> None:
    for name, value in options.items():
        if _SECRET_OPTION.search(name) and isinstance(value, str):
            raise ValueError(f"{name} is a secret: write `{{env: NAME}}` and set that variable")


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str | dict) else value


Mode = Literal["plan", "quarantine", "delete"]


class RepositorySettings(Limits):
    """One repository as `retention.yaml` writes it."""

    kind: Literal["lakefs"]
    namespace: str
    storage: str | None = None
    storage_options: dict[str, Text] = Field(default_factory=dict)
    source: SourceSettings
    staged: str | None = None
    policy: Annotated[list[str], BeforeValidator(_as_list)]
    tags: Literal["protect", "ignore"] = "protect"
    grace: timedelta = timedelta(hours=24)
    token_life: timedelta = timedelta(hours=24)  # how long lakeFS lets an upload be linked. Source: lakeFS facts 1.1
    mode: Mode = "plan"
    inventory: Annotated[list[InventorySettings], BeforeValidator(_as_list)] = Field(default_factory=list)
    listing: Literal["clean", "optimized"] = "clean"  # list the whole store, or what may have changed. Source: seed 001
    clean_every: timedelta = timedelta(days=7)  # an optimized run lists the whole store again after this
    write_results: bool = False  # also write results and statistics below _lakefs/retention/lc/
    price_per_gb_month: float | None = Field(default=None, ge=0)  # what storing costs, in any currency

    @field_validator("grace", "token_life", "clean_every", mode="before")
    @classmethod
    def _duration(cls, value: object) -> timedelta:
        try:
            return parse_grace(value)
        except ConfigurationError as error:
            raise ValueError(str(error)) from error

    @field_validator("storage_options")
    @classmethod
    def _no_secret_in_the_file(cls, options: dict[str, Text]) -> dict[str, Text]:
        _require_no_secret(options)
        return options

    @field_validator("policy")
    @classmethod
    def _at_least_one(cls, value: list[str]) -> list[str]:
        if not value:
            raise ValueError("name at least one policy file, or `server`")
        return value


class Settings(_Model):
    """The whole file."""

    warehouse: str
    spark: dict[str, str | int | float | bool] = Field(default_factory=dict)
    repositories: dict[str, RepositorySettings] = Field(min_length=1)

    @field_validator("repositories")
    @classmethod
    def _plain_names(cls, value: dict[str, RepositorySettings]) -> dict[str, RepositorySettings]:
        for name in value:
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name!r}: a repository's name here has letters, digits and `_` only")
        return value


@dataclass(frozen=True, slots=True)
class Repository:
    """One repository with its paths made absolute. Secrets stay names until they are needed."""

    name: str
    namespace: str  # canonical: no trailing slash, s3a:// and s3n:// written s3://
    storage: str  # the URL of the bytes
    settings: RepositorySettings
    directory: Path  # of the configuration file
    file: Path

    def storage_options(self) -> Mapping[str, str]:
        """Return the options with their secrets. Errors: ConfigurationError when a variable is not set."""
        where = f"{self.file}: repositories.{self.name}.storage_options"
        return {key: _resolve(value, f"{where}.{key}") for key, value in self.settings.storage_options.items()}

    def inventories(self) -> list[tuple[InventorySettings, str, Mapping[str, str]]]:
        """Return each delivered inventory with its URL and its options, secrets resolved."""
        found = []
        for place, inventory in enumerate(self.settings.inventory):
            where = f"{self.file}: repositories.{self.name}.inventory.{place}.storage_options"
            own = inventory.storage_options
            options = (
                self.storage_options() if own is None else {k: _resolve(v, f"{where}.{k}") for k, v in own.items()}
            )
            found.append((inventory, _location(inventory.url, self.directory, as_url=True), options))
        return found

    def api_keys(self) -> tuple[str, str]:
        """Return the access key and the secret key of the lakeFS server."""
        api = self.settings.source.api
        if api is None:
            raise ConfigurationError(f"{self.file}: repositories.{self.name}.source has no api")
        where = f"{self.file}: repositories.{self.name}.source.api"
        return _resolve(api.access_key, f"{where}.access_key"), _resolve(api.secret_key, f"{where}.secret_key")

    def absolute(self, url: str) -> str:
        """Return a URL, or a directory relative to the configuration file, as an absolute URL."""
        return canonical_namespace(_location(url, self.directory, as_url=True))

    def path(self, name: str) -> Path:
        """Return `name` relative to the configuration file."""
        return (self.directory / name).resolve()


@dataclass(frozen=True, slots=True)
class Configuration:
    """A configuration that was read and checked."""

    file: Path
    warehouse: str  # an absolute local path, or a URL
    spark: Mapping[str, str | int | float | bool]
    repositories: Mapping[str, Repository]

    def repository(self, name: str) -> Repository:
        """Return the repository. Errors: ConfigurationError that lists the names there are."""
        if name not in self.repositories:
            known = ", ".join(sorted(self.repositories))
            raise ConfigurationError(f"{self.file}: there is no repository {name!r}; there are: {known}")
        return self.repositories[name]

    def with_mode(self, name: str, mode: Mode) -> "Configuration":
        """Return the same configuration with another mode for one repository."""
        old = self.repository(name)
        new = replace(old, settings=old.settings.model_copy(update={"mode": mode}))
        return replace(self, repositories={**self.repositories, name: new})


def load_configuration(file: Path) -> Configuration:
    """Read and check `file`. Errors: ConfigurationError with the file, the key and what is wrong, a line each."""
    file = file.resolve()
    try:
        document = yaml.load(file.read_text(encoding="utf-8"), Loader=_UniqueKeys)
    except FileNotFoundError as error:
        raise ConfigurationError(
            f"{file}: there is no such file. Name your configuration with --config FILE or RETENTION_CONFIG."
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file}: cannot be read: {error}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date such as 2027-02-30
        raise ConfigurationError(f"{file}: is not YAML: {' '.join(str(error).split())}") from error
    try:
        settings = Settings.model_validate(document)
    except ValidationError as error:
        raise ConfigurationError(_problems(file, error)) from None
    repositories = {name: _located(name, entry, file) for name, entry in settings.repositories.items()}
    return Configuration(file, _location(settings.warehouse, file.parent), settings.spark, repositories)


def canonical_namespace(namespace: str) -> str:
    """Return the one spelling of a namespace: no trailing slash, s3a:// and s3n:// as s3://."""
    return re.sub(r"^s3[an]://", "s3://", namespace).rstrip("/")


def _located(name: str, settings: RepositorySettings, file: Path) -> Repository:
    namespace = canonical_namespace(settings.namespace)
    storage = canonical_namespace(_location(settings.storage or settings.namespace, file.parent, as_url=True))
    return Repository(name, namespace, storage, settings, file.parent, file)


def _location(text: str, directory: Path, *, as_url: bool = False) -> str:
    """Return a URL as it is, and a path made absolute (as a `file://` URL when `as_url`)."""
    if text.startswith("file://"):
        path = Path(text.removeprefix("file://"))
    elif "://" in text:
        return text
    else:
        path = directory / text
    absolute = path.resolve()
    return f"file://{absolute}" if as_url else str(absolute)


def _problems(file: Path, error: ValidationError) -> str:
    lines = []
    for problem in error.errors(include_input=False, include_url=False):
        key = ".".join(str(part) for part in problem["loc"] if not _is_union_tag(part)) or "the document"
        lines.append(f"{file}: {key}: {problem['msg'].removeprefix('Value error, ')}")
    return "\n".join(dict.fromkeys(lines))


def _is_union_tag(part: Any) -> bool:
    return part in ("str", "FromEnvironment")
