"""Numbers with their nouns."""

import pytest

from retention_assets.core.amounts import Amount, counted, human_amount


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 objects"), (1, "1 object"), (2, "2 objects"), (1_001, "1,001 objects")],
    ids=lambda value: str(value),
)
def test_a_noun_is_in_the_singular_only_after_1(number: int, text: str) -> None:
    assert counted(number, "object") == text


def test_the_plural_of_a_phrase_can_be_given() -> None:
    texts = [counted(number, "branch was", "branches were") for number in (1, 2)]
    assert texts == ["1 branch was", "2 branches were"]


def test_an_amount_of_one_object_is_in_the_singular() -> None:
    assert human_amount(Amount(1, 2048)) == "1 object, 2.0 KiB"
