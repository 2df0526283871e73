"""The protobuf messages of lakeFS. The classes are built at import from the field lists. Source: lakeFS facts 2.3.

Enums are declared as int32. The bytes are the same, and unknown values are kept.
"""

import re
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

from retention_assets.core.corruption import corrupt

FIRST_SECOND, LAST_SECOND = -62_135_596_800, 253_402_300_799  # years 1 to 9999, the range of a protobuf Timestamp

_PACKAGE = "retention_assets.lakefs"
_FIELD = re.compile(r"(?P<label>repeated |map<string, )?(?P<type>\w+)>? (?P<name>\w+) = (?P<number>\d+);")
_MESSAGES = {
    "Timestamp": "int64 seconds = 1; int32 nanos = 2;",
    "RangeData": "bytes min_key = 1; bytes max_key = 2; uint64 estimated_size = 3; int64 count = 4;",
    "Entry": (
        "string address = 1; Timestamp last_modified = 2; int64 size = 3; string e_tag = 4; "
        "map<string, string> metadata = 5; int32 address_type = 6; string content_type = 7;"
    ),
    "RepositoryData": (
        "string id = 1; string storage_namespace = 2; string default_branch_id = 3; Timestamp creation_date = 4; "
        "int32 state = 5; string instance_uid = 6; bool read_only = 7; string storage_id = 8;"
    ),
    "BranchData": (
        "string id = 1; string commit_id = 2; string staging_token = 3; repeated string sealed_tokens = 4; "
        "bool hidden = 5;"
    ),
    "TagData": "string id = 1; string commit_id = 2;",
    "CommitData": (
        "string id = 1; string committer = 2; string message = 3; Timestamp creation_date = 4; "
        "string meta_range_id = 5; map<string, string> metadata = 6; repeated string parents = 7; "
        "int32 version = 8; int32 generation = 9;"
    ),
    "GarbageCollectionRules": "int32 default_retention_days = 1; map<string, int32> branch_retention_days = 2;",
    "StagedEntryData": "bytes key = 1; bytes identity = 2; bytes data = 3;",
}

_Field = descriptor_pb2.FieldDescriptorProto


def _describe(field: _Field, kind: str) -> None:
    """Set the type of `field` to `kind`: the name of a scalar type or of a message of this package."""
    if kind[0].isupper():
        field.type = _Field.TYPE_MESSAGE
        field.type_name = f".{_PACKAGE}.{kind}"
    else:
        field.type = _Field.Type.Value(f"TYPE_{kind.upper()}")


def _add_map(message: descriptor_pb2.DescriptorProto, field: _Field, kind: str) -> None:
    """Make `field` a map from string to `kind`. Protobuf encodes a map as repeated pairs, declared in `message`."""
    pair = message.nested_type.add(name=field.name.title().replace("_", "") + "Entry")
    pair.options.map_entry = True
    for name, number, part in (("key", 1, "string"), ("value", 2, kind)):
        _describe(pair.field.add(name=name, number=number, label=_Field.LABEL_OPTIONAL), part)
    field.label = _Field.LABEL_REPEATED
    field.type = _Field.TYPE_MESSAGE
    field.type_name = f".{_PACKAGE}.{message.name}.{pair.name}"


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="retention_assets/lakefs.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for label, kind, field_name, number in _FIELD.findall(fields):
            field = message.field.add(name=field_name, number=int(number), label=_Field.LABEL_OPTIONAL)
            if label.startswith("map"):
                _add_map(message, field, kind)
                continue
            if label:
                field.label = _Field.LABEL_REPEATED
            _describe(field, kind)
    return file


_POOL = descriptor_pool.DescriptorPool()  # a separate pool, because another package can declare the same names
_POOL.Add(_file())


def _class(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


RangeData = _class("RangeData")
Entry = _class("Entry")
RepositoryData = _class("RepositoryData")
BranchData = _class("BranchData")
TagData = _class("TagData")
CommitData = _class("CommitData")
GarbageCollectionRules = _class("GarbageCollectionRules")
StagedEntryData = _class("StagedEntryData")


def parse(record: type[Message], content: bytes, name: str) -> Any:
    """Return the message in `content`. Errors: CorruptFile that names the file `name` when it cannot be parsed."""
    try:
        return record.FromString(content)
    except DecodeError as error:
        raise corrupt(name, f"it holds no {record.DESCRIPTOR.name} ({error})") from error
