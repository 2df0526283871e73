import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_assets.policy.matching import glob_matches, glob_regex, matches_name, prefix_covers, rules_naming


@pytest.mark.parametrize(
    ("prefix", "path", "covers"),
    [
        pytest.param("foo/bar", "foo/bar", True, id="the_path_itself"),
        pytest.param("foo/bar", "foo/bar/x", True, id="below"),
        pytest.param("foo/bar", "foo/bar/x/y", True, id="far_below"),
        pytest.param("foo/bar", "foo/barn", False, id="a_longer_name"),
        pytest.param("foo/bar", "foo", False, id="above"),
        pytest.param("foo/bar", "a/foo/bar", False, id="elsewhere"),
        pytest.param("foo/bar/", "foo/bar/x", True, id="trailing_slash"),
        pytest.param("foo/bar/", "foo/barn", False, id="trailing_slash_and_a_longer_name"),
        pytest.param("", "anything", True, id="empty_covers_everything"),
        pytest.param("été", "été/à Ω", True, id="accents_and_spaces"),
    ],
)
def test_a_prefix_is_a_directory(prefix, path, covers):
    assert prefix_covers(prefix, path) is covers


@pytest.mark.parametrize(
    ("glob", "text", "matches"),
    [
        ("tmp/*.parquet", "tmp/a.parquet", True),
        ("tmp/*.parquet", "tmp/a/b.parquet", False),
        ("tmp/*.parquet", "tmp/a.parquet/part-0", False),
        ("tmp/*.parquet", "x/tmp/a.parquet", False),
        ("tmp/**/x", "tmp/x", True),
        ("tmp/**/x", "tmp/a/b/x", True),
        ("tmp/**", "tmp/a/b", True),
        ("**/x", "x", True),
        ("**/x", "a/b/x", True),
        ("raw**/*.p", "rawest.p", False),
        ("raw**/*.p", "raw/a.p", True),
        ("raw**/*.p", "rawa/b/c.p", True),
        ("tmp/**", "tmpa", False),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("a.c", "abc", False),
        ("[ab]", "[ab]", True),
        ("[ab]", "a", False),
        ("*", "line\nbreak", True),
        ("a", "a\n", False),
        ("*.csv", "été Ω.csv", True),
    ],
)
def test_a_wildcard_stays_in_its_directory_and_nothing_else_is_special(glob, text, matches):
    assert glob_matches(glob, text) is matches


def test_the_regex_has_only_syntax_that_java_and_python_read_alike():
    regex = glob_regex("a-b c/*.x#&~**")
    assert r"\Z" not in regex
    assert r"\z" not in regex
    assert regex.startswith(r"\A")


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("*", "release/1.0", True),
        ("release*", "release/1.0", True),
        ("release?1.0", "release/1.0", True),
        ("release/*", "release/1/0", True),
        ("release/**/0", "release/0", True),
        ("release/**/0", "release/1/2/0", True),
        ("rel/*", "release/1.0", False),
        ("*-1.0", "release/1.0", False),
        ("release/1.0", "release/1x0", False),
        ("*", "line\nbreak", True),
    ],
)
def test_in_names_a_wildcard_also_matches_a_slash(pattern, name, matches):
    assert matches_name(pattern, name) is matches


@given(st.text("ab/*?", max_size=6), st.text("ab/", max_size=6))
def test_a_glob_matches_at_least_the_names_that_it_matches_as_paths(glob, name):
    assert matches_name(glob, name) or not glob_matches(glob, name)


@pytest.mark.parametrize(
    ("name", "rules", "with_default"),
    [
        ("exp", ["exact"], False),
        ("exp-1", ["star"], False),
        ("exp-1/a", ["star", "deep"], False),
        ("exp/a", ["deep"], False),
        ("dev/a", ["dev"], True),
        ("main", [], True),
    ],
)
def test_the_default_applies_too_where_globs_match_only_across_a_slash(name, rules, with_default):
    patterns = [("exp", "exact"), ("exp-*", "star"), ("exp*/**", "deep"), ("dev*", "dev")]
    assert rules_naming(patterns, name) == (rules, with_default)


@pytest.mark.parametrize(
    ("name", "rules", "with_default"),
    [
        pytest.param("gr\u00f6\u00dfe", ["exact"], False, id="as_in_the_rule"),
        pytest.param("gro\u0308\u00dfe", ["exact"], True, id="decomposed"),
        pytest.param("gr%C3%B6%C3%9Fe", ["exact"], True, id="percent_encoded"),
        pytest.param("gro%CC%88%C3%9Fe", ["exact"], True, id="percent_encoded_and_decomposed"),
        pytest.param("gro\u0308\u00dfe-2", ["star", "exact-2"], False, id="a_glob_matches_as_it_is_written"),
        pytest.param("grose", [], True, id="other_letters"),
    ],
)
def test_a_rule_whose_name_is_spelled_otherwise_applies_beside_the_default(name, rules, with_default):
    patterns = [("gr\u00f6\u00dfe", "exact"), ("gr\u00f6\u00dfe-2", "exact-2"), ("*-2", "star")]
    assert rules_naming(patterns, name) == (rules, with_default)


@pytest.mark.parametrize(("pattern", "named"), [("exp-1", True), ("exp-*", True), ("exp-?", True), ("exp", False)])
def test_a_branch_is_named_by_name_or_glob(pattern, named):
    assert matches_name(pattern, "exp-1") is named
