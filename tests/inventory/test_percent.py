import re
from urllib.parse import quote_plus, unquote_plus

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_assets.errors import CorruptFile
from retention_assets.inventory.rows import url_decoded


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_every_encoded_text_is_decoded_to_the_original(texts):
    encoded = pa.array([quote_plus(text) for text in texts], pa.string())
    assert url_decoded(encoded, "file").to_pylist() == texts


@given(st.lists(st.text("a+%2F ")))
def test_decoding_agrees_with_the_standard_library(texts):
    column = pa.array(texts, pa.string())
    try:
        decoded = url_decoded(column, "file").to_pylist()
    except CorruptFile:
        return  # the standard library leaves a stray % as it is; this is the refusal tested below
    assert decoded == [unquote_plus(text) for text in texts]


@pytest.mark.parametrize(
    ("texts", "wrong"),
    [
        pytest.param(["fine", "100%"], "100%", id="ends_in_a_percent_sign"),
        pytest.param(["%4", "1"], "%4", id="digits_continue_in_the_next_row"),
        pytest.param(["a+%4"], "a+%4", id="one_digit"),
        pytest.param(["a%zz"], "a%zz", id="no_digits"),
        pytest.param(["%%41"], "%%41", id="a_percent_sign_as_digit"),
        pytest.param(["a%20b", "a+%ff"], "a+%ff", id="not_utf_8"),
        pytest.param(["%C3", "%A9"], "%C3", id="one_character_over_two_rows"),
    ],
)
def test_an_invalid_encoding_is_refused_with_the_delivered_key(texts, wrong):
    with pytest.raises(CorruptFile, match=rf"^file: {re.escape(repr(wrong))} .*nothing was deleted"):
        url_decoded(pa.array(texts), "file")


def test_only_the_slice_of_a_column_is_decoded():
    column = pa.array(["%zz", "a%20b", "", "c+d", "%zz"])
    assert url_decoded(column.slice(1, 3), "file").to_pylist() == ["a b", "", "c d"]
