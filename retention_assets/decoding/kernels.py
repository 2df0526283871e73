"""Compiled loops over the bytes of a table ("kernels"). Only this module uses numba.

Every kernel has one signature, so numba compiles it once and finds it in its cache afterwards. Compiled code checks no
bounds. So each kernel checks every position that it reads from a file. Before every copy it also checks the free space,
because the caller may have computed that space from the same corrupt file. A kernel reports an error as the number of
the row (or block) where it stopped. No kernel allocates memory, and each kernel ends after one pass over its input.
`tests/decoding/fuzz_kernels.py` runs all kernels with bounds checks.

All kernels are in one module, because numba's cache notices only changes in a kernel's own file. It does not notice
changes in other files whose functions the kernel calls.
"""

import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import register_jitable

BYTES = types.Array(types.uint8, 1, "C", readonly=True)
OUT_BYTES = types.uint8[::1]
INTS = types.Array(types.int64, 1, "C", readonly=True)
OUT_TABLE = types.int64[:, ::1]
OFFSETS = types.Array(types.int32, 1, "C", readonly=True)
OUT_OFFSETS = types.int32[::1]
COUNT = types.int64

BLOCK_TRAILER = 5  # bytes after each block: type and masked checksum
TRAILER = 8  # bytes after each user key: kind and sequence number
MAX_PART = 640 << 16  # maximum bytes of an identity, and of the data. Source: docs/lakefs-formats.md, "Values"
RECORD_MARKS = 2 * 11  # bytes besides key and value: two lengths below 2^31 and two bars
VARINT, TEXT, MESSAGE = 0, 2, 3  # the kinds of fields that `decode_fields` decodes


def kernel(signature: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile a function for `signature`, with numba's cache if possible.

    numba raises an error if its cache is damaged, or if neither the package nor the home directory is writable. Each
    process then compiles the kernel again, which takes seconds and gives the same results.
    """

    def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
        compiler: Any = njit
        try:
            return compiler(signature, cache=True, nogil=True)(_with_stable_file(function))
        except Exception:  # a damaged cache file can raise any error, because pickle can import and call anything
            return compiler(signature, nogil=True)(function)

    return compiled


def _with_stable_file(function: Any) -> Any:
    """Return `function` with a source path that stays the same, so that numba's cache works in the next process.

    On an executor, the package is in a zip file, whose path differs between applications. So the source path becomes
    the path of a copy of this module in the home directory. Errors: OSError if the copy cannot be written.
    """
    if Path(__file__).is_file():
        return function
    stable = _stable_file()
    function.__code__ = function.__code__.replace(co_filename=str(stable))
    return function


@cache
def _stable_file() -> Path:
    source: str = __loader__.get_source(__name__)  # type: ignore[name-defined]
    # numba's cache contains the module's name, and another package version may have the same source under another name.
    digest = hashlib.sha256(f"{__name__}\n{source}".encode()).hexdigest()[:16]
    file = Path.home() / ".cache" / "retention_assets" / digest / "kernels.py"
    if not file.is_file():
        file.parent.mkdir(parents=True, exist_ok=True)
        written = file.with_name(f"{os.getpid()}.py")
        written.write_text(source, encoding="utf-8")
        written.replace(file)
    return file


@register_jitable
def _uvarint(source, position, end):  # type: ignore[no-untyped-def]
    """Return (64-bit number, position after it); the position is -1 when the number is cut off or too long."""
    if position >= end:
        return np.int64(0), np.int64(-1)
    byte = np.int64(source[np.uint64(position)])
    value = byte & 127
    shift = 7
    while byte >= 128:
        position += 1
        if position >= end or shift > 63:
            return value, np.int64(-1)
        byte = np.int64(source[np.uint64(position)])
        value |= (byte & 127) << shift
        shift += 7
    if shift == 70 and byte > 1:
        return value, np.int64(-1)
    return value, position + 1


@register_jitable
def _copy(source, start, target, position, length):  # type: ignore[no-untyped-def]
    """Copy `length` bytes and return the position after them in `target`.

    Unsigned indices need no test for negative values, so the compiler uses vector instructions: 10 instead of 0.8 GB/s.
    """
    origin, goal = np.uint64(start), np.uint64(position)
    for index in range(np.uint64(length)):
        target[goal + index] = source[origin + index]
    return position + length


@kernel(COUNT(BYTES, COUNT, INTS, INTS, OUT_TABLE))
def inspect_blocks(content, limit, offsets, lengths, frames):  # type: ignore[no-untyped-def]
    """Fill `frames` with the type, the expected CRC32C and the decoded size of each block.

    Returns -1, or the number of the first block that is not inside the first `limit` bytes, with its trailer. If a
    decoded size is impossible, `frames` has -1, so that no memory is allocated for the block: Snappy decodes 3 bytes to
    at most 64.
    """
    for block in range(len(offsets)):
        start, length = offsets[block], lengths[block]
        if start < 0 or length < 0 or start > limit or length > limit - start - BLOCK_TRAILER:
            return block
        end = start + length
        masked = np.int64(0)
        for index in range(4):
            masked |= np.int64(content[end + 1 + index]) << (8 * index)
        rotated = (masked - 0xA282EAD8) & 0xFFFFFFFF
        frames[0, block] = content[end]
        frames[1, block] = ((rotated >> 17) | (rotated << 15)) & 0xFFFFFFFF
        frames[2, block] = length
        if content[end] == 1:
            size, after = _uvarint(content, start, end)
            possible = after >= 0 and size >= 0 and size // 64 <= length // 3 + 1
            frames[2, block] = size if possible else -1
    return -1


@kernel(types.UniTuple(COUNT, 2)(BYTES, INTS, INTS, OUT_TABLE))
def scan_rows(blocks, starts, ends, rows):  # type: ignore[no-untyped-def]
    """Fill `rows` with the shared key length, suffix start and length, value start and length of each record.

    Returns (number of records, -1), or (number of records so far, number of the bad block).
    """
    count = 0
    for block in range(len(starts)):
        position, end = starts[block], ends[block]
        if end - position < 4:
            return count, block
        restarts = np.int64(0)
        for index in range(4):
            restarts |= np.int64(blocks[end - 4 + index]) << (8 * index)
        end -= 4 + 4 * restarts
        previous = np.int64(0)
        while position < end:
            shared, position = _uvarint(blocks, position, end)
            if position < 0:
                return count, block
            unshared, position = _uvarint(blocks, position, end)
            if position < 0:
                return count, block
            length, position = _uvarint(blocks, position, end)
            if position < 0 or shared < 0 or shared > previous or unshared < 0 or length < 0:
                return count, block
            if unshared > end - position or length > end - position - unshared or count == rows.shape[1]:
                return count, block
            rows[0, count] = shared
            rows[1, count] = position
            rows[2, count] = unshared
            rows[3, count] = position + unshared
            rows[4, count] = length
            previous = shared + unshared
            position += unshared + length
            count += 1
        if position != end:
            return count, block
    return count, -1


@kernel(COUNT(BYTES, OUT_TABLE, OUT_TABLE))
def read_handles(blocks, rows, handles):  # type: ignore[no-untyped-def]
    """Fill `handles` with the offset and length in the value of each index row; returns -1 or the bad row."""
    for row in range(rows.shape[1]):
        position, end = rows[3, row], rows[3, row] + rows[4, row]
        handles[0, row], position = _uvarint(blocks, position, end)
        if position < 0:
            return row
        handles[1, row], position = _uvarint(blocks, position, end)
        if position != end:
            return row
    return -1


@kernel(COUNT(BYTES, OUT_TABLE, OUT_BYTES, OUT_OFFSETS))
def compose_keys(blocks, rows, keys, offsets):  # type: ignore[no-untyped-def]
    """Write the user keys one after another; returns -1 or the row whose trailer or order is wrong.

    `keys` has space for the user keys and one trailer. Every trailer must be of kind 1 (SET) and sequence 0, because
    lakeFS writes no others. So the bytes of a trailer that a key shares with its predecessor are known.
    """
    start = np.int64(0)
    size = np.int64(-1)  # of the previous user key; -1 before the first
    offsets[0] = 0
    for row in range(rows.shape[1]):
        shared, suffix, unshared = rows[0, row], rows[1, row], rows[2, row]
        before, known = start, size
        start += size if size > 0 else 0
        size = shared + unshared - TRAILER
        # The caller reserves space for the sum of all key lengths. In a corrupt table, keys that are too short for a
        # trailer lower that sum, and then the longer keys do not fit.
        if size < 0 or shared > known + TRAILER or size + TRAILER > len(keys) - start:
            return row
        real = min(shared, known) if known > 0 else 0
        position = _copy(keys, before, keys, start, real)
        for index in range(real, shared):
            keys[position] = 1 if index == known else 0
            position += 1
        _copy(blocks, suffix, keys, position, unshared)
        for index in range(TRAILER):
            if keys[start + size + index] != (1 if index == 0 else 0):
                return row
        common = min(size, known)
        index = min(real, common)
        while index < common and keys[before + index] == keys[start + index]:
            index += 1
        if index < common:
            if keys[before + index] > keys[start + index]:
                return row
        elif size <= known:
            return row
        offsets[row + 1] = start + size
    return -1


@register_jitable
def _put_part(source, start, length, target, position):  # type: ignore[no-untyped-def]
    """Write `<decimal length><bytes>|`, the form that the content id hashes; return the position after it."""
    divisor = np.int64(1)
    while length // divisor >= 10:
        divisor *= 10
    while divisor > 0:
        target[position] = 48 + (length // divisor) % 10
        position += 1
        divisor //= 10
    position = _copy(source, start, target, position, length)
    target[position] = 124
    return position + 1


@kernel(types.UniTuple(COUNT, 2)(BYTES, OFFSETS, BYTES, OUT_TABLE, COUNT, OUT_BYTES))
def hashed_records(keys, offsets, blocks, rows, first, target):  # type: ignore[no-untyped-def]
    """Write the bytes that the content id hashes, from the record `first` on, until `target` may be full.

    Returns (next record, bytes written). Source: docs/lakefs-formats.md, "Ids".
    """
    position = np.int64(0)
    for row in range(first, rows.shape[1]):
        start = np.int64(offsets[row])
        size = np.int64(offsets[row + 1]) - start
        if position + size + rows[4, row] + RECORD_MARKS > len(target):
            return row, position
        position = _put_part(keys, start, size, target, position)
        position = _put_part(blocks, rows[3, row], rows[4, row], target, position)
    return rows.shape[1], position


@kernel(COUNT(BYTES, OUT_TABLE, OUT_TABLE))
def split_values(blocks, rows, parts):  # type: ignore[no-untyped-def]
    """Fill `parts` with the start and length of each value's identity and data; returns -1 or the bad row.

    Lengths are zig-zag varints. Bytes after the data are ignored. Source: docs/lakefs-formats.md, "Values".
    """
    for row in range(rows.shape[1]):
        position, end = rows[3, row], rows[3, row] + rows[4, row]
        for part in range(2):
            zigzag, position = _uvarint(blocks, position, end)
            if position < 0 or zigzag < 0 or zigzag & 1:
                return row
            length = zigzag >> 1
            if length > MAX_PART or length > end - position:
                return row
            parts[2 * part, row] = position
            parts[2 * part + 1, row] = length
            position += length
    return -1


@kernel(COUNT(BYTES, INTS, INTS, OUT_OFFSETS, OUT_BYTES))
def gather(source, starts, lengths, offsets, target):  # type: ignore[no-untyped-def]
    """Copy the pieces of `source` to `target` one after another, and fill `offsets` with Arrow's offsets.

    Returns -1, or the row whose piece is not inside `source` or does not fit into `target`.
    """
    position = np.int64(0)
    offsets[0] = 0
    for row in range(len(starts)):
        start, length = starts[row], lengths[row]
        if start < 0 or length < 0 or length > len(source) - start or length > len(target) - position:
            return row
        position = _copy(source, start, target, position, length)
        offsets[row + 1] = position
    return -1


@register_jitable
def _after_group(source, position, end):  # type: ignore[no-untyped-def]
    """Return the position after an unknown group; -1 when the group is malformed."""
    depth = 1
    while depth > 0:
        tag, position = _uvarint(source, position, end)
        if position < 0 or tag < 8:
            return -1
        wire = tag & 7
        if wire == 3:
            depth += 1
        elif wire == 4:
            depth -= 1
        else:
            _value, _size, position = _field(source, position, end, wire)
            if position < 0:
                return -1
    return position


@register_jitable
def _field(source, position, end, wire):  # type: ignore[no-untyped-def]
    """Return (number or start, length, position after) of a field that is not a group; position -1 if malformed."""
    value, size = np.int64(0), np.int64(0)
    if wire == 0:
        value, position = _uvarint(source, position, end)
        return value, size, position
    if wire == 2:
        size, position = _uvarint(source, position, end)
        if position < 0 or size < 0:
            return value, size, -1
        value = position
    elif wire == 1:
        size = np.int64(8)
    elif wire == 5:
        size = np.int64(4)
    else:
        return value, size, -1
    if size > end - position:
        return value, size, -1
    return value, size, position + size


@kernel(COUNT(BYTES, INTS, INTS, OUT_TABLE, OUT_TABLE, OUT_TABLE))
def decode_fields(source, starts, lengths, plan, values, sizes):  # type: ignore[no-untyped-def]
    """Decode the wanted fields of one protobuf message per row; returns -1 or the bad row.

    `plan[level, number]` is 4 * slot + kind for a wanted field, and -1 for any other; level 1 is a nested message.
    Results: a number is in `values[slot]`; the start and length of a text are in `values[slot]` and `sizes[slot]`; a
    present message has 1 in `sizes[slot]`. If a field is repeated, the last value counts. Unknown fields, and fields
    of another wire type, are skipped.
    """
    for row in range(len(starts)):
        position, end = starts[row], starts[row] + lengths[row]
        outer, level = end, 0
        for slot in range(values.shape[0]):
            values[slot, row] = 0
            sizes[slot, row] = 0
        while position < end or level == 1:
            if position == end:
                level, end = 0, outer
                continue
            tag, position = _uvarint(source, position, end)
            if position < 0 or tag < 8 or tag >= 1 << 32:
                return row
            number, wire = tag >> 3, tag & 7
            if wire == 3:
                position = _after_group(source, position, end)
                if position < 0:
                    return row
                continue
            value, size, position = _field(source, position, end, wire)
            if position < 0:
                return row
            wanted = plan[level, number] if number < plan.shape[1] else -1
            if wanted < 0:
                continue
            slot, kind = wanted >> 2, wanted & 3
            if kind == MESSAGE and wire == 2:
                sizes[slot, row] = 1
                level, end, position = 1, value + size, value
            elif kind == wire:
                values[slot, row] = value
                sizes[slot, row] = size
    return -1
