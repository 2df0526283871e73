"""`World`: a small repository on disk with an approved plan, a quarantine and a warehouse."""

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
from retention_assets.state.quarantine import QuarantineLocation, marker_of
from retention_assets.sweep.actions import Delete, Quarantine, Restore
from retention_assets.sweep.purges import Purge
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
LIVE_AGAIN, GONE, CHANGED = "c", "f", "h"  # planned, and since then live again, missing, overwritten
PLANNED = (*DEAD, LIVE_AGAIN, GONE, CHANGED)
OTHER = b"something else"  # the content of an overwritten object
_SIZES = {name: 40 + 3 * number for number, name in enumerate((*sorted(PLANNED), *LIVE))}  # bytes, all different
_LARGE, _SIZE_OF_LARGE = "a", 200  # more than one chunk, where a test makes chunks small
_OBJECTS = "data/fu2qb0hksduf3vibnmug"

Row = dict[str, Any]


@dataclass
class World:
    """A repository below `root`, which is written if `root` is empty. Objects are named by their last path segment."""

    root: Path
    now: datetime = NOW
    live: set[str] = field(default_factory=lambda: {*LIVE, LIVE_AGAIN})  # objects that a liveness check finds live
    limits: Limits = LIMITS
    checked_at: datetime | None = None
    live_at_check: dict[str, bool] = field(default_factory=dict)  # by object of the last liveness check
    _read: dict[Path, list[Row]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.stored():
            for name in {*PLANNED, *LIVE} - {GONE}:
                self.lay(name)
            self.lay(CHANGED, OTHER)
            keep_plan(self.warehouse, self.plan)

    def copy(self, root: Path) -> "World":
        """Return a copy of the world in another directory."""
        shutil.copytree(self.root, root)
        return World(root, self.now, set(self.live), self.limits)

    @cached_property
    def plan(self) -> Plan:
        """The plan of the day. Its candidates are `PLANNED`."""
        total = Amount(len(PLANNED), sum(len(content(name)) for name in PLANNED))
        return a_plan(candidates=total, totals={"candidate": total, "kept": Amount(2, 200)}, made_at=NOW)

    @property
    def warehouse(self) -> Warehouse:
        """The warehouse, opened again."""
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
        """Write and load a configuration of the repository. Its source and policy files do not exist."""
        entry = {"kind": "lakefs", "namespace": "s3://lake/orchard", "storage": "lake", "policy": "none.json"}
        document = {"warehouse": "warehouse", "repositories": {REPOSITORY: {**entry, "source": {"dump": "none.json"}}}}
        file = self.root / "retention.yaml"
        file.write_text(yaml.safe_dump(document), encoding="utf-8")
        return load_configuration(file)

    def action(self, mode: str) -> Action:
        """Return the action of a mode."""
        match mode:
            case "delete":
                return Delete(self.access)
            case "quarantine":
                place = self.place.access
                return Quarantine(self.access, self.place, marker_of(self.warehouse, REPOSITORY, place))
            case "restore":
                return Restore(self.access, self.place)
            case _:
                return Purge(self.place)

    def clock(self) -> datetime:
        """Return the time. Each call moves it forward by a second."""
        self.now += timedelta(seconds=1)
        return self.now

    def wait(self, **duration: float) -> None:
        """Let time pass."""
        self.now += timedelta(**duration)

    # ---- objects

    def lay(self, name: str, bytes_: bytes | None = None) -> None:
        """Write or overwrite an object. Default content: that of the planned object."""
        file = self._file(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content(name) if bytes_ is None else bytes_)

    def remove(self, name: str) -> None:
        """Delete an object from the store."""
        self._file(name).unlink()

    def stored(self) -> dict[str, bytes]:
        """Return the content of each object in the repository, by name."""
        return _listed(self._file("any").parent)

    def copies(self) -> dict[str, bytes]:
        """Return the content of each copy in the plan's quarantine folder, by name."""
        return _listed(self.root / "lake.quarantine" / self.place.path(_OBJECTS))

    def manifests(self) -> set[str]:
        """Return the names of all objects in the quarantine's manifests."""
        texts = _listed(self.root / "lake.quarantine" / self.place.folder / "manifest").values()
        return {name_of(one["address"]) for text in texts for one in json.loads(text)["objects"]}

    def require_checked_as_dead(self, effect: Effect) -> None:
        """Require that the last liveness check found a deleted object dead, and is not older than the window."""
        if effect.verb.lower().startswith("delete") and "lake/" in effect.target:
            for target in effect.target.split(", "):
                assert self.live_at_check.get(name_of(target)) is False, effect
            assert self.checked_at and self.now - self.checked_at <= self.limits.sweep.window, effect

    def _file(self, name: str) -> Path:
        return self.root / "lake" / address(name)

    # ---- the ledger

    def ledger(self) -> list[Row]:
        """Return every row of the plan's ledger. Its files never change, so each is read once."""
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
    """Return the content of an object when the plan was made."""
    size = _SIZE_OF_LARGE if name == _LARGE else _SIZES[name]
    return (f"{name} " * size).encode()[:size]


def _listed(folder: Path) -> dict[str, bytes]:
    """Return the files of a directory that obstore lists. Parts of interrupted writes are left out."""
    files = folder.iterdir() if folder.is_dir() else ()
    return {file.name: file.read_bytes() for file in files if "#" not in file.name}
