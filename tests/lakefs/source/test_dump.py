"""Reading a dump: damaged or incomplete dumps are refused, and a missing staged list is unknown."""

import json
import os
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retention_assets.errors import AccessDenied, ConfigurationError, CorruptFile, ObjectMissing, SourceError
from retention_assets.lakefs.formats.ranges import read_metarange
from retention_assets.lakefs.source import dump
from retention_assets.lakefs.source.dump import DumpSource
from retention_assets.lakefs.source.opening import open_repository
from retention_assets.lakefs.source.repository import RULES
from retention_assets.lakefs.source.staged_objects import staged_rows
from retention_assets.objectstore.access import StoreAccess
from tests.end_to_end.command import orchard_on_disk
from tests.lakefs_repositories import Version, build_repository
from tests.lakefs_tables import Range, write_metarange
from tests.objectstore.s3 import Bucket
from tests.saved_repositories import api, copy_saved_repository

MANIFEST = api("orchard")["refs_dump"]
OLD = datetime(2025, 11, 1, tzinfo=UTC)
PAGE = 20 * 2**20  # bytes above which the server ends a page


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return copy_saved_repository("orchard", tmp_path / "orchard")


def source(lake: Path, document: object = MANIFEST, staged: str | None = None) -> DumpSource:
    return DumpSource(StoreAccess(f"file://{lake}"), document, staged, "dump.json")


def first_range(lake: Path, table: str) -> Path:
    content = (lake / "_lakefs" / MANIFEST[table]).read_bytes()
    return lake / "_lakefs" / read_metarange(content, table)["range_id"][0].as_py()


@pytest.mark.parametrize(
    ("document", "message"),
    [
        pytest.param([], "is not a JSON object", id="a_list"),
        pytest.param(None, "is not a JSON object", id="null"),
        pytest.param({}, "commits_meta_range_id is missing", id="empty"),
        pytest.param({**MANIFEST, "tags_meta_range_id": None}, "tags_meta_range_id is None", id="null_id"),
        pytest.param({**MANIFEST, "tags_meta_range_id": ""}, "tags_meta_range_id is empty, but", id="empty_id"),
        pytest.param(
            {**MANIFEST, "branches_meta_range_id": "../../etc/passwd"},
            "branches_meta_range_id is ../../etc/passwd",
            id="a_path",
        ),
        pytest.param({**MANIFEST, "commits_meta_range_id": 7}, "commits_meta_range_id is 7, but", id="a_number"),
    ],
)
def test_a_malformed_dump_is_refused_with_its_file_and_key(lake: Path, document: object, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        source(lake, document)
    assert str(caught.value).startswith("dump.json: ")


def test_a_document_with_more_than_the_ids_is_a_dump(lake: Path) -> None:
    task = {"id": "DR1", "done": True}
    assert len(source(lake, {**MANIFEST, **task}).references().commits) == 55


@pytest.mark.parametrize("table", sorted(MANIFEST))
def test_a_table_that_is_not_there_is_named(lake: Path, table: str) -> None:
    (lake / "_lakefs" / MANIFEST[table]).unlink()
    with pytest.raises(ObjectMissing, match=MANIFEST[table]):
        source(lake).references()


@pytest.mark.parametrize("table", sorted(MANIFEST))
def test_a_range_that_is_not_there_is_named(lake: Path, table: str) -> None:
    lost = first_range(lake, table)
    lost.unlink()
    with pytest.raises(ObjectMissing, match=lost.name):
        source(lake).references()


@pytest.mark.parametrize("table", sorted(MANIFEST))
def test_an_altered_table_is_refused(lake: Path, table: str) -> None:
    file = lake / "_lakefs" / MANIFEST[table]
    content = bytearray(file.read_bytes())
    content[40] ^= 1
    file.write_bytes(content)
    with pytest.raises(CorruptFile, match=MANIFEST[table]):
        source(lake).references()


def test_a_range_with_fewer_records_than_its_metarange_counts_is_refused(lake: Path) -> None:
    content = (lake / "_lakefs" / MANIFEST["tags_meta_range_id"]).read_bytes()
    ranges = read_metarange(content, "tags").to_pylist()
    more = [Range(**{**each, "count": each["count"] + 1}) for each in ranges]
    table_id, content = write_metarange(more)
    (lake / "_lakefs" / table_id).write_bytes(content)
    with pytest.raises(CorruptFile, match=r"has 1 record, but the metarange .* says 2"):
        source(lake, {**MANIFEST, "tags_meta_range_id": table_id}).references()


@pytest.mark.parametrize("table", sorted(MANIFEST))
def test_the_references_are_as_old_as_the_oldest_of_the_tables(lake: Path, table: str) -> None:
    os.utime(lake / "_lakefs" / MANIFEST[table], (1_000, 1_000))
    assert source(lake).references().taken_at.timestamp() == 1_000


def test_a_table_of_another_kind_is_refused(lake: Path) -> None:
    swapped = {**MANIFEST, "tags_meta_range_id": MANIFEST["branches_meta_range_id"]}
    with pytest.raises(CorruptFile):
        source(lake, swapped).references()


def test_a_dump_without_the_commit_of_a_branch_is_refused(tmp_path: Path, lake: Path) -> None:
    meadow = copy_saved_repository("meadow", tmp_path / "meadow")
    for file in (meadow / "_lakefs").iterdir():
        if file.is_file():
            (lake / "_lakefs" / file.name).write_bytes(file.read_bytes())
    mixed = {**MANIFEST, "branches_meta_range_id": api("meadow")["refs_dump"]["branches_meta_range_id"]}
    with pytest.raises(
        SourceError,
        match=r"dump\.json: 11 .*, branch exp-7 at \w+ first, have a commit that is missing from the references",
    ):
        source(lake, mixed).references()


@pytest.mark.parametrize(
    ("commits", "seen"),
    [([], "0 commits and 0 branches"), ([Version("only", OLD, {})], "1 commit and 0 branches")],
    ids=["nothing", "no_branch"],
)
def test_a_dump_without_commits_or_branches_is_refused(tmp_path: Path, commits: list[Version], seen: str) -> None:
    built = build_repository(tmp_path, commits, {}, taken_at=OLD)
    dump = json.loads((tmp_path / "dump.json").read_text("utf-8"))
    with pytest.raises(
        SourceError, match=rf"^dump\.json: has {seen}, .*Nothing was deleted\. Make a new dump: `lakectl"
    ):
        source(built.lake, dump).references()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        pytest.param(None, "FileNotFoundError: ", id="missing"),
        pytest.param(b"{", "JSONDecodeError: Expecting property name", id="cut_off"),
        pytest.param(b"\xff\xfe", "UnicodeDecodeError: .* 0xff", id="no_text"),
    ],
)
def test_a_dump_file_that_cannot_be_read_is_named_with_the_command_that_makes_it(
    tmp_path: Path, content: bytes | None, why: str
) -> None:
    place = build_repository(tmp_path, [Version("only", OLD, {})], {"main": "only"}, taken_at=OLD)
    file = tmp_path / "dump.json"
    file.unlink() if content is None else file.write_bytes(content)
    remedy = "`lakectl refs-dump lakefs://REPOSITORY -o dump.json`"
    with pytest.raises(
        ConfigurationError, match=rf"^{file}: the dump cannot be read \({why}.*\)\. Nothing was deleted\. .*{remedy}"
    ):
        open_repository(place.repository({"default_retention_days": 1}), lambda: OLD)


def test_a_dump_in_the_namespace_is_named_by_its_url(tmp_path: Path) -> None:
    built = build_repository(tmp_path, [Version("only", OLD, {})], {"main": "only"}, taken_at=OLD)
    repository = built.repository({"default_retention_days": 1}, source={"dump": "_lakefs/dump.json"})
    for content, why in (("{", "the dump cannot be read"), ("[]", "is not a JSON object")):
        (built.lake / "_lakefs" / "dump.json").write_text(content, encoding="utf-8")
        with pytest.raises(ConfigurationError, match=rf"^file://{built.lake}/_lakefs/dump\.json: {why}"):
            open_repository(repository, lambda: OLD)


def test_a_dump_that_is_missing_from_the_namespace_is_refused_with_the_command_that_makes_it(tmp_path: Path) -> None:
    built = build_repository(tmp_path, [Version("only", OLD, {})], {"main": "only"}, taken_at=OLD)
    repository = built.repository({"default_retention_days": 1}, source={"dump": "_lakefs/dump.json"})
    where = rf"file://{built.lake}/_lakefs/dump\.json"
    remedy = r"`lakectl refs-dump lakefs://REPOSITORY -o dump\.json` \(the name on the server\), and upload it"
    with pytest.raises(
        ObjectMissing, match=rf"^{where}: the dump is not in the store\. Nothing was deleted\. .*{remedy}"
    ):
        open_repository(repository, lambda: OLD)


def parquet(**columns: list[object]) -> bytes:
    content = BytesIO()
    pq.write_table(pa.table(columns), content)
    return content.getvalue()


@pytest.mark.parametrize(
    ("content", "what"),
    [
        pytest.param(b"<html>", "is not a staged list of lakeFS .ArrowInvalid: ", id="another_format"),
        pytest.param(parquet(path=["a"]), "is not a staged list of lakeFS .*creation_date", id="other_columns"),
        pytest.param(
            parquet(physical_address=["a", None], creation_date=[1, 2]), "1 staged object has no address", id="null"
        ),
    ],
)
def test_an_invalid_file_of_the_staged_list_is_refused(content: bytes, what: str) -> None:
    with pytest.raises(CorruptFile, match=f"^lake/part-1: {what}.*Nothing was deleted. Run the same command again"):
        staged_rows(content, "lake/part-1")


def test_without_a_configured_folder_the_staged_objects_are_unknown(lake: Path) -> None:
    assert source(lake).staged() is None


@pytest.mark.parametrize("content", [[], ["_SUCCESS", ".part.crc"]])
def test_a_folder_without_files_is_an_error_since_unknown_is_not_zero(lake: Path, content: list[str]) -> None:
    (lake / "staged").mkdir()
    for marker in content:
        (lake / "staged" / marker).touch()
    with pytest.raises(SourceError, match="the staged objects are unknown"):
        source(lake, staged="staged").staged()


def test_all_files_of_the_staged_folder_except_markers_are_used(lake: Path) -> None:
    (lake / "staged").mkdir()
    for number, file in enumerate(["b", "a", "_SUCCESS"]):
        (lake / "staged" / file).touch()
        os.utime(lake / "staged" / file, (1_000 + number, 1_000 + number))
    staged = source(lake, staged="/staged/").staged()
    assert staged is not None
    assert staged.files == ("staged/a", "staged/b")
    assert (staged.complete_until.timestamp(), staged.taken_at.timestamp()) == (1_000, 1_001)


@pytest.mark.parametrize(
    ("sizes", "warns"),
    [
        pytest.param([PAGE + 1], True, id="only_the_first_page"),
        pytest.param([PAGE + 1, PAGE + 1], True, id="without_the_last_page"),
        pytest.param([PAGE], False, id="a_small_list"),
        pytest.param([PAGE + 1, 1_000], False, id="all_pages"),
        pytest.param([1_000, PAGE + 1], False, id="all_pages_in_another_order"),
    ],
)
def test_a_staged_list_of_only_full_pages_has_a_warning(lake: Path, sizes: list[int], warns: bool) -> None:
    (lake / "staged").mkdir()
    for number, size in enumerate(sizes):
        (lake / "staged" / f"part-{number}").touch()
        os.truncate(lake / "staged" / f"part-{number}", size)
    staged = source(lake, staged="staged").staged()
    assert staged is not None
    assert (staged.warning is not None) is warns
    assert not warns or (staged.warning or "").startswith("The staged list may be incomplete: each of its files has")
    assert not warns or (staged.warning or "").endswith("and take a new dump just after that.")


@pytest.mark.slow
def test_a_plan_from_a_staged_list_of_only_full_pages_has_the_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = orchard_on_disk(tmp_path)
    monkeypatch.setattr(dump, "_PAGE_BYTES", 1)
    answer = project.run("plan", "--json")
    assert answer.status == 0, answer.err
    assert [one for one in answer.document()["warnings"] if "the staged objects of a missing page" in one]


@pytest.mark.parametrize("content", [None, b""])
def test_missing_and_deleted_rules_are_none(lake: Path, content: bytes | None) -> None:
    (lake / RULES).unlink()
    if content is not None:
        (lake / RULES).write_bytes(content)
    assert source(lake).rules() is None


def test_rules_of_zero_days_without_branches_read_as_none_as_the_server_reads_them(lake: Path) -> None:
    (lake / RULES).write_bytes(b"")  # the encoding of an empty document
    assert source(lake).rules() is None


def test_invalid_rules_are_refused(lake: Path) -> None:
    (lake / RULES).write_bytes(json.dumps({"default_retention_days": 1}).encode())
    with pytest.raises(CorruptFile):
        source(lake).rules()


@pytest.mark.parametrize("seconds", [1_700_000_000_000, 2**63 - 1, -(2**63)])
def test_a_staged_object_with_an_impossible_time_is_staged_at_an_unknown_time(seconds: int) -> None:
    rows = staged_rows(parquet(physical_address=["a", "b"], creation_date=[seconds, 1_000]), "part-1")
    assert rows.to_pylist() == [
        {"address": "a", "created_at": None},
        {"address": "b", "created_at": datetime.fromtimestamp(1_000, UTC)},
    ]


def test_a_denied_listing_of_the_staged_folder_is_an_error(guarded: Bucket) -> None:
    denied: Any = DumpSource(guarded.access("orchard"), MANIFEST, "staged")
    with pytest.raises(AccessDenied, match="cannot list 'staged'"):
        denied.staged()


def test_denied_rules_are_an_error(guarded: Bucket) -> None:
    denied = DumpSource(guarded.access("orchard", secret_access_key="wrong-secret"), MANIFEST, None)
    with pytest.raises(AccessDenied):
        denied.rules()
