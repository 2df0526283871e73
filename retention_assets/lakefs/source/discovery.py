"""Asks a lakeFS server about a repository that is not configured yet, and sends requests that test permissions."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from retention_assets.lakefs.source.client import LakeFSClient, NotFound


class Request(NamedTuple):
    """A request that only reads, and the permission that it needs."""

    permission: str
    path: str
    names: Mapping[str, str]
    is_needed: bool = True  # False: without this permission, plans only have a warning


def namespace_of(client: LakeFSClient, repository: str) -> str:
    """Return the storage namespace of a repository. Errors: as `LakeFSClient.get`."""
    return client.expect(client.get("/repositories/{repository}", {"repository": repository}), "storage_namespace", str)


def reading_requests(client: LakeFSClient, repository: str) -> Iterator[Request]:
    """Yield a request for each permission that reading needs. A request may need the permissions of earlier ones."""
    names = {"repository": repository}
    yield Request("fs:ReadRepository", "/repositories/{repository}", names)
    branch = {**names, "ref": str(client.get("/repositories/{repository}", names).get("default_branch", "main"))}
    yield Request("fs:ListBranches", "/repositories/{repository}/branches", names)
    yield Request("fs:ListTags", "/repositories/{repository}/tags", names)
    yield Request("fs:ReadBranch", "/repositories/{repository}/branches/{ref}", branch)
    yield Request("fs:ListCommits", "/repositories/{repository}/refs/{ref}/commits", branch)
    yield Request("fs:ListObjects", "/repositories/{repository}/refs/{ref}/objects/ls", branch)
    yield Request("retention:GetGarbageCollectionRules", "/repositories/{repository}/settings/gc_rules", names)
    yield Request("fs:ListRepositories", "/repositories", {}, is_needed=False)


def send(client: LakeFSClient, request: Request) -> str:
    """Send the request; a listing returns at most one result. Return a remark for the user, or an empty text.

    Errors: as `LakeFSClient.get`. A server without rules is not an error.
    """
    query: Any = {} if request.path.endswith(("}", "gc_rules")) else {"amount": 1}
    try:
        client.get(request.path, request.names, **query)
    except NotFound:
        if not request.path.endswith("gc_rules"):
            raise
        return "the server has no rules of its own"
    return ""


def newest_metarange(client: LakeFSClient, repository: str) -> str | None:
    """Return the metarange of the default branch's newest commit; None if that commit is empty."""
    names = {"repository": repository}
    branch = str(client.get("/repositories/{repository}", names).get("default_branch", "main"))
    path = "/repositories/{repository}/refs/{ref}/commits"
    page = client.expect(client.get(path, {**names, "ref": branch}, amount=1), "results", list)
    return (page[0].get("meta_range_id") or None) if page else None
