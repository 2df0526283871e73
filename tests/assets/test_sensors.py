"""The inventory sensor with a real S3 server, and with a directory."""

from datetime import UTC, datetime
from pathlib import Path

import boto3
import dagster as dg
import pytest
import yaml
from dagster_aws.s3 import S3Resource

from retention_assets.config.configuration import load_configuration
from retention_assets.definitions import build_definitions
from retention_assets.errors import StoreError
from tests.faulty_s3 import faulty_s3
from tests.inventories import listed_rows, make_inventory

CREATED = datetime(2026, 10, 30, 1, tzinfo=UTC)
LATER = datetime(2026, 10, 31, 1, tzinfo=UTC)
KEY, SECRET = "AKIDINVENTORY", "a-secret-of-the-inventory"
BY_NAME = {"env": "INVENTORY_SECRET"}


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INVENTORY_SECRET", SECRET)


@pytest.fixture
def s3(s3_endpoint, request):
    client = boto3.client("s3", endpoint_url=s3_endpoint, aws_access_key_id=KEY, aws_secret_access_key=SECRET)
    bucket = f"inventories-{abs(hash(request.node.name))}"
    client.create_bucket(Bucket=bucket)
    return client, bucket


def configuration(directory: Path, url: str, **options) -> Path:
    repository = {
        "kind": "lakefs",
        "namespace": "s3://lake/orchard",
        "source": {"dump": "dump.json"},
        "policy": ["server"],
        "storage_options": options,
        "inventory": {"url": url, "format": "Parquet"},
    }
    file = directory / "retention.yaml"
    file.write_text(yaml.safe_dump({"warehouse": "warehouse", "repositories": {"orchard": repository}}))
    return file


def definitions_of(file: Path) -> dg.Definitions:
    return build_definitions(load_configuration(file))


def tick(definitions: dg.Definitions, cursor: str | None = None, resources=None):
    repository = definitions.get_repository_def()
    sensor = repository.get_sensor_def("orchard_inventory")
    resources = resources or {key: definitions.resources[key] for key in sensor.required_resource_keys}
    with (
        dg.instance_for_test() as instance,
        dg.build_sensor_context(
            instance=instance, cursor=cursor, repository_def=repository, resources=resources
        ) as context,
    ):
        return sensor.evaluate_tick(context)


def put(client, bucket: str, made, leave_out: str | None = None) -> None:
    for name, content in made.objects.items():
        if leave_out is None or not name.endswith(leave_out):
            client.put_object(Bucket=bucket, Key=name, Body=content)


def made_at(created: datetime):
    return make_inventory(listed_rows("orchard"), "lake", created, "Parquet")


def test_a_complete_inventory_starts_its_day_and_an_incomplete_one_waits(s3_endpoint, s3, tmp_path):
    client, bucket = s3
    first, second = made_at(CREATED), made_at(LATER)
    put(client, bucket, first)
    put(client, bucket, second, leave_out="manifest.checksum")
    options = {"endpoint": s3_endpoint, "access_key_id": KEY, "secret_access_key": BY_NAME}
    definitions = definitions_of(configuration(tmp_path, f"s3://{bucket}/{first.folder}", **options))
    found = tick(definitions)
    assert [(request.partition_key, request.run_key) for request in found.run_requests] == [
        ("2026-10-30", "orchard:2026-10-30T01-00Z")
    ]
    assert tick(definitions, found.cursor).run_requests == []
    put(client, bucket, second)
    assert [request.partition_key for request in tick(definitions, found.cursor).run_requests] == ["2026-10-31"]


def options_in_capitals(endpoint: str, bucket: str) -> dict[str, object]:
    return {"AWS_ENDPOINT": endpoint, "ACCESS_KEY_ID": KEY, "SECRET_ACCESS_KEY": BY_NAME}


def options_with_the_bucket_in_the_host(endpoint: str, bucket: str) -> dict[str, object]:
    """The host does not exist, so requests arrive only through the proxy, which is the server itself."""
    keys = {"access_key_id": KEY, "secret_access_key": BY_NAME}
    host = {"endpoint": f"http://{bucket}.s3.amazonaws.com", "virtual_hosted_style_request": "true"}
    return {**keys, **host, "proxy_url": endpoint}


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
@pytest.mark.parametrize("options", [options_in_capitals, options_with_the_bucket_in_the_host])
def test_the_sensor_uses_the_url_and_the_options_as_all_other_requests_do(s3_endpoint, s3, tmp_path, scheme, options):
    client, bucket = s3
    made = made_at(CREATED)
    put(client, bucket, made)
    file = configuration(tmp_path, f"{scheme}://{bucket}/{made.folder}", **options(s3_endpoint, bucket))
    assert [request.partition_key for request in tick(definitions_of(file)).run_requests] == ["2026-10-30"]


def test_with_skip_signature_the_sensor_signs_no_request(s3_endpoint, s3, tmp_path):
    client, bucket = s3
    made = made_at(CREATED)
    put(client, bucket, made)
    with faulty_s3(s3_endpoint) as proxy:
        options = {"endpoint": proxy.endpoint, "skip_signature": "true"}
        found = tick(definitions_of(configuration(tmp_path, f"s3://{bucket}/{made.folder}", **options)))
    assert [request.partition_key for request in found.run_requests] == ["2026-10-30"]
    assert not [request for request in proxy.requests if "Authorization" in request.headers]


def test_the_sensor_lists_with_the_client_of_the_s3_resource_of_dagster_aws(s3_endpoint, s3, tmp_path):
    client, bucket = s3
    made = made_at(CREATED)
    put(client, bucket, made)
    options = {"endpoint": "http://127.0.0.1:9", "access_key_id": KEY, "secret_access_key": BY_NAME}
    definitions = definitions_of(configuration(tmp_path, f"s3://{bucket}/{made.folder}", **options))
    own = S3Resource(endpoint_url=s3_endpoint, aws_access_key_id=KEY, aws_secret_access_key=SECRET)
    found = tick(definitions, resources={"orchard_inventory_0_s3": own})
    assert [request.partition_key for request in found.run_requests] == ["2026-10-30"]


@pytest.mark.parametrize(
    ("endpoint_of_test", "words"),
    [
        pytest.param("http://127.0.0.1:9", "the store cannot be reached", id="no_response"),
        pytest.param("{}", "the bucket does not exist", id="no_bucket"),
    ],
)
def test_a_folder_that_cannot_be_listed_is_named_in_the_error_of_the_tick(
    s3_endpoint, tmp_path, monkeypatch, endpoint_of_test, words
):
    monkeypatch.setattr("retention_assets.objectstore.s3.time.sleep", lambda seconds: None)
    options = {"endpoint": endpoint_of_test.format(s3_endpoint), "access_key_id": KEY, "secret_access_key": BY_NAME}
    definitions = definitions_of(configuration(tmp_path, "s3://none/lake/daily", **options))
    with pytest.raises(StoreError, match=f"^s3://none/lake/daily: cannot list its objects: {words}"):
        tick(definitions)


def test_the_secret_is_not_in_the_resource_that_dagster_shows(s3_endpoint, tmp_path):
    options = {"endpoint": s3_endpoint, "access_key_id": KEY, "secret_access_key": BY_NAME}
    definitions = definitions_of(configuration(tmp_path, "s3://inventories/lake/daily", **options))
    resource = definitions.resources["orchard_inventory_0_s3"]
    assert SECRET not in repr(resource)


def test_a_directory_of_deliveries_is_watched_too(tmp_path):
    made = made_at(CREATED)
    url = made.write_to(tmp_path / "delivered")
    found = tick(definitions_of(configuration(tmp_path, url)))
    assert [request.partition_key for request in found.run_requests] == ["2026-10-30"]


def test_a_repository_without_an_inventory_has_no_sensor_for_one(tmp_path):
    file = configuration(tmp_path, "unused")
    document = yaml.safe_load(file.read_text())
    del document["repositories"]["orchard"]["inventory"]
    file.write_text(yaml.safe_dump(document))
    assert not [sensor.name for sensor in definitions_of(file).sensors if "inventory" in sensor.name]


def test_the_sensor_is_stopped_until_somebody_starts_it(tmp_path):
    definitions = definitions_of(configuration(tmp_path, str(tmp_path)))
    sensor = definitions.get_repository_def().get_sensor_def("orchard_inventory")
    assert sensor.default_status is dg.DefaultSensorStatus.STOPPED
