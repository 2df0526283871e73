import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_assets.icechunk.formats.ids import (
    ID,
    decode_id,
    encode_id,
    encode_ids,
    is_canonical,
)
from tests.icechunk_repositories import INITIAL_SNAPSHOT

VECTORS = [
    pytest.param(bytes(range(12)), "000G40R40M30E209185G", id="counting"),
    pytest.param(INITIAL_SNAPSHOT, "1CECHNKREP0F1RSTCMT0", id="initial_snapshot"),
    pytest.param(bytes(12), "0" * 20, id="zeros"),
    pytest.param(b"\xff" * 12, "Z" * 19 + "G", id="ones"),
]
OTHER_NAMES = [
    pytest.param("0000000000000000000o", id="an_alias_of_zero"),
    pytest.param("000g40r40m30e209185g", id="lower_case"),
    pytest.param("I00G40R40M30E209185G", id="a_letter_that_is_not_used"),
    pytest.param("000G40R40M30E2091851", id="bits_beyond_the_id"),
    pytest.param("000G40R40M30E209185", id="too_short"),
    pytest.param("000G40R40M30E209185G0", id="too_long"),
    pytest.param("000G40R40M30E209185G\n", id="a_line_break_after_it"),
    pytest.param("é00G40R40M30E209185", id="twenty_bytes_of_another_alphabet"),
    pytest.param("foo.txt", id="a_foreign_file"),
    pytest.param("", id="nothing"),
]


@pytest.mark.parametrize(("raw", "text"), VECTORS)
def test_an_id_is_encoded_to_its_text_and_decoded_back(raw: bytes, text: str) -> None:
    assert encode_id(raw) == text
    assert decode_id(text) == raw
    assert is_canonical(text)


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_only_the_spelling_that_icechunk_writes_is_an_id(name: str) -> None:
    assert not is_canonical(name)
    with pytest.raises(ValueError, match="not the text of an id"):
        decode_id(name)


@given(st.lists(st.binary(min_size=12, max_size=12) | st.none()), st.integers(0, 3))
def test_a_column_of_ids_is_encoded_like_single_ids(ids: list[bytes | None], skipped: int) -> None:
    column = pa.array(ids, ID)[skipped:]
    texts = encode_ids(column)
    assert texts.to_pylist() == [raw and encode_id(raw) for raw in ids[skipped:]]
