"""Crashes of a sweep of an S3 bucket, where one request deletes many keys and may have deleted only half of them."""

import json
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest

from retention_assets.objectstore.access import StoreAccess
from retention_assets.state.quarantine import QuarantineLocation
from tests.objectstore.s3 import Bucket
from tests.sweep.crashes.effects import Effects, Moment, Point, points, watched
from tests.sweep.crashes.scenarios import SCENARIOS
from tests.sweep.crashes.world import World, address, content, name_of

_NUMBERS = count()

pytestmark = pytest.mark.usefixtures("small_steps")


@dataclass
class BucketWorld(World):
    """A world whose objects and copies are in a bucket, below a prefix of its own. The warehouse is a directory."""

    bucket: Bucket = field(kw_only=True)

    def __post_init__(self) -> None:
        self._client, self._prefix = self.bucket.client(), f"world-{next(_NUMBERS)}"
        super().__post_init__()

    @property
    def access(self) -> StoreAccess:
        return self.bucket.access(f"{self._prefix}/lake")

    @property
    def place(self) -> QuarantineLocation:
        return QuarantineLocation(self.bucket.access(f"{self._prefix}/lake.quarantine"), super().place.folder)

    def lay(self, name: str, bytes_: bytes | None = None) -> None:
        body = content(name) if bytes_ is None else bytes_
        self._client.put_object(Bucket=self.bucket.name, Key=self._key(name), Body=body)

    def remove(self, name: str) -> None:
        self._client.delete_object(Bucket=self.bucket.name, Key=self._key(name))

    def stored(self) -> dict[str, bytes]:
        return self._below("lake/")

    def copies(self) -> dict[str, bytes]:
        return self._below(f"lake.quarantine/{self.place.path('')}")

    def manifests(self) -> set[str]:
        texts = self._below(f"lake.quarantine/{self.place.folder}/manifest/").values()
        return {name_of(one["address"]) for text in texts for one in json.loads(text)["objects"]}

    def _key(self, name: str) -> str:
        return f"{self._prefix}/lake/{address(name)}"

    def _below(self, folder: str) -> dict[str, bytes]:
        asked = {"Bucket": self.bucket.name, "Prefix": f"{self._prefix}/{folder}"}
        keys = [found["Key"] for found in self._client.list_objects_v2(**asked).get("Contents", ())]
        bodies = (self._client.get_object(Bucket=self.bucket.name, Key=key)["Body"].read() for key in keys)
        return {name_of(key): body for key, body in zip(keys, bodies, strict=True)}


@pytest.mark.parametrize("kind", ["delete", "quarantine"])
@pytest.mark.parametrize("which", ["half_way", pytest.param("all", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_death_beside_a_deletion_of_many_keys_loses_nothing(
    kind: str, which: str, bucket: Bucket, tmp_path: Path
) -> None:
    scenario = SCENARIOS[kind]

    def run(point: Point | None) -> tuple[BucketWorld, Effects]:
        world = BucketWorld(tmp_path / (f"{point.number}-{point.moment}" if point else "whole"), bucket=bucket)
        with watched(Effects(world.root, point, world.require_checked_as_dead)) as effects:
            scenario.run(world, "a-run")
        scenario.lost_nothing(world)
        return world, effects

    _, whole = run(None)
    beside = [point for point in points(whole.seen) if whole.seen[point.number].verb == "DeleteObjects"]
    half_way = [point for point in beside if point.moment is Moment.DURING]
    assert half_way
    for point in beside if which == "all" else half_way[-1:]:
        world, effects = run(point)
        assert effects.dead
        world.wait(hours=1)
        scenario.ended_well(world, scenario.run(world, "the-next-run"))
        scenario.lost_nothing(world)
