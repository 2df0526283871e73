"""Writes a lakeFS repository of any size: rolling days of objects, in ranges of different lengths.

Every day adds a directory of objects and removes the oldest directory, like a load job with a window. The hash of a key
decides whether a range ends after it, as in lakeFS. So ranges without changes stay the same files.
"""

import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from hashlib import md5
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from retention_assets.lakefs.formats.identity import commit_id
from retention_assets.lakefs.formats.lakefs_pb2 import BranchData, CommitData
from tests.lakefs_tables import Entry, Range, Record, write_metarange, write_range, write_table

NAMESPACE = "s3://lake/rolling"
TODAY = datetime(2026, 11, 1, tzinfo=UTC)
_DIGITS = "0123456789abcdefghijklmnopqrstuv"
_SLICES_FROM = 64_060_588_800  # a slice's time runs backwards from the year 4000
_PER_SLICE = 50_000
_SIZE = 1_000_000  # bytes of every object


def xid(seconds: int, number: int) -> str:
    """Return an xid with this time."""
    value = ((seconds & 0xFFFFFFFF) << 64 | number) << 4
    return "".join(_DIGITS[value >> shift & 31] for shift in range(95, -1, -5))


@dataclass(slots=True)
class Lake:
    """A repository below `directory`: `window` days of `per_day` objects, one commit a day, for `days` days."""

    directory: Path
    per_day: int
    window: int
    raggedness: int = 1000  # entries of a range, on average
    commits: list[Record] = field(default_factory=list)
    branches: dict[str, str] = field(default_factory=dict)  # besides main: the commit of each head
    metaranges: list[str] = field(default_factory=list)  # of each commit
    _written: dict[tuple[tuple[int, int], tuple[int, int]], Range] = field(default_factory=dict)

    @property
    def namespace(self) -> Path:
        """The directory of the namespace."""
        return self.directory / "namespace"

    def grow(self, until: int) -> None:
        """Commit every day up to `until` that has no commit. The first commit fills the window."""
        for day in range(len(self.commits), until):
            self._commit(day)
        self.dump()

    def objects(self, days: int) -> Iterator[tuple[str, datetime]]:
        """Yield the address and the time of every object that was ever written."""
        for day in range(1 - self.window, days):
            written = _born(day)
            for number in range(self.per_day):
                yield _address(day, number, self.per_day), written

    def _commit(self, day: int) -> None:
        days = range(day - self.window + 1, day + 1)
        ends = [(one, number) for one in days for number in _cuts(one, self.per_day, self.raggedness)]
        last = (day, self.per_day - 1)
        starts = [(days[0], 0), *(self._after(end) for end in ends)]
        ends = ends if ends and ends[-1] == last else [*ends, last]
        metarange, content = write_metarange([self._range(*bounds) for bounds in zip(starts, ends, strict=False)])
        self._write(metarange, content)
        parents = [self.commits[-1][0].decode()] if self.commits else []
        self.metaranges.append(metarange)
        self.commits.append(commit_record(metarange, parents, _born(day)))

    def _after(self, position: tuple[int, int]) -> tuple[int, int]:
        day, number = position
        return (day, number + 1) if number + 1 < self.per_day else (day + 1, 0)

    def _range(self, start: tuple[int, int], end: tuple[int, int]) -> Range:
        """Return the range between two (day, number) pairs. Each range is written once."""
        if (start, end) not in self._written:
            entries = [
                _entry(day, number, self.per_day)
                for day in range(start[0], end[0] + 1)
                for number in range(start[1] if day == start[0] else 0, end[1] + 1 if day == end[0] else self.per_day)
            ]
            range_id, content = write_range(entries)
            self._write(range_id, content)
            bounds = entries[0].key.encode(), entries[-1].key.encode()
            self._written[start, end] = Range(range_id, *bounds, len(entries), len(content))
        return self._written[start, end]

    def dump(self) -> None:
        """Write the references. The main branch is on the last commit."""
        heads = {"main": self.commits[-1][0].decode()} | self.branches
        branches = [
            (name.encode(), head.encode(), BranchData(id=name, commit_id=head).SerializeToString())
            for name, head in sorted(heads.items())
        ]
        tables = {
            "commits_meta_range_id": ("commit", sorted(self.commits)),
            "branches_meta_range_id": ("branch", branches),
            "tags_meta_range_id": ("tag", []),
        }
        document = {name: self._dumped(entity, records) for name, (entity, records) in tables.items()}
        (self.directory / "dump.json").write_text(json.dumps(document), encoding="utf-8")

    def _dumped(self, entity: str, records: Sequence[Record]) -> str:
        ranges = []
        if records:
            range_id, content = write_table(records, "ranges", {"entity": entity.encode()})
            self._write(range_id, content)
            ranges.append(Range(range_id, records[0][0], records[-1][0], len(records), len(content)))
        metarange, content = write_metarange(ranges)
        self._write(metarange, content)
        return metarange

    def _write(self, name: str, content: bytes) -> None:
        folder = self.namespace / "_lakefs"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def write_staged(lake: Lake) -> str:
    """Write an empty staged list; return its folder."""
    folder = lake.namespace / "_lakefs" / "staged"
    folder.mkdir(parents=True, exist_ok=True)
    schema = pa.schema([("physical_address", pa.string()), ("creation_date", pa.int64())])
    pq.write_table(schema.empty_table(), folder / "none")
    return "_lakefs/staged"


def write_inventory(lake: Lake, days: int) -> Path:
    """Write the objects as an S3 inventory in Parquet, and a file in each slice, so that a listing has the slices."""
    folder = lake.directory / "inventory" / "lake" / "daily"
    delivery = folder / f"{TODAY:%Y-%m-%dT%H-%MZ}"
    delivery.mkdir(parents=True)
    names, times = zip(*lake.objects(days), strict=True)
    for slice_ in {name.rsplit("/", 1)[0] for name in names}:
        (lake.namespace / slice_).mkdir(parents=True, exist_ok=True)
        (lake.namespace / slice_ / "marker").touch()
    table = pa.table(
        {
            "bucket": pa.repeat("lake", len(names)),
            "key": [f"rolling/{name}" for name in names],
            "size": pa.repeat(_SIZE, len(names)),
            "last_modified_date": pa.array(times, pa.timestamp("ms", tz="UTC")),
        }
    )
    pq.write_table(table, folder / "data.parquet")
    content = (folder / "data.parquet").read_bytes()
    manifest = {
        "sourceBucket": "lake",
        "destinationBucket": "arn:aws:s3:::inventory",
        "version": "2016-11-30",
        "creationTimestamp": str(int(TODAY.timestamp() * 1000)),
        "fileFormat": "Parquet",
        "fileSchema": (
            "message s3.inventory { required binary bucket (STRING); required binary key (STRING); "
            "optional int64 size; optional int64 last_modified_date (TIMESTAMP(MILLIS,true)); }"
        ),
        "files": [
            {"key": "inventory/lake/daily/data.parquet", "size": len(content), "MD5checksum": md5(content).hexdigest()}
        ],
    }
    text = json.dumps(manifest).encode()
    (delivery / "manifest.json").write_bytes(text)
    (delivery / "manifest.checksum").write_text(md5(text).hexdigest(), encoding="ascii")
    return folder


def _born(day: int) -> datetime:
    """Return when a day's load ran. Day 0 is so long ago that all objects are older than the grace period."""
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=day)


@cache
def _slice(day: int, number: int) -> str:
    return xid(_SLICES_FROM - int(_born(day).timestamp()) + 60, number)


def _address(day: int, number: int, per_day: int) -> str:
    issued = int(_born(day).timestamp())
    return f"data/{_slice(day, number // _PER_SLICE)}/{xid(issued, (day + 10_000) * per_day + number)}"


def _key(day: int, number: int) -> str:
    return f"tables/day={day + 10_000:05d}/part-{number:07d}.parquet"


@cache
def _cuts(day: int, per_day: int, raggedness: int) -> tuple[int, ...]:
    """Return the objects of a day that end a range."""
    return tuple(n for n in range(per_day) if zlib.crc32(_key(day, n).encode()) % raggedness == 0)


def _entry(day: int, number: int, per_day: int) -> Entry:
    address = _address(day, number, per_day)
    return Entry(
        _key(day, number), address, size=_SIZE, last_modified=_born(day), etag=md5(address.encode()).hexdigest()
    )


def commit_record(metarange: str, parents: Sequence[str], created_at: datetime) -> Record:
    """Return a commit as a record of the table of commits."""
    seconds = int(created_at.timestamp())
    identity = commit_id(
        committer="loader",
        message="a day",
        metarange_id=metarange,
        created_seconds=seconds,
        metadata={},
        parents=list(parents),
    )
    record = CommitData(
        id=identity,
        committer="loader",
        message="a day",
        meta_range_id=metarange,
        parents=parents,
        version=1,
        generation=1,
    )
    record.creation_date.seconds = seconds
    return identity.encode(), identity.encode(), record.SerializeToString(deterministic=True)
