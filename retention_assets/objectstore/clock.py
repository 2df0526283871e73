"""The store's clock, read from the `Date` header of a response.

Source: docs/stores.md, "Times and ETags".
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from obstore.store import AzureStore, GCSStore, S3Store

from retention_assets.config.timestamps import Clock, utc_now
from retention_assets.objectstore.access import StoreAccess, from_environment

_UNKNOWN = timedelta(seconds=2)  # the most by which the result of `store_time` can be behind the store's clock
_LOCAL = ("file://", "memory://")
_TIMEOUT = urllib3.Timeout(connect=3.0, read=10.0)  # seconds
_AZURITE = "http://127.0.0.1:10000"  # obstore's default for `use_emulator`


def store_time(access: StoreAccess, local_clock: Callable[[], datetime] = utc_now) -> datetime | None:
    """Return the time of the store's clock (UTC); None if the store does not give it.

    The time is rounded down to whole seconds, so ages are never overestimated. The store's clock was at most one second
    ahead of the result when the store responded, or two seconds if the server updates its date once a second. The
    request goes to the endpoint without credentials, bucket or path. An error response is enough, because it has a
    `Date` header too. The result is None if the response comes from a cache.

    For local files and memory, the result is the time of `local_clock`. A mounted directory may have another clock.
    """
    if access.url.startswith(_LOCAL):
        return local_clock()
    address = service_address(access)
    return _date_of(address, access.open().client_options or {}) if address else None


def not_ahead_of_store(access: StoreAccess, clock: Clock) -> Clock:
    """Return `clock`, set back by as much as it is ahead of the store's clock now.

    A difference of up to two seconds cannot be measured, and is ignored. If the store does not give its time, `clock`
    is returned unchanged.
    """
    before = clock()
    there = store_time(access, clock)
    after = clock()
    if there is None or before - there <= _UNKNOWN:
        return clock
    ahead = after - there  # not `before`: the store may have begun a new second during the request
    return lambda: clock() - ahead


def service_address(access: StoreAccess) -> str | None:
    """Return the scheme, host and port of the service that `access` uses; None if they are unknown.

    As in obstore, options take precedence over the environment, except over `AWS_ENDPOINT_URL_S3`.
    Errors: as `StoreAccess.open`.
    """
    if access.url.startswith(_LOCAL):
        return None
    store = access.open()
    config: Mapping[str, str] = store.config
    if isinstance(store, S3Store):
        address = from_environment("AWS_ENDPOINT_URL_S3") or config.get("endpoint")
        address = address or from_environment("AWS_ENDPOINT_URL", "AWS_ENDPOINT")
        address = address or _amazon(config.get("region") or from_environment("AWS_REGION", "AWS_DEFAULT_REGION"))
    elif isinstance(store, GCSStore):
        address = config.get("base_url") or from_environment("GOOGLE_BASE_URL") or "https://storage.googleapis.com"
    elif isinstance(store, AzureStore):
        address = config.get("endpoint") or from_environment("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")
        address = address or _azure(access.url, config)
    else:
        return None
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/" if parts.scheme in ("http", "https") else None


def _amazon(region: str) -> str:
    suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    return f"https://s3.{region or 'us-east-1'}.{suffix}"


def _azure(url: str, config: Mapping[str, str]) -> str:
    if config.get("use_emulator") == "true":
        return from_environment("AZURITE_BLOB_STORAGE_URL") or _AZURITE
    host = urlsplit(url).netloc.rpartition("@")[2]
    if "." in host:  # URLs with abfss:// and https:// contain the host
        return f"https://{host}"
    account = config.get("account_name") or from_environment("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_ACCOUNT_NAME")
    service = "fabric.microsoft.com" if config.get("use_fabric_endpoint") == "true" else "core.windows.net"
    return f"https://{account}.blob.{service}" if account else ""


def _date_of(address: str, client: Mapping[str, Any]) -> datetime | None:
    try:
        with _pool(address, client) as pool:
            response = pool.request(
                "HEAD", address, headers={"Cache-Control": "no-cache"}, redirect=False, retries=False, timeout=_TIMEOUT
            )
        if response.headers.get("Age", "0") != "0":
            return None
        date = parsedate_to_datetime(response.headers["Date"])
    except (urllib3.exceptions.HTTPError, OSError, KeyError, ValueError):
        return None  # the caller decides what an unknown time means
    return date.replace(tzinfo=date.tzinfo or UTC).astimezone(UTC)


def _pool(address: str, client: Mapping[str, Any]) -> urllib3.PoolManager:
    """Return an HTTP client that uses the same proxy and certificates as obstore."""
    trust: dict[str, Any] = {}
    if client.get("allow_invalid_certificates") == "true":
        trust = {"cert_reqs": "CERT_NONE"}
    elif client.get("root_certificate"):
        trust = {"ca_cert_data": client["root_certificate"]}
    scheme, host = urlsplit(address)[:2]
    proxy = client.get("proxy_url") or ("" if proxy_bypass(host) else getproxies().get(scheme, ""))
    return urllib3.ProxyManager(proxy, **trust) if proxy else urllib3.PoolManager(**trust)
