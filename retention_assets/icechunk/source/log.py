"""Reads the ops log of a repository of format 2 from its repo object and backups. Source: Icechunk facts 2, backup."""

from collections.abc import Iterator
from dataclasses import replace

from retention_assets.errors import ObjectMissing
from retention_assets.icechunk.formats.model import Repo, Update
from retention_assets.icechunk.formats.paths import OVERWRITTEN
from retention_assets.icechunk.formats.repo_reader import read_repo
from retention_assets.objectstore.objects import ObjectReader


def ops_log(reader: ObjectReader, repo: Repo) -> Iterator[Update]:
    """Yield the updates, newest first, back to the first update or to the first backup that no longer exists.

    Errors: CorruptFile when a backup is corrupt.
    """
    name: str | None = None
    while True:
        top, *older = repo.latest_updates
        yield replace(top, backup_path=name)  # a page's newest entry does not name its own backup yet
        yield from older
        name = repo.repo_before_updates
        if name is None:
            return
        try:
            repo = read_repo(reader.read(f"{OVERWRITTEN}{name}"), f"{OVERWRITTEN}{name}")
        except ObjectMissing:
            return
