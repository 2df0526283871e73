"""Random histories: operations of the model in any order, often at times that equal a limit."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random

from tests.lakefs_repositories import address
from tests.models.truth import Duration, Held, Lifecycle, Retention, Rules
from tests.models.world import Commit, World

AS_OF = datetime(2026, 11, 1, tzinfo=UTC)
DAY = timedelta(days=1)
BRANCHES = ("main", "dev", "exp-1", "exp-2", "gold")
PATHS = ("foo/bar", "foo/bar/a", "foo/bar/b", "foo/barn/a", "foo/barn", "foo/zoo/a", "foo/zoo/b", "tmp/x", "ref/y", "z")
PREFIXES = ("", "foo", "foo/bar", "foo/barn", "foo/zoo", "tmp", "ref", "foo/bar/a")
# on a grid, so that ages often equal the duration of a rule
STEPS = (timedelta(0), timedelta(0), DAY / 4, DAY / 2, DAY)


class Walk:
    """A random walk through one world. Names contain `name`, so that several worlds can share one store."""

    def __init__(
        self, name: str, number: int, start: datetime, *, odd_dates: bool = True, version_0: bool = True
    ) -> None:
        self.name = name
        self.random = Random(f"{name}/{number}")
        self.odd_dates = odd_dates
        self.version_0 = version_0
        self._number = number * 1_000_000  # of the next address or commit: no two walks share one
        self._uploads: list[str] = []  # issued and written, not linked
        root = self._new_commit()
        self.world = World(start, {root: Commit((), start, {})}, {"main": root})

    def until(self, end: datetime) -> World:
        """Run operations until `end`, and return the world."""
        while True:
            at = self.world.now + self.random.choice(STEPS)
            if at > end:
                self.world = replace(self.world, now=end)
                return self.world
            self.world = replace(self.world, now=at)
            self.step()

    def some(self, steps: int) -> World:
        """Run some operations at the same time."""
        for _ in range(steps):
            self.step()
        return self.world

    def step(self) -> None:
        """Run one operation."""
        names = list(_OPERATIONS)
        self._do(self.random.choices(names, [_OPERATIONS[name] for name in names])[0])

    def _do(self, operation: str) -> None:
        moved: Callable[[], World | None] = getattr(self, f"_{operation}")
        self.world = moved() or self.world

    # ---- operations; None: there is nothing to do it to

    def _upload(self) -> World:
        branch, path = self._branch(), self.random.choice(PATHS)
        kind = self.random.random()
        if kind < 0.05:
            return self.world.staged(branch, path, f"s3://elsewhere/{self._next()}")
        if kind < 0.1:
            foreign = f"data/notes-{self._next()}.txt"
            return self.world.stored(foreign, 7).staged(branch, path, foreign)
        issued = self._issue()
        return self._stored(issued).staged(branch, path, issued)

    def _upload_to_link(self) -> World:
        issued = self._issue()
        self._uploads.append(issued)
        return self._stored(issued)

    def _link(self) -> World | None:
        fresh = [name for name in self._uploads if self.world.now - self.world.issued[name] < DAY]
        if not fresh:
            return None
        linked = self.random.choice(fresh)
        self._uploads.remove(linked)
        return self.world.staged(self._branch(), self.random.choice(PATHS), linked)

    def _share(self) -> World | None:
        branch = self._branch()
        visible = self.world.visible(branch)
        if not visible:
            return None
        shared = visible[self.random.choice(sorted(visible))]
        return self.world.staged(branch, self.random.choice(PATHS), shared)

    def _delete(self) -> World | None:
        branch = self._branch()
        visible = sorted(self.world.visible(branch))
        return self.world.staged(branch, self.random.choice(visible), None) if visible else None

    def _commit(self) -> World | None:
        changed = sorted(branch for branch, changes in self.world.staging.items() if changes)
        if not changed:
            return None
        odd = self.random.random() < 0.1  # the committer set the date
        at = self.world.now + self.random.randint(-12, 2) * DAY if odd else None
        return self.world.commit_staged(self.random.choice(changed), self._new_commit(), at)

    def _throw_away(self) -> World:
        return self.world.thrown_away(self._branch())

    def _branch_off(self) -> World | None:
        free = sorted(set(BRANCHES) - set(self.world.branches))
        return self.world.branched(self.random.choice(free), self._any_commit()) if free else None

    def _reset(self) -> World:
        return self.world.branched(self._branch(), self._any_commit())

    def _unbranch(self) -> World | None:
        branch = self._branch()
        return self.world.unbranched(branch) if branch != "main" else None

    def _merge(self) -> World | None:
        source, into = self._branch(), self._branch()
        if source == into:
            return None
        squash, version_0 = self.random.random() < 0.2, self.version_0 and self.random.random() < 0.2
        return self.world.merged(source, into, self._new_commit(), squash=squash, main_is_last=version_0)

    def _cherry_pick(self) -> World:
        return self.world.cherry_picked(self._any_commit(), self._branch(), self._new_commit())

    def _revert(self) -> World:
        return self.world.reverted(self._any_commit(), self._branch(), self._new_commit())

    def _tag(self) -> World:
        return self.world.tagged(self.random.choice(("v1", "v2", "v3")), self._any_commit())

    def _untag(self) -> World | None:
        tags = sorted(self.world.tags)
        return self.world.untagged(self.random.choice(tags)) if tags else None

    # ---- choices

    def _branch(self) -> str:
        return self.random.choice(sorted(self.world.branches))

    def _any_commit(self) -> str:
        return self.random.choice(sorted(self.world.commits))

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _new_commit(self) -> str:
        return f"{self.name}-{self._next()}"

    def _issue(self) -> str:
        began = self.world.now.replace(minute=0, second=0)
        return address(self.world.now, self._next(), began=began)

    def _stored(self, issued: str) -> World:
        late = self.random.choice((0, 0, 0.25, 1, 300))
        return self.world.stored(issued, self.random.randint(1, 99), issued=self.world.now, late=late)


_OPERATIONS = {
    "upload": 24, "commit": 16, "delete": 5, "share": 5, "upload_to_link": 3, "link": 2, "throw_away": 1,
    "branch_off": 4, "merge": 5, "cherry_pick": 2, "revert": 3, "reset": 2, "unbranch": 2, "tag": 2, "untag": 1,
}  # fmt: skip


def random_rules(random: Random) -> Rules:
    """Return rules for any world. Holds on commits come from `random_holds`."""
    retention = None
    if random.random() < 0.75:
        branches = {branch: _duration(random) for branch in random.sample(BRANCHES, random.randint(0, 3))}
        retention = Retention(_duration(random), branches)
    lifecycle = tuple(
        Lifecycle(
            random.choice(PREFIXES),
            _duration(random),
            {name: _duration(random) for name in random.sample((*BRANCHES, "exp-*"), random.randint(0, 3))},
        )
        for _ in range(random.choice((0, 1, 1, 2, 3)))
    )
    holds = (Held("prefix", random.choice(("ref", "foo/bar", "tmp"))),) if random.random() < 0.3 else ()
    return Rules(
        retention,
        lifecycle,
        holds,
        tags=random.choice(("protect", "ignore")),
        grace=random.choice((timedelta(0), timedelta(hours=24), 3 * DAY)),
        token_life=random.choice((timedelta(0), timedelta(hours=24), 4 * DAY)),
    )


def random_holds(random: Random, world: World) -> tuple[Held, ...]:
    """Return holds on a branch, a tag or a commit of this world; often none."""
    kinds = {"branch": world.branches, "tag": world.tags, "commit": world.commits}
    kind = random.choice(("branch", "tag", "commit"))
    if random.random() < 0.7 or not kinds[kind]:
        return ()
    return (Held(kind, random.choice(sorted(kinds[kind]))),)


def _duration(random: Random) -> Duration:
    return random.choice((None, DAY, 2 * DAY, 3 * DAY, 3 * DAY, 5 * DAY, 8 * DAY, timedelta(hours=36), 60 * DAY))
