"""Writes small lakeFS repositories: commits, a dump, a staged list, and objects with given times.

The files are those that a server would write: ranges, metaranges and commits have their ids by content.
"""

import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import md5, shake_256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from retention_assets.config.configuration import Configuration, Repository, load_configuration
from retention_assets.lakefs.formats.identity import commit_id
from retention_assets.lakefs.formats.lakefs_pb2 import BranchData, CommitData, TagData
from tests.lakefs_tables import Entry, Range, Record, write_metarange, write_range, write_table

NAME = "grove"
NAMESPACE = f"s3://lake/{NAME}"
STAGED = "_lakefs/retention/gc/uncommitted/a-run/uncommitted"
COMMITTER = "a committer"
_DIGITS = "0123456789abcdefghijklmnopqrstuv"  # base 32 as xids write it
_SLICES_FROM = 64_060_588_800  # 4000-01-01 in unix seconds: a slice's time runs backwards from it
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FULL, _RELATIVE = 2, 1
_RANGE = 4  # entries of a range: few, so that a small repository has several


def xid(seconds: int, number: int = 0) -> str:
    """Return an xid: 32 bits of seconds and 64 other bits. Source: docs/lakefs-formats.md, "Object names"."""
    value = ((seconds & 0xFFFFFFFF) << 64 | number) << 4  # 96 bits in 20 digits of 5: four are left over
    return "".join(_DIGITS[value >> shift & 31] for shift in range(95, -1, -5))


def slice_name(began: datetime, number: int = 0) -> str:
    """Return the name of a slice that began at this time. `number` differs between servers."""
    return xid(_SLICES_FROM - int(began.timestamp()), number)


def address(issued: datetime, number: int = 0, *, began: datetime | None = None, signature: str = "") -> str:
    """Return an address as a server issues it. `began`: the begin of its slice, by default half an hour before."""
    place = slice_name(began or issued - timedelta(minutes=30))
    return f"data/{place}/{xid(int(issued.timestamp()), number)}" + (f",{signature}" if signature else "")


@dataclass(frozen=True, slots=True)
class Version:
    """A commit to be written. `objects`: addresses by path. An address that is a URI is outside the namespace."""

    name: str  # by which parents, branches and tags call it
    created_at: datetime
    objects: Mapping[str, str]
    parents: tuple[str, ...] = ()
    checksums: Mapping[str, str] = field(default_factory=dict)  # by path, of entries with another checksum than the MD5


@dataclass(frozen=True, slots=True)
class BuiltRepository:
    """A repository below a directory: `lake/` is the namespace, `dump.json` the dump."""

    directory: Path
    commit_ids: Mapping[str, str]  # by the names of the versions
    staged_known: bool

    @property
    def lake(self) -> Path:
        """The namespace's directory."""
        return self.directory / "lake"

    def store(self, objects: Mapping[str, datetime], size: int = 10) -> None:
        """Write or overwrite objects in the store, each with its time."""
        for name, written_at in objects.items():
            _write(self.lake / name, content_of(name, size), written_at)

    def remove(self, addresses: Iterable[str]) -> None:
        """Delete objects from the store, and directories that are empty then, which an object store does not have."""
        for name in addresses:
            (self.lake / name).unlink()
            if not any((self.lake / name).parent.iterdir()):
                (self.lake / name).parent.rmdir()

    def configure(self, *policies: Mapping[str, Any], **settings: Any) -> Configuration:
        """Write `retention.yaml` with these policy documents and settings, and load it."""
        names = [f"policy-{number}.json" for number in range(len(policies))]
        for name, policy in zip(names, policies, strict=True):
            (self.directory / name).write_text(json.dumps(policy), encoding="utf-8")
        own = {
            "kind": "lakefs",
            "settle": "0s",
            "namespace": NAMESPACE,
            "storage": "lake",
            "source": {"dump": "dump.json", "dump_age": "3650d"},
            "policy": names,
            **({"staged": STAGED} if self.staged_known else {}),
        }
        document = {"warehouse": "warehouse", "repositories": {NAME: {**own, **settings}}}
        file = self.directory / "retention.yaml"
        file.write_text(yaml.safe_dump(document), encoding="utf-8")
        return load_configuration(file)

    def repository(self, *policies: Mapping[str, Any], **settings: Any) -> Repository:
        """Return the only repository of that configuration."""
        return self.configure(*policies, **settings).repository(NAME)


def build_repository(
    directory: Path,
    commits: Sequence[Version],
    branches: Mapping[str, str],
    tags: Mapping[str, str] | None = None,
    staged: Collection[str] | Mapping[str, datetime] | None = (),
    *,
    taken_at: datetime,
    objects: Mapping[str, datetime] | None = None,
) -> BuiltRepository:
    """Write a repository into `directory`, over an earlier one. Existing objects stay.

    Args:
        directory: the directory of the repository; it is created.
        commits: parents before their children.
        branches: the commit of each branch.
        tags: the commit of each tag.
        staged: the addresses in staging areas, maybe with their times (else `taken_at`); None: unknown.
        taken_at: the time of the staged list and the dump.
        objects: the modification times of the objects in the store, by address; see `BuiltRepository.store`.
    """
    lake = directory / "lake"
    ids: dict[str, str] = {}
    records = []
    for commit in commits:
        record = _commit_record(commit, _write_objects(lake, commit, taken_at), ids)
        ids[commit.name] = record[0].decode()
        records.append(record)
    heads = [_head(BranchData, name, ids[version]) for name, version in branches.items()]
    tagged = [_head(TagData, name, ids[version]) for name, version in (tags or {}).items()]
    dump = {
        "commits_meta_range_id": _write_dumped(lake, "commit", records, taken_at),
        "branches_meta_range_id": _write_dumped(lake, "branch", heads, taken_at),
        "tags_meta_range_id": _write_dumped(lake, "tag", tagged, taken_at),
    }
    (directory / "dump.json").write_text(json.dumps(dump), encoding="utf-8")
    if staged is not None:
        _write_staged(lake, staged, taken_at)
    built = BuiltRepository(directory, ids, staged is not None)
    built.store(objects or {})
    return built


def linked_again(now: datetime) -> tuple[str, list[Version], dict[str, str], dict[str, Any]]:
    """Return an object, commits and branches of a repository, and a policy under which only `dev` needs the object.

    `first` has the object with a wrong checksum, and is expired at `now`. The head of `dev`, which began at `first`,
    has the object at the same path with its own checksum.
    """
    first, second, third = (now - timedelta(days=days) for days in (30, 28, 20))
    name = address(first)
    versions = [
        Version("first", first, {"raw/p": name}, checksums={"raw/p": "of-nothing"}),
        Version("second", second, {"raw/p": address(second)}, ("first",)),
        Version("third", third, {"raw/p": name}, ("first",)),
    ]
    rule = {"id": "raw", "prefix": "raw", "keep": "60d", "branches": {"dev": "14d"}}
    return name, versions, {"main": "second", "dev": "third"}, {"retention": {"default": "7d"}, "lifecycle": [rule]}


def _write(path: Path, content: bytes, at: datetime) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    _settle(path, at)


def _settle(path: Path, at: datetime) -> None:
    nanoseconds = (at - _EPOCH) // timedelta(microseconds=1) * 1000  # a float would lose the last digits
    os.utime(path, ns=(nanoseconds, nanoseconds))


def _write_objects(lake: Path, commit: Version, at: datetime) -> str:
    """Write the ranges and the metarange of a commit; return the metarange's id, empty for no objects."""
    entries = [
        Entry(
            path,
            name,
            size=10,
            etag=commit.checksums.get(path) or md5(content_of(name)).hexdigest(),
            address_type=_FULL if "://" in name else _RELATIVE,
            last_modified=commit.created_at,
        )
        for path, name in sorted(commit.objects.items(), key=lambda pair: pair[0].encode())
    ]
    if not entries:
        return ""
    ranges = []
    for start in range(0, len(entries), _RANGE):
        part = entries[start : start + _RANGE]
        range_id, content = write_range(part)
        _write(lake / "_lakefs" / range_id, content, at)
        ranges.append(Range(range_id, part[0].key.encode(), part[-1].key.encode(), len(part), len(content)))
    metarange_id, content = write_metarange(ranges)
    _write(lake / "_lakefs" / metarange_id, content, at)
    return metarange_id


def _commit_record(commit: Version, metarange_id: str, ids: Mapping[str, str]) -> Record:
    parents = [ids[parent] for parent in commit.parents]
    seconds = int(commit.created_at.timestamp())
    its_id = commit_id(
        committer=COMMITTER,
        message=commit.name,
        metarange_id=metarange_id,
        created_seconds=seconds,
        metadata={},
        parents=parents,
    )
    record = CommitData(
        id=its_id,
        committer=COMMITTER,
        message=commit.name,
        meta_range_id=metarange_id,
        parents=parents,
        version=1,
        generation=1,
    )
    record.creation_date.seconds = seconds
    return its_id.encode(), its_id.encode(), record.SerializeToString(deterministic=True)


def _head(kind: type[BranchData] | type[TagData], name: str, its_commit: str) -> Record:
    record = kind(id=name, commit_id=its_commit)
    return name.encode(), its_commit.encode(), record.SerializeToString(deterministic=True)


def _write_dumped(lake: Path, entity: str, records: Sequence[Record], at: datetime) -> str:
    """Write one table of a dump as one range; return its metarange's id. Source: docs/lakefs-formats.md, "Dumps"."""
    ordered = sorted(records)
    own = {"entity": entity.encode()}
    range_id, content = write_table(ordered, "ranges", own)
    _write(lake / "_lakefs" / range_id, content, at)
    ranges = [Range(range_id, ordered[0][0], ordered[-1][0], len(ordered), len(content))] if ordered else []
    metarange_id, content = write_metarange(ranges)
    _write(lake / "_lakefs" / metarange_id, content, at)
    return metarange_id


def _write_staged(lake: Path, staged: Collection[str] | Mapping[str, datetime], at: datetime) -> None:
    times = staged.values() if isinstance(staged, Mapping) else [at] * len(staged)
    seconds = pa.array([int(one.timestamp()) for one in times], pa.int64())
    table = pa.table({"physical_address": pa.array(list(staged), pa.string()), "creation_date": seconds})
    folder = lake / STAGED
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "0001"
    pq.write_table(table, file)
    _settle(file, at)


def content_of(name: str, size: int = 10) -> bytes:
    """Return the content of an object, which is unique for its name."""
    return shake_256(name.encode()).digest(size)
