"""Reads a repository from a dump: three tables that the server wrote into the namespace, and maybe a staged list."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime

from retention_assets.config.configuration import INTERNAL
from retention_assets.core.amounts import counted
from retention_assets.errors import ConfigurationError, CorruptFile, ObjectMissing, SourceError
from retention_assets.lakefs.formats.lakefs_pb2 import CommitData
from retention_assets.lakefs.formats.ranges import read_metarange
from retention_assets.lakefs.formats.references import read_branches, read_commits, read_gc_rules, read_tags
from retention_assets.lakefs.formats.sstable import CONTENT_ID
from retention_assets.lakefs.rules.references import Commit, References, creation_time
from retention_assets.lakefs.source.repository import RULES, StagedList, require_known_heads, visible_files
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.policy.rules import ServerRules

_PAGE_BYTES = 20 * 2**20  # the server ends a page above this size. Source: docs/lakefs-formats.md, "Staged lists"
_CUT = (
    "The staged list may be incomplete: each of its files has more than 20 MiB. The server ends a page at this size, "
    "and its response has a `continuation_token` for the next page. A sweep can delete the staged objects of a missing "
    "page as unreferenced. If the server's last response had no `continuation_token`, the list is complete. Otherwise "
    "request all pages of a new list, and take a new dump just after that."
)
_NEW_DUMP = "Make a new dump: `lakectl refs-dump lakefs://REPOSITORY -o FILE`."


@dataclass(frozen=True, slots=True)
class DumpManifest:
    """The ids of a dump's three metaranges. Source: docs/lakefs-formats.md, "Dumps"."""

    commits_meta_range_id: str
    tags_meta_range_id: str
    branches_meta_range_id: str

    @classmethod
    def from_document(cls, document: object, where: str) -> "DumpManifest":
        """Return the manifest in the parsed JSON output of `lakectl refs-dump`. Other keys are ignored.

        Errors: ConfigurationError that names `where` and the key.
        """
        if not isinstance(document, Mapping):
            raise ConfigurationError(
                f"{where}: is not a JSON object, so it is not a dump. Nothing was read. {_NEW_DUMP}"
            )
        ids = {field.name: str(document.get(field.name, "missing")) for field in fields(cls)}
        for key, value in ids.items():
            if not CONTENT_ID.fullmatch(value):
                raise ConfigurationError(
                    f"{where}: {key} is {value[:80] or 'empty'}, but must be the id of a metarange (64 hexadecimal "
                    f"digits). Nothing was read. {_NEW_DUMP}"
                )
        return cls(**ids)


def read_commit_table(reader: ObjectReader, metarange_id: str) -> dict[str, Commit]:
    """Return the commits of a dump by id. Errors: ObjectMissing, AccessDenied, StoreError, CorruptFile."""
    return {one.id: _commit(one) for one in _records(reader, metarange_id, read_commits)}


def _commit(record: CommitData) -> Commit:
    created_at = creation_time(record.creation_date.seconds, record.creation_date.nanos // 1_000)
    return Commit(record.id, tuple(record.parents), created_at, record.meta_range_id, record.version)


def _records[R](reader: ObjectReader, metarange_id: str, read: Callable[[bytes, str], Sequence[R]]) -> Iterator[R]:
    """Yield the records in all ranges of a metarange.

    Errors: CorruptFile when a range does not have as many records as the metarange says.
    """
    name = f"{INTERNAL}/{metarange_id}"
    ranges = read_metarange(reader.read(name), reader.describe(name))
    for range_id, count in zip(ranges["range_id"].to_pylist(), ranges["count"].to_pylist(), strict=True):
        path = f"{INTERNAL}/{range_id}"
        records = read(reader.read(path), reader.describe(path))
        if len(records) != count:
            raise CorruptFile(
                f"{reader.describe(path)}: has {counted(len(records), 'record')}, but the metarange {metarange_id} "
                f"says {count:,}. Nothing was deleted. {_NEW_DUMP}"
            )
        yield from records


class DumpSource:
    """Reads a repository from a dump, without a server. The references have the write time of the dump's files.

    If the namespace was copied, the files have the time of the copy. Then the references seem newer than they are.
    """

    def __init__(self, access: StoreAccess, document: object, staged: str | None, where: str = "the dump") -> None:
        """`staged`: the folder of the staged list in the namespace. `where`: the name of the document in messages."""
        self._reader = ObjectReader(access)
        self._manifest = DumpManifest.from_document(document, where)
        self._staged = staged
        self._where = where

    def staged(self) -> StagedList | None:
        """Return the files of the configured folder; None if no folder is configured.

        `taken_at` is the write time of the newest file. The server began its scan some minutes before the oldest one;
        the grace period covers these minutes. The last page of a list is rarely larger than `_PAGE_BYTES`. So if all
        files are larger, the last page may be missing, and the list has a warning.

        Errors: SourceError when the folder has no files (if nothing is staged, a file without rows must be there).
        """
        if self._staged is None:
            return None
        files = visible_files(self._reader, self._staged.strip("/"))
        if not files:
            raise SourceError(
                f"{self._reader.describe(self._staged)}: the folder has no files, so the staged objects are unknown. "
                "Nothing was deleted. Set `staged:` to the folder of a staged list that the server wrote. If nothing "
                "is staged, the server writes no list: upload a small object to a branch, do not commit it, and let "
                "the server write the list and a dump again. Without `staged:`, you can plan but not sweep."
            )
        is_cut = all(self._reader.head(file).size > _PAGE_BYTES for file in files)
        first, last = min(files.values()), max(files.values())
        return StagedList(tuple(sorted(files)), last, warning=_CUT if is_cut else None, first_page_at=first)

    def release(self, staged: StagedList) -> None:
        """Do nothing: the files were not written for this source. See `LakeFSSource`."""

    def references(self) -> References:
        """Return the references of the dump. `taken_at` is the write time of the oldest of its three tables."""
        branches = _records(self._reader, self._manifest.branches_meta_range_id, read_branches)
        tags = _records(self._reader, self._manifest.tags_meta_range_id, read_tags)
        references = References(
            commits=read_commit_table(self._reader, self._manifest.commits_meta_range_id),
            branches={branch.id: branch.commit_id for branch in branches},
            tags={tag.id: tag.commit_id for tag in tags},
            taken_at=self._written_at(),
        )
        return require_known_heads(self._where, references, _NEW_DUMP)

    def other_repositories(self) -> Mapping[str, str]:
        """Return an empty mapping: a dump has only one repository. See `LakeFSSource`."""
        return {}

    def rules(self) -> ServerRules | None:
        """Return the rules in the namespace; None if the document is missing or empty."""
        try:
            content = self._reader.read(RULES)
        except ObjectMissing:
            return None  # without rules every commit is active, so fewer objects are deleted
        return read_gc_rules(content, self._reader.describe(RULES))

    def _written_at(self) -> datetime:
        ids = (getattr(self._manifest, field.name) for field in fields(self._manifest))
        return min(self._reader.head(f"{INTERNAL}/{metarange_id}").last_modified for metarange_id in ids)
