"""Flatbuffers whose tables share child objects, which the builders of libraries never write."""

from collections.abc import Callable

from flatbuffers.table import Table

from tests.icechunk_repositories import HEADER, decoded, encoded, root


def sharing(content: bytes, owners: Callable[[Table], list[Table]], slot: int) -> bytes:
    """Return the metadata file with one field of all `owners` below its root pointing at the value of the last one."""
    body, field = bytearray(decoded(content)), 4 + 2 * slot
    tables = owners(root(body))
    shared = tables[-1].Indirect(tables[-1].Pos + tables[-1].Offset(field))
    for table in tables:
        place = table.Pos + table.Offset(field)
        body[place : place + 4] = (shared - place).to_bytes(4, "little")
    return content[:HEADER] + encoded(body)
