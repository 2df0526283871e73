"""Reads the id of a transaction log, and nothing else: the changes of a commit do not decide what is kept."""

from retention_assets.icechunk.formats.checks import require_named
from retention_assets.icechunk.formats.envelope import FileType, open_file
from retention_assets.icechunk.formats.flat_reader import FlatBuffer, required

_ID = 0


def read_transaction_log(content: bytes, name: str) -> bytes:
    """Return the id of the snapshot whose changes the transaction log `content` records; `name` is its path.

    Raises:
        CorruptFile: as `open_file`; or the file is named by the id of another snapshot.
    """
    _, body = open_file(content, FileType.TRANSACTION_LOG, name)
    return require_named(required(FlatBuffer(body, name).root().inline(_ID, 12), name, "its id"), name)
