"""`retention.yaml`: every mistake names the file and the key, and no secret is ever written in it."""

import re
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from retention_assets.config.configuration import Configuration, canonical_namespace, load_configuration
from retention_assets.config.documents import load_document
from retention_assets.config.settings import FromEnvironment
from retention_assets.errors import ConfigurationError

DEMO = Path(__file__).parent.parent / "demo" / "retention.yaml"
ORCHARD: dict[str, Any] = {
    "kind": "lakefs",
    "namespace": "s3://lake/orchard",
    "source": {"dump": "dump.json"},
    "policy": "policy.yaml",
}
API: dict[str, Any] = {
    "url": "https://lakefs.example.com",
    "access_key": "AKIAIOSFODNN7EXAMPLE",
    "secret_key": {"env": "THE_SECRET"},
}


def written(tmp_path: Path, document: object) -> Path:
    file = tmp_path / "retention.yaml"
    file.write_text(document if isinstance(document, str) else yaml.safe_dump(document), encoding="utf-8")
    return file


def loaded(tmp_path: Path, **changes: object) -> Configuration:
    """Load a good configuration of one repository with these keys changed; `None` leaves a key out."""
    entry = {key: value for key, value in {**ORCHARD, **changes}.items() if value is not None}
    return load_configuration(written(tmp_path, {"warehouse": "warehouse", "repositories": {"orchard": entry}}))


# ---- the warehouse


FAR = {
    "standalone": {"spark.master": "spark://head:7077"},
    "yarn": {"spark.master": "yarn"},
    "kubernetes": {"spark.master": "k8s://https://head:443"},
    "connect": {"spark.remote": "sc://head:15002"},
}
NEAR = [None, "local", "local[*]", "local[4]", "local[4,2]", "local-cluster[2,1,1024]"]


def spread(tmp_path: Path, spark: dict[str, str], warehouse: str = "warehouse", **more: object) -> Configuration:
    document = {"warehouse": warehouse, "spark": spark, "repositories": {"orchard": ORCHARD}, **more}
    return load_configuration(written(tmp_path, document))


@pytest.mark.parametrize("spark", FAR.values(), ids=FAR)
def test_a_local_warehouse_is_refused_if_executors_run_on_other_machines(tmp_path: Path, spark: dict[str, str]) -> None:
    (master,) = spark.values()
    for warehouse in ("warehouse", f"file://{tmp_path}/warehouse"):
        with pytest.raises(ConfigurationError) as refused:
            spread(tmp_path, spark, warehouse)
        message = str(refused.value)
        assert f"warehouse: {tmp_path}/warehouse is a directory of this machine, and {master} also runs on" in message
        assert "Nothing was read or deleted" in message
        assert "`shared_warehouse: true`" in message


@pytest.mark.parametrize("spark", FAR.values(), ids=FAR)
def test_a_warehouse_that_all_machines_see_is_accepted(tmp_path: Path, spark: dict[str, str]) -> None:
    assert spread(tmp_path, spark, "s3a://lake/tables").warehouse == "s3a://lake/tables"
    assert spread(tmp_path, spark, shared_warehouse=True).shared_warehouse


@pytest.mark.parametrize("master", NEAR)
def test_a_local_warehouse_is_accepted_if_all_executors_run_on_this_machine(tmp_path: Path, master: str | None) -> None:
    assert spread(tmp_path, {"spark.master": master} if master else {}).warehouse == f"{tmp_path}/warehouse"


@pytest.mark.parametrize(
    ("setting", "value", "problem"),
    [
        ("spark.retention.read.tasks", 0, "must be a whole number from 1 to 99999, not 0"),
        ("spark.retention.sweep.workers", "all", "must be a whole number from 1 to 99999, not 'all'"),
        ("spark.retention.sweep.tasks", 4, "is unknown; there are: spark.retention.read.tasks, spark.retention.sweep"),
    ],
)
def test_an_invalid_number_of_tasks_is_refused(tmp_path: Path, setting: str, value: int | str, problem: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        spread(tmp_path, {setting: value})
    assert f"{setting} {problem}" in str(refused.value)


# ---- defaults


def test_the_defaults_are_mode_plan_protected_tags_and_a_grace_period_of_a_day(tmp_path: Path) -> None:
    settings = loaded(tmp_path).repository("orchard").settings
    assert settings.mode == "plan"
    assert settings.tags == "protect"
    assert settings.grace == timedelta(hours=24)
    assert settings.guards.max_live_shrink == 0.5
    assert settings.policy == ["policy.yaml"]
    assert settings.staged is None


def test_the_configuration_of_the_demo_loads_and_has_mode_plan() -> None:
    configuration = load_configuration(DEMO)
    assert {entry.settings.mode for entry in configuration.repositories.values()} == {"plan"}


# ---- paths and URLs


@pytest.mark.parametrize(
    ("namespace", "storage", "expected"),
    [
        pytest.param("s3://lake/orchard", None, "s3://lake/orchard", id="the_namespace_itself"),
        pytest.param("s3a://lake/orchard//", None, "s3://lake/orchard", id="one_spelling"),
        pytest.param("s3://lake/orchard", "s3n://mirror/orchard/", "s3://mirror/orchard", id="elsewhere"),
        pytest.param("s3://lake/orchard", "https://a.b/c/", "https://a.b/c", id="azure"),
        pytest.param("s3://lake/orchard", "namespace", "file://{here}/namespace", id="relative_to_the_file"),
        pytest.param("s3://lake/orchard", "./a/../namespace/", "file://{here}/namespace", id="relative_and_roundabout"),
        pytest.param("s3://lake/orchard", "file:///srv/lake/./x", "file:///srv/lake/x", id="a_file_url"),
        pytest.param("s3://lake/orchard", "file://lake/x", "file://{here}/lake/x", id="a_relative_file_url"),
        pytest.param("s3://lake/orchard", "/srv/lake", "file:///srv/lake", id="absolute"),
    ],
)  # fmt: skip
def test_storage_is_a_url_or_a_path_relative_to_the_configuration_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, namespace: str, storage: str | None, expected: str
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    repository = loaded(tmp_path, namespace=namespace, storage=storage).repository("orchard")
    assert repository.storage == expected.format(here=tmp_path.resolve())
    assert repository.namespace == "s3://lake/orchard"


@pytest.mark.parametrize(
    ("warehouse", "expected"),
    [
        ("warehouse", "{here}/warehouse"),
        ("/srv/warehouse", "/srv/warehouse"),
        ("file:///srv/warehouse", "/srv/warehouse"),
        ("file://warehouse", "{here}/warehouse"),
        ("s3a://lake/warehouse", "s3a://lake/warehouse"),
    ],
)
def test_the_warehouse_is_a_path_or_a_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warehouse: str, expected: str
) -> None:
    monkeypatch.chdir("/")
    file = written(tmp_path, {"warehouse": warehouse, "repositories": {"orchard": ORCHARD}})
    assert load_configuration(file).warehouse == expected.format(here=tmp_path.resolve())


@pytest.mark.parametrize(
    ("location", "problem"),
    [
        pytest.param("file:/srv/lake", "is not a URL: write file:///srv/lake, or the path /srv/lake", id="one slash"),
        pytest.param("~/lake", "begins with `~`, which only a shell reads as a home folder", id="home"),
        pytest.param(
            "s3://me@lake/p@q", "has a user before the bucket, which stores ignore: write s3://lake/p@q", id="a user"
        ),
    ],
)
@pytest.mark.parametrize("key", ["warehouse", "storage", "quarantine.url", "inventory[0].url", "records.witness"])
def test_a_location_in_a_spelling_that_tools_read_as_another_location_is_refused(
    tmp_path: Path, key: str, location: str, problem: str
) -> None:
    inventory = {"url": location if key == "inventory[0].url" else "s3://lake/i", "format": "CSV"}
    quarantine = {"url": location if key == "quarantine.url" else None}
    orchard = {**ORCHARD, "storage": location if key == "storage" else None}
    document = {
        "warehouse": location if key == "warehouse" else "w",
        "records": {"witness": location if key == "records.witness" else None},
        "repositories": {"orchard": {**orchard, "quarantine": quarantine, "inventory": [inventory]}},
    }
    path = key if key in ("warehouse", "records.witness") else f"repositories.orchard.{key}"
    with pytest.raises(ConfigurationError) as refused:
        load_configuration(written(tmp_path, document))
    assert f"retention.yaml: {path}: {location!r} {problem}" in str(refused.value)


def test_a_namespace_may_have_a_user_before_the_bucket_as_on_the_lakefs_server(tmp_path: Path) -> None:
    document = {"warehouse": "w", "repositories": {"orchard": {**ORCHARD, "namespace": "s3://me@lake/orchard"}}}
    assert load_configuration(written(tmp_path, document)).repository("orchard").storage == "s3://me@lake/orchard"


@pytest.mark.parametrize("witness", ["s3://lake/tables/w", "s3a://lake/t%61bles/w", "s3://lake/tables/../w"])
def test_a_witness_inside_the_warehouse_is_refused_in_every_spelling(tmp_path: Path, witness: str) -> None:
    document = {"warehouse": "s3a://lake/tables", "records": {"witness": witness}, "repositories": {"orchard": ORCHARD}}
    with pytest.raises(ConfigurationError, match="overlaps the warehouse"):
        load_configuration(written(tmp_path, document))


def test_a_policy_path_is_relative_to_the_configuration_file(tmp_path: Path) -> None:
    repository = loaded(tmp_path).repository("orchard")
    assert repository.path("policies/a.yaml") == tmp_path.resolve() / "policies" / "a.yaml"
    assert repository.path("/etc/a.yaml") == Path("/etc/a.yaml")


@pytest.mark.parametrize("spelled", ["s3://b/p", "s3a://b/p", "s3n://b/p", "s3://b/p/", "s3a://b/p//"])
def test_all_spellings_of_a_namespace_have_one_canonical_form(spelled: str) -> None:
    assert canonical_namespace(spelled) == "s3://b/p"


# ---- mistakes


FIELD: dict[str, Any] = {"kind": "icechunk", "storage": "s3://lake/field/", "policy": "policy.yaml"}


def loaded_field(tmp_path: Path, **changes: object) -> Configuration:
    """As `loaded`, for an Icechunk repository."""
    entry = {key: value for key, value in {**FIELD, **changes}.items() if value is not None}
    return load_configuration(written(tmp_path, {"warehouse": "warehouse", "repositories": {"lakefs": entry}}))


def test_an_icechunk_repository_needs_no_namespace_and_keeps_backups_for_30_days(tmp_path: Path) -> None:
    repository = loaded_field(tmp_path).repository("lakefs")
    assert repository.is_icechunk
    assert repository.storage == repository.namespace == "s3://lake/field"
    assert repository.settings.mode == "plan"
    assert repository.icechunk.collect_overwritten == timedelta(days=30)
    with pytest.raises(ConfigurationError, match=r"repositories.lakefs.kind is not `lakefs`.*Nothing was read"):
        repository.api_keys()


def test_collect_overwritten_is_a_duration_with_a_unit(tmp_path: Path) -> None:
    repository = loaded_field(tmp_path, collect_overwritten="90d").repository("lakefs")
    assert repository.icechunk.collect_overwritten == timedelta(days=90)


@pytest.mark.parametrize(
    ("changes", "violation"),
    [
        pytest.param({"source": {"dump": "d"}}, "source: unknown key", id="a_key_of_lakefs"),
        pytest.param({"storage": None}, "storage: is missing", id="no_storage"),
        pytest.param({"collect_overwritten": 7}, "collect_overwritten: ", id="an_age_without_a_unit"),
        pytest.param({"storage_options": {"secret_access_key": "x"}}, "storage_options: secret_access", id="a_secret"),
        pytest.param({"kind": None}, "kind: write `kind: lakefs` or `kind: icechunk`", id="no_kind"),
        pytest.param({"kind": "delta"}, "kind: write `kind: lakefs` or `kind: icechunk`", id="an_unknown_kind"),
    ],
)
def test_an_error_in_the_settings_of_an_icechunk_repository_names_the_key(
    tmp_path: Path, changes: dict[str, object], violation: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        loaded_field(tmp_path, **changes)
    assert str(refused.value).startswith(f"{tmp_path.resolve()}/retention.yaml: repositories.lakefs.{violation}")


MISTAKES: dict[str, tuple[dict[str, object], str]] = {
    "an unknown key": ({"modes": "delete"}, "repositories.orchard.modes: unknown key"),
    "an unknown guard": ({"guards": {"max_shrink": 1}}, "repositories.orchard.guards.max_shrink: unknown key"),
    "a share above one": ({"guards": {"max_live_shrink": 1.5}}, "repositories.orchard.guards.max_live_shrink: "),
    "a truth value as share": ({"guards": {"max_live_shrink": True}}, "repositories.orchard.guards.max_live_shrink: "),
    "a truth value as a budget": ({"budget": {"share": True}}, "repositories.orchard.budget.share: must be a number"),
    "a truth value as count": ({"budget": {"objects": True}}, "repositories.orchard.budget.objects: must be a number"),
    "an unknown kind": ({"kind": "delta"}, "repositories.orchard.kind: "),
    "an unknown mode": ({"mode": "destroy"}, "repositories.orchard.mode: "),
    "unknown words for tags": ({"tags": "keep"}, "repositories.orchard.tags: "),
    "no namespace": ({"namespace": None}, "repositories.orchard.namespace: is missing"),
    "no policy": ({"policy": None}, "repositories.orchard.policy: is missing"),
    "an empty list of policies": ({"policy": []}, "repositories.orchard.policy: name at least one policy file"),
    "a policy that is a number": ({"policy": [7]}, "repositories.orchard.policy[0]: "),
    "no source": ({"source": None}, "repositories.orchard.source: is missing"),
    "an empty source": ({"source": {}}, "repositories.orchard.source: name exactly one of `dump` and `api`"),
    "two sources": (
        {"source": {"dump": "d", "api": API}},
        "repositories.orchard.source: name exactly one of `dump` and `api`",
    ),
    "an age of a dump beside a server": (
        {"source": {"api": API, "dump_age": "1h"}},
        "repositories.orchard.source: `dump_age` is only for a `dump`",
    ),
    "an age of a dump without a unit": (
        {"source": {"dump": "d", "dump_age": 12}},
        "repositories.orchard.source.dump_age: '12' is not a duration: it has no",
    ),
    "a grace period without a unit": ({"grace": 24}, "repositories.orchard.grace: '24' is not a duration: it has no"),
    "a negative grace period": ({"grace": "-1h"}, "repositories.orchard.grace: '-1h' is not a duration: it is"),
    "a secret key in the file": (
        {"source": {"api": {**API, "secret_key": "wJalrXUtnFEMI"}}},
        "repositories.orchard.source.api.secret_key: is a secret: set an environment variable, and write `{env: NAME}`",
    ),
    "no secret key": (
        {"source": {"api": {"url": "x", "access_key": "y"}}},
        "repositories.orchard.source.api.secret_key: is missing",
    ),
    "an unknown key of a secret": (
        {"source": {"api": {**API, "secret_key": {"env": "A", "default": "hunter2"}}}},
        "repositories.orchard.source.api.secret_key.default: unknown key",
    ),
    "an empty name of a variable": (
        {"source": {"api": {**API, "secret_key": {"env": ""}}}},
        "repositories.orchard.source.api.secret_key.env: ",
    ),
    "a price that is infinite": (
        {"price_per_gb_month": float("inf")},
        "repositories.orchard.price_per_gb_month: must be a finite number",
    ),
    "a price that is no number": (
        {"price_per_gb_month": float("nan")},
        "repositories.orchard.price_per_gb_month: must be a finite number",
    ),
    "a budget of too many bytes": (
        {"budget": {"bytes": f"{'9' * 400} B"}},
        f"repositories.orchard.budget.bytes: '{'9' * 40}' is too large: write less than 8192 PiB",
    ),
    "a time in quarantine that is too long": (
        {"quarantine": {"keep": "999999d"}},
        "repositories.orchard.quarantine.keep: '999999d' is too long: the longest duration is 365000d",
    ),
    "a lease that is too long": (
        {"sweep": {"lease": f"{'9' * 20}d"}},
        f"repositories.orchard.sweep.lease: '{'9' * 20}d' is too long: the longest duration is 365000d",
    ),
    "an empty namespace": (
        {"namespace": " "},
        "repositories.orchard.namespace: must not be empty: write a URL, or a path",
    ),
    "a window that is too long": (
        {"sweep": {"window": "2h"}},
        "repositories.orchard: sweep.window is 2h, and must be at most 1h: ",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_an_error_in_the_settings_names_the_file_and_the_key(tmp_path: Path, mistake: str) -> None:
    changes, violation = MISTAKES[mistake]
    with pytest.raises(ConfigurationError) as refused:
        loaded(tmp_path, **changes)
    assert str(refused.value).startswith(f"{tmp_path.resolve()}/retention.yaml: {violation}")
    assert "hunter2" not in str(refused.value)
    assert "wJalrXUtnFEMI" not in str(refused.value)


DOCUMENTS = {
    "an impossible date": (
        "warehouse: 2027-02-30\n",
        "cannot be read as YAML: line 1, column 12 (2027-02-30 is not a date or a time: day is out of range for month)",
    ),
    "a key without a value": (
        "warehouse:\nrepositories: {}\n",
        "warehouse: has no value: write one, or remove it",
    ),
    "an option without a value": (
        "warehouse: w\nrepositories: {}\nspark:\n  spark.x:\n",
        "spark.spark.x: has no value: write one, or remove it\n",
    ),
    "a text that begins with an asterisk": (
        "warehouse: *main\n",
        "cannot be read as YAML: line 1, column 12: put a text that begins with `*` in quotes",
    ),
    "empty": ("", "is empty. Nothing was read or deleted. Write a first"),
    "a list": ("- a\n- b\n", "the document: must be a mapping"),
    "keys beside their repository": (
        "warehouse: w\nrepositories:\n  orchard:\n  kind: lakefs\n",
        "repositories.orchard: must be a mapping: write its keys below it, indented",
    ),
    "not YAML": ("a: [b\n", "cannot be read as YAML: "),
    "no repositories": ("warehouse: w\n", "repositories: is missing"),
    "an empty list of repositories": ("warehouse: w\nrepositories: {}\n", "repositories: "),
    "no warehouse": (yaml.safe_dump({"repositories": {"orchard": ORCHARD}}), "warehouse: is missing"),
    "an unknown key at the top": (
        yaml.safe_dump({"warehouse": "w", "repositories": {"orchard": ORCHARD}, "repository": {}}),
        "repository: unknown key",
    ),
    "a name that Dagster cannot have": (
        yaml.safe_dump({"warehouse": "w", "repositories": {"or-chard": ORCHARD}}),
        "repositories: 'or-chard': a repository's name here has letters, digits and `_` only",
    ),
    "tables that are kept for less than a day": (
        yaml.safe_dump({"warehouse": "w", "repositories": {"orchard": ORCHARD}, "warehouse_keep": {"tables": "12h"}}),
        "warehouse_keep: tables is 12h, and must be at least 1d: ",
    ),
    "tables that are kept for too long": (
        yaml.safe_dump(
            {"warehouse": "w", "repositories": {"orchard": ORCHARD}, "warehouse_keep": {"tables": "365001d"}}
        ),
        "warehouse_keep.tables: '365001d' is too long: the longest duration is 365000d",
    ),
    "a number as a day": (
        yaml.safe_dump({"warehouse": "w", "repositories": {"orchard": ORCHARD}, "records": {"signed_since": 0}}),
        "records.signed_since: 0 is not a day: write YYYY-MM-DD",
    ),
    "a number in a text as a day": (
        yaml.safe_dump({"warehouse": "w", "repositories": {"orchard": ORCHARD}, "records": {"signed_since": "0"}}),
        "records.signed_since: '0' is not a day: write YYYY-MM-DD",
    ),
    "plans that are kept for less than their tables": (
        yaml.safe_dump({"warehouse": "w", "repositories": {"orchard": ORCHARD}, "warehouse_keep": {"plans": "30d"}}),
        "warehouse_keep: plans is 30d, and must be at least `tables` (90d): ",
    ),
}


@pytest.mark.parametrize(
    ("document", "suggestion"),
    [
        pytest.param({"warehous": "w"}, "warehous: unknown key (did you mean `warehouse`?)", id="at_the_top"),
        pytest.param({"orchard": {"graze": "3d"}}, "graze: unknown key (did you mean `grace`?)", id="of_a_repository"),
        pytest.param(
            {"orchard": {"sweep": {"single_machines": True}}},
            "sweep.single_machines: unknown key (did you mean `single_machine`?)",
            id="of_a_part",
        ),
        pytest.param(
            {"orchard": {"source": {"api": {**API, "urls": "x"}}}},
            "source.api.urls: unknown key (did you mean `url`?)",
            id="of_a_part_of_a_part",
        ),
        pytest.param({"orchard": {"collect_overwriten": "7d"}}, "collect_overwriten: unknown key$", id="other_kind"),
        pytest.param({"orchard": {"zebra": 1}}, "zebra: unknown key$", id="nothing_alike"),
    ],
)
def test_the_error_for_an_unknown_key_suggests_the_most_similar_key(
    tmp_path: Path, document: dict[str, Any], suggestion: str
) -> None:
    changes = document.pop("orchard", {})
    written_ = {"warehouse": "w", "repositories": {"orchard": {**ORCHARD, **changes}}, **document}
    with pytest.raises(ConfigurationError, match=re.escape(suggestion.rstrip("$")) + "$" * suggestion.endswith("$")):
        load_configuration(written(tmp_path, yaml.safe_dump(written_)))


@pytest.mark.parametrize("mistake", DOCUMENTS)
def test_a_document_that_is_not_a_configuration_is_refused(tmp_path: Path, mistake: str) -> None:
    text, violation = DOCUMENTS[mistake]
    with pytest.raises(ConfigurationError, match=re.escape(f"{tmp_path.resolve()}/retention.yaml: {violation}")):
        load_configuration(written(tmp_path, text))


def test_all_errors_are_reported_together_one_on_each_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as refused:
        loaded(tmp_path, mode="destroy", tags="keep", namespace=None)
    assert len(str(refused.value).splitlines()) == 3


def test_the_error_for_a_missing_file_shows_how_to_name_another_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"there is no such file. .*--config FILE or RETENTION_CONFIG"):
        load_configuration(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize("what", ["a directory", "not text"])
def test_an_unreadable_configuration_file_is_reported(tmp_path: Path, what: str) -> None:
    file = tmp_path / "retention.yaml"
    if what == "a directory":
        file.mkdir()
    else:
        file.write_bytes(b"warehouse: \xff\xfe")
    with pytest.raises(ConfigurationError, match=r"retention\.yaml: cannot be read"):
        load_configuration(file)


def test_the_error_for_an_unknown_repository_lists_the_configured_repositories(tmp_path: Path) -> None:
    shown = r"there is no repository 'meadow'\. Nothing was read or deleted\. Name one of: orchard\.$"
    with pytest.raises(ConfigurationError, match=shown):
        loaded(tmp_path).repository("meadow")


@pytest.mark.parametrize("doubled", ["    mode: delete\n", "  orchard: {}\n", "warehouse: elsewhere\n"])
def test_a_duplicated_key_is_refused(tmp_path: Path, doubled: str) -> None:
    """YAML would take the last one without a word: a second `mode: delete` far below the first `mode: plan`."""
    text = yaml.safe_dump({"warehouse": "w", "repositories": {"orchard": {**ORCHARD, "mode": "plan"}}}, sort_keys=False)
    with pytest.raises(ConfigurationError, match=r"retention\.yaml: .*(mode|orchard|warehouse).*is duplicated"):
        load_configuration(written(tmp_path, _after_its_like(text, doubled)))


def test_a_key_that_a_merge_adds_is_not_duplicated() -> None:
    """A merge adds keys to the mapping that it refers to, before that mapping is read itself."""
    text = "{one: {inner: &inner {<<: {grace: 24h, settle: 1h}, grace: 48h}}, other: {<<: *inner, settle: 2h}}"
    merged = {"grace": "48h", "settle": "1h"}
    assert load_document(f"---\n{text}") == {"one": {"inner": merged}, "other": {**merged, "settle": "2h"}}


@pytest.mark.parametrize("name", ["2024", "null", "yes", "2026-11-01"])
def test_a_repository_name_that_yaml_reads_as_another_type_is_refused_with_the_remedy(
    tmp_path: Path, name: str
) -> None:
    file = tmp_path / "retention.yaml"
    file.write_text(f"warehouse: w\nrepositories:\n  {name}: {{kind: icechunk, storage: s, policy: p}}\n")
    with pytest.raises(ConfigurationError, match=r"repositories: a key is a number, .*: write it in quotes$"):
        load_configuration(file)


def _after_its_like(text: str, line: str) -> str:
    if line.startswith("warehouse"):
        return text.replace("repositories:", f"{line}repositories:")
    return f"{text}{line}"


# ---- secrets


@pytest.mark.parametrize(
    "option",
    [
        *("secret_access_key", "aws_session_token", "sas_key", "account_key", "password", "credential", "SECRET"),
        *("access_key", "azure_storage_access_key", "master_key", "azure_storage_master_key", "encryption_key"),
        *("sse_customer_key_base64", "aws_sse_customer_key_base64", "service_account_key", "bearer_token"),
    ],
)
def test_a_secret_value_among_the_storage_options_is_refused(tmp_path: Path, option: str) -> None:
    with pytest.raises(
        ConfigurationError, match=f"repositories.orchard.storage_options: {option} is a secret"
    ) as refused:
        loaded(tmp_path, storage_options={option: "hunter2"})
    assert "hunter2" not in str(refused.value)


def test_secrets_are_read_from_the_environment_when_they_are_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"region": "eu-west-1", "secret_access_key": {"env": "STORE_SECRET"}}
    repository = loaded(tmp_path, storage_options=options, source={"api": API}).repository("orchard")
    monkeypatch.setenv("STORE_SECRET", "from-the-environment")
    monkeypatch.setenv("THE_SECRET", "the-other")
    assert repository.storage_options() == {"region": "eu-west-1", "secret_access_key": "from-the-environment"}
    assert repository.api_keys() == ("AKIAIOSFODNN7EXAMPLE", "the-other")
    assert "from-the-environment" not in repr(repository)


@pytest.mark.parametrize("value", [None, ""])
def test_the_error_for_an_unset_variable_names_the_key_that_refers_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    options = {"secret_access_key": {"env": "STORE_SECRET"}}
    repository = loaded(tmp_path, storage_options=options, source={"api": API}).repository("orchard")
    for name in ("STORE_SECRET", "THE_SECRET"):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match=r"storage_options.secret_access_key: .*STORE_SECRET is not set"):
        repository.storage_options()
    with pytest.raises(ConfigurationError, match=r"source.api.secret_key: .*THE_SECRET is not set. Nothing was read"):
        repository.api_keys()


def test_a_source_with_a_dump_has_no_api_keys(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"repositories.orchard.source has no `api`"):
        loaded(tmp_path).repository("orchard").api_keys()


def test_the_id_of_an_access_key_is_not_a_secret(tmp_path: Path) -> None:
    options = {"access_key_id": "AKIA", "aws_access_key_id": "AKIA", "sse_kms_key_id": "arn:aws:kms:1"}
    assert loaded(tmp_path, storage_options=options).repository("orchard").storage_options() == options


def with_spark(tmp_path: Path, **spark: object) -> Configuration:
    document = {"warehouse": "s3a://lake/tables", "spark": spark, "repositories": {"orchard": ORCHARD}}
    return load_configuration(written(tmp_path, document))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.hadoop.fs.s3a.secret.key", "hunter2"),
        ("spark.hadoop.fs.s3a.bucket.lake.session.token", "hunter2"),
        ("spark.hadoop.fs.s3a.encryption.key", "hunter2"),
        ("spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net", "hunter2"),
        ("spark.hadoop.fs.azure.sas.fixed.token", "hunter2"),
        ("spark.hadoop.fs.azure.account.oauth2.client.secret", "hunter2"),
        ("spark.hadoop.fs.gs.auth.service.account.private.key", "hunter2"),
        ("spark.ssl.keyStorePassword", "hunter2"),
        ("spark.ssl.keyPassword", 2),
        ("spark.executorEnv.AWS_SECRET_ACCESS_KEY", "hunter2"),
        ("spark.remote", "sc://host:443/;token=hunter2"),
        ("spark.driver.extraJavaOptions", "-Djavax.net.ssl.trustStorePassword=hunter2"),
        ("spark.hadoop.fs.s3a.proxy", "http://ada:hunter2@proxy:3128"),
    ],
)
def test_a_secret_among_the_spark_settings_must_be_an_environment_variable(
    tmp_path: Path, key: str, value: object
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        with_spark(tmp_path, **{key: value})
    assert f"spark: {key} is a secret: write `{{env: NAME}}`" in str(refused.value)
    assert "hunter2" not in str(refused.value)
    assert with_spark(tmp_path, **{key: {"env": "A"}}).spark[key] == FromEnvironment(env="A")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.hadoop.fs.s3a.access.key", "AKIA"),
        ("spark.hadoop.fs.s3a.aws.credentials.provider", "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"),
        ("spark.hadoop.hadoop.security.credential.provider.path", "jceks://file/etc/keys.jceks"),
        ("spark.hadoop.fs.azure.account.oauth.provider.type", "x.ClientCredsTokenProvider"),
        ("spark.kubernetes.executor.secretKeyRef.AWS_SECRET_ACCESS_KEY", "lake:secret"),
        ("spark.kubernetes.driver.secrets.lake", "/etc/secrets"),
        ("spark.kubernetes.authenticate.submission.oauthTokenFile", "/etc/token"),
        ("spark.security.credentials.hive.enabled", False),
        ("spark.authenticate.secretBitLength", 256),
        ("spark.remote", "sc://host:443/;use_ssl=true"),
        ("spark.driver.extraJavaOptions", "-Dconfig=x -XX:+UseG1GC"),
    ],
)
def test_spark_settings_that_only_resemble_secrets_are_accepted(tmp_path: Path, key: str, value: object) -> None:
    assert with_spark(tmp_path, **{key: value}).spark == {key: value}


@pytest.mark.parametrize(
    "url",
    [
        "https://ada:hunter2@lake.example.org",
        "s3://AKIA:hunter2@lake/orchard",
        "https://lake.blob.core.windows.net/x?sv=1&sig=hunter2",
    ],
)
@pytest.mark.parametrize("key", ["warehouse", "storage", "namespace", "api", "inventory", "quarantine", "proxy_url"])
def test_a_url_with_a_password_or_a_signature_is_refused_in_every_key(tmp_path: Path, key: str, url: str) -> None:
    changes: dict[str, object] = {
        "storage": {"storage": url},
        "namespace": {"namespace": url},
        "api": {"source": {"api": {**API, "url": url}}},
        "inventory": {"inventory": {"url": url, "format": "CSV"}},
        "quarantine": {"quarantine": {"url": url}},
        "proxy_url": {"storage_options": {"proxy_url": url}},
        "warehouse": {},
    }[key]
    document = {"warehouse": url if key == "warehouse" else "w", "repositories": {"orchard": {**ORCHARD, **changes}}}
    with pytest.raises(ConfigurationError, match=r"password or a signature|is a secret") as refused:
        load_configuration(written(tmp_path, document))
    assert "hunter2" not in str(refused.value)


# ---- settings that would silently give wrong results


@pytest.mark.parametrize("name", ["ignoreCorruptFiles", "ignoreMissingFiles"])
def test_spark_settings_that_skip_unreadable_files_are_refused(tmp_path: Path, name: str) -> None:
    key = f"spark.sql.files.{name}"
    for value in (True, "true", "TRUE"):
        with pytest.raises(ConfigurationError, match=f"{name} must be false"):
            with_spark(tmp_path, **{key: value})
    assert with_spark(tmp_path, **{key: False}).spark == {key: False}


def test_the_directories_that_a_local_storage_links_to_are_locations_of_the_repository(tmp_path: Path) -> None:
    for directory in ("other/chunks", "storage/manifests"):
        (tmp_path / directory).mkdir(parents=True)
    (tmp_path / "storage" / "chunks").symlink_to(tmp_path / "other" / "chunks")
    repository = loaded(tmp_path, storage="storage").repository("orchard")
    storage = f"file://{tmp_path.resolve()}/storage"
    assert repository.locations() == ("s3://lake/orchard", storage, f"file://{tmp_path.resolve()}/other/chunks")


# ---- links to the file


def test_paths_are_relative_to_the_folder_of_the_file_that_a_link_leads_to(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    loaded(tmp_path / "real", storage="storage")
    link = tmp_path / "retention.yaml"
    link.symlink_to(tmp_path / "real" / "retention.yaml")
    configuration = load_configuration(link)
    repository = configuration.repository("orchard")
    assert configuration.file == repository.file == link
    assert configuration.warehouse == f"{tmp_path.resolve()}/real/warehouse"
    assert repository.storage == f"file://{tmp_path.resolve()}/real/storage"
    assert repository.path("policy.yaml") == tmp_path.resolve() / "real" / "policy.yaml"


def test_a_switched_link_changes_the_policy_files_but_not_the_locations_of_a_loaded_configuration(
    tmp_path: Path,
) -> None:
    for release in ("r1", "r2"):
        (tmp_path / release).mkdir()
        loaded(tmp_path / release, storage="storage", quarantine={"url": "quarantine"})
    current = tmp_path / "current"
    current.symlink_to("r1")
    configuration = load_configuration(current / "retention.yaml")
    repository = configuration.repository("orchard")
    current.unlink()
    current.symlink_to("r2")
    first = tmp_path.resolve() / "r1"
    assert configuration.warehouse == f"{first}/warehouse"
    assert repository.storage == f"file://{first}/storage"
    assert repository.absolute("quarantine") == f"file://{first}/quarantine"
    assert repository.path("policy.yaml") == tmp_path.resolve() / "r2" / "policy.yaml"


def test_the_links_of_a_component_and_of_its_configuration_are_followed_at_each_read(tmp_path: Path) -> None:
    """As with a ConfigMap: each file is a link through `..data`, and the directory of the old files is removed."""
    component = {"type": "retention_assets.RetentionRepository", "attributes": {"configuration": "retention.yaml"}}
    for release in ("..1", "..2"):
        (tmp_path / release).mkdir()
        loaded(tmp_path / release)
        (tmp_path / release / "defs.yaml").write_text(yaml.safe_dump(component), encoding="utf-8")
    (tmp_path / "..data").symlink_to("..1")
    for name in ("defs.yaml", "retention.yaml"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    file = load_configuration(tmp_path / "defs.yaml").repository("orchard").file
    (tmp_path / "..data").unlink()
    (tmp_path / "..data").symlink_to("..2")
    shutil.rmtree(tmp_path / "..1")
    assert load_configuration(file).repository("orchard").path("x") == tmp_path.resolve() / "..2" / "x"


def test_the_file_of_a_component_is_found_through_a_switched_link(tmp_path: Path) -> None:
    for release in ("r1", "r2"):
        (tmp_path / release).mkdir()
        loaded(tmp_path / release)
        component = {"type": "retention_assets.RetentionRepository", "attributes": {"configuration": "retention.yaml"}}
        (tmp_path / release / "defs.yaml").write_text(yaml.safe_dump(component), encoding="utf-8")
    current = tmp_path / "current"
    current.symlink_to("r1")
    repository = load_configuration(current / "defs.yaml").repository("orchard")
    current.unlink()
    current.symlink_to("r2")
    assert repository.file == current / "retention.yaml"
    assert repository.path("policy.yaml") == tmp_path.resolve() / "r2" / "policy.yaml"
