"""A small repository on disk with its plan, its quarantine and its warehouse, and what may be asked of all three."""

import json
import shutil
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml

from retention_assets.config.configuration import Configuration, load_configuration
from retention_assets.config.limits import Limits
from retention_assets.core.amounts import Amount
from retention_assets.objectstore.access import StoreAccess
from retention_assets.state.ledger import LEDGERS
from retention_assets.state.plan import Plan, keep_plan
from retention_assets.state.quarantine import QuarantineLocation
from retention_assets.sweep.actions import Delete, Purge, Quarantine, Restore
from retention_assets.sweep.worker import Action
from retention_assets.warehouse.warehouse import Warehouse
from tests.frames import NOW
from tests.sweep.crashes.effects import Effect
from tests.sweep.small_world import a_plan

REPOSITORY = "orchard"
LIMITS = Limits.model_validate(
    {"budget": {"objects": 9}, "sweep": {"lease": "30m", "window": "15m"}, "approval": {"max_revived": 0.5}}
)
LIVE = ("live-1", "live-2")
DEAD = ("a", "b", "d", "e", "g", "i")
REVIVED, GONE, CHANGED = "c", "f", "h"  # planned, and by now alive again, not there any more, written over
PLANNED = (*DEAD, REVIVED, GONE, CHANGED)
OTHER = b"something else"  # the bytes of what was written over
_SIZES = {name: 40 + 3 * number for number, name in enumerate((*sorted(PLANNED), *LIVE))}  # bytes, all different
_LARGE, _SIZE_OF_LARGE = "a", 200  # more than one chunk, where a test makes chunks small
_OBJECTS = "data/fu2qb0hksduf3vibnmug"

Row = dict[str, Any]


@dataclass
class World:
    """One repository below `root`: what is there already stays as it is. Objects go by their names."""

    root: Path
    now: datetime = NOW
    live: set[str] = field(default_factory=lambda: {*LIVE, REVIVED})  # what commits and staging areas hold
    limits: Limits = LIMITS
    checked_at: datetime | None = None
    looked: dict[str, bool] = field(default_factory=dict)  # whether it was live, of the objects of the last look
    _read: dict[Path, list[Row]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.stored():
            for name in {*PLANNED, *LIVE} - {GONE}:
                self.lay(name)
            self.lay(CHANGED, OTHER)
            keep_plan(self.warehouse, self.plan)

    def copy(self, root: Path) -> "World":
        """Return the same world in another place."""
        shutil.copytree(self.root, root)
        return World(root, self.now, set(self.live), self.limits)

    @cached_property
    def plan(self) -> Plan:
        """The day's plan: what `PLANNED` names."""
        total = Amount(len(PLANNED), sum(len(content(name)) for name in PLANNED))
        return a_plan(candidates=total, totals={"candidate": total, "kept": Amount(2, 200)}, made_at=NOW)

    @property
    def warehouse(self) -> Warehouse:
        """The warehouse, opened anew."""
        return Warehouse(str(self.root / "warehouse"))

    @property
    def access(self) -> StoreAccess:
        """The repository's store."""
        return StoreAccess(f"file://{self.root}/lake")

    @property
    def place(self) -> QuarantineLocation:
        """The plan's folder in quarantine."""
        access = StoreAccess(f"file://{self.root}/lake.quarantine")
        return QuarantineLocation(access, f"{self.plan.day}/{self.plan.plan_hash[:16]}")

    def configuration(self) -> Configuration:
        """Write the configuration of the repository, and return it. Its source and its policy are not there."""
        entry = {"kind": "lakefs", "namespace": "s3://lake/orchard", "storage": "lake", "policy": "none.json"}
        document = {"warehouse": "warehouse", "repositories": {REPOSITORY: {**entry, "source": {"dump": "none.json"}}}}
        file = self.root / "retention.yaml"
        file.write_text(yaml.safe_dump(document), encoding="utf-8")
        return load_configuration(file)

    def action(self, mode: str) -> Action:
        """Return what a mode does to objects."""
        match mode:
            case "delete":
                return Delete(self.access)
            case "quarantine":
                return Quarantine(self.access, self.place)
            case "restore":
                return Restore(self.access, self.place)
            case _:
                return Purge(self.place)

    def clock(self) -> datetime:
        """Return the time, which goes on by a second with every look at it."""
        self.now += timedelta(seconds=1)
        return self.now

    def wait(self, **span: float) -> None:
        """Let time pass."""
        self.now += timedelta(**span)

    # ---- objects

    def lay(self, name: str, bytes_: bytes | None = None) -> None:
        """Write an object, by default as it was planned, over what is there."""
        file = self._file(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content(name) if bytes_ is None else bytes_)

    def remove(self, name: str) -> None:
        """Take an object out of the store."""
        self._file(name).unlink()

    def stored(self) -> dict[str, bytes]:
        """Return what the repository's store lists."""
        return _listed(self._file("any").parent)

    def copies(self) -> dict[str, bytes]:
        """Return what the plan's folder in quarantine lists."""
        return _listed(self.root / "lake.quarantine" / self.place.path(_OBJECTS))

    def manifests(self) -> set[str]:
        """Return the names of the objects that the manifests in quarantine name."""
        texts = _listed(self.root / "lake.quarantine" / self.place.folder / "manifest").values()
        return {name_of(one["address"]) for text in texts for one in json.loads(text)["objects"]}

    def require_dead(self, effect: Effect) -> None:
        """Require of a deletion in the repository that the last look, not longer ago than the window, allows it."""
        if effect.verb.lower().startswith("delete") and "lake/" in effect.target:
            for target in effect.target.split(", "):
                assert self.looked.get(name_of(target)) is False, effect
            assert self.checked_at and self.now - self.checked_at <= self.limits.sweep.window, effect

    def _file(self, name: str) -> Path:
        return self.root / "lake" / address(name)

    # ---- the ledger

    def ledger(self) -> list[Row]:
        """Return every row of the plan's ledger. A file of it never changes: each is read once."""
        folder = self.root / "warehouse" / REPOSITORY / LEDGERS / self.plan.day.isoformat() / self.plan.plan_hash
        for file in folder.glob("*/*.parquet"):
            if file not in self._read:
                self._read[file] = pq.ParquetFile(file).read(use_threads=False).to_pylist()
        return [row for rows in self._read.values() for row in rows]


def address(name: str) -> str:
    """Return the address of an object."""
    return f"{_OBJECTS}/{name}"


def name_of(address: str) -> str:
    """Return the name of the object at an address."""
    return address.rpartition("/")[2]


def content(name: str) -> bytes:
    """Return the bytes that were planned, or are to stay."""
    size = _SIZE_OF_LARGE if name == _LARGE else _SIZES[name]
    return (f"{name} " * size).encode()[:size]


def _listed(folder: Path) -> dict[str, bytes]:
    """Return the files of a directory that obstore lists: not the parts of what was never written whole."""
    files = folder.iterdir() if folder.is_dir() else ()
    return {file.name: file.read_bytes() for file in files if "#" not in file.name}
