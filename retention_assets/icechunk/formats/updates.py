"""Reads and writes entries of the ops log; `_FIELDS` lists the fields of each kind. Source: Icechunk facts 2, Repo."""

from typing import Any

from retention_assets.icechunk.formats.checks import require_instant
from retention_assets.icechunk.formats.envelope import unknown_to_us
from retention_assets.icechunk.formats.flat_reader import BOOL, UINT8, UINT16, UINT64, Table, required
from retention_assets.icechunk.formats.flat_writer import Fields, Scalar, Value
from retention_assets.icechunk.formats.model import Availability, RepoStatus, Update, UpdateKind

_NAME, _PREVIOUS, _NEW = "name", "previous_snapshot_id", "new_snapshot_id"
_FIELDS: dict[UpdateKind, tuple[str, ...]] = {  # in the order of their slots
    UpdateKind.REPO_MIGRATED: ("from_version", "to_version"),
    UpdateKind.TAG_CREATED: (_NAME,),
    UpdateKind.TAG_DELETED: (_NAME, _PREVIOUS),
    UpdateKind.BRANCH_CREATED: (_NAME,),
    UpdateKind.BRANCH_DELETED: (_NAME, _PREVIOUS),
    UpdateKind.BRANCH_RESET: (_NAME, _PREVIOUS),
    UpdateKind.NEW_COMMIT: (_NAME, _NEW),
    UpdateKind.COMMIT_AMENDED: (_NAME, _PREVIOUS, _NEW),
    UpdateKind.NEW_DETACHED_SNAPSHOT: (_NEW,),
    UpdateKind.FEATURE_FLAG_CHANGED: ("flag_id", "flag_value", "flag_is_set"),
    UpdateKind.REPO_STATUS_CHANGED: ("status",),
}
_TYPE, _VALUE, _UPDATED_AT, _BACKUP = range(4)
_AVAILABILITY, _SET_AT, _REASON = range(3)


def read_update(table: Table) -> Update:
    """Return one entry of the ops log.

    Raises:
        CorruptFile: this version does not know the entry's kind, or the entry lacks a field that its kind must have.
    """
    name = table.buffer.name
    table.require_known(_BACKUP + 1, "an update")
    code = table.number(_TYPE, UINT8)
    if code not in UpdateKind:
        raise unknown_to_us(name, f"an update in it is of the unknown kind {code}")
    kind = UpdateKind(code)
    value = required(table.table(_VALUE), name, "what an update did")
    fields = _FIELDS.get(kind, ())
    value.require_known(len(fields), f"an update of the kind {kind.name}")
    found = {field: _read_field(value, slot, field) for slot, field in enumerate(fields)}
    if found.pop("flag_is_set", True) is False:
        found["flag_value"] = None
    return Update(
        kind=kind,
        updated_at=require_instant(table.number(_UPDATED_AT, UINT64), name, "an update"),
        backup_path=table.text(_BACKUP),
        **found,
    )


def _read_field(table: Table, slot: int, field: str) -> Any:
    name = table.buffer.name
    match field:
        case "from_version" | "to_version":
            return table.number(slot, UINT8)
        case "flag_id":
            return table.number(slot, UINT16)
        case "flag_value" | "flag_is_set":
            return bool(table.number(slot, BOOL))
        case "status":
            return read_status(required(table.table(slot), name, "the status in an update"))
        case "name":
            return required(table.text(slot), name, "the name in an update")
        case _:
            return required(table.inline(slot, 12), name, "the snapshot in an update")


def read_status(table: Table) -> RepoStatus:
    """Return the status: whether the repository may be written to."""
    name = table.buffer.name
    table.require_known(_REASON + 1, "the status")
    code = table.number(_AVAILABILITY, UINT8)
    if code not in Availability:
        raise unknown_to_us(name, f"its availability is the unknown {code}")
    set_at = require_instant(table.number(_SET_AT, UINT64), name, "its status")
    return RepoStatus(Availability(code), set_at, table.text(_REASON))


def update_fields(update: Update) -> Fields:
    """Return the flatbuffer table of an entry of the ops log."""
    fields: dict[int, Value] = {
        _TYPE: Scalar("B", update.kind),
        _VALUE: {slot: _field_value(update, field) for slot, field in enumerate(_FIELDS.get(update.kind, ()))},
        _UPDATED_AT: Scalar("Q", update.updated_at),
    }
    if update.backup_path is not None:
        fields[_BACKUP] = update.backup_path
    return fields


def _field_value(update: Update, field: str) -> Value:
    if field == "flag_is_set":
        return Scalar("?", update.flag_value is not None)
    value = getattr(update, field)
    match field:
        case "flag_value":
            return Scalar("?", bool(value))
        case "from_version" | "to_version":
            return Scalar("B", value)
        case "flag_id":
            return Scalar("H", value)
        case "status":
            return status_fields(value)
        case "name":
            return str(value)
        case _:
            return Scalar("12s", value)


def status_fields(status: RepoStatus) -> Fields:
    """Return the flatbuffer table of a status."""
    fields: dict[int, Value] = {_AVAILABILITY: Scalar("B", status.availability), _SET_AT: Scalar("Q", status.set_at)}
    if status.limited_availability_reason is not None:
        fields[_REASON] = status.limited_availability_reason
    return fields
