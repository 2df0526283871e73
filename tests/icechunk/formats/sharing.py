"""Flatbuffers whose tables share what is below them, as no builder makes them on its own."""

from collections.abc import Callable

from flatbuffers.table import Table

from tests.icechunk_repositories import HEADER, decoded, encoded, root


def sharing(content: bytes, owners: Callable[[Table], list[Table]], slot: int) -> bytes:
    """The metadata file with one field of all `owners` below its root pointing at what the last of them holds."""
    body, field = bytearray(decoded(content)), 4 + 2 * slot
    tables = owners(root(body))
    shared = tables[-1].Indirect(tables[-1].Pos + tables[-1].Offset(field))
    for table in tables:
        place = table.Pos + table.Offset(field)
        body[place : place + 4] = (shared - place).to_bytes(4, "little")
    return content[:HEADER] + encoded(body)
