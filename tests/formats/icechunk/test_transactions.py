from pathlib import Path

import pytest

from retention_assets.errors import CorruptFile
from retention_assets.icechunk.formats.ids import encode_id
from retention_assets.icechunk.formats.transactions import read_transaction_log
from tests.formats.icechunk.conftest import Varied


def test_a_log_is_of_the_snapshot_that_it_is_named_by(varied: Varied) -> None:
    logs = varied.files("transactions")
    assert [encode_id(read_transaction_log(content, name)) for name, content in logs.items()] == [
        Path(name).name for name in logs
    ]


def test_a_log_under_the_name_of_another_is_refused(varied: Varied) -> None:
    (_, content), (other, _) = list(varied.files("transactions").items())[:2]
    with pytest.raises(CorruptFile, match="not the one it is named by"):
        read_transaction_log(content, other)
