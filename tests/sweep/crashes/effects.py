"""Records every side effect of a run, and crashes the run at a chosen one.

Effects are recorded in obstore's functions, boto3's requests and Python's file functions, not in the code under test.
Every call that is not known to only read counts as an effect, so new kinds of effects are found without changes here.
After its crash, a run has no further effects.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from threading import Lock, local
from typing import Any, NoReturn

import obstore
from botocore.client import BaseClient
from obstore.store import LocalStore

_READS = ("Bytes", "get", "head", "list", "open_reader", "parse_scheme", "sign")
_READING_REQUESTS = ("Get", "Head", "List")
_CHANGES_OF_FILES = frozenset(
    f"os.{name}"
    for name in ("mkdir", "rename", "remove", "rmdir", "link", "symlink", "truncate", "utime", "chmod", "chown")
)

Act = Callable[[], object]


class Crash(BaseException):
    """The crash of the process. It is no Exception, so that no code handles it as an error of the store."""


class Moment(StrEnum):
    """When a run crashes: before, during or after an effect."""

    BEFORE = "before"
    DURING = "during"  # only the first half of several keys, or a partial local file under another name
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class Effect:
    """A side effect: its verb and its target, a path relative to the watched directory."""

    verb: str
    target: str
    divisible: bool = False  # a crash can leave it half done

    def __str__(self) -> str:
        return f"{self.verb} {self.target}"


@dataclass(frozen=True, slots=True)
class Point:
    """Where a run crashes: at its effect with this number."""

    number: int
    moment: Moment


def points(effects: Sequence[Effect]) -> list[Point]:
    """Return every point at which a run with these effects can crash."""
    return [
        Point(number, moment)
        for number, effect in enumerate(effects)
        for moment in Moment
        if effect.divisible or moment is not Moment.DURING
    ]


class EffectLog:
    """The effects of a run so far, and whether the run crashed. All threads of one process share it."""

    is_on = True  # effects are recorded

    def __init__(self) -> None:
        self.seen: list[Effect] = []
        self.dead = False
        self._lock = Lock()

    def exclusive(self) -> AbstractContextManager[object]:
        """Return a lock, so that effects happen one after the other."""
        return self._lock

    def add(self, effect: Effect) -> int:
        """Record an effect, and return its number."""
        self.seen.append(effect)
        return len(self.seen) - 1

    def end(self) -> None:
        """Record that the run crashed."""
        self.dead = True


class Effects:
    """The effects of one run on files below `root` and on any store, in their order. The run crashes at `point`.

    `watch` is called with each effect before the effect happens.
    """

    def __init__(
        self,
        root: Path,
        point: Point | None = None,
        watch: Callable[[Effect], None] | None = None,
        effect_log: EffectLog | None = None,
    ) -> None:
        self.root = f"{root}/"
        self.effect_log = effect_log or EffectLog()
        self._point = point
        self._watch = watch

    @property
    def seen(self) -> Sequence[Effect]:
        """The effects so far."""
        return self.effect_log.seen

    @property
    def dead(self) -> bool:
        """Whether the run crashed."""
        return self.effect_log.dead

    @contextmanager
    def effect(self, verb: str, target: str, half: Act | None = None) -> Iterator[None]:
        """Run the block, which has the effect. At the crash point, run none or half of it, or crash after it."""
        with self.effect_log.exclusive():
            moment = self._moment_of(Effect(verb, target.replace(self.root, ""), half is not None))
            if moment is Moment.DURING and half is not None:
                with outside_the_run():
                    half()
            if moment in (Moment.BEFORE, Moment.DURING):
                self._die()
            try:
                yield
            finally:
                if moment is Moment.AFTER:
                    self._die()

    def change_of_file(self, verb: str, target: str) -> None:
        """Record a change that happens after this returns. A crash after it takes place at the run's next effect."""
        with self.effect_log.exclusive():
            moment = self._moment_of(Effect(verb, target.replace(self.root, "")))
            if moment in (Moment.BEFORE, Moment.DURING):
                self._die()
            if moment is Moment.AFTER:
                self.effect_log.end()

    def end_process(self) -> NoReturn:
        """End this process."""
        raise Crash

    def _die(self) -> NoReturn:
        self.effect_log.end()
        self.end_process()

    def _moment_of(self, effect: Effect) -> Moment | None:
        if self.effect_log.dead:
            self.end_process()
        if self._watch:
            with outside_the_run():
                self._watch(effect)
        number = self.effect_log.add(effect)
        return self._point.moment if self._point and self._point.number == number else None


_running: list[Effects] = []  # in this process; the last one records
_aside = local()


@contextmanager
def outside_the_run() -> Iterator[None]:
    """Do not count what this thread does in the block as effects of the run."""
    before, _aside.now = getattr(_aside, "now", False), True
    try:
        yield
    finally:
        _aside.now = before


@contextmanager
def watched(effects: Effects) -> Iterator[Effects]:
    """Record the effects of the block. A crash ends the block without an error."""
    watch_this_process()
    _running.append(effects)
    try:
        with suppress(Crash):
            yield effects
    finally:
        _running.pop()


@cache
def watch_this_process() -> None:
    """Wrap all functions with effects, for the rest of this process: an audit hook cannot be removed."""
    for name, function in list(vars(obstore).items()):
        if callable(function) and not name.startswith(("_", *_READS)):
            setattr(obstore, name, _wrapped(name, function))
    _wrap_requests()
    sys.addaudithook(_on_audit_event)


def watch_from_now_on(effects: Effects) -> None:
    """Record the effects of a worker process, which may outlive the run, for as long as the log is on."""
    watch_this_process()
    _running[:] = [effects]


def _watcher() -> Effects | None:
    return _running[-1] if _running and _running[-1].effect_log.is_on and not getattr(_aside, "now", False) else None


def _wrapped(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def at_once(store: Any, *arguments: Any, **options: Any) -> Any:
        if (effects := _watcher()) is None:
            return function(store, *arguments, **options)
        with effects.effect(name, _target(store, arguments), _half(function, store, arguments)):
            return function(store, *arguments, **options)

    async def later(store: Any, *arguments: Any, **options: Any) -> Any:
        if (effects := _watcher()) is None:
            return await function(store, *arguments, **options)
        with effects.effect(name, _target(store, arguments), _half(function, store, arguments)):
            return await function(store, *arguments, **options)

    return later if name.endswith("_async") else at_once


def _wrap_requests() -> None:
    send = BaseClient._make_api_call

    def call(client: BaseClient, operation: str, parameters: dict[str, Any]) -> Any:
        effects = None if operation.startswith(_READING_REQUESTS) else _watcher()
        if effects is None:
            return send(client, operation, parameters)
        named = parameters.get("Delete", {}).get("Objects", [])
        half = {**parameters, "Delete": {"Objects": named[: len(named) // 2]}} if len(named) > 1 else None
        keys = ", ".join(one["Key"] for one in named) or parameters.get("Key", "")
        target = f"{parameters.get('Bucket', '')}/{keys}"
        with effects.effect(operation, target, (lambda: send(client, operation, half)) if half else None):
            return send(client, operation, parameters)

    BaseClient._make_api_call = call


def _on_audit_event(event: str, arguments: tuple[Any, ...]) -> None:
    """Record a change of a file, which the interpreter announces by an audit event."""
    is_open = (
        event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    )
    if not (is_open or event in _CHANGES_OF_FILES) or (effects := _watcher()) is None:
        return
    if isinstance(arguments[0], (str, Path)) and str(arguments[0]).startswith(effects.root):
        effects.change_of_file("write" if is_open else event, str(arguments[0]))


def _target(store: Any, arguments: tuple[Any, ...]) -> str:
    """Return the target of an effect: the file of a local store, else the kind of store and the path."""
    paths = [path for path in arguments[:2] if isinstance(path, str)] or arguments[0]
    place = str(store.prefix or "/") if isinstance(store, LocalStore) else type(store).__name__
    return ", ".join(f"{place}/{path}" for path in paths)


def _half(function: Callable[..., Any], store: Any, arguments: tuple[Any, ...]) -> Act | None:
    """Return a function that does half of an effect; None if the store does it completely or not at all."""
    path = arguments[0]
    if not isinstance(path, str):
        return (lambda: function(store, path[: len(path) // 2])) if len(path) > 1 else None
    if isinstance(store, LocalStore) and len(arguments) > 1 and function.__name__.startswith("put"):
        return lambda: _write_part(Path(str(store.prefix or "/"), path), arguments[1])
    return None


def _write_part(file: Path, content: Any) -> None:
    """Leave the partial file of an interrupted write of a local store. The store does not list its name."""
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        part = bytes(content)
    except TypeError:  # it comes in chunks, of which none may be taken
        part = b""
    file.with_name(f"{file.name}#1").write_bytes(part[: len(part) // 2])
