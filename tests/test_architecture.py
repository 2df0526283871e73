"""docs/architecture.md is true: its rooms are the package's, its files exist, and the way of an address is one."""

import ast
import re
import tomllib
from pathlib import Path

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


def rooms() -> list[str]:
    return re.findall(r"^\| `(\w+)` \|", section("Rooms").split("have the same four folders")[0], re.MULTILINE)


def test_every_room_of_the_package_is_on_the_page() -> None:
    there = {path.stem for path in PACKAGE.iterdir() if path.name[0] != "_" and path.suffix in ("", ".py")}
    assert set(rooms()) == there


def test_the_rooms_are_in_the_order_of_the_import_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = [room.strip() for layer in contracts[0]["layers"] for room in layer.split("|")]
    assert rooms() == layers


def test_both_systems_have_the_folders_of_the_page() -> None:
    inside = set(re.findall(r"^\| `(\w+)` \|", section("Rooms").split("have the same four folders")[1], re.MULTILINE))
    for system, more in {"lakefs": {"names"}, "icechunk": {"edits", "administration"}}.items():
        assert inside | more == {
            path.name for path in (PACKAGE / system).iterdir() if path.is_dir() and path.name[0] != "_"
        }


def test_every_file_that_the_page_names_exists() -> None:
    named = re.findall(r"`((?:\w+/)+\w+\.py)`", PAGE)
    missing = [path for path in named if not (PACKAGE / path).is_file() and not (ROOT / path).is_file()]
    assert named
    assert not missing


def test_each_module_on_the_way_of_an_address_is_tied_to_another_on_the_way() -> None:
    way = list(dict.fromkeys(re.findall(r"`((?:\w+/)+\w+\.py)`", section("The way of one address"))))
    imports = {path: imported_by(PACKAGE / path) for path in way}
    loose = [path for path in way if not any(path in imports[other] or other in imports[path] for other in way)]
    assert not loose
    assert f"These are {len(way)} modules and" in PAGE


def test_frames_are_made_of_arrow_tables_in_one_place() -> None:
    """`spark/frames.py:from_arrow` gives the schema: without it, Spark Connect takes no empty table."""
    makers = {path for path in PACKAGE.rglob("*.py") if ".createDataFrame(" in path.read_text(encoding="utf-8")}
    assert makers == {PACKAGE / "spark" / "frames.py"}


def test_files_are_opened_for_spark_in_one_place() -> None:
    """`spark/frames.py:opened_files` and `on_workers` let no frame use rows that Spark cached for an earlier one."""
    reads = re.compile(r"spark\.read\b|\.(mapInArrow|mapInPandas)\(")
    readers = {path for path in PACKAGE.rglob("*.py") if reads.search(path.read_text(encoding="utf-8"))}
    assert readers == {PACKAGE / "spark" / "frames.py"}
