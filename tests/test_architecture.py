"""docs/architecture.md is true: its layers and files exist, and the modules that an object passes are connected."""

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "retention_assets"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def imported_by(path: Path) -> set[str]:
    """Return the package's modules that a module imports, as paths below the package."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("retention_assets"):
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    paths = {name.removeprefix("retention_assets").lstrip(".").replace(".", "/") + ".py" for name in names}
    return {path for path in paths if (PACKAGE / path).is_file()}


def contracts_of_imports() -> list[dict[str, Any]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts: list[dict[str, Any]] = project["tool"]["importlinter"]["contracts"]
    return contracts


def layers_of_page() -> list[str]:
    return re.findall(r"^\| `(\w+)` \|", section("Layers").split("have the same four folders")[0], re.MULTILINE)


def test_every_folder_and_module_of_the_package_is_a_layer_on_the_page() -> None:
    there = {path.stem for path in PACKAGE.iterdir() if path.name[0] != "_" and path.suffix in ("", ".py")}
    assert set(layers_of_page()) == there


def test_the_page_has_the_number_of_modules_that_may_change_objects() -> None:
    contracts = contracts_of_imports()
    (protected,) = (one for one in contracts if one.get("protected_modules") == ["retention_assets.objectstore.mutate"])
    number = len(protected["allowed_importers"])
    assert f"named[{number} named modules] -.-> mutate" in PAGE
    assert f"Only {number} modules" in " ".join(PAGE.split())


def test_layers_that_never_import_each_other_are_named_on_the_page() -> None:
    contracts = contracts_of_imports()
    text = " ".join(section("Layers").split())
    for pair in (layer.split(" | ") for layer in contracts[0]["layers"] if "|" in layer):
        assert re.search(rf"`{pair[0]}` and `{pair[1]}`", text), pair


def test_the_layers_of_the_page_are_in_the_order_of_the_import_contract() -> None:
    contracts = contracts_of_imports()
    layers = [name.strip() for layer in contracts[0]["layers"] for name in layer.split("|")]
    assert layers_of_page() == layers


def test_both_systems_have_the_folders_of_the_page() -> None:
    inside = set(re.findall(r"^\| `(\w+)` \|", section("Layers").split("have the same four folders")[1], re.MULTILINE))
    for system, more in {"lakefs": {"names"}, "icechunk": {"edits", "administration"}}.items():
        assert inside | more == {
            path.name for path in (PACKAGE / system).iterdir() if path.is_dir() and path.name[0] != "_"
        }


def test_every_file_that_the_page_names_exists() -> None:
    named = re.findall(r"`((?:\w+/)+\w+\.py)`", PAGE)
    missing = [path for path in named if not (PACKAGE / path).is_file() and not (ROOT / path).is_file()]
    assert named
    assert not missing


def test_the_modules_of_the_section_about_one_object_are_connected_by_imports() -> None:
    text = section("One object, from the listing to the ledger")
    passed = list(dict.fromkeys(re.findall(r"`((?:\w+/)+\w+\.py)`", text)))
    imports = {path: imported_by(PACKAGE / path) for path in passed}
    loose = [path for path in passed if not any(path in imports[other] or other in imports[path] for other in passed)]
    assert not loose
    assert f"These are {len(passed)} modules and" in PAGE


def test_only_one_module_makes_frames_of_arrow_tables() -> None:
    """`spark/frames.py:from_arrow` gives the schema: without it, Spark Connect takes no empty table."""
    makers = {path for path in PACKAGE.rglob("*.py") if ".createDataFrame(" in path.read_text(encoding="utf-8")}
    assert makers == {PACKAGE / "spark" / "frames.py"}


def test_only_one_module_opens_files_for_spark() -> None:
    """`spark/frames.py:opened_files` and `on_workers` let no frame use rows that Spark cached for an earlier one."""
    reads = re.compile(r"spark\.read\b|\.(mapInArrow|mapInPandas)\(")
    readers = {path for path in PACKAGE.rglob("*.py") if reads.search(path.read_text(encoding="utf-8"))}
    assert readers == {PACKAGE / "spark" / "frames.py"}
