"""Users of a repository on the real server who run random operations, by a seeded random generator."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random

from tests.real_lakefs.client import Json, Refused
from tests.real_lakefs.hooks import UnderWay, Webhook
from tests.real_lakefs.repository import Repository

BRANCHES = ("main", "dev", "exp", "wip")
PATHS = tuple(f"{folder}/{name}" for folder in ("raw", "tables") for name in "abcdef")
TAGS = ("v1", "v2", "v3")
HELD = ("pre-commit", "pre-merge", "pre-revert", "pre-cherry-pick")  # operations that may wait for the webhook

_LONG_AGO = datetime(2015, 1, 1, tzinfo=UTC)
_HELD_FOR = timedelta(hours=10)  # at the most, before a plan; less than settle in all
_IN_PARTS = 0.15  # share of the uploads
_LINKED_WITHIN = timedelta(hours=20)  # less than `token_life`: a sweep can delete older uploads


@dataclass(frozen=True, slots=True)
class Pending:
    """An address that was issued and written, but not linked yet."""

    branch: str
    path: str
    printed: str
    content: bytes
    issued: datetime


@dataclass
class Writer:
    """Runs one operation after another. A refusal by the server is logged and is no error."""

    random: Random
    repository: Repository
    log: list[str]
    hook: Webhook
    weights: Mapping[str, float]
    retention: timedelta  # the shortest of any branch
    lends_to: Repository | None = None  # another repository, that refers to objects of this one
    pending: list[Pending] = field(default_factory=list)
    contents: dict[str, bytes] = field(default_factory=dict)  # by checksum
    held: UnderWay | None = None
    held_since: datetime | None = None
    numbers: int = 0

    def begin(self) -> None:
        """Add the actions that call the webhook, and create a first history."""
        for on in HELD:
            self.repository.upload("main", f"_lakefs_actions/{on}.yaml", self.hook.action(*BRANCHES, on=on))
        self.repository.commit("main", "actions")
        for path in PATHS[::2]:
            self._upload("main", path)
        self.repository.commit("main", "the first objects")

    def live_through(self, hours: float) -> None:
        """Let time pass, with an operation every few hours."""
        clock, left = self.repository.server.clock, hours
        while left > 0:
            pause = self.random.expovariate(1 / 3.0)
            clock.forward(hours=min(pause, left))
            left -= pause
            if self.held_since and clock() - self.held_since > _HELD_FOR:
                self.release()
            self.act()

    def act(self, *, beside_a_sweep: bool = False) -> None:
        """Run one operation. During a sweep, none that makes an unreferenced object live again."""
        allowed = [(name, weight) for name, weight in self.weights.items() if not (beside_a_sweep and name in RISKY)]
        (name,) = self.random.choices([name for name, _ in allowed], [weight for _, weight in allowed])
        try:
            description = OPERATIONS[name](self)
        except Refused as refused:
            description = f"refused: {refused.status} {refused.message[:80]}"
        beside = "beside the command, " if beside_a_sweep else ""
        self.say(f"{beside}{name}: {description}")

    def hold_a_commit(self) -> None:
        """Begin a commit that waits for its hook, and overwrite its objects meanwhile."""
        self.say(f"hold_commit_and_overwrite: {self.hold_commit_and_overwrite()}")

    def say(self, what: str) -> None:
        """Add a line to the log."""
        self.log.append(f"{self.repository.server.clock():%m-%d %H:%M:%S} {self.repository.name} {what}")

    def release(self) -> None:
        """Let the operation that waits for its hook end."""
        self.hook.release()
        if self.held is not None:
            try:
                self.say(f"the held operation ended: {self.held.ended()}")
            except Refused as refused:
                self.say(f"the held operation was refused: {refused}")
            self.held = self.held_since = None

    # ---- choices

    def _branches(self) -> Sequence[str]:
        return sorted(self.repository.branches().keys() & set(BRANCHES))

    def _branch(self) -> str:
        return self.random.choice(self._branches())

    def _path(self) -> str:
        return self.random.choice(PATHS)

    def _shown(self, ref: str) -> str:
        """Return a path that a reference has."""
        paths = [entry["path"] for entry in self.repository.list(ref) if not entry["path"].startswith("_lakefs_")]
        return self.random.choice(paths) if paths else self._path()

    def _spellings(self) -> Sequence[str]:
        """Return how the namespace may be written: as it was given, and as a local server prints it."""
        storage = self.repository.server.store.settings(self.repository.folder)["storage"]
        return [self.repository.namespace, storage if "://" in storage else f"local://{storage}"]

    def _content(self) -> bytes:
        """Return bytes of a unique length."""
        self.numbers += 1
        content = f"{self.repository.name} {self.numbers} ".encode()
        return content + b"." * (self.numbers * 3)

    def _upload(self, branch: str, path: str) -> str:
        content = self._content()
        address = self._send(branch, path, content)
        self.contents[self.repository.stat(branch, path)["checksum"]] = content
        return address

    def _send(self, branch: str, path: str, content: bytes) -> str:
        """Upload in one request, or in parts: the checksum of an upload in parts is no MD5 of the content."""
        in_parts = self.random.random() < _IN_PARTS
        return (self.repository.upload_in_parts if in_parts else self.repository.upload)(branch, path, content)

    def _commits(self, branch: str, *, young: bool = False) -> Sequence[str]:
        """Return commits of a branch whose objects all exist. With `young`, only former heads that are still young."""
        since = (self.repository.server.clock() - self.retention * 0.8).timestamp()
        log = self.repository.log(branch, first_parents=True)[:6]
        left = [True, *(child["creation_date"] > since for child in log)]
        ids = [commit["id"] for commit, is_young in zip(log, left, strict=False) if is_young or not young]
        return [commit for commit in ids if self._is_readable(commit)]

    def _is_readable(self, ref: str) -> bool:
        try:
            return not self.repository.readable([ref])[1]
        except Refused:  # the server denies some existing commits
            return False

    def _is_parent_readable(self, branch: str, *, young: bool = False) -> bool:
        """Return whether a branch can go back one commit. With `young`, only to a former head that is still young."""
        log = self.repository.log(branch, first_parents=True)[:2]
        return len(log) == 2 and log[1]["id"] in self._commits(branch, young=young)

    def _old_commit(self, *, young: bool = False) -> str:
        branch = self._branch()
        return self.random.choice(self._commits(branch, young=young) or [branch])

    # ---- operations

    def upload(self) -> str:
        branch, path = self._branch(), self._path()
        return f"{branch} {path} {self._upload(branch, path)}"

    def upload_same(self) -> str:
        branch = self._branch()
        ref = self.random.choice([branch, f"{branch}@", f"{branch}@"])
        path = self._shown(ref)
        content = self.contents.get(self.repository.stat(ref, path)["checksum"])
        if content is None:
            return f"{branch} {path}: whose content nobody knows"
        return f"{branch} {path} {self._send(branch, path, content)}"

    def upload_and_reset(self) -> str:
        branch, path = self._branch(), self._path()
        address = self._upload(branch, path)
        self.repository.reset(branch, path)
        return f"{branch} {path} {address}"

    def delete(self) -> str:
        branch = self._branch()
        path = self._shown(branch)
        self.repository.delete(branch, path)
        return f"{branch} {path}"

    def reset(self) -> str:
        branch = self._branch()
        self.repository.reset(branch)
        return branch

    def copy(self) -> str:
        branch = self._branch()
        source, target = self._shown(branch), self._path()
        return f"{branch} {source} to {target} {self.repository.copy(branch, source, target)}"

    def get_address(self) -> str:
        branch, path, content = self._branch(), self._path(), self._content()
        printed = self.repository.backing(branch, path)
        address = self.repository.write_backing(printed, content)
        self.pending.append(Pending(branch, path, printed, content, self.repository.server.clock()))
        return f"{branch} {path} {address}"

    def link(self) -> str:
        now = self.repository.server.clock()
        fresh = [one for one in self.pending if now - one.issued < _LINKED_WITHIN]
        if not fresh:
            return "nothing to link"
        one = self.random.choice(fresh)
        self.pending.remove(one)
        return self._link(one, as_printed=self.random.random() < 0.5)

    def link_as_printed(self) -> str:
        description = self.get_address()
        self._link(self.pending.pop(), as_printed=True)
        return description

    def link_relative(self) -> str:
        description = self.get_address()
        self._link(self.pending.pop(), as_printed=False)
        return description

    def _link(self, one: Pending, *, as_printed: bool) -> str:
        address = one.printed[one.printed.index("/data/") + 1 :]
        spelled = one.printed if as_printed else f"{self.repository.namespace}/{address}"
        self.repository.link(one.branch, one.path, spelled, one.content)
        self.contents[self.repository.stat(one.branch, one.path)["checksum"]] = one.content
        return f"{one.branch} {one.path} {spelled}"

    def import_files(self) -> str:
        folder = self.repository.server.imports_from
        if folder is None:
            return "this server imports nothing"
        source = folder / self.repository.name
        source.mkdir(exist_ok=True)
        content = self._content()
        (source / f"{self.numbers}").write_bytes(content)
        branch = self._branch()
        self.repository.import_prefix(branch, f"local://{source}/", "imported/")
        return branch

    def lend(self) -> str:
        """Let the other repository refer to an object in a HEAD of this one."""
        if self.lends_to is None:
            return "to nobody"
        branch = self._branch()
        path = self._shown(f"{branch}@")
        entry = self.repository.stat(f"{branch}@", path)
        content = self.contents.get(entry["checksum"])
        if content is None:
            return f"{path}: whose content nobody knows"
        address = self.repository.address_of(entry)
        if not address.startswith("data/"):
            return f"{path} is not an object of this one"
        physical = f"{self.random.choice(self._spellings())}/{address}"
        self.lends_to.stage("main", f"lent/{path}", physical, content)
        self.lends_to.commit("main", f"refers to {path}")
        return f"{branch} {path} {physical}"

    def commit(self) -> str:
        branch = self._branch()
        return f"{branch} {self.repository.commit(branch, f'commit {len(self.log)}')}"

    def commit_dated_back(self) -> str:
        branch = self._branch()
        date = self.random.choice([_LONG_AGO, self.repository.server.clock() - timedelta(days=30)])
        return f"{branch} {self.repository.commit(branch, f'dated back {len(self.log)}', date=date)} {date:%Y-%m-%d}"

    def overwrite_and_commit(self) -> str:
        branch = self._branch()
        path = self._shown(f"{branch}@")
        address = self._upload(branch, path)
        return f"{branch} {path} {address} {self.repository.commit(branch, f'overwrites {len(self.log)}')}"

    def create_branch(self) -> str:
        name, source = self.random.choice(BRANCHES), self._branch()
        self.repository.branch(name, source)
        return f"{name} from {source}"

    def create_branch_from_commit(self) -> str:
        name, source = self.random.choice(BRANCHES), self._old_commit()
        self.repository.branch(name, source)
        return f"{name} from {source}"

    def delete_branch(self) -> str:
        name = self.random.choice(BRANCHES[1:])
        self.repository.delete_branch(name)
        return name

    def make_branch_again(self) -> str:
        name = self.random.choice(BRANCHES[1:])
        head = self.repository.branches().get(name)
        if head is None:
            return f"{name} is not there"
        self.repository.delete_branch(name)
        self.repository.branch(name, self.random.choice([head, "main"]))
        return name

    def hard_reset(self) -> str:
        branch = self._branch()
        commits = self._commits(branch)
        if not commits:
            return f"{branch} has no other commit"
        target = self.random.choice(commits)
        self.repository.hard_reset(branch, target)
        return f"{branch} to {target}"

    def _commit_all(self, branch: str) -> None:
        """Commit staged changes, since a branch with changes refuses merges and similar operations."""
        if self.repository.diff(branch):
            self.repository.commit(branch, "before another operation")

    def merge(self) -> str:
        source, target = self._branch(), self._branch()
        self._commit_all(target)
        return f"{source} into {target}: {self.repository.merge(source, target)}"

    def revert(self) -> str:
        branch = self._branch()
        self._commit_all(branch)
        if not self._is_parent_readable(branch):
            return f"{branch} has nothing to go back to"
        self.repository.revert(branch, branch, parent=1)
        return branch

    def cherry_pick(self) -> str:
        branch, commit = self._branch(), self._old_commit()
        self._commit_all(branch)
        return f"{commit} on {branch}: {self.repository.cherry_pick(branch, commit)}"

    def tag(self) -> str:
        name, ref = self.random.choice(TAGS), self._branch()
        self.repository.tag(name, ref)
        return f"{name} on {ref}"

    def tag_old_commit(self) -> str:
        name, ref = self.random.choice(TAGS), self._old_commit()
        self.repository.tag(name, ref)
        return f"{name} on {ref}"

    def delete_tag(self) -> str:
        name = self.random.choice(TAGS)
        self.repository.delete_tag(name)
        return name

    def hold_operation(self) -> str:
        """Begin an operation that waits for its hook; it ends with `release`."""
        if self.held is not None:
            return "another one waits"
        branch = self._branch()
        kind = self.random.choice(("commit", "commit", "commit", "merge", "revert", "cherry-pick"))
        description, act = self._held_call(kind, branch)
        return (
            f"{kind} on {branch}, {description}" if self._hold(act) else f"{kind} on {branch}: ended without its hook"
        )

    def _held_call(self, kind: str, branch: str) -> tuple[str, Callable[[], object]]:
        """Return an operation and its description. It only returns to young former heads, which have not expired."""
        repository = self.repository
        if kind == "commit":
            path = self._path()
            description = f"{path} {self._upload(branch, path)}"
            return description, lambda: repository.commit(branch, "held")
        self._commit_all(branch)
        if kind == "merge":
            source = self._branch()
            return f"of {source}", lambda: repository.merge(source, branch)
        if kind == "revert" and self._is_parent_readable(branch, young=True):
            return "of its HEAD", lambda: repository.revert(branch, branch, parent=1)
        picked = self._old_commit(young=True)
        return f"of {picked}", lambda: repository.cherry_pick(branch, picked)

    def hold_commit_and_overwrite(self) -> str:
        """Begin to commit what was staged longest ago, and overwrite it while the commit waits."""
        if self.held is not None:
            return "another one waits"
        staged = {branch: [entry["path"] for entry in self._changed(branch)] for branch in self._branches()}
        branch = max(sorted(staged), key=lambda name: len(staged[name]))
        if not staged[branch]:
            return "nothing is staged"
        self._hold(lambda: self.repository.commit(branch, "held"))
        description = [f"{path} {self._upload(branch, path)}" for path in staged[branch]]
        return f"{branch} {', '.join(description)}"

    def _changed(self, branch: str) -> Sequence[Json]:
        return [entry for entry in self.repository.diff(branch) if entry["type"] != "removed"]

    def _hold(self, act: Callable[[], object]) -> bool:
        """Begin a call, and return whether it waits for its hook."""
        self.hook.hold(only_first=True)
        call = UnderWay(act)
        while not self.hook.arrived.wait(0.01) and not call.is_over():
            pass
        self.held, self.held_since = call, self.repository.server.clock()
        if call.is_over():
            self.release()
        return self.held is not None

    def overwrite_held(self) -> str:
        """Overwrite or delete staged objects on some branch, as happens while a commit waits."""
        branch = self._branch()
        description = []
        for entry in self._changed(branch):
            if self.random.random() < 0.7:
                description.append(f"{entry['path']} {self._upload(branch, entry['path'])}")
        return f"{branch} {', '.join(description)}"


EVERYTHING: Mapping[str, float] = {
    "upload": 8, "upload_same": 4, "upload_and_reset": 2, "delete": 2, "reset": 0.7, "copy": 1, "get_address": 1.5,
    "link": 1.5, "link_as_printed": 2, "link_relative": 1, "import_files": 0.5, "lend": 1, "commit": 5,
    "commit_dated_back": 1, "overwrite_and_commit": 4, "create_branch": 2, "create_branch_from_commit": 1,
    "delete_branch": 1, "make_branch_again": 1, "hard_reset": 0.7, "merge": 1.5, "revert": 1, "cherry_pick": 1,
    "tag": 1, "tag_old_commit": 0.5, "delete_tag": 0.5, "hold_operation": 1, "overwrite_held": 1,
    "hold_commit_and_overwrite": 0.3,
}  # fmt: skip
OPERATIONS: Mapping[str, Callable[[Writer], str]] = {name: getattr(Writer, name) for name in EVERYTHING}
# Operations that may make unreferenced objects live again. Not in the window of a sweep: docs/safety.md warns of that.
RISKY = {
    "revert", "cherry_pick", "create_branch_from_commit", "tag_old_commit", "hard_reset", "hold_operation",
    "hold_commit_and_overwrite",
}  # fmt: skip
