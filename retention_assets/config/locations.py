"""Compares locations in stores, which have several spellings."""

import re
from itertools import product
from posixpath import normpath
from urllib.parse import unquote

_AZURE = ("az", "azure", "abfs", "abfss")
_AZURE_HOST = re.compile(r"\.(blob|dfs)\.")


def overlap(one: str, other: str) -> bool:
    """Return whether one of two locations contains the other, or both are the same, for some client of their store.

    Some clients decode percent-escapes, or resolve empty, `.` and `..` segments. Others do not. So a refusal can be
    needless, which is harmless.
    """
    return any(
        _nested(_opened(one, decode=decode, resolve=resolve), _opened(other, decode=decode, resolve=resolve))
        for decode, resolve in product((True, False), repeat=2)
    )


def is_bucket(location: str) -> bool:
    """Return whether the location is a whole bucket or container."""
    return "/" not in _of_azure(location)[1].partition("://")[2].rstrip("/")


def _nested(one: str, other: str) -> bool:
    (account, one), (other_account, other) = _of_azure(one), _of_azure(other)
    if account and other_account and account != other_account:
        return False
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def _opened(location: str, *, decode: bool, resolve: bool) -> str:
    """Return the location as a client that does `decode` and `resolve` opens it. A path of this machine is unchanged.

    A query is removed, and so is the name of a user before a bucket or host. A lakeFS server ignores slashes at the
    beginning of a namespace.
    """
    scheme, separator, rest = location.partition("://")
    if not separator or scheme == "file":
        return location
    rest = rest.partition("?")[0].lstrip("/")
    rest = unquote(rest).lstrip("/") if decode else rest
    if scheme == "local":
        return f"local:/{_resolved(rest, resolve=resolve)}"
    host, _, path = rest.partition("/")
    if scheme not in _AZURE:  # in a URL of Azure, the container is before the `@`
        host = host.rpartition("@")[2]
    return f"{scheme}://{host}{_resolved(path, resolve=resolve)}".rstrip("/")


def _resolved(path: str, *, resolve: bool) -> str:
    """Return the path with one slash at its beginning; with `resolve`, without empty, `.` and `..` segments."""
    absolute = f"/{path.lstrip('/')}"
    return normpath(absolute) if resolve else absolute


def _of_azure(location: str) -> tuple[str, str]:
    """Return the account in a URL of Azure, and the location in one spelling for all its schemes.

    The account is empty if the URL does not have it: `az://` has only the container. Other locations are unchanged.
    """
    scheme, _, rest = location.partition("://")
    host, _, path = rest.partition("/")
    if scheme in _AZURE:
        container, _, account = host.partition("@")
        return account.partition(".")[0].lower(), f"az://{container}/{path}".rstrip("/")
    if scheme in ("http", "https") and _AZURE_HOST.search(host):
        return host.partition(".")[0].lower(), f"az://{path}"
    return "", location
