"""Finds the sample repositories, and copies one to another folder with the sizes and times of its listing.

A git checkout gives every file the time of the checkout, but the grace period needs the times of the listing. So a
sample is copied before use.
"""

import csv
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from retention_assets.config.configuration import INTERNAL
from retention_assets.config.folders import writable_folder
from retention_assets.core.amounts import counted
from retention_assets.errors import CorruptFile, StoreError

_CHECKOUT = Path(__file__).resolve().parents[2] / "demo"
_PACKAGED = Path(__file__).resolve().parent / "saved"  # only in an installed package
_ELSEWHERE = "Run `retention demo` in a folder that you can write."


def demo_configuration() -> Path:
    """Return the path of the demo's retention.yaml: in the checkout, or else in `demo/` of the working directory."""
    folder = _CHECKOUT if (_CHECKOUT / "orchard").is_dir() else Path.cwd() / "demo"
    return folder / "retention.yaml"


def copy_demo() -> Path:
    """Return the path of the demo's retention.yaml; if the file is missing, copy the demo out of the package first.

    Errors: ConfigurationError if the folder cannot be written.
    """
    file = demo_configuration()
    if not file.is_file() and _PACKAGED.is_dir():
        shutil.copytree(_PACKAGED, writable_folder(file.parent, _ELSEWHERE), dirs_exist_ok=True)
    return file


@dataclass(frozen=True, slots=True)
class _Listed:
    path: str  # relative to the namespace
    size: int  # bytes
    last_modified: datetime  # aware, the store's clock


def place_sample(source: Path, target: Path) -> int:
    """Copy the namespace of `source` to `target` and return the number of files there.

    `source` has `namespace/` and `listing.csv` (key, size, last_modified, etag; keys begin with the repository's
    name). Each listed file gets its listed time. A listed file that the sample does not contain becomes a sparse file
    of zeros with the listed size. An older copy at `target` is replaced.

    Errors: StoreError when `source` is incomplete, or when `target` is something other than a copy of the sample;
    CorruptFile when a file is not listed or does not have its listed size; ConfigurationError when the folder of
    `target` cannot be written. After an error, `target` is unchanged.
    """
    listed = list(_read_listing(source))
    _require_replaceable(source, target)
    with replaced(target) as fresh:
        shutil.copytree(source / "namespace", fresh, copy_function=shutil.copyfile, dirs_exist_ok=True)
        _require_all_listed(fresh, {entry.path for entry in listed}, source)
        for entry in listed:
            _set_size_and_time(fresh, entry, source)
    return len(listed)


@contextmanager
def replaced(target: Path) -> Iterator[Path]:
    """Give a new directory, which replaces `target` at the end of the block. After an error, `target` is unchanged.

    Errors: ConfigurationError when the folder of `target` cannot be written.
    """
    writable_folder(target.parent, _ELSEWHERE)
    fresh = target.with_name(f"{target.name}.placing")
    shutil.rmtree(fresh, ignore_errors=True)  # left by an interrupted run
    fresh.mkdir()
    try:
        yield fresh
        shutil.rmtree(target, ignore_errors=True)
        fresh.rename(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _remedy(source: Path) -> str:
    """Return how to restore a damaged sample. Outside a checkout, the sample is a copy out of the installed package."""
    if source.resolve().is_relative_to(_CHECKOUT):
        return f"Restore the sample: `git checkout {source}`, with `core.autocrlf` set to `false`."
    return (
        f"Restore the sample: remove {source.parent / 'retention.yaml'}, and run `retention demo`. It then copies the "
        "samples out of the installed package. If the error persists, install the package again."
    )


def _read_listing(source: Path) -> Iterator[_Listed]:
    listing = source / "listing.csv"
    if not listing.is_file():
        raise StoreError(
            f"{listing}: the file does not exist, so there is no sample. Nothing was copied. {_remedy(source)}"
        )
    with listing.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            yield _Listed(
                path=row["key"].partition("/")[2],
                size=int(row["size"]),
                last_modified=datetime.fromisoformat(row["last_modified"]),
            )


def _require_replaceable(source: Path, target: Path) -> None:
    """Refuse a `target` that is not a copy of the sample, that contains the sample, or that is inside the sample.

    A copy has all files of the sample in `_lakefs/`. Their names are hashes, so no other repository has them all.
    """
    if source.resolve().is_relative_to(target.resolve()) or target.resolve().is_relative_to(source.resolve()):
        raise StoreError(
            f"{target}: a sample cannot be copied over {source}. Nothing was removed. Choose another path."
        )
    missing = _files_of(source / "namespace" / INTERNAL) - _files_of(target / INTERNAL)
    if target.exists() and missing and (not target.is_dir() or any(target.iterdir())):
        raise StoreError(
            f"{target}: exists and is not a copy of the sample (it has no {INTERNAL}/{min(missing)}). Nothing was "
            "removed. Choose an empty directory."
        )


def _files_of(directory: Path) -> set[str]:
    return {path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()}


def _require_all_listed(namespace: Path, listed: set[str], source: Path) -> None:
    if unlisted := sorted(_files_of(namespace) - listed):
        raise CorruptFile(
            f"{source / 'namespace'}: listing.csv does not name {counted(len(unlisted), 'file')}, such as "
            f"{unlisted[0]!r}. Nothing was copied. Remove the files that listing.csv does not name."
        )


def _set_size_and_time(namespace: Path, entry: _Listed, source: Path) -> None:
    """Give a file its listed time. A file that the sample does not contain is created with the listed size."""
    path = namespace / entry.path
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.truncate(entry.size)
    elif path.stat().st_size != entry.size:
        raise CorruptFile(
            f"{source / 'namespace' / entry.path}: the file has {path.stat().st_size:,} bytes, but listing.csv says "
            f"{entry.size:,}. Nothing was copied. {_remedy(source)}"
        )
    seconds = entry.last_modified.timestamp()
    os.utime(path, (seconds, seconds))
