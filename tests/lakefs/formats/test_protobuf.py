"""The generated protobuf code is that of lakefs.proto."""

import re
from pathlib import Path

from retention_assets.lakefs.formats import lakefs_pb2

PROTO = Path(lakefs_pb2.__file__).with_name("lakefs.proto").read_text(encoding="utf-8")
FIELD = re.compile(r"  (?:repeated )?(?:map<.*>|[\w.]+) (\w+) = (\d+);")


def test_the_generated_messages_have_the_fields_of_the_proto_file() -> None:
    declared = {
        name: {field: int(number) for field, number in FIELD.findall(body)}
        for name, body in re.findall(r"^message (\w+) {\n(.*?)^}", PROTO, re.MULTILINE | re.DOTALL)
    }
    generated = {
        name: {field.name: field.number for field in message.fields}
        for name, message in lakefs_pb2.DESCRIPTOR.message_types_by_name.items()
    }
    assert declared == generated
    assert len(declared) == 6
