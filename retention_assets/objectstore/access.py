"""Access to an object store: a URL and options (including secrets), which are sent to executors."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import unquote

from obstore.exceptions import BaseError, UnknownConfigurationKeyError
from obstore.store import LocalStore, MemoryStore, from_url

from retention_assets.config.configuration import Repository, canonical_namespace
from retention_assets.errors import ConfigurationError, StoreError
from retention_assets.objectstore.failures import OF_REPOSITORY, Failure, RequestKind, SettingNames

_SCHEMES = ("s3", "gs", "az", "azure", "abfs", "abfss", "https", "file", "memory")
_AZURE_HOST = re.compile(r"https://[^/@]+\.(blob|dfs)\.(core\.windows\.net|fabric\.microsoft\.com)(/|$)")
_REWRITTEN = re.compile(r"(^|/)\.{0,2}(/|$)|[\x00-\x1f\x7f]|\s$")  # what the parser of URLs resolves or drops
_CLOUD_PREFIX = re.compile(r"^(aws|google|azure)_")  # obstore accepts its options with and without this prefix
_ENDPOINT_OPTION = re.compile(r"endpoint|base_url$")  # the option of GCS is base_url
_BOOLEAN_OPTIONS = frozenset({"allow_http", "allow_invalid_certificates"})
_CLIENT_OPTIONS = _BOOLEAN_OPTIONS | {
    "connect_timeout", "timeout", "read_timeout", "proxy_url", "proxy_excludes", "root_certificate",
}  # fmt: skip
# obstore panics, instead of raising an error, if one of these client options is among the store's options.
_CLIENT_UNSUPPORTED = frozenset(
    {
        "default_content_type", "http1_only", "http2_keep_alive_interval", "http2_only",
        "http2_keep_alive_timeout", "http2_keep_alive_while_idle", "http2_max_frame_size", "pool_idle_timeout",
        "pool_max_idle_per_host", "proxy_ca_certificate", "randomize_addresses", "user_agent",
    }
)  # fmt: skip
# A request to an endpoint that does not respond fails after about 13 s: attempts start within 10 s, and the last one
# takes 3 s. A slow response may take longer: lakeFS's authors measured up to 100 s for a bulk deletion.
_CLIENT_DEFAULTS = {"connect_timeout": "3s", "read_timeout": "120s", "timeout": "600s"}
_RETRIES: Any = {"max_retries": 4, "retry_timeout": timedelta(seconds=10)}
NO_RETRIES: Any = {"max_retries": 0}
_S3_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")  # the first variable that is set counts


_from_url: Any = from_url  # its overloads need the kind of store as a static type


class HiddenOptions(Mapping[str, str]):
    """Options by name. Their `repr` shows the names and hides the values."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __repr__(self) -> str:
        return "{" + ", ".join(f"{name}: ***" for name in sorted(self._values)) + "}"


def from_environment(*names: str) -> str:
    """Return the value of the first of these environment variables that is not empty; empty if there is none."""
    return next(filter(None, map(os.environ.get, names)), "")


def s3_endpoint() -> str:
    """Return the endpoint of S3 that the environment names; empty if it names none."""
    return from_environment(*_S3_ENDPOINTS)


def has_plain_endpoint(url: str) -> bool:
    """Return whether `url` is a URL of S3, and the environment names an endpoint of S3 with `http://`."""
    return url.startswith("s3://") and s3_endpoint().startswith("http://")


@dataclass(frozen=True, slots=True)
class StoreAccess:
    """The URL and options of a location in an object store.

    The URL is `s3://`, `gs://`, `az://`, `abfs[s]://`, `https://` of Azure, `file://` or `memory://`. A `file://` path
    is taken literally. `options` are obstore's options, with their secrets resolved. No message shows their values.

    Raises:
        ConfigurationError: the URL has another scheme, would open another location, or holds a password or a signature.
    """

    url: str  # without a trailing slash; s3a:// and s3n:// become s3://
    options: Mapping[str, str] = field(default_factory=dict)
    settings: SettingNames = field(default=OF_REPOSITORY, compare=False)  # where `url` and `options` are configured

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", _canonical_url(self.url, self.settings))
        object.__setattr__(self, "options", HiddenOptions(self.options))

    def __reduce__(self) -> tuple[type["StoreAccess"], tuple[str, dict[str, str], SettingNames]]:
        if self.url.startswith("memory://"):
            raise ConfigurationError(
                f"{self.url}: another process cannot read the memory of this process. Use file:// or a store."
            )
        return StoreAccess, (self.url, dict(self.options), self.settings)

    def error(self, failure: Failure, path: str, request: RequestKind) -> StoreError:
        """Return the error to raise after a request for `path` failed. See `Failure.as_error`."""
        return failure.as_error(self.url, path, request, self.settings)

    @property
    def is_local(self) -> bool:
        """Whether the objects are local files."""
        return self.url.startswith("file://")

    @property
    def directory(self) -> Path:
        """The local directory that the URL names. The URL must be a `file://` URL."""
        return Path(self.url.removeprefix("file://"))

    @property
    def is_absent(self) -> bool:
        """Whether the URL names a local directory that does not exist."""
        return self.is_local and not self.directory.is_dir()

    @property
    def is_s3(self) -> bool:
        """Whether the store is S3, or has S3's protocol."""
        return self.url.startswith("s3://")

    @property
    def lists_in_order(self) -> bool:
        """Whether the store lists names in byte order. Local directories and S3 Express buckets do not."""
        bucket = self.url.partition("://")[2].partition("/")[0]
        return not self.is_local and not bucket.endswith("--x-s3")

    @property
    def lists_from_any_name(self) -> bool:
        """Whether a listing can start after any name: S3 and GCS can; Azure always starts at the first name."""
        return self.lists_in_order and self.url.startswith(("s3://", "gs://"))

    def open(self, *, retrying: bool = True, timeout: str | None = None) -> Any:
        """Return obstore's store for the URL. Without `retrying`, the store sends each request once.

        `timeout`: the longest time of a request, such as `240s`; None: as the options define.

        Raises:
            ConfigurationError: an option is unknown for this kind of store, or its value is invalid.
            StoreError: a local directory does not exist.
        """
        if self.url.startswith(("file://", "memory://")):
            return self._open_local()
        client: dict[str, Any] = dict(_CLIENT_DEFAULTS)
        options: dict[str, Any] = {}
        for name, value in self.options.items():
            plain = _CLOUD_PREFIX.sub("", name.lower())
            if plain in _CLIENT_UNSUPPORTED:
                self._reject(name)
            elif plain in _CLIENT_OPTIONS:
                client[plain] = self._flag(name, value) if plain in _BOOLEAN_OPTIONS else value
            else:
                options[name] = value
        if timeout is not None:
            client["timeout"] = timeout
        endpoints = (value for name, value in options.items() if _ENDPOINT_OPTION.search(name.lower()))
        if any(value.startswith("http://") for value in endpoints) or has_plain_endpoint(self.url):
            client.setdefault("allow_http", True)
        return self._open_remote(options, client, _RETRIES if retrying else NO_RETRIES)

    def _open_local(self) -> LocalStore | MemoryStore:
        for name in self.options:
            self._reject(name)
        if self.url.startswith("memory://"):
            return _memory(self.url)
        try:
            return LocalStore(self.directory)
        except BaseError:
            raise StoreError(
                f"{self.url}: there is no such directory. Nothing was read. Correct `{self.settings.url}` in the "
                "configuration, or mount the directory."
            ) from None

    def _open_remote(self, options: dict[str, Any], client: dict[str, Any], retries: Any) -> Any:
        try:
            store = _from_url(self.url, config=options, client_options=client, retry_config=retries)
        except UnknownConfigurationKeyError as error:
            problem = str(error)
        except (BaseError, ValueError, TypeError):
            problem = ""
        else:
            self._require_location_of_url(store.config)
            return store
        for name in options:
            if f"'{name.lower()}'" in problem.lower():
                self._reject(name)
        names = ", ".join(sorted(self.options)) or "none"
        raise ConfigurationError(
            f"{self.url}: the store cannot be opened with these {self.settings.options} ({names}): an option is "
            "missing, or a value is invalid. Nothing was read. Correct the options; on Azure, az:// needs account_name."
        )

    def _require_location_of_url(self, config: Mapping[str, Any]) -> None:
        """Raise ConfigurationError if an option names another bucket, container or account than the URL.

        obstore would open the location of the option. Everything else uses the URL, such as the comparison of the
        locations of repositories.
        """
        for name, of_url in _location_options(self.url).items():
            opened = str(config.get(name, of_url))
            if opened != of_url:
                kind = name.removesuffix("_name")
                raise ConfigurationError(
                    f"{self.url}: {self.settings.options} has the {kind} {opened}, and the URL has the {kind} "
                    f"{of_url}. Nothing was read. Remove this option, or correct the URL."
                )

    def _reject(self, name: str) -> NoReturn:
        raise ConfigurationError(
            f"{self.url}: {self.settings.options}.{name} is not an option of this kind of store. Nothing was read. "
            f"On S3, use endpoint, region, access_key_id, secret_access_key, or another option of obstore."
        )

    def _flag(self, name: str, value: str) -> bool:
        if value.lower() not in ("true", "false"):
            raise ConfigurationError(
                f"{self.url}: {self.settings.options}.{name} must be `true` or `false`. Nothing was read."
            )
        return value.lower() == "true"


def _canonical_url(url: str, settings: SettingNames) -> str:
    scheme, separator, rest = canonical_namespace(url).partition("://")
    if not separator:
        raise ConfigurationError(
            "a location is not a URL. Nothing was read. Write it as s3://bucket/prefix or file:///directory."
        )
    host = rest.split("/", 1)[0]
    if ":" in host.rpartition("@")[0] or (scheme != "file" and "?" in rest):
        raise ConfigurationError(
            f"{scheme}://{host.rpartition('@')[2].partition('?')[0]}: the URL holds a password or a signature, which "
            f"messages would show. Nothing was read. Put it into {settings.options} (sas_key on Azure), "
            "as {env: NAME}."
        )
    if scheme != "file" and "#" in rest:
        raise ConfigurationError(
            f"{scheme}://{rest}: a URL ends before its `#`, so this URL would open another location. Nothing was read. "
            "If the name has a `#`, write it as %23."
        )
    if scheme == "local":
        raise ConfigurationError(
            f"{scheme}://{rest}: only the lakeFS server knows the directory of a local:// namespace. Nothing was read. "
            "Set `storage:` to its directory, such as file:///var/lakefs/block/repository."
        )
    url = f"{scheme}://{rest}"
    if scheme not in ("file", "memory") and _REWRITTEN.search(unquote(rest)):
        raise ConfigurationError(
            f"{url!r}: the URL has no bucket, has a segment that is empty, `.` or `..`, or has a control "
            "character or a space at its end. It would open another location, or none. Nothing was read. Write the URL "
            "of the location itself."
        )
    if scheme not in _SCHEMES or (scheme == "https" and not _AZURE_HOST.match(url)):
        raise ConfigurationError(
            f"{url}: this kind of URL is not supported. Nothing was read. "
            "Use s3://, gs://, az://, abfs[s]://, https:// of Azure, or file://."
        )
    return url


def _location_options(url: str) -> dict[str, str]:
    """Return the options that name the same bucket, container or account as the URL, by obstore's names."""
    scheme, _, rest = url.partition("://")
    host, _, path = rest.partition("/")
    if scheme in ("s3", "gs"):
        return {"bucket": host.rpartition("@")[2]}
    if scheme == "https":
        return {"account_name": _account(host), "container_name": path.partition("/")[0]}
    container, _, account_host = host.partition("@")
    named = {"container_name": container}
    return {**named, "account_name": _account(account_host)} if account_host else named


def _account(host: str) -> str:
    return host.partition(".")[0].lower()


@cache
def _memory(url: str) -> MemoryStore:
    """Return this process's one in-memory store for `url`."""
    return MemoryStore()


def open_store(repository: Repository) -> StoreAccess:
    """Return the access to the repository's objects. Only the configuration is read; no request is sent."""
    return StoreAccess(repository.storage, repository.storage_options())
