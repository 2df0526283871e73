"""The docs match the code: their commands parse, their keys exist, and each check and error has a remedy."""

import importlib.util
import re
import shlex
import tomllib
from collections.abc import Iterator
from datetime import time, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any, get_args
from xml.etree import ElementTree

import click
import pytest
import yaml
from dagster._core.workspace.config_schema import process_workspace_config
from pydantic import BaseModel

from retention_assets.assets.catalog import CHECKS
from retention_assets.config.configuration import Settings, configuration_in
from retention_assets.config.durations import parse_duration
from retention_assets.config.settings import IcechunkSettings, LakeFSSettings
from retention_assets.core.guards import CheckResult
from retention_assets.core.remedies import REMEDIES
from retention_assets.policy.documents import read_document, read_snapshot_document
from tests.doc_pages import PAGES, ROOT, blocks_of, name_of, named_in, parse, shown_in
from tests.refusals import ENDS_UNDONE, OF_RUNS, UNDONE


def _loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


reference = _loaded("docs_reference")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_in_a_block_of_the_docs_parses(page: Path) -> None:
    for arguments in shown_in(page):
        try:
            parse(arguments)
        except click.ClickException as error:
            pytest.fail(f"retention {shlex.join(arguments)}: {error.format_message()}")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_in_a_sentence_of_the_docs_exists_with_its_options(page: Path) -> None:
    for arguments in named_in(page):
        try:
            parse(["plan" if word == "COMMAND" else word for word in arguments])
        except (
            click.MissingParameter,
            click.BadOptionUsage,
            click.exceptions.NoArgsIsHelpError,
            click.exceptions.Exit,
        ):
            pass  # a sentence may name a command without its arguments, and `--help` ends it
        except click.ClickException as error:
            pytest.fail(f"retention {shlex.join(arguments)}: {error.format_message()}")


def test_the_tests_find_the_commands_in_the_docs() -> None:
    assert ["approve", "orchard", "HASH"] in shown_in(ROOT / "README.md")
    assert ["restore", "REPO", "--plan", "HASH"] in named_in(ROOT / "docs/runbook.md")
    assert sum(len(shown_in(page)) for page in PAGES) > 40
    assert sum(len(named_in(page)) for page in PAGES) > 60


def test_every_page_is_in_the_navigation() -> None:
    site = yaml.safe_load(re.sub(r"!!python/\S+", "", (ROOT / "mkdocs.yml").read_text("utf-8")))
    named = set(re.findall(r"[\w/-]+\.md", str(site["nav"])))
    pages = {str(page.relative_to(ROOT / "docs")) for page in PAGES[1:]}
    assert named == pages | reference.pages().keys()


# ---- images and drawings

EXPLAINED = ["retention.md", "lifecycle.md", "uncommitted.md", "safety.md"]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_image_has_a_text_alternative(page: Path) -> None:
    for alternative, file in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", page.read_text("utf-8")):
        assert len(alternative) > 20, file
        assert (page.parent / file).is_file()


@pytest.mark.parametrize("page", EXPLAINED)
def test_a_page_that_explains_a_rule_has_a_drawing_that_needs_no_network(page: str) -> None:
    drawings = re.findall(r"\]\(([\w-]+\.svg)\)", (ROOT / "docs" / page).read_text("utf-8"))
    assert drawings
    for drawing in drawings:
        root = ElementTree.parse(ROOT / "docs" / drawing).getroot()
        assert root.findtext("{http://www.w3.org/2000/svg}title")
        assert not [one for part in root.iter() for one in part.attrib.values() if "://" in one]


# ---- citations

_CITED = re.compile(r"docs/(?P<page>[\w/-]+\.md)(?:,\s+(?P<headings>\"[^\"]+\"(?: and \"[^\"]+\")*))?(?P<rest>,\s+\w)?")
_CITING = [
    path
    for folder in ("retention_assets", "tests", "scripts", "benchmarks", "examples")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in (".py", ".proto") and path.name != Path(__file__).name
]


def _headings(page: Path) -> set[str]:
    """Return the headings of a page, and the bold words with which its paragraphs begin."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    bold = re.findall(r"^(?:- )?\*\*([^*]+?)[.:]?\*\*", text, re.MULTILINE)
    return {*re.findall(r"^#+ (.+)$", text, re.MULTILINE), *bold}


def test_every_citation_of_the_docs_names_a_page_and_a_heading_that_exist() -> None:
    headings = {name_of(page).removeprefix("docs/"): _headings(page) for page in PAGES}
    wrong, cited = [], 0
    for path in _CITING:
        text = re.sub(r"\s*\n\s*(?:(?:#|//) )?", " ", path.read_text("utf-8"))  # a citation may span two lines
        for found in _CITED.finditer(text):
            named = re.findall(r'"([^"]+)"', found["headings"] or "")
            known = headings.get(found["page"], set())
            cited += len(named)
            if not known or not known.issuperset(named) or (found["rest"] and not named):
                wrong.append(f"{name_of(path)}: {found[0]}")
    assert not wrong
    assert cited > 80


def test_no_citation_names_a_page_that_is_not_in_the_repository() -> None:
    pattern = re.compile(r"\b(?:lakeFS|Icechunk)\s+facts\b|\bDESIGN\.md|\bseed 00\d|\bhazard H\d", re.IGNORECASE)
    assert not [name_of(path) for path in _CITING if pattern.search(path.read_text("utf-8"))]


# ---- snippets and versions

_LAKEFS = {"kind": "lakefs", "namespace": "s3://lake/orchard", "source": {"dump": "refs.json"}, "policy": "policy.yaml"}
_OF_POLICIES = {"retention", "lifecycle", "holds"}
SNIPPETS = [
    pytest.param(block.text, id=f"{name_of(page)}-{number}")
    for page in PAGES
    for number, block in enumerate(blocks_of(page, "yaml"))
]


@pytest.mark.parametrize("text", SNIPPETS)
def test_every_snippet_of_configuration_is_valid(text: str, tmp_path: Path) -> None:
    document, file = yaml.safe_load(text), tmp_path / "retention.yaml"
    if "snapshots" in document:
        read_snapshot_document(text, "policy.yaml")
    elif document.keys() & _OF_POLICIES:
        read_document(text, "policy.yaml")
    elif "load_from" in document:
        assert process_workspace_config(document).success
    elif "attributes" in document:
        configuration_in(text, file)
    else:  # a part of the file: its repository has the rest
        whole = document if document.keys() & {"warehouse", "repositories"} else {"repositories": {"orchard": document}}
        shown = whole.get("repositories", {"orchard": {}})
        repositories = {name: one if "kind" in one else {**_LAKEFS, **one} for name, one in shown.items()}
        configuration_in(yaml.safe_dump({"warehouse": "tables", **whole, "repositories": repositories}), file)


def test_the_changelog_has_the_version_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert f"\n## {project['version']}\n" in (ROOT / "CHANGELOG.md").read_text("utf-8")


# ---- retention.yaml


def keys_of(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield the keys of a model and of the models in it, each with its default."""
    for name, field in model.model_fields.items():
        inner = [one for one in (field.annotation, *get_args(field.annotation)) if _is_model(one)]
        if len(inner) == 1 and name not in ("source", "inventory", "earlier_keys", "signing_key"):
            yield from keys_of(inner[0], f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", None if field.is_required() else field.get_default(call_default_factory=True)


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def documented() -> dict[str, str]:
    """Return the text of the default of each key in the tables of the page."""
    found: dict[str, str] = {}
    for line in (ROOT / "docs/configuration.md").read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
        keys = re.findall(r"`([^`]+)`", cells[0])
        if not line.startswith("| `") or len(cells) < 3:
            continue
        defaults = cells[1].split(", ") if len(keys) == len(cells[1].split(", ")) else [cells[1]] * len(keys)
        first = keys[0].rpartition(".")[0]
        for key, default in zip(keys, defaults, strict=True):
            found[f"{first}{key}" if first and key.count(".") == 1 and key != keys[0] else key] = default
    return found


def models() -> dict[str, Any]:
    of_file = {key: value for key, value in keys_of(Settings, "") if key != "repositories"}
    both = {**dict(keys_of(IcechunkSettings, ".")), **dict(keys_of(LakeFSSettings, "."))}
    return {**of_file, **both}


def test_the_configuration_page_has_exactly_the_keys_of_the_code() -> None:
    text = (ROOT / "docs/configuration.md").read_text("utf-8")
    parts = {".source": [".source.dump", ".source.api"]}
    missing = [
        key for key in models() if not {key, *parts.get(key, ())} & documented().keys() and f"`{key}`" not in text
    ]
    assert not missing
    known = models().keys() | {"repositories.<name>", ".source.dump", ".source.dump_age", ".source.api"}
    assert not [key for key in documented() if key not in known and not key.startswith(("records.", "spark."))]


def test_the_defaults_on_the_configuration_page_equal_the_defaults_in_the_code() -> None:
    shown, wrong = documented(), {}
    for key, default in models().items():
        if key not in shown or shown[key] in ("", "required", "none", "namespace") or shown[key].startswith("`<"):
            continue
        if key not in (".settle", ".reflog") and not _is_shown(default, shown[key].strip("`")):  # they differ by kind
            wrong[key] = (default, shown[key])
    assert not wrong


def _is_shown(value: Any, text: str) -> bool:
    if isinstance(value, timedelta):
        return parse_duration(text) == value
    if isinstance(value, time):
        return text == f"{value:%H:%M}"
    return text == str(value).lower() if isinstance(value, bool | int | float | str) else True


# ---- checks and errors


def test_every_check_has_a_remedy() -> None:
    assert REMEDIES.keys() == CHECKS.keys()
    assert all(remedy.endswith(".") for remedy in REMEDIES.values())


@pytest.mark.parametrize("check", ["manifests_whole", "references_resolve"])
def test_the_remedy_of_an_icechunk_check_does_not_name_a_dump(check: str) -> None:
    assert "dump" not in REMEDIES[check]


@pytest.mark.parametrize("guard", sorted(REMEDIES))
def test_the_message_of_a_failed_check_has_its_detail_and_its_remedy(guard: str) -> None:
    failed = CheckResult(guard, False, "3 objects, a first, are not there")
    assert failed.message == f"3 objects, a first, are not there. {REMEDIES[guard]}"
    assert CheckResult(guard, True, "all are there").message == "all are there"


# Words by which a message says what was not done. A placeholder may stand for that sentence. Other messages are about
# partial results: they name the rest.
_UNDONE = re.compile(rf"{UNDONE}|<(undone|remedy|again|missing|rest|left|told)>")
# A message that ends with what was not done has no remedy, unless a value in it has one.
_WITH_REMEDY = re.compile(r"<(blocked|unknown|lines|told|missing|guard)>|remedy>")


@pytest.mark.parametrize("error", OF_RUNS)
def test_every_message_has_a_remedy(error: str) -> None:
    without = [
        f"{one.module}:{one.line}: {one.text}"
        for one in reference.messages()
        if one.error == error
        and (ENDS_UNDONE.search(one.text) or ". " not in one.text)
        and not _WITH_REMEDY.search(one.text)
        and not one.text.endswith("No action is needed.")
    ]
    assert not without


@pytest.mark.parametrize("error", OF_RUNS)
def test_every_message_says_what_was_not_done(error: str) -> None:
    silent = [
        f"{one.module}:{one.line}: {one.text}"
        for one in reference.messages()
        if one.error == error and not _UNDONE.search(one.text)
    ]
    assert not silent


def test_a_counted_noun_is_in_the_plural_on_the_generated_page() -> None:
    shown = "<commits> commits and <branches> branches, but every lakeFS repository has at least one of each"
    assert any(shown in one.text for one in reference.messages())


def test_the_generated_pages_have_every_command_table_check_and_error() -> None:
    pages = reference.pages()
    assert all(f"## {name}\n" in pages["reference/commands.md"] for name, _ in reference.commands())
    assert all(f"## {name}\n" in pages["reference/tables.md"] for name in reference.SHOWN)
    assert all(f"| `{name}` |" in pages["reference/checks.md"] for name in CHECKS)
    assert all(f"## {name}\n" in pages["reference/errors.md"] for name in reference.ERRORS)
    assert pages["reference/errors.md"].count("deleted") > 100
    assert "|  |" not in pages["reference/policy.md"]
