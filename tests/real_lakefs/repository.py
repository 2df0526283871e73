"""One repository on the real server: operations of users, reads, and the objects in its store."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import md5
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from botocore.exceptions import ClientError

from tests.real_lakefs.client import Client, Json, Refused, s3_gateway
from tests.real_lakefs.hooks import UnderWay, Webhook
from tests.real_lakefs.stores import issued_at

if TYPE_CHECKING:
    from tests.real_lakefs.server import Server

_TASK_WITHIN = 60.0  # seconds


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An object of a branch, HEAD, tag or staging area that the server cannot read."""

    ref: str  # `main` reads through the staging area, `main@` its HEAD
    path: str
    address: str
    status: int  # 410: its bytes are gone


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository. Addresses are relative to the namespace, as in the tables."""

    server: Server
    client: Client
    name: str
    namespace: str  # in the form that was passed to lakeFS
    folder: str  # its folder in the store

    # ---- objects of a branch

    def upload(self, branch: str, path: str | bytes, content: bytes) -> str:
        """Upload an object through the server, and return its address. A path may be bytes that are not UTF-8."""
        answer = self._ask("POST", f"/branches/{branch}/objects", {"path": path}, content)
        return self.address_of(answer)

    def upload_in_parts(self, branch: str, path: str, *parts: bytes) -> str:
        """Upload an object in parts through the server's S3 gateway, and return its address."""
        gateway, name = s3_gateway(self.server.url), {"Bucket": self.name, "Key": f"{branch}/{path}"}
        try:
            upload = gateway.create_multipart_upload(**name)["UploadId"]
        except ClientError as error:
            status = error.response["ResponseMetadata"]["HTTPStatusCode"]
            raise Refused(f"upload {branch} {path}", status, str(error)) from error
        sent = [
            {"PartNumber": number, **_etag(gateway.upload_part(**name, UploadId=upload, PartNumber=number, Body=part))}
            for number, part in enumerate(parts, start=1)
        ]
        gateway.complete_multipart_upload(**name, UploadId=upload, MultipartUpload={"Parts": sent})
        return self.address_of(self.stat(branch, path))

    def delete(self, branch: str, path: str) -> None:
        """Delete a path."""
        self._ask("DELETE", f"/branches/{branch}/objects", {"path": path})

    def copy(self, branch: str, source: str, target: str, *, source_ref: str | None = None) -> str:
        """Copy an object to another path, and return the copy's address, which may be the same."""
        body = {"src_path": source, "src_ref": source_ref or branch}
        return self.address_of(self._ask("POST", f"/branches/{branch}/objects/copy", {"dest_path": target}, body))

    def backing(self, branch: str, path: str | bytes) -> str:
        """Return a new address to write to and to link, as the server prints it."""
        answer = self._ask("GET", f"/branches/{branch}/staging/backing", {"path": path})
        return str(answer["physical_address"])

    def write_backing(self, printed: str, content: bytes) -> str:
        """Write an object to an address of `backing`; return the relative address."""
        address = printed[printed.index("/data/") + 1 :]
        self.server.store.put(self.folder, address, content)
        return address

    def link(self, branch: str, path: str | bytes, printed: str, content: bytes) -> str:
        """Link the object at an address of `backing`, and return the address of the entry."""
        return self.link_as(branch, path, printed, _checksum(content), size=len(content))

    def link_as(self, branch: str, path: str | bytes, printed: str, checksum: str, *, size: int) -> str:
        """Link an address with any checksum and size; return the entry's address. The server verifies neither."""
        body = {"staging": {"physical_address": printed}, "checksum": checksum, "size_bytes": size}
        return self.address_of(self._ask("PUT", f"/branches/{branch}/staging/backing", {"path": path}, body))

    def upload_and_link(self, branch: str, path: str | bytes, content: bytes, *, as_printed: bool = True) -> str:
        """Upload without the server: get an address, write to it, and link it, as printed or as a relative address."""
        printed = self.backing(branch, path)
        address = self.write_backing(printed, content)
        self.link(branch, path, printed if as_printed else f"{self.namespace}/{address}", content)
        return address

    def stage(self, branch: str, path: str, physical_address: str, content: bytes) -> Json:
        """Stage an entry for any URI, also in another repository; return the entry."""
        return self.stage_as(branch, path, physical_address, _checksum(content), size=len(content))

    def stage_as(
        self, branch: str, path: str, physical_address: str, checksum: str, *, size: int, mtime: int | None = None
    ) -> Json:
        """Stage an entry with any checksum, size and time, and return it. `mtime`: in seconds, by default now."""
        body = {"physical_address": physical_address, "checksum": checksum, "size_bytes": size}
        body |= {"mtime": mtime} if mtime is not None else {}
        answer: Json = self._ask("PUT", f"/branches/{branch}/objects", {"path": path}, body)
        return answer

    def import_prefix(self, branch: str, source: str, destination: str, message: str = "import") -> str:
        """Import the objects below a URI of the store, wait for it, and return the commit's id."""
        paths = [{"path": source, "destination": destination, "type": "common_prefix"}]
        started = self._ask("POST", f"/branches/{branch}/import", body={"paths": paths, "commit": {"message": message}})
        ends = time.monotonic() + _TASK_WITHIN
        while time.monotonic() < ends:
            state = self._ask("GET", f"/branches/{branch}/import", {"id": started["id"]})
            if error := state.get("error"):
                raise Refused(f"import of {source}", 400, error["message"])
            if state["completed"]:
                return str(state["commit"]["id"])
            time.sleep(0.05)
        raise TimeoutError(f"import of {source}")

    # ---- history

    def commit(
        self,
        branch: str,
        message: str = "commit",
        *,
        date: datetime | int | None = None,
        metadata: dict[str, str] | None = None,
        allow_empty: bool = False,
    ) -> str:
        """Commit staged changes, and return the commit's id. `date`: the date that the user sets, as it is sent."""
        body: Json = {"message": message, "metadata": metadata or {}, "allow_empty": allow_empty}
        if date is not None:
            body["date"] = int(date.timestamp()) if isinstance(date, datetime) else date
        return str(self._ask("POST", f"/branches/{branch}/commits", body=body)["id"])

    def upload_and_commit(self, branch: str, path: str, content: bytes, *, date: datetime | None = None) -> str:
        """Upload an object, commit it, and return its address."""
        address = self.upload(branch, path, content)
        self.commit(branch, f"{path} on {branch}", date=date)
        return address

    def branch(self, name: str, source: str = "main") -> None:
        """Create a branch from a reference."""
        self._ask("POST", "/branches", body={"name": name, "source": source})

    def delete_branch(self, name: str) -> None:
        """Delete a branch with its staging area."""
        self._ask("DELETE", f"/branches/{name}")

    def reset(self, branch: str, path: str | None = None) -> None:
        """Reset all staged changes, or those at one path."""
        what: Json = {"type": "reset"} if path is None else {"type": "object", "path": path}
        self._ask("PUT", f"/branches/{branch}", body=what)

    def hard_reset(self, branch: str, ref: str) -> None:
        """Reset a branch hard to another commit."""
        self._ask("PUT", f"/branches/{branch}/hard_reset", {"ref": ref})

    def merge(self, source: str, target: str, *, strategy: str = "source-wins") -> str:
        """Merge one reference into a branch, and return the commit's id."""
        return str(self._ask("POST", f"/refs/{source}/merge/{target}", body={"strategy": strategy})["reference"])

    def revert(self, branch: str, ref: str, *, parent: int = 0) -> None:
        """Revert a commit on a branch. `parent`: for a merge, the number of the parent to return to."""
        self._ask("POST", f"/branches/{branch}/revert", body={"ref": ref, "parent_number": parent})

    def cherry_pick(self, branch: str, ref: str, *, parent: int = 0) -> str:
        """Apply a commit to a branch, and return the new commit's id."""
        body: Json = {"ref": ref} | ({"parent_number": parent} if parent else {})
        return str(self._ask("POST", f"/branches/{branch}/cherry-pick", body=body)["id"])

    def tag(self, name: str, ref: str = "main") -> None:
        """Create a tag."""
        self._ask("POST", "/tags", body={"id": name, "ref": ref})

    def delete_tag(self, name: str) -> None:
        """Delete a tag."""
        self._ask("DELETE", f"/tags/{name}")

    def add_hook(self, branch: str, hook: Webhook, *, on: str = "pre-commit") -> None:
        """Commit an action, so that the operation `on` of the branch calls the webhook from now on."""
        self.upload(branch, f"_lakefs_actions/{on}.yaml", hook.action(branch, on=on))
        self.commit(branch, f"an action {on}")

    def commit_under_way(self, branch: str, hook: Webhook, message: str = "commit") -> UnderWay:
        """Begin a commit that waits for its hook, and return after the hook was called. `ended()` returns its id."""
        hook.hold()
        return self.under_way(hook, lambda: self.commit(branch, message))

    def under_way(self, hook: Webhook, act: Any) -> UnderWay:
        """Begin a call that waits for the hook, and return after the hook was called. Call `hook.hold()` before."""
        call = UnderWay(act)
        while not hook.arrived.wait(0.01):
            if call.is_over():
                hook.release()
                call.ended()
                raise RuntimeError("the call ended without its hook")
        return call

    # ---- reading

    def branches(self) -> dict[str, str]:
        """Return the commit of each branch, hidden ones too."""
        path = self._path("/branches")
        return {row["id"]: row["commit_id"] for row in self.client.pages(path, show_hidden="true")}

    def tags(self) -> dict[str, str]:
        """Return the commit of each tag."""
        return {row["id"]: row["commit_id"] for row in self.client.pages(self._path("/tags"))}

    def log(self, ref: str, *, first_parents: bool = False) -> list[Json]:
        """Return the ancestry of a reference, newest first, with `first_parents` only along first parents."""
        path = self._path(f"/refs/{quote(ref, safe='')}/commits")
        return list(self.client.pages(path, first_parent=str(first_parents).lower()))

    def list(self, ref: str) -> list[Json]:
        """Return the objects of a reference. A branch includes its staging area, `branch@` does not."""
        return list(self.client.pages(self._path(f"/refs/{quote(ref, safe='')}/objects/ls")))

    def diff(self, branch: str) -> list[Json]:
        """Return the uncommitted changes that the server lists."""
        return list(self.client.pages(self._path(f"/branches/{branch}/diff")))

    def stat(self, ref: str, path: str) -> Json:
        """Return an entry of a reference."""
        answer: Json = self._ask("GET", f"/refs/{quote(ref, safe='')}/objects/stat", {"path": path})
        return answer

    def read(self, ref: str, path: str) -> tuple[int, bytes]:
        """Return the HTTP status and the content of an object from the server."""
        address = self._path(f"/refs/{quote(ref, safe='')}/objects")
        answer = self.client.raw("GET", address, {"path": path})
        return answer.status, answer.data

    def refs(self) -> Iterator[str]:
        """Yield every reference that users read: each branch through its staging area, its HEAD, and each tag."""
        for branch in self.branches():
            yield branch
            yield f"{branch}@"
        yield from self.tags()

    def readable(self, refs: Sequence[str] | None = None) -> tuple[set[str], list[Unreadable]]:
        """Read every object of the references; return the physical addresses that were read, and what failed."""
        read: dict[str, int] = {}
        failed = []
        for ref in refs if refs is not None else list(self.refs()):
            for entry in self.list(ref):
                physical = entry["physical_address"]
                if physical not in read:
                    status, content = self.read(ref, entry["path"])
                    read[physical] = status if status != 200 or len(content) == entry.get("size_bytes", 0) else 599
                if read[physical] != 200:
                    failed.append(Unreadable(ref, entry["path"], self.address_of(entry), read[physical]))
        return {address for address, status in read.items() if status == 200}, failed

    def unreadable(self) -> list[Unreadable]:
        """Read every object of every branch, HEAD, tag and staging area; return those that the server cannot read."""
        return self.readable()[1]

    def address_of(self, entry: Json) -> str:
        """Return an entry's address relative to the namespace, or the printed address if it is outside."""
        physical = str(entry["physical_address"])
        for inside in (f"{self.namespace}/", f"/{self.folder}/"):
            if inside in physical and physical[physical.index(inside) + len(inside) :].startswith("data/"):
                return physical[physical.index(inside) + len(inside) :]
        return physical

    def dump(self, file: Path) -> Json:
        """Let the server dump its references, write the dump to `file`, and return the setting `source` for it."""
        file.write_text(json.dumps(self._finished("/dump")["refs"]), encoding="utf-8")
        return {"dump": str(file)}

    def restored_as(self, name: str, file: Path, namespace: str | None = None) -> Repository:
        """Create a second repository over the same namespace from a dump of this one, written to `file`.

        `namespace`: another form of the URL of the namespace.
        """
        self.dump(file)
        body = {"name": name, "storage_namespace": namespace or self.namespace, "default_branch": "main"}
        self.client.ask("POST", "/repositories", {"bare": "true"}, body)  # `bare`: the namespace may be in use
        second = Repository(self.server, self.client, name, self.namespace, self.folder)
        second._finished("/restore", json.loads(file.read_text("utf-8")))
        return second

    def roll_back(self, file: Path) -> None:
        """Delete the repository, and create it again from a dump in `file`, as after a loss of the database."""
        body = {"name": self.name, "storage_namespace": self.namespace, "default_branch": "main"}
        self.client.ask("DELETE", f"/repositories/{self.name}")
        ends = time.monotonic() + _TASK_WITHIN
        while self.client.raw("GET", f"/repositories/{self.name}").status != 404 and time.monotonic() < ends:
            time.sleep(0.05)  # the server deletes in the background
        self.client.ask("POST", "/repositories", {"bare": "true"}, body)
        self._finished("/restore", json.loads(file.read_text("utf-8")))

    def staged_list(self) -> str:
        """Let the server write its list of staged objects, and return its folder for `staged` of retention.yaml."""
        token = ""
        while True:
            answer = self._ask("POST", "/gc/prepare_uncommited", body={"continuation_token": token} if token else {})
            token = answer.get("continuation_token") or ""
            if not token:
                return f"_lakefs/retention/gc/uncommitted/{answer['run_id']}/uncommitted/"

    # ---- the store

    def stored(self) -> dict[str, int]:
        """Return the size of every object in the store by address, without `_lakefs/`."""
        return self.server.store.stored(self.folder)

    def age_objects(self) -> None:
        """Set the time of each object in the store to the time of its address, since the store uses the real clock."""
        for address in self.stored():
            if issued := issued_at(address):
                self.server.store.set_time(self.folder, address, issued + timedelta(milliseconds=500))

    def lose(self, address: str) -> None:
        """Delete an object from the store, as by accident."""
        self.server.store.delete(self.folder, address)

    # ---- the API

    def _path(self, path: str) -> str:
        return f"/repositories/{self.name}{path}"

    def _finished(self, task: str, body: Any = None) -> Json:
        """Start a task of the server, wait for it, and return its state."""
        started = self._ask("POST", task, body=body)
        ends = time.monotonic() + _TASK_WITHIN
        while time.monotonic() < ends:
            state: Json = self._ask("GET", task, {"task_id": started["id"]})
            if state["done"]:
                return state
            time.sleep(0.05)
        raise TimeoutError(f"{task} of the references")

    def _ask(self, method: str, path: str, query: dict[str, Any] | None = None, body: Any = None) -> Any:
        return self.client.ask(method, self._path(path), query, body)


def _checksum(content: bytes) -> str:
    return md5(content, usedforsecurity=False).hexdigest()


def _etag(answer: Json) -> Json:
    return {"ETag": answer["ETag"]}
