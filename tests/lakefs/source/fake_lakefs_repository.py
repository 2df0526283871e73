"""The repositories of the fake lakeFS server. Tests may change them while the server runs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from retention_assets.lakefs.formats.lakefs_pb2 import Entry
from retention_assets.lakefs.formats.ranges import RELATIVE, read_metarange
from tests.lakefs.formats.tables import read_table
from tests.saved_repositories import DATA, api, listing

Json = dict[str, Any]


@dataclass
class Repository:
    """One repository, which a test may change. Commits and rules are JSON of the real server."""

    name: str
    namespace: str
    created: int  # unix seconds
    branches: dict[str, str] = field(default_factory=dict)  # hidden ones too
    hidden: set[str] = field(default_factory=set)
    tags: dict[str, str] = field(default_factory=dict)
    commits: dict[str, Json] = field(default_factory=dict)
    unfindable: set[str] = field(default_factory=set)  # commits that a look-up by id denies
    rules: Json | None = None
    dump: Json = field(default_factory=dict)  # the ids of the tables that every dump gives
    dump_polls: int = 0  # how often a dump is asked about before it is done
    dump_error: str | None = None
    changes: Sequence[Json] = ()  # staged, later ones over earlier ones: branch, path, physical_address, type;
    # of an entry whose content matters, also size_bytes and checksum; of an address without a type, `typed` is False
    sizes: Mapping[str, int] = field(default_factory=dict)  # bytes by physical address
    run_id: str = ""  # of prepare_uncommitted
    pages: Sequence[bool] = (True,)  # of prepare_uncommitted: whether each has rows
    unfound: list[set[str]] = field(default_factory=list)  # branches that the next requests for a page do not find
    commits_run_id: str = ""  # of prepare_commits
    files: Path | None = None  # where the namespace's files are
    read_only: bool = False

    def answer(self) -> Json:
        """Return the repository as the API describes it."""
        return {
            "creation_date": self.created,
            "default_branch": "main",
            "id": self.name,
            "read_only": self.read_only,
            "storage_id": "",
            "storage_namespace": self.namespace,
        }

    def commit_of(self, ref: str) -> str | None:
        """Return the commit of a branch, a tag or a commit id."""
        by_id = ref if ref in self.commits and ref not in self.unfindable else None
        return self.branches.get(ref.removesuffix("@")) or self.tags.get(ref) or by_id

    def log(self, head: str, *, first_parent: bool) -> Iterator[Json]:
        """Yield the commits that `head` reaches in the server's order: date, generation, id, all descending."""
        waiting, seen = [head], {head}
        while waiting:
            waiting.sort(key=lambda commit_id: self._rank(self.commits[commit_id]))
            commit = self.commits[waiting.pop()]
            yield commit
            parents = commit["parents"][:1] if first_parent else commit["parents"]
            waiting += [parent for parent in parents if parent not in seen]
            seen.update(parents)

    @staticmethod
    def _rank(commit: Json) -> tuple[int, int, str]:
        return commit["creation_date"], commit["generation"], commit["id"]

    def add_commit(self, commit_id: str, *parents: str, created: int | None = None) -> str:
        """Add a commit with the objects of its first parent, and return its id."""
        old = self.commits[parents[0]]
        self.commits[commit_id] = {
            **old,
            "id": commit_id,
            "parents": list(parents),
            "creation_date": created or old["creation_date"] + 3_600,
            "generation": 1 + max(self.commits[parent]["generation"] for parent in parents),
        }
        return commit_id

    def objects(self, ref: str) -> Iterator[Json]:
        """Yield the objects of a reference by path as `objects/stat` describes them; of a branch with its staging."""
        staged = {change["path"]: change for change in self.changes if change["branch"] == ref in self.branches}
        found = {entry["path"]: entry for entry in self._committed(ref) if entry["path"] not in staged}
        for path, change in staged.items():
            if change["type"] != "removed":
                found[path] = {
                    "checksum": change.get("checksum", ""),
                    "content_type": "application/octet-stream",
                    "mtime": self.created,
                    "path": path,
                    "path_type": "object",
                    "physical_address": change["physical_address"],
                    "size_bytes": self.size_of(change),
                }
        yield from (found[path] for path in sorted(found))

    def size_of(self, change: Json) -> int:
        """Return the size of a staged object in bytes."""
        return int(change.get("size_bytes", self.sizes.get(change["physical_address"], 0)))

    def shown_changes(self, branch: str) -> list[Json]:
        """Return the diff of the branch by path. It omits objects that were staged again with the content of its head.

        Size, checksum, metadata and content type make two entries equal, whatever their addresses.
        Source: docs/uncommitted.md, "Staged again with the same content".
        """
        last = {change["path"]: change for change in self.changes if change["branch"] == branch}
        equal = {change["path"]: change for change in last.values() if "checksum" in change}
        for entry in self._committed(branch) if equal else ():
            change = equal.get(entry["path"])
            if change and (self.size_of(change), change["checksum"]) == (entry["size_bytes"], entry["checksum"]):
                del last[entry["path"]]
        return [last[path] for path in sorted(last)]

    def lists_rows_of(self, branch: str) -> bool:
        """Return whether the list of staged objects has rows of the branch.

        Addresses outside have none, and neither have addresses without a type, which old servers staged.
        """
        inside = f"{self.namespace}/"
        changes = (change for change in self.shown_changes(branch) if change["type"] != "removed")
        return any(change["physical_address"].startswith(inside) and change.get("typed", True) for change in changes)

    def _committed(self, ref: str) -> Iterator[Json]:
        """Yield the objects of a commit, from its ranges."""
        metarange = self.read(self.commits[self.commit_of(ref) or ""]["meta_range_id"])
        for range_id in read_metarange(metarange, "metarange")["range_id"].to_pylist():
            table = read_table(self.read(range_id), "range")
            for key, value in zip(table.keys.to_pylist(), table.values.to_pylist(), strict=True):
                entry = Entry.FromString(value)
                inside = entry.address_type == RELATIVE
                yield {
                    "checksum": entry.e_tag,
                    "content_type": entry.content_type,
                    "metadata": dict(entry.metadata),
                    "mtime": entry.last_modified.seconds,
                    "path": key.decode(),
                    "path_type": "object",
                    "physical_address": f"{self.namespace}/{entry.address}" if inside else entry.address,
                    "size_bytes": entry.size,
                }

    def read(self, table_id: str) -> bytes:
        """Return the file of a range or metarange."""
        return ((self.files or Path()) / "_lakefs" / table_id).read_bytes()


def saved(name: str) -> Repository:
    """Return one of the saved repositories, which a test may change."""
    known = api(name)
    visible = {branch["id"] for branch in known["branches_without_hidden"]}
    branches = {branch["id"]: branch["commit_id"] for branch in known["branches"]}
    (prepared,) = known["prepare_uncommitted"]
    namespace = known["repository"]["storage_namespace"]
    return Repository(
        name=name,
        namespace=namespace,
        created=known["repository"]["creation_date"],
        branches=branches,
        hidden=branches.keys() - visible,
        tags={tag["id"]: tag["commit_id"] for tag in known["tags"]},
        commits={commit["id"]: dict(commit) for commit in known["commits"]},
        rules={
            "branches": sorted(known["gc_rules"]["branches"], key=lambda rule: rule["branch_id"]),
            "default_retention_days": known["gc_rules"]["default_retention_days"],
        },
        dump=dict(known["refs_dump"]),
        changes=known["staged"],
        sizes={f"{namespace}/{entry.address}": entry.size for entry in listing(name)},
        run_id=prepared["run_id"],
        commits_run_id=known["prepare_commits"]["result"]["run_id"],
        files=DATA / name / "namespace",
    )


def bare() -> tuple[Repository, ...]:
    """Return empty repositories for the names in the recorded requests."""
    root = "5f67fc5da12cf7f026c770cb3103fca42a4378a238269d6972e85889260ba021"
    first = {
        "committer": "", "creation_date": 1780293600, "generation": 1, "id": root, "message": "Repository created",
        "meta_range_id": "", "metadata": {}, "parents": [], "version": 1,
    }  # fmt: skip

    def made(name: str, namespace: str, created: int, rules: Json | None) -> Repository:
        return Repository(name, namespace, created, {"main": root}, commits={root: dict(first)}, rules=rules)

    return (
        made("fen", "s3://lake/deep/er/fen", 1783123201, None),
        made("heath", "s3://lake/heath", 1780531200, None),
        made("never", "s3://lake/never", 1780531200, None),
        made("norules", "s3://lake/norules", 1780531200, {"branches": None, "default_retention_days": 10}),
    )
