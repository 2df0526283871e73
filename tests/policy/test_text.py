import pytest

from retention_assets.errors import ConfigurationError
from retention_assets.policy.validation import mapping_of


@pytest.mark.parametrize(
    "text", ['{"a": {"b": 1}}', "a: {b: 1}", "a:\n  b: 1\n", "{a: {b: 1}}", '{\n\t"a": {"b": 1}\n}']
)
def test_yaml_and_json_are_read(text):
    assert mapping_of(text, "p") == {"a": {"b": 1}}


@pytest.mark.parametrize("text", ["", "  \n", "# nothing\n", "{}", "null", "[]", "---\n"])
def test_an_empty_document_is_an_error(text):
    with pytest.raises(ConfigurationError, match=r"p\.yaml: the document is empty"):
        mapping_of(text, "p.yaml")


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', "a: 1\na: 2\n", '{"x": {"a": 1, "a": 1}}', "x: {a: 1, a: 1}"])
def test_a_duplicated_key_is_an_error(text):
    with pytest.raises(ConfigurationError, match="p: the key 'a' is duplicated"):
        mapping_of(text, "p")


@pytest.mark.parametrize("text", ["days: 030", '{"days": 030}', "days: -01_0"])
def test_an_octal_number_is_an_error_with_its_place(text):
    with pytest.raises(ConfigurationError, match=r"p: cannot .* column \d+ \(-?0\w+ is an octal number in YAML: write"):
        mapping_of(text, "p")


@pytest.mark.parametrize("text", ["days: 30", '{"days": 30}', "days: 3_0", "days: 0x1e"])
def test_other_whole_numbers_of_yaml_are_read(text):
    assert mapping_of(text, "p") == {"days": 30}


@pytest.mark.parametrize(
    "text", ["a: [", '{"a": }}', "a: 2027-02-30", "!!python/object/apply:os.getcwd []", "a: 1\n---\nb: 2\n", "[" * 5000]
)
def test_a_text_that_is_neither_yaml_nor_json_is_an_error_in_one_line(text):
    with pytest.raises(ConfigurationError, match=r"^p: cannot be read as YAML or JSON: .*\. Nothing was del") as raised:
        mapping_of(text, "p")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("retention:\n  default: 3d\n holds: []\n", "line 3, column 2: the line is indented more or less than"),
        ("retention:\n  default: 3d\n    branches: []\n", "line 3, column 13: the line is indented more than"),
        ("retention:\n\tdefault: 3d\n", "line 2, column 1: indent with spaces, not with tabs"),
        ("retention:\n  branches: [{branch: *, keep: 3d}]\n", "column 24: put a text that begins with `*` in quotes"),
    ],
)
def test_an_error_of_yaml_names_the_line_and_a_remedy_and_does_not_show_the_line(text, message):
    with pytest.raises(ConfigurationError) as raised:
        mapping_of(text, "p")
    assert message in str(raised.value)
    assert "3d" not in str(raised.value)
    assert "<unicode string>" not in str(raised.value)


@pytest.mark.parametrize("text", ["just words", "[1, 2]", "3", "false", "1: a", "yes: a"])
def test_a_document_that_is_not_a_mapping_with_text_keys_is_an_error(text):
    with pytest.raises(ConfigurationError, match=r"^p: a policy is a mapping with text as keys\. .* deleted\. Begin"):
        mapping_of(text, "p")
