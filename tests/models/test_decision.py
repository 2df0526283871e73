"""The candidates of hundreds of random worlds are exactly those of brute force."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest
from pyspark.sql import SparkSession

from tests.models import package_results
from tests.models.truth import Truth
from tests.models.walks import AS_OF, DAY, Walk, random_holds, random_rules

WORLDS_PER_POLICY = 28
POLICIES = range(12)
NOW = AS_OF + timedelta(hours=9, minutes=30)


def truths(policy: int) -> Iterator[Truth]:
    """Yield worlds under one policy, each with its own holds."""
    random = Random(f"policy {policy}")
    rules = random_rules(random)
    for place in range(WORLDS_PER_POLICY):
        number = policy * 1000 + place
        world = Walk(f"w{number}", number, AS_OF - random.randint(8, 30) * DAY).until(NOW)
        yield Truth(world, replace(rules, holds=rules.holds + random_holds(random, world)), AS_OF)


@pytest.mark.long
@pytest.mark.parametrize(
    "policy", [one if one % 6 == 0 else pytest.param(one, marks=pytest.mark.slow) for one in POLICIES]
)
def test_candidates_are_those_of_brute_force_and_never_live(spark: SparkSession, policy: int) -> None:
    worlds = list(truths(policy))
    found = package_results.found(spark, worlds)
    live = set().union(*(truth.live for truth in worlds))
    assert found.candidates.keys() & live == set()
    assert found.live == live
    assert found.candidates == {name: reason for truth in worlds for name, reason in truth.candidates.items()}


def test_the_random_worlds_have_every_kind_of_candidate_and_many_live_addresses() -> None:
    seen: Counter[str] = Counter()
    for policy in POLICIES:
        for truth in truths(policy):
            seen.update(truth.candidates.values())
            seen.update(live=len(truth.live), tags=len(truth.world.tags), holds=len(truth.rules.holds))
            seen.update(dangling=len(set(truth.world.commits) - {c.main for c in truth.world.commits.values()}))
    assert min(seen[kind] for kind in ("expired", "lifecycle", "unreferenced", "live", "tags", "holds")) > 50
