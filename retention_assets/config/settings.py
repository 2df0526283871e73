"""The settings of a repository in `retention.yaml`: one model for each kind, and the keys that all kinds share."""

import os
import re
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from retention_assets.config.durations import format_duration
from retention_assets.config.limits import (
    LONGEST_WINDOW,
    Duration,
    Limits,
    Location,
    Model,
    Namespace,
    Number,
    PositiveDuration,
)
from retention_assets.errors import ConfigurationError

_SECRET_OPTION = re.compile(
    r"secret|password|token|sas|account_key|private_key|credential|access_key(?!_id)|master_key|encryption_key|customer_key",
    re.IGNORECASE,
)
# Names of Spark and Hadoop options have dots, dashes and capitals. Their access key is an id, not a secret.
_SECRET_SPARK = re.compile(
    r"secret|passw|passphrase|token|credential|(?:account|private|encryption|master|customer)[._-]?key|\bsas\b"
    r"|signature",
    re.IGNORECASE,
)
# Names of options whose values are not secrets: a provider class, a file or mount that contains secrets, a switch.
_NOT_SECRET_SPARK = re.compile(
    r"(?:providers?|provider\.(?:mapping|type)|type|class|file|path|name|enabled|regex|length|bits)$"
    r"|secretKeyRef|\.secrets\.",
    re.IGNORECASE,
)
_SECRET_ARGUMENT = re.compile(r"(?:passw\w*|passphrase|secret[\w.-]*|token|\bsig)=[^\s;&]", re.IGNORECASE)
_TIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_OWNER = re.compile(r"team:[\w-]+|[\w.%+-]+@[\w.-]+\.[A-Za-z]{2,}", re.ASCII)
_SECRET_URL = re.compile(r"://[^/?#\s]*:[^/?#\s]*@|[?&](?:sig|x-amz-signature|x-goog-signature)=", re.IGNORECASE)


_OWN_SPARK = "spark.retention."
# Settings of the Spark session that only this project reads.
READ_TASKS = f"{_OWN_SPARK}read.tasks"
SWEEP_WORKERS = f"{_OWN_SPARK}sweep.workers"
SPARK_COUNTS = (READ_TASKS, SWEEP_WORKERS)
MANY_OBJECTS = f"{_OWN_SPARK}many.objects"  # set by `fit_to`, not by the configuration
_COUNT = re.compile(r"[1-9][0-9]{0,4}")
_DUMP_AGE = LONGEST_WINDOW  # the same limit: an object can become live after a dump, as after a liveness check


class FromEnvironment(Model):
    """`{env: NAME}`: a value that is read from the environment, so that no file contains a secret."""

    env: str = Field(min_length=1)

    def resolve(self, where: str) -> str:
        """Return the variable's value. Errors: ConfigurationError if it is not set; `where` is the key in the file."""
        value = os.environ.get(self.env)
        if not value:
            raise ConfigurationError(
                f"{where}: the environment variable {self.env} is not set. Nothing was read or deleted. "
                f"Set it: `export {self.env}=…`."
            )
        return value


def _from_environment(value: object) -> object:
    """Return the value. Errors: ValueError, without the text, for a secret in clear."""
    if value is None or isinstance(value, str | int):
        raise ValueError("is a secret: set an environment variable, and write `{env: NAME}` with its name")
    return value


Secret = Annotated[FromEnvironment, BeforeValidator(_from_environment)]
Text = str | FromEnvironment
SparkValue = str | int | float | bool | FromEnvironment


def resolve(value: Text, where: str) -> str:
    """Return the text, or the value of its environment variable. Errors: ConfigurationError; `where` is the key."""
    return value.resolve(where) if isinstance(value, FromEnvironment) else value


def _without_secret(options: dict[str, Text]) -> dict[str, Text]:
    for name, value in options.items():
        if isinstance(value, str) and (_SECRET_OPTION.search(name) or holds_secret(value)):
            raise _secret_in_clear(name)
    return options


StorageOptions = Annotated[dict[str, Text], AfterValidator(_without_secret)]  # options of an object store


class ApiSettings(Model):
    """How to reach a lakeFS server."""

    url: str
    access_key: Text
    secret_key: Secret
    repository: str | None = None  # the name on the server; null: the name in this file


class SourceSettings(Model):
    """Where references come from: the file of a dump, or a server."""

    dump: str | None = None
    dump_age: PositiveDuration | None = None  # the maximum age of a dump for a sweep; null: 1h
    api: ApiSettings | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> "SourceSettings":
        if (self.dump is None) == (self.api is None):
            raise ValueError("name exactly one of `dump` and `api`")
        if self.api is not None and self.dump_age is not None:
            raise ValueError("`dump_age` is only for a `dump`: a server returns its current references")
        return self

    @property
    def oldest_dump(self) -> timedelta | None:
        """The maximum age of a dump for a sweep; None if references come from a server."""
        return None if self.dump is None else self.dump_age or _DUMP_AGE


class InventorySettings(Model):
    """An inventory that the store delivers: the folder `…/source-bucket/config-ID`, and how to reach it."""

    url: Location
    format: Literal["CSV", "ORC", "Parquet"]
    storage_options: StorageOptions | None = None  # null: those of the repository

    @field_validator("format", mode="before")
    @classmethod
    def _any_case(cls, value: object) -> object:
        known = {name.lower(): name for name in ("CSV", "ORC", "Parquet")}
        return known.get(value.lower(), value) if isinstance(value, str) else value


def require_no_file_is_skipped(settings: Mapping[str, SparkValue]) -> None:
    """Reject a Spark session that skips unreadable files: the rows in such a file may protect objects.

    Errors: ValueError, to which pydantic adds the key path.
    """
    for name in ("spark.sql.files.ignoreCorruptFiles", "spark.sql.files.ignoreMissingFiles"):
        if str(settings.get(name, "false")).lower() != "false":
            raise ValueError(f"{name} must be false: a table with missing rows would be read as complete")


def require_known_counts(settings: Mapping[str, SparkValue]) -> None:
    """Reject unknown `spark.retention.*` settings, and values that are not task counts. Errors: ValueError."""
    for name, value in settings.items():
        if name.startswith(_OWN_SPARK) and name not in SPARK_COUNTS:
            raise ValueError(f"{name} is unknown; there are: {', '.join(SPARK_COUNTS)}")
        if name in SPARK_COUNTS and not _COUNT.fullmatch(str(value)):
            raise ValueError(f"{name} must be a whole number from 1 to 99999, not {value!r}")


def require_no_spark_secret(settings: Mapping[str, SparkValue]) -> None:
    """Reject plain-text secrets in the Spark settings, which Dagster's UI shows to all users. Errors: ValueError."""
    for name, value in settings.items():
        if isinstance(value, FromEnvironment | bool):
            continue
        is_secret = _SECRET_SPARK.search(name) and not _NOT_SECRET_SPARK.search(name)
        if is_secret or holds_secret(str(value)) or _SECRET_ARGUMENT.search(str(value)):
            raise _secret_in_clear(name)


def holds_secret(text: str) -> bool:
    """Return whether `text` contains a URL with a password or a signature."""
    return _SECRET_URL.search(text) is not None


def _secret_in_clear(name: str) -> ValueError:
    return ValueError(f"{name} is a secret: write `{{env: NAME}}` and set that variable")


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str | dict) else value


def _time_of_day(value: object) -> time:
    """Return the time of `HH:MM`. An integer is a time in minutes, because YAML 1.1 reads an unquoted 13:30 as 810."""
    if isinstance(value, str) and (found := _TIME.fullmatch(value)):
        return time(int(found[1]), int(found[2]))
    if isinstance(value, int) and not isinstance(value, bool) and 60 <= value < 24 * 60:
        return time(*divmod(value, 60))
    raise ValueError(f"{value!r} is not a time of day: write `HH:MM` (UTC), such as `03:30`")


def _owner(value: str) -> str:
    if not _OWNER.fullmatch(value):
        raise ValueError(f"{value!r} is not an owner: write an e-mail address, or `team:name`")
    return value


def _day(value: object) -> object:
    """Return a day unchanged. Errors: ValueError, also for a number: pydantic would take it for seconds since 1970."""
    is_day = isinstance(value, str) and _DAY.fullmatch(value)
    if not (is_day or (isinstance(value, date) and not isinstance(value, datetime))):
        raise ValueError(f"{value!r} is not a day: write YYYY-MM-DD, such as 2026-11-01")
    return value


Mode = Literal["plan", "quarantine", "delete"]
Day = Annotated[date, BeforeValidator(_day)]
TimeOfDay = Annotated[time, BeforeValidator(_time_of_day)]
Owner = Annotated[str, AfterValidator(_owner)]


class ScheduleSettings(Model):
    """The times (UTC) at which Dagster's schedules start runs, and the age at which a plan is overdue.

    All schedules are off until someone switches them on.
    """

    plan: TimeOfDay = time(3)
    sweep: TimeOfDay = time(6)
    housekeeping: TimeOfDay = time(1)  # on Sundays
    plan_within: PositiveDuration | None = timedelta(days=2)  # Dagster shows an older plan as overdue; null: never

    @field_validator("plan_within")
    @classmethod
    def _as_long_as_dagster_needs(cls, value: timedelta | None) -> timedelta | None:
        if value is not None and value < timedelta(minutes=1):
            raise ValueError(f"{format_duration(value)} is too short: write at least 1m, or null for never")
        return value


class CommonSettings(Limits):
    """The settings that all kinds of repositories share."""

    storage_options: StorageOptions = Field(default_factory=dict)
    policy: Annotated[list[str], BeforeValidator(_as_list)]
    grace: Duration = timedelta(hours=24)
    settle: Duration = timedelta(hours=24)  # how long an object must be due before it may be deleted; 0s: no wait
    mode: Mode = "plan"
    price_per_gb_month: Number | None = Field(default=None, ge=0)  # the price of storage, in any currency
    owners: Annotated[list[Owner], BeforeValidator(_as_list)] = Field(default_factory=list)  # of the assets in Dagster
    schedule: ScheduleSettings = ScheduleSettings()

    @field_validator("policy")
    @classmethod
    def _at_least_one(cls, value: list[str]) -> list[str]:
        if not value:
            raise ValueError("name at least one policy file, or `server`")
        return value


class LakeFSSettings(CommonSettings):
    """One lakeFS repository."""

    kind: Literal["lakefs"]
    namespace: Namespace
    storage: Location | None = None
    source: SourceSettings
    staged: str | None = None
    tags: Literal["protect", "ignore"] = "protect"
    settle_expired: bool = True  # whether objects of commits must settle too
    reflog: bool | None = None  # whether heads that no longer exist keep commits; null: true, unless `settle` is 0s
    token_life: Duration = timedelta(hours=24)  # younger unreferenced objects are kept. Source: docs/uncommitted.md
    inventory: Annotated[list[InventorySettings], BeforeValidator(_as_list)] = Field(default_factory=list)
    listing: Literal["clean", "optimized"] = "clean"  # optimized: list what may have changed (docs/uncommitted.md)
    clean_every: Duration = timedelta(days=7)  # after this time, an optimized run lists the whole store again
    legacy_names: bool = False  # true: objects with names of old lakeFS versions may be deleted
    write_results: bool = False  # whether results and statistics are also written below _lakefs/retention/lc/

    @property
    def keeps_reflog(self) -> bool:
        """Whether heads that no longer exist still keep commits. See `reflog`."""
        return bool(self.settle) if self.reflog is None else self.reflog


class IcechunkSettings(CommonSettings):
    """One Icechunk repository. `grace` must exceed the longest write session: only age protects uncommitted files."""

    settle: Duration = timedelta(0)  # no wait: no operation of Icechunk hides a live file from a plan

    kind: Literal["icechunk"]
    storage: Location
    # Backups in overwritten/ may be deleted when they are older than this and `grace` together; null: never.
    collect_overwritten: Duration | None = timedelta(days=30)


class RecordSettings(Model):
    """How the records of all repositories are protected from people who can write to the warehouse."""

    signing_key: Secret | None = None  # signs each record; it must not be in the warehouse
    signed_since: Day | None = None  # records that ended before this day (UTC) may be unsigned
    earlier_keys: list[Secret] = Field(default_factory=list)  # keys of records signed before the key was changed
    witness: Location | None = None  # URL of a second location, which gets a copy of each record
    storage_options: StorageOptions = Field(default_factory=dict)  # of the witness


RepositorySettings = Annotated[LakeFSSettings | IcechunkSettings, Field(discriminator="kind")]
