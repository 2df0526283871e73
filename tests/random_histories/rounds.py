"""One round: a random history with plans and sweeps on several days, and the checks after each sweep."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import urllib3

from tests.end_to_end.command import Json
from tests.random_histories.writer import EVERYTHING, Writer
from tests.real_lakefs.client import Refused
from tests.real_lakefs.gate import Pass, gate, let_pass
from tests.real_lakefs.hooks import webhook
from tests.real_lakefs.repository import Repository
from tests.real_lakefs.retention import Retention
from tests.real_lakefs.server import BEGINS, Server

_KEPT = timedelta(days=3)  # the default retention, and how long the heads of a plan must stay readable
_POLICY: Json = {
    "retention": {"default": "3d", "branches": [{"branch": "main", "keep": "5d"}, {"branch": "exp", "keep": "4d"}]}
}
_VERIFIED = 0.3  # share of rounds that end in `verify`
_LONGEST = timedelta(days=60)  # that a round takes by the moved clock
_LONG_AFTER = 40.0  # days after which no rule keeps anything but HEADs and tags


@dataclass(frozen=True, slots=True)
class Profile:
    """The weights of the operations of a round, and the probabilities of its events."""

    name: str
    weights: Mapping[str, float]
    before: tuple[float, float] = (24, 8 * 24)  # hours before the first plan
    days: int = 2  # with a plan and a sweep each, before the end
    settles: float = 0.7  # share of rounds with settle: 24h; the others have 0s, and no operation under way
    two_repositories: float = 0.3
    quarantines: float = 0.4
    commits_held: float = 0.4  # share of plans and sweeps during which a commit waits for its hook
    branches_made_again: float = 0.2  # share of the scans of the staged list
    on_s3: bool = False
    staged_elsewhere: int = 0  # staged entries for objects outside the namespace: they make a scan take longer


MIXED = Profile("mixed", EVERYTHING)
_FEW = {"upload": 2, "overwrite_and_commit": 2, "commit": 1, "create_branch": 1}
# Each has many operations about one promise, so that a round loses an object if the promise is broken.
_FULL: dict[str, Any] = {
    "before": (72, 96),
    "days": 1,
    "settles": 0.0,
    "commits_held": 0,
    "branches_made_again": 0,
    "two_repositories": 0,
}
# An entry of a HEAD keeps the linked object by its content as well, so tags hold entries that are overwritten later.
_LINKS = {"link_as_printed": 6, "commit": 4, "tag": 2, "overwrite_and_commit": 6, "delete": 1}
LINKED = Profile("linked", _LINKS, **_FULL | {"before": (160, 184)})
SAME_CONTENT = Profile("same content", {**_FEW, "commit": 0, "overwrite_and_commit": 0.3, "upload_same": 6}, **_FULL)
HELD = Profile("held", {"upload": 5, "create_branch": 1}, **_FULL | {"commits_held": 1.0, "settles": 1.0})
SHARED = Profile(
    "shared",
    {**_FEW, "overwrite_and_commit": 6, "lend": 4},
    **_FULL | {"before": (240, 264), "two_repositories": 1.0},
)
MADE_AGAIN = Profile(
    "made again",
    {"upload": 5, "create_branch": 1},
    # Of a local server, the staged list is compared with what the branches show anyway.
    **_FULL | {"branches_made_again": 1.0, "on_s3": True, "staged_elsewhere": 2000},
)
PROFILES = {profile.name: profile for profile in (LINKED, SAME_CONTENT, HELD, SHARED, MADE_AGAIN)}


@dataclass
class Round:
    """One round. `log` has a line for each event."""

    seed: int
    profile: Profile
    server: Server
    directory: Path
    log: list[str] = field(default_factory=list)
    stayed: int = 0
    garbage: int = 0

    def run(self) -> None:
        """Run the round. Errors: AssertionError with the lost objects, the seed and the log."""
        try:
            with ExitStack() as stack:
                self._run(stack)
        except BaseException as error:
            error.add_note(f"seed {self.seed}, profile {self.profile.name}\n" + "\n".join(self.log))
            raise

    def _run(self, stack: ExitStack) -> None:
        random, profile = Random(self.seed), self.profile
        self.random = random
        if self.server.clock.left() < _LONGEST:  # many rounds share a server; none sees the repositories of another
            self.server.clock.set_back(BEGINS)
        self.repository = self.server.new_repository(f"round{self.seed}")
        self.other = self.server.new_repository(f"other{self.seed}") if self._chance(profile.two_repositories) else None
        self.settles = self._chance(profile.settles)
        weights = dict(profile.weights)
        if not self.settles:
            weights |= {"hold_operation": 0, "hold_commit_and_overwrite": 0}
        self.writer = Writer(
            random, self.repository, self.log, stack.enter_context(webhook()), weights, _KEPT, self.other
        )
        self.gate = stack.enter_context(gate(self.server.url))
        configured = [one for one in (self.repository, self.other) if one]
        settings = {"settle": "24h" if self.settles else "0s", "reflog": True}
        self.retention = Retention(self.directory, *configured, policy=_POLICY, through=self.gate.url, **settings)
        self.seen: list[tuple[datetime, dict[str, str]]] = []  # HEADs at each plan
        self.writer.begin()
        if self.other:
            self.other.upload_and_commit("main", "own", b"of the other repository")
        self._stage_elsewhere(profile.staged_elsewhere)
        self.writer.live_through(hours=random.uniform(*profile.before))
        for number in range(profile.days):
            self._day(last=number == profile.days - 1)
        self._end()

    def _stage_elsewhere(self, entries: int) -> None:
        if entries:
            self.repository.branch("aside")
            with ThreadPoolExecutor(4) as pool:
                for number in range(entries):
                    path, address = f"elsewhere/{number:05}", f"{self.server.store.namespace('elsewhere')}/{number}"
                    pool.submit(self.repository.stage, "aside", path, address, b"")

    def _chance(self, share: float) -> bool:
        return self.random.random() < share

    def _day(self, *, last: bool) -> None:
        """Plan, let users write, approve and sweep; then let users write until the next day."""
        mode = "quarantine" if self._chance(self.profile.quarantines) else "delete"
        self.retention.write(mode=mode)
        if self.settles and self._chance(self.profile.commits_held):
            self.writer.hold_a_commit()
        plan = self._plan()
        for _ in range(self.random.randrange(6)):
            self.server.clock.forward(hours=self.random.uniform(0, 0.3))
            self.writer.act()
        if plan["candidates"]["objects"]:
            self._sweep(plan)
        if not last:
            hours = self.random.uniform(24.5, 34)
            held_for = self.random.uniform(0, 10)  # an operation under way is shorter than settle
            self.writer.live_through(held_for)
            self.writer.release()
            self._require_readable("after what was held ended")
            self.writer.live_through(hours - held_for)

    def _end(self) -> None:
        """End all operations, and require that unreferenced objects are gone after two plans."""
        self.writer.release()
        self._require_readable("after what was held ended")
        self.retention.write(mode="delete")
        for days in (_LONG_AFTER, 1.1) if self.settles else (_LONG_AFTER,):
            self.server.clock.forward(days=days)
            plan = self._plan(quiet=True)
        self.garbage = len(self._garbage())
        self._sweep(plan, quiet=True)
        left = self._garbage()
        self.stayed = len(left)
        unexplained = {address: size for address, size in left.items() if not self._may_be_staged(size)}
        assert not unexplained, f"{len(unexplained)} of {self.garbage} objects that nothing holds stay: {unexplained}"
        if self._chance(_VERIFIED):
            verified = self.retention.verify()
            assert verified.status == 0, f"verify: {verified.out} {verified.err}"

    def _garbage(self) -> dict[str, int]:
        """Return the objects of the store that no branch, HEAD, tag or staging area of either repository has."""
        held = set()
        for repository in (self.repository, self.other):
            for ref in repository.refs() if repository else ():
                for entry in repository.list(ref):
                    held.add(entry["physical_address"].partition(f"/{self.repository.folder}/")[2])
        return {address: size for address, size in self.repository.stored().items() if address not in held}

    def _may_be_staged(self, size: int) -> bool:
        """Return whether a HEAD has an object of this size. Then the server hides that this one may be staged."""
        heads = [ref for ref in self.repository.refs() if ref.endswith("@")]
        return any(entry.get("size_bytes", 0) == size for ref in heads for entry in self.repository.list(ref))

    # ---- the commands

    def _plan(self, *, quiet: bool = False) -> Json:
        self.log.append(f"{self.server.clock():%m-%d %H:%M:%S} plan {'settles' if self.settles else 'settle: 0s'}")
        with self._writers(quiet=quiet):
            if self.other:
                self.retention.plan(of=self.other)
            plan = self.retention.plan()
        self.seen.append((self.server.clock(), self.repository.branches()))
        self.log.append(f"  {len(self.retention.candidates(plan))} candidates; totals {plan.get('totals')}")
        return plan

    def _sweep(self, plan: Json, *, quiet: bool = False) -> None:
        self.retention.approve(plan)
        self.log.append(f"{self.server.clock():%m-%d %H:%M:%S} sweep, {self.retention.settings['mode']}")
        with self._writers(quiet=quiet):
            self.retention.sweep(plan)
        rows = self.retention.rows("deletion_report", plan)
        self.log += [f"  {row['outcome']} {row['address']} {row['detail']}" for row in rows]
        self._require_readable("after the sweep")

    @contextmanager
    def _writers(self, *, quiet: bool) -> Iterator[None]:
        """Let users act between the requests of a command."""
        if not quiet:
            self.gate.act = self._act_between
        try:
            yield
        finally:
            self.gate.act = let_pass

    def _act_between(self, method: str, path: str, forward: Pass) -> urllib3.BaseHTTPResponse:
        if method == "POST" and path.endswith("prepare_uncommited") and self._chance(self.profile.branches_made_again):
            return self._branch_made_again(path, forward)
        answer = forward()
        if self._chance(0.15):
            self.writer.act(beside_a_sweep=True)
        return answer

    def _branch_made_again(self, path: str, forward: Pass) -> urllib3.BaseHTTPResponse:
        """Delete a branch while the server scans, and create it again before it answers."""
        name = path.split("/")[2]
        repository = self.other if self.other and self.other.name == name else self.repository
        return forward_while_branch_is_away(repository, forward, self.log)

    # ---- what must hold

    def _require_readable(self, when: str) -> None:
        for repository in (self.repository, self.other):
            lost = repository.unreadable() if repository else []
            lost = [one for one in lost if not one.path.startswith("elsewhere/")]
            assert not lost, f"lost {when}: {lost}"
        now = self.server.clock()
        for at, heads in self.seen[-2:]:
            if now - at < _KEPT - timedelta(hours=1):
                self._require_heads(heads, when)

    def _require_heads(self, heads: Mapping[str, str], when: str) -> None:
        for branch, commit in heads.items():
            try:
                lost = self.repository.readable([commit])[1]
            except Refused:  # the server denies some existing commits
                continue
            assert not lost, f"lost {when}, of what {branch} showed at the last plan: {lost}"


def forward_while_branch_is_away(repository: Repository, forward: Pass, log: list[str]) -> urllib3.BaseHTTPResponse:
    """Forward a scan, delete its last but one branch meanwhile, and create the branch again afterwards.

    Nothing is staged on the last branch, `zzz`, so the scan loses the rows of all other branches.
    """
    branches = repository.branches()
    for missing in {"wip", "zzz"} - branches.keys():
        repository.branch(missing)
    branches, name = repository.branches(), "wip"
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(forward)
        repository.delete_branch(name)
        made = answer.result()
    with suppress(Refused):  # the server denies some existing commits
        repository.branch(name, branches[name])
    log.append(f"  {name} was away during the scan of staged objects")
    return made
