"""Compares locations in stores, which have several spellings."""

import re
from posixpath import normpath
from urllib.parse import unquote

_AZURE = ("az", "azure", "abfs", "abfss")
_AZURE_HOST = re.compile(r"\.(blob|dfs)\.")


def overlap(one: str, other: str) -> bool:
    """Return whether one of two locations contains the other, or they are the same in two spellings."""
    (account, one), (other_account, other) = _of_azure(_decoded(one)), _of_azure(_decoded(other))
    if account and other_account and account != other_account:
        return False
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def _decoded(location: str) -> str:
    """Return the location as clients of stores may open it. A path of this machine is unchanged.

    Percent-escapes are decoded. A query is removed, and so is the name of a user before a bucket or host. The path is
    resolved: a lakeFS server ignores slashes at the beginning of a namespace, and some stores resolve empty, `.` and
    `..` segments. Other stores treat such a location as a different one; there, a refusal is needless but harmless.
    """
    scheme, separator, rest = location.partition("://")
    if not separator or scheme == "file":
        return location
    rest = unquote(rest.partition("?")[0]).lstrip("/")
    if scheme == "local":
        return "local:/" + normpath(f"/{rest}")
    host, _, path = rest.partition("/")
    if scheme not in _AZURE:  # elsewhere, the container is before the `@`
        host = host.rpartition("@")[2]
    return f"{scheme}://{host}{normpath(f'/{path.lstrip("/")}')}".rstrip("/")


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
