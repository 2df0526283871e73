"""URLs and options of stores, and that secrets in them are never printed."""

import pickle
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from retention_assets.config.configuration import Repository, load_configuration
from retention_assets.errors import ConfigurationError
from retention_assets.inventory.delivered import inventory_accesses
from retention_assets.objectstore.access import StoreAccess, open_store
from retention_assets.objectstore.failures import SettingNames
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.state.quarantine import quarantine_access
from retention_assets.state.records import witness_of
from tests.assets.graph import REPOSITORY
from tests.objectstore.s3 import Bucket

SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
OPTIONS = {"access_key_id": "AKIAEXAMPLE", "secret_access_key": SECRET, "region": "eu-central-1"}


def test_no_way_of_printing_shows_a_value_of_the_options() -> None:
    access = StoreAccess("s3://lake/orchard", OPTIONS)
    shown = f"{access!r} {access} {access.options!r} {access.options} {[access]}"
    assert not [value for value in OPTIONS.values() if value in shown]
    assert "secret_access_key: ***" in repr(access)


def test_an_access_is_complete_in_another_process() -> None:
    access = StoreAccess("s3://lake/orchard", OPTIONS)
    arrived = pickle.loads(pickle.dumps(access))
    assert arrived == access
    assert dict(arrived.options) == OPTIONS
    assert hash(arrived) == hash(access)
    assert "***" in repr(arrived)


@pytest.mark.parametrize(
    ("access_of", "settings"),
    [
        pytest.param(open_store, SettingNames("storage", "storage_options"), id="storage"),
        pytest.param(quarantine_access, SettingNames("quarantine.url", "storage_options"), id="quarantine"),
        pytest.param(witness_of, SettingNames("records.witness", "records.storage_options"), id="witness"),
        pytest.param(
            lambda repository: inventory_accesses(repository)[0][0],
            SettingNames("inventory[0].url", "storage_options"),
            id="inventory",
        ),
        pytest.param(
            lambda repository: inventory_accesses(repository)[1][0],
            SettingNames("inventory[1].url", "inventory[1].storage_options"),
            id="inventory_with_own_options",
        ),
    ],
)
def test_an_access_knows_the_settings_with_its_url_and_options_in_every_process(
    tmp_path: Path, access_of: Callable[[Repository], StoreAccess], settings: SettingNames
) -> None:
    inventory = {"url": "s3://other/a/b", "format": "CSV"}
    entry = {**REPOSITORY, "inventory": [inventory, {**inventory, "storage_options": {"region": "eu-west-1"}}]}
    file = tmp_path / "retention.yaml"
    records = {"witness": "s3://records/w"}
    file.write_text(yaml.safe_dump({"warehouse": "w", "records": records, "repositories": {"a": entry}}), "utf-8")
    access = access_of(load_configuration(file).repository("a"))
    assert pickle.loads(pickle.dumps(access)).settings == access.settings == settings


def test_memory_is_not_sent_to_another_process() -> None:
    with pytest.raises(ConfigurationError, match="another process cannot read the memory"):
        pickle.dumps(StoreAccess("memory://lake"))


def test_memory_of_one_name_is_one_store() -> None:
    StoreAccess("memory://one-name").open().put("x", b"1")
    assert ObjectReader(StoreAccess("memory://one-name")).read("x") == b"1"
    assert not ObjectReader(StoreAccess("memory://another-name")).holds_objects("")


@pytest.mark.parametrize(
    ("url", "options", "root"),
    [
        pytest.param("s3a://lake/a/b/", OPTIONS, "S3Store(bucket='lake', prefix='a/b')", id="s3a"),
        pytest.param("s3n://lake", OPTIONS, "S3Store(bucket='lake')", id="s3n"),
        pytest.param("gs://lake/p", {"skip_signature": "true"}, "GCSStore(bucket='lake', prefix='p')", id="gs"),
        pytest.param(
            "az://lake/p",
            {"account_name": "acct", "account_key": "a2V5"},
            "AzureStore(container_name='lake', account_name='acct', prefix='p')",
            id="az",
        ),
        pytest.param(
            "abfss://lake@acct.dfs.core.windows.net/p/q",
            {"account_key": "a2V5"},
            "AzureStore(container_name='lake', account_name='acct', prefix='p/q')",
            id="abfss",
        ),
        pytest.param(
            "https://acct.blob.core.windows.net/lake/p",
            {"account_key": "a2V5"},
            "AzureStore(container_name='lake', account_name='acct', prefix='p')",
            id="azure_https",
        ),
    ],
)
def test_each_spelling_opens_its_store_at_its_prefix(url: str, options: dict[str, str], root: str) -> None:
    assert repr(StoreAccess(url, options).open()).replace('"', "'") == root


S3_KEYS, AZURE_KEY = {"access_key_id": "AKIAEXAMPLE", "secret_access_key": SECRET}, {"account_key": "a2V5"}
OF_ANOTHER_LOCATION = [
    pytest.param("s3://lake/p", {**S3_KEYS, "bucket": "two"}, "bucket two, and the URL has the bucket lake", id="s3"),
    pytest.param("s3://lake/p", {**S3_KEYS, "AWS_BUCKET_NAME": "two"}, "has the bucket two, ", id="s3_in_capitals"),
    pytest.param("gs://lake/p", {"google_bucket": "two"}, "bucket two, and the URL has the bucket lake", id="gs"),
    pytest.param(
        "az://lake/p", {**AZURE_KEY, "account_name": "acct", "container_name": "two"}, "has the container two", id="az"
    ),
    pytest.param(
        "https://acct.blob.core.windows.net/lake/p",
        {**AZURE_KEY, "azure_container_name": "two"},
        "has the container two, and the URL has the container lake",
        id="azure_https",
    ),
    pytest.param(
        "abfss://lake@acct.dfs.core.windows.net/p",
        {**AZURE_KEY, "azure_storage_account_name": "two"},
        "has the account two, and the URL has the account acct",
        id="account",
    ),
]


@pytest.mark.parametrize(("url", "options", "message"), OF_ANOTHER_LOCATION)
def test_an_option_that_names_another_location_than_the_url_is_refused(
    url: str, options: dict[str, str], message: str
) -> None:
    """obstore would list and delete the objects of that location."""
    with pytest.raises(ConfigurationError, match=f"^{url}: storage_options .*{message}.* Nothing was read"):
        StoreAccess(url, options).open()


@pytest.mark.parametrize(
    ("url", "options"),
    [
        pytest.param("s3://lake/p", {**S3_KEYS, "bucket": "lake"}, id="s3"),
        pytest.param("s3://user@lake/p", S3_KEYS, id="a_user_before_the_bucket"),
        pytest.param("gs://lake", {"bucket": "lake", "skip_signature": "true"}, id="gs"),
        pytest.param(
            "https://Acct.dfs.core.windows.net/lake",
            {**AZURE_KEY, "account_name": "acct", "container_name": "lake"},
            id="azure_https",
        ),
        pytest.param("abfs://lake/p", {**AZURE_KEY, "account_name": "acct"}, id="abfs_without_a_host"),
        pytest.param("https://onelake.dfs.fabric.microsoft.com/lake/p", AZURE_KEY, id="fabric"),
    ],
)
def test_an_option_that_names_the_location_of_the_url_is_allowed(url: str, options: dict[str, str]) -> None:
    config = StoreAccess(url, options).open().config
    assert config.get("bucket", config.get("container_name")) == "lake"


@pytest.mark.parametrize("name", ["allow_http", "AWS_ALLOW_HTTP"])
def test_an_option_of_the_client_may_carry_the_cloud_s_name(name: str) -> None:
    assert StoreAccess("s3://lake", {name: "true"}).open().client_options["allow_http"] == "true"


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"])
def test_an_endpoint_of_the_environment_with_http_needs_no_second_setting(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    bucket.client().put_object(Bucket=bucket.name, Key="x", Body=b"1")
    monkeypatch.setenv(variable, bucket.endpoint)
    keys = {"access_key_id": bucket.access_key, "secret_access_key": bucket.secret_key}
    assert ObjectReader(StoreAccess(f"s3://{bucket.name}", keys)).read("x") == b"1"


def test_a_file_url_is_a_literal_path(tmp_path: Path) -> None:
    (tmp_path / "100%25 #1").mkdir()
    (tmp_path / "100%25 #1" / "x").write_bytes(b"1")
    assert ObjectReader(StoreAccess(f"file://{tmp_path}/100%25 #1/")).read("x") == b"1"


@pytest.mark.parametrize(
    ("url", "options", "message"),
    [
        pytest.param("s3://lake", {"acess_key_id": SECRET}, r"storage_options\.acess_key_id", id="misspelt"),
        pytest.param("s3://lake", {"default_headers": SECRET}, r"storage_options\.default_headers", id="not_offered"),
        pytest.param("s3://lake", {"aws_user_agent": SECRET}, r"storage_options\.aws_user_agent", id="of_the_client"),
        pytest.param("s3://lake", {"allow_http": SECRET}, r"storage_options\.allow_http must be", id="no_flag"),
        pytest.param("s3://lake", {"timeout": SECRET}, r"storage_options \(timeout\)", id="no_duration"),
        pytest.param("az://lake/p", {"account_key": SECRET}, "az:// needs account_name", id="azure_without_account"),
        pytest.param("file:///tmp", {"region": SECRET}, r"storage_options\.region", id="option_of_a_directory"),
        pytest.param("memory://m", {"region": SECRET}, r"storage_options\.region", id="option_of_memory"),
    ],
)
def test_a_wrong_option_is_named_without_its_value(url: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        StoreAccess(url, options).open()
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("url", "message"),
    [
        pytest.param("ftp://host/x", "this kind of URL is not supported", id="unknown_scheme"),
        pytest.param("https://example.com/x", "this kind of URL is not supported", id="any_web_server"),
        pytest.param("/var/lake", "a location is not a URL", id="no_url"),
        pytest.param("local://repo", "Set `storage:`", id="local"),
        pytest.param("s3://lake/a#b", "ends before its `#`", id="fragment"),
        *(
            pytest.param(url, "It would open another location, or none", id=url)
            for url in (
                "s3:///lake/a",
                "s3://lake//a",
                "s3://lake/a/../b",
                "s3://lake/a/%2E%2e/b",
                "gs://lake/./a",
                "abfss://lake@acct.dfs.core.windows.net/a/../b",
                "s3://lake/a\tb",
                "s3://lake/a ",
            )
        ),
        pytest.param(f"s3://key:{SECRET.replace('/', '')}@lake/x", "holds a password", id="password"),
        pytest.param(f"s3:/key:{SECRET}@lake/x", "a location is not a URL", id="password_in_a_misspelled_url"),
        pytest.param(f"https://acct.blob.core.windows.net/c?sig={SECRET}", "holds a password or", id="signature"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_at_once(url: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        StoreAccess(url)
    assert SECRET.replace("/", "") not in str(caught.value)
    assert SECRET not in str(caught.value)
