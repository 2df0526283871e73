"""Every side effect of a run, seen where all of them pass: obstore's functions, boto3's requests, Python's own files.

Nothing of the code under test is named: whatever is not known to only read is an effect, so that a new one is seen by
itself. A run can be made to die at any effect; nothing that it tries after its death has any effect.
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
    {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.utime", "os.chmod"}
)

Act = Callable[[], object]


class Crash(BaseException):
    """The process died here. Not an Exception: nothing may take it for a store's error."""


class Moment(StrEnum):
    """When, beside its effect, a run dies."""

    BEFORE = "before"
    DURING = "during"  # half of it done: of several keys the first half, of a local file a part under another name
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class Effect:
    """One side effect: what is done to what, by a path relative to the watched directory."""

    verb: str
    target: str
    divisible: bool = False  # it may be half done

    def __str__(self) -> str:
        return f"{self.verb} {self.target}"


@dataclass(frozen=True, slots=True)
class Point:
    """Where a run dies: beside its `number`th effect."""

    number: int
    moment: Moment


def points(effects: Sequence[Effect]) -> list[Point]:
    """Return every point at which a run that has these effects can die."""
    return [
        Point(number, moment)
        for number, effect in enumerate(effects)
        for moment in Moment
        if effect.divisible or moment is not Moment.DURING
    ]


class Notes:
    """What one process notes of a run: its effects so far, and whether it died."""

    is_on = True  # they are taken

    def __init__(self) -> None:
        self.seen: list[Effect] = []
        self.dead = False
        self._lock = Lock()

    def alone(self) -> AbstractContextManager[object]:
        """Keep all others waiting: effects happen one after the other."""
        return self._lock

    def add(self, effect: Effect) -> int:
        """Note an effect, and return its number."""
        self.seen.append(effect)
        return len(self.seen) - 1

    def end(self) -> None:
        """Note that the run died."""
        self.dead = True


class Effects:
    """The effects of one run, in their order: those on files below `root`, and those on any store. It dies at `point`.

    `watch` is told of each effect before it happens.
    """

    def __init__(
        self,
        root: Path,
        point: Point | None = None,
        watch: Callable[[Effect], None] | None = None,
        notes: Notes | None = None,
    ) -> None:
        self.root = f"{root}/"
        self.notes = notes or Notes()
        self._point = point
        self._watch = watch

    @property
    def seen(self) -> Sequence[Effect]:
        """All effects so far."""
        return self.notes.seen

    @property
    def dead(self) -> bool:
        """Whether the run died."""
        return self.notes.dead

    @contextmanager
    def effect(self, verb: str, target: str, half: Act | None = None) -> Iterator[None]:
        """Let the block, which is an effect, happen or not, or only its half."""
        with self.notes.alone():
            moment = self._moment_of(Effect(verb, target.replace(self.root, ""), half is not None))
            if moment is Moment.DURING and half is not None:
                with aside():
                    half()
            if moment in (Moment.BEFORE, Moment.DURING):
                self._die()
            try:
                yield
            finally:
                if moment is Moment.AFTER:
                    self._die()

    def change_of_file(self, verb: str, target: str) -> None:
        """Note a change that happens as soon as this returns. After it the run is dead, and dies at its next effect."""
        with self.notes.alone():
            moment = self._moment_of(Effect(verb, target.replace(self.root, "")))
            if moment is Moment.BEFORE:
                self._die()
            if moment is Moment.AFTER:
                self.notes.end()

    def end_process(self) -> NoReturn:
        """Let this process die."""
        raise Crash

    def _die(self) -> NoReturn:
        self.notes.end()
        self.end_process()

    def _moment_of(self, effect: Effect) -> Moment | None:
        if self.notes.dead:
            self.end_process()
        if self._watch:
            with aside():
                self._watch(effect)
        number = self.notes.add(effect)
        return self._point.moment if self._point and self._point.number == number else None


_running: list[Effects] = []  # of this process; the last one counts
_aside = local()


@contextmanager
def aside() -> Iterator[None]:
    """Let this thread act as somebody else: what it does is no effect of the run."""
    before, _aside.now = getattr(_aside, "now", False), True
    try:
        yield
    finally:
        _aside.now = before


@contextmanager
def watched(effects: Effects) -> Iterator[Effects]:
    """Watch this process for as long as the block lasts, and end quietly when it dies."""
    watch_this_process()
    _running.append(effects)
    try:
        with suppress(Crash):
            yield effects
    finally:
        _running.pop()


@cache
def watch_this_process() -> None:
    """Lead all effects of this process past those that watch, from now on: an audit hook cannot be taken away."""
    for name, function in list(vars(obstore).items()):
        if callable(function) and not name.startswith(("_", *_READS)):
            setattr(obstore, name, _led_past(name, function))
    _lead_requests_past()
    sys.addaudithook(_hear)


def watch_from_now_on(effects: Effects) -> None:
    """Watch this process for as long as notes are taken: one that outlives the run."""
    watch_this_process()
    _running[:] = [effects]


def _watcher() -> Effects | None:
    return _running[-1] if _running and _running[-1].notes.is_on and not getattr(_aside, "now", False) else None


def _led_past(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
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


def _lead_requests_past() -> None:
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


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    """Be told by the interpreter of a file that is about to be changed."""
    is_open = (
        event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    )
    if not (is_open or event in _CHANGES_OF_FILES) or (effects := _watcher()) is None:
        return
    if isinstance(arguments[0], (str, Path)) and str(arguments[0]).startswith(effects.root):
        effects.change_of_file("write" if is_open else event, str(arguments[0]))


def _target(store: Any, arguments: tuple[Any, ...]) -> str:
    """Return where an effect lands: of a local store the file, of another its kind and the path."""
    paths = [path for path in arguments[:2] if isinstance(path, str)] or arguments[0]
    place = str(store.prefix or "/") if isinstance(store, LocalStore) else type(store).__name__
    return ", ".join(f"{place}/{path}" for path in paths)


def _half(function: Callable[..., Any], store: Any, arguments: tuple[Any, ...]) -> Act | None:
    """Return how an effect is done by half; None when its store does it whole or not at all."""
    path = arguments[0]
    if not isinstance(path, str):
        return (lambda: function(store, path[: len(path) // 2])) if len(path) > 1 else None
    if isinstance(store, LocalStore) and len(arguments) > 1 and function.__name__.startswith("put"):
        return lambda: _leave_part(Path(str(store.prefix or "/"), path), arguments[1])
    return None


def _leave_part(file: Path, content: Any) -> None:
    """Leave what a local store's writing leaves when it is cut off: a part, under a name that it does not list."""
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        part = bytes(content)
    except TypeError:  # it comes in chunks, of which none may be taken
        part = b""
    file.with_name(f"{file.name}#1").write_bytes(part[: len(part) // 2])
