"""Objects that another configured repository refers to, by the tables of its last plan."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import DataFrame, SparkSession

from retention_assets.config.configuration import load_configuration
from retention_assets.core.liveness import Liveness
from retention_assets.errors import GuardRefused
from retention_assets.lakefs.formats.lakefs_pb2 import GarbageCollectionRules
from retention_assets.lakefs.source.opening import open_repository, policy_of_files
from retention_assets.lakefs.source.repository import RULES
from retention_assets.repositories.other_repositories import OtherRepositories
from retention_assets.state.approval import planned_terms, terms_hash
from retention_assets.state.plan import keep_plan
from retention_assets.tables import COMMIT_GRAPH
from retention_assets.warehouse.metadata import Details, PartitionMetadata
from retention_assets.warehouse.warehouse import METADATA, Warehouse
from tests import frames
from tests.frames import DAY, NOW, Pair, Staged, address
from tests.sweep.small_world import a_plan

pytestmark = pytest.mark.long

REFERENCES = "e" * 64
HOUR = timedelta(hours=1)
DAY_OF_PLAN = NOW.date().isoformat()
_POLICY = {"default_retention_days": 30, "branches": []}


class Pairing:
    """A configuration with the repositories `here` and `there`, and the tables of a plan of `there`."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark = spark
        self.directory = directory
        self.warehouse = Warehouse(str(directory / "warehouse"))
        self.on_server = False  # whether the policy of `there` has the rules of its server, too
        self.configure()

    def configure(
        self, policy: Any = None, there: str = "s3://lake/there", settings_there: Any = None, **settings: Any
    ) -> None:
        """Write the configuration. `policy` and `settings_there`: the policy and changed settings of `there`."""
        policies = ["there.json", *(["server"] if self.on_server else [])]
        (self.directory / "here.json").write_text(json.dumps(_POLICY), encoding="utf-8")
        (self.directory / "there.json").write_text(json.dumps(policy or _POLICY), encoding="utf-8")
        entry = {"kind": "lakefs", "source": {"dump": "dump.json"}, "mode": "delete"}
        document = {
            "warehouse": "warehouse",
            "repositories": {
                "here": {**entry, "namespace": "s3://lake/here", "policy": "here.json", **settings},
                "there": {**entry, "namespace": there, "policy": policies, **(settings_there or {})},
            },
        }
        (self.directory / "retention.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
        self.configuration = load_configuration(self.directory / "retention.yaml")

    def plan(self, *pairs: Pair, staged: str = "", at: datetime = NOW, day: date | None = None, **notes: str) -> None:
        """Write the tables of a plan of `there`, made under its current policy. `day`: by default the day of `at`."""
        there = self.configuration.repository("there")
        policy = open_repository(there, lambda: NOW).policy() if self.on_server else policy_of_files(there)
        terms = terms_hash(planned_terms(there))
        hashes = {"policy_hash": policy.policy_hash, "references_hash": REFERENCES, "terms_hash": terms}
        origin = {**hashes, **notes}
        uncommitted = frames.staged(self.spark, *([Staged(staged)] if staged else []))
        graph = self.spark.createDataFrame(COMMIT_GRAPH.schema.empty_table())
        for name, frame in (
            ("addresses", frames.addresses(self.spark, *pairs)),
            ("uncommitted_objects", uncommitted),
            ("commit_graph", graph),
        ):
            self.write(name, frame, at, origin, day=day)

    def write(
        self,
        name: str,
        frame: DataFrame,
        at: datetime,
        notes: dict[str, str],
        run_id: str = "a-run",
        day: date | None = None,
    ) -> None:
        """Write a table of `there` for `day`, by default the day of `at`."""
        day = day or at.date()
        frame.write.mode("overwrite").parquet(self.warehouse.partition("there", name, day))
        metadata = PartitionMetadata(at, frame.count(), run_id, Details.of_texts(notes))
        self.warehouse.write_metadata("there", name, day, metadata)

    def others(self, now: datetime = NOW) -> OtherRepositories:
        """Return the other repositories from the view of `here`."""
        here, others = self.configuration.repository("here"), self.configuration.others("here")
        return OtherRepositories(self.spark, self.warehouse, here, others, "a-run", lambda: now)

    def others_before(self) -> OtherRepositories:
        """Return the other repositories of `here` if `there` was added after the configuration was read."""
        return replace(self.others(), others=())

    def kept(self) -> set[str]:
        """Return which of ten objects of `here` a liveness check keeps."""
        objects = frames.inventory(self.spark, *(frames.Listed(address(number)) for number in range(10)))
        none = objects.select("address").limit(0)
        live = self.others().extended(Liveness(none, none, NOW), objects).live
        return {row["address"] for row in live.collect()}


@pytest.fixture
def pairing(spark: SparkSession, tmp_path: Path) -> Pairing:
    return Pairing(spark, tmp_path)


def named(number: int, path: str = "a", **changes: Any) -> Pair:
    """Return an entry of `there` that names an object of `here` by its full address."""
    return Pair(f"s3://lake/here/{address(number)}", path, **changes)


@pytest.mark.parametrize(
    ("of_commits", "of_staged", "kept"),
    [("0", "0", ""), ("0", "1", "6"), ("0", None, "6"), ("1", "0", "0"), (None, "0", "0"), ("1", "1", "06")],
)
def test_a_table_is_not_read_if_its_plan_counted_no_reference_to_objects_of_others(
    pairing: Pairing, of_commits: str | None, of_staged: str | None, kept: str
) -> None:
    pairing.plan(named(0, active=True), staged=f"s3://lake/here/{address(6)}")
    for table, outside in (("addresses", of_commits), ("uncommitted_objects", of_staged)):
        metadata = pairing.warehouse.metadata("there", table, NOW.date())
        details = replace(metadata.details, outside=None if outside is None else int(outside))
        pairing.warehouse.write_metadata("there", table, NOW.date(), replace(metadata, details=details))
    expected = {address(int(number)) for number in kept}
    assert pairing.kept() == expected
    parts = pairing.others().last_parts()
    found = {row["last_part"] for row in parts.collect()} if parts else set[str]()
    assert found == {one.rpartition("/")[2] for one in expected}


def test_objects_of_live_and_staged_entries_of_another_repository_are_kept(pairing: Pairing) -> None:
    pairing.configure({"lifecycle": [{"id": "old", "prefix": "old", "keep": "10d"}], "holds": [
        {"id": "audit", "prefix": "audit", "reason": "an audit"}
    ]})  # fmt: skip
    pairing.plan(
        named(0, active=True),
        named(1, protected=True),
        named(2),
        named(3, "old/3", active=True),
        named(4, "audit/4"),
        Pair(address(5), "own", active=True),
        staged=f"s3://lake/here/{address(6)}",
    )
    assert pairing.kept() == {address(number) for number in (0, 1, 4, 6)}


def test_a_deleted_branch_keeps_the_objects_of_its_pairs_for_its_own_longer_duration(pairing: Pairing) -> None:
    rule = {"id": "old", "prefix": "old", "keep": "10d", "branches": {"deleted": "90d"}}
    pairing.configure({"lifecycle": [rule]})
    pairing.plan(
        named(0, "old/0", active=True, left_branches=("deleted",), added_at=NOW - 20 * DAY),
        named(1, "old/1", active=True, left_branches=("deleted",), added_at=NOW - 100 * DAY),
        named(2, "old/2", active=True, left_branches=("other",), added_at=NOW - 20 * DAY),
    )
    assert pairing.kept() == {address(0)}


def test_objects_that_expired_only_under_an_unused_policy_are_kept(pairing: Pairing) -> None:
    policy = {"lifecycle": [{"id": "old", "prefix": "old", "keep": "10d"}]}
    pairs = named(0, active=True), named(1), named(2, "old/2", active=True)
    for mode, kept in (("plan", (0, 1, 2)), ("quarantine", (0,))):
        pairing.configure(policy, settings_there={"mode": mode})
        pairing.plan(*pairs)
        assert pairing.kept() == {address(number) for number in kept}


@pytest.mark.parametrize("change", ["another_policy", "other_references"])
def test_every_entry_counts_if_the_live_entries_are_unknown(pairing: Pairing, change: str) -> None:
    pairing.plan(named(0), **({"references_hash": "f" * 64} if change == "other_references" else {}))
    if change == "another_policy":
        pairing.configure({"default_retention_days": 7, "branches": []})
        assert pairing.kept() == {address(0)}
        assert pairing.others().unknown() == [
            "The policy of there is not the one of its last plan. Plan it again: `retention plan there`."
        ]
    else:
        graph = pairing.spark.createDataFrame(COMMIT_GRAPH.schema.empty_table())
        pairing.write("commit_graph", graph, NOW, {"references_hash": REFERENCES})
        assert pairing.kept() == {address(0)}


def require_every_entry_counts(pairing: Pairing, why: str) -> None:
    """Require that the sweep of `here` is refused with the reason `why`, and that all references of `there` count."""
    assert pairing.kept() == {address(0), address(1)}
    (reason,) = pairing.others().unknown()
    assert reason.startswith(why)
    assert reason.endswith("Plan it again: `retention plan there`.")


@pytest.mark.parametrize(
    "changed",
    [{"tags": "ignore"}, *(pytest.param(one, marks=pytest.mark.slow) for one in ({"reflog": False}, {"grace": "72h"}))],
    ids=str,
)
def test_every_entry_counts_after_a_setting_of_the_other_repository_changed(
    pairing: Pairing, changed: dict[str, Any]
) -> None:
    pairing.plan(named(0), named(1, active=True))
    assert pairing.kept() == {address(1)}
    terms = planned_terms(pairing.configuration.repository("there"))
    pairing.configure(settings_there=changed)
    require_every_entry_counts(pairing, "Settings of there are not those of its last plan. ")
    keep_plan(pairing.warehouse, a_plan(repository="there", terms=terms))
    (setting,) = changed
    why = f"Settings of there are not those of its last plan: {setting} was {terms[setting]}, is "
    require_every_entry_counts(pairing, why)
    pairing.plan(named(0), named(1, active=True))
    assert pairing.kept() == {address(1)}
    assert pairing.others().unknown() == []


@pytest.mark.parametrize("change", ["the_rules_of_the_server", "a_file", "the_server_cannot_be_read"])
def test_every_entry_counts_after_one_part_of_a_policy_with_server_rules_changed(pairing: Pairing, change: str) -> None:
    rules = pairing.directory / "lake" / RULES
    rules.parent.mkdir(parents=True)
    rules.write_bytes(GarbageCollectionRules(default_retention_days=7).SerializeToString())
    dump = {f"{table}_meta_range_id": "a" * 64 for table in ("commits", "tags", "branches")}
    (pairing.directory / "dump.json").write_text(json.dumps(dump), encoding="utf-8")
    pairing.on_server, at = True, {"storage": "lake"}
    pairing.configure({"holds": [{"id": "audit", "prefix": "audit", "reason": "an audit"}]}, settings_there=at)
    pairing.plan(named(0), named(1, active=True))
    assert pairing.kept() == {address(1)}
    assert pairing.others().unknown() == []
    if change == "the_rules_of_the_server":
        rules.write_bytes(GarbageCollectionRules(default_retention_days=365).SerializeToString())
    elif change == "a_file":
        pairing.configure({"lifecycle": [{"id": "old", "prefix": "old", "keep": "10d"}]}, settings_there=at)
    else:
        (pairing.directory / "dump.json").unlink()
    is_unreadable = change == "the_server_cannot_be_read"
    why = f"cannot be read: {pairing.directory}/dump.json: " if is_unreadable else "is not the one of its last plan."
    require_every_entry_counts(pairing, f"The policy of there {why}")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        pytest.param(lambda pairing: None, "there has no complete plan yet", id="never_planned"),
        pytest.param(lambda pairing: pairing.plan(at=NOW - 25 * HOUR), "plan of there is of", id="too_old"),
        pytest.param(lambda pairing: pairing.plan(at=NOW - 23 * HOUR), "", id="of_yesterday"),
        pytest.param(lambda pairing: pairing.plan(refused="x"), "there has no complete plan yet", id="refused"),
        pytest.param(
            lambda pairing: pairing.plan(replaced="1 commit cannot be found any more."),
            "At its last plan, there was in an older state than before",
            id="restored_to_an_older_state",
        ),
    ],
)
def test_a_sweep_refuses_while_the_other_repositorys_references_are_not_known(
    pairing: Pairing, make: Callable[[Pairing], None], words: str
) -> None:
    make(pairing)
    warnings = " ".join(pairing.others().for_plan().warnings)
    if not words:
        assert warnings == ""
        pairing.others().require_known()
        return
    assert words in warnings
    with pytest.raises(GuardRefused) as refused:
        pairing.others().require_known()
    message = str(refused.value)
    assert message.startswith(
        "here: another repository may refer to objects that would be deleted. Nothing was deleted."
    )
    assert words in message
    assert message.endswith("`retention plan there`.")


def test_a_longer_grace_and_settle_allow_an_older_plan(pairing: Pairing) -> None:
    """If an object that was named `settle` ago had a new reference, a plan since then would have found it."""
    pairing.plan(at=NOW - 50 * HOUR)
    for settings, known in (
        ({"grace": "72h"}, False),
        ({"settle": "72h"}, False),
        ({"grace": "72h", "settle": "72h"}, True),
    ):
        pairing.configure(**settings)
        assert (pairing.others().unknown() == []) is known


def test_a_plan_from_the_future_does_not_hide_later_plans(pairing: Pairing) -> None:
    """The plan was made with a wrong clock, and would count as the newest plan until its time."""
    pairing.plan(named(0, active=True), at=NOW + 3 * DAY)
    assert "there has no complete plan yet" in " ".join(pairing.others().unknown())
    pairing.plan(named(1, active=True), at=NOW - HOUR)
    assert pairing.others().unknown() == []
    assert pairing.kept() == {address(1)}


def test_a_plan_of_an_older_day_counts_if_it_read_newer_references(pairing: Pairing) -> None:
    """Somebody planned an older day again, after a commit that refers to an object here."""
    pairing.plan(named(0, active=True), at=NOW - 7 * HOUR)
    pairing.plan(named(0, active=True), named(1, active=True), at=NOW - HOUR, day=(NOW - 4 * DAY).date())
    assert pairing.kept() == {address(0), address(1)}


def test_only_the_metadata_of_days_that_may_be_newer_are_read(
    pairing: Pairing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise, each batch would read the metadata of all days."""
    for ago in range(4):
        pairing.plan(named(ago, active=True), at=NOW - HOUR - ago * DAY)
        graph = pairing.directory / "warehouse/there/commit_graph" / (NOW - HOUR - ago * DAY).date().isoformat()
        written_at = (NOW - ago * DAY).timestamp()
        os.utime(graph / METADATA, (written_at, written_at))
    days, read = set[str](), Warehouse.metadata_if_there

    def metadata(warehouse: Warehouse, repository: str, table: str, day: str) -> PartitionMetadata | None:
        days.add(day)
        return read(warehouse, repository, table, day)

    monkeypatch.setattr(Warehouse, "metadata_if_there", metadata)
    assert pairing.kept() == {address(0)}
    assert days == {(NOW - HOUR).date().isoformat()}


@pytest.mark.parametrize("ahead", [pytest.param(False, id="made_before"), pytest.param(True, id="from_the_future")])
def test_a_sweep_refuses_while_the_day_of_the_newest_plan_is_planned_again(pairing: Pairing, ahead: bool) -> None:
    """The tables of the day before are complete and recent, but the newest plan knew more references."""
    pairing.plan(named(0, active=True), at=NOW - 5 * HOUR, day=(NOW - 2 * DAY).date())
    pairing.plan(named(0, active=True), named(1, active=True), at=NOW - HOUR, day=(NOW - DAY).date())
    made_at = NOW + DAY if ahead else NOW - HOUR + timedelta(minutes=1)
    keep_plan(pairing.warehouse, replace(a_plan(), repository="there", day=(NOW - DAY).date(), made_at=made_at))
    assert pairing.kept() == {address(0), address(1)}
    pairing.warehouse.remove_directory("there", "addresses", (NOW - DAY).date().isoformat())
    if ahead:
        assert pairing.kept() == {address(0)}
        return
    with pytest.raises(GuardRefused, match="the references of there are unknown while there is being planned"):
        pairing.kept()
    pairing.plan(named(2, active=True), at=NOW, day=(NOW - DAY).date())
    assert pairing.kept() == {address(2)}


@pytest.mark.parametrize(
    "state", [pytest.param("written", id="being_written"), pytest.param("refused", id="a_guard_refused_it")]
)
def test_a_sweep_refuses_while_a_table_of_which_no_plan_was_made_is_replaced(pairing: Pairing, state: str) -> None:
    """A guard can refuse a plan after its references were read. The day's next run then replaces the table."""
    day = (NOW - DAY).date()
    pairing.plan(named(0, active=True), at=NOW - 5 * HOUR, day=(NOW - 2 * DAY).date())
    pairing.plan(named(0, active=True), named(1, active=True), at=NOW - HOUR, day=day)
    read_at = (NOW - timedelta(minutes=1)).timestamp()
    os.utime(pairing.directory / "warehouse/there/commit_graph" / day.isoformat() / METADATA, (read_at, read_at))
    assert pairing.kept() == {address(0), address(1)}
    if state == "written":
        (pairing.directory / "warehouse/there/addresses" / day.isoformat() / "_SUCCESS").unlink()
    else:
        found = pairing.warehouse.metadata("there", "addresses", day)
        refused = replace(found, details=replace(found.details, refused="ranges_complete"))
        pairing.warehouse.write_metadata("there", "addresses", day, refused)
    with pytest.raises(GuardRefused, match=r"there is being planned.*Plan there again: .*a dump that is newer"):
        pairing.kept()
    assert pairing.others().unknown() == (
        [
            "A guard refused the last plan of there (ranges_complete), so its newest references are unknown. Remove "
            "the cause. Then plan it again: `retention plan there`."
        ]
        if state == "refused"
        else []  # a plan that is being made is no reason for a warning
    )
    pairing.plan(named(2, active=True), at=NOW, day=day)
    assert pairing.kept() == {address(2)}
    assert pairing.others().unknown() == []


def test_in_mode_plan_nothing_is_warned_about(pairing: Pairing) -> None:
    pairing.configure(mode="plan")
    assert pairing.others().for_plan().warnings == ()


def test_a_repository_over_another_kind_of_store_need_not_be_planned(pairing: Pairing) -> None:
    pairing.configure(there="gs://lake/there")
    assert pairing.others().unknown() == []


def test_the_result_of_a_check_stays_while_the_other_repository_is_planned_again(pairing: Pairing) -> None:
    before = NOW - HOUR
    pairing.plan(named(0, active=True), at=before)
    objects = frames.inventory(pairing.spark, *(frames.Listed(address(number)) for number in range(3)))
    none, others = objects.select("address").limit(0), pairing.others()

    def live() -> set[str]:
        return {row["address"] for row in others.extended(Liveness(none, none, NOW), objects).live.collect()}

    assert live() == {address(0)}
    (pairing.directory / "warehouse/there/addresses" / before.date().isoformat() / "_SUCCESS").unlink()
    assert live() == {address(0)}
    with pytest.raises(GuardRefused, match="the references of there are unknown while there is being planned"):
        pairing.others().extended(Liveness(none, none, NOW), objects)
    pairing.plan(named(1, active=True), at=NOW)
    assert live() == {address(0), address(1)}


_HOLD = {"holds": [{"id": "audit", "prefix": "audit", "reason": "an audit"}]}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        pytest.param({"policy": _HOLD}, "The policy of there is not the one of its last plan. ", id="the_policy"),
        pytest.param(
            {"settings_there": {"tags": "ignore"}},
            "Settings of there are not those of its last plan. If Dagster plans it, reload the code location first. ",
            id="a_setting",
        ),
    ],
)
@pytest.mark.parametrize("is_planned_again", [False, True], ids=["at_rest", "while_its_day_is_planned_again"])
def test_a_sweep_ends_if_the_policy_or_a_setting_of_the_other_repository_is_changed_between_two_batches(
    pairing: Pairing, change: dict[str, Any], why: str, is_planned_again: bool
) -> None:
    """The second object is live under the changed policy only. There, its commit does not expire."""
    pairing.plan(named(0, active=True), named(1, "audit/1"))
    objects = frames.inventory(pairing.spark, *(frames.Listed(address(number)) for number in range(3)))
    none, others = objects.select("address").limit(0), pairing.others()

    def live() -> set[str]:
        return {row["address"] for row in others.extended(Liveness(none, none, NOW), objects).live.collect()}

    assert live() == live() == {address(0)}
    pairing.configure(**change)
    if is_planned_again:
        (pairing.directory / "warehouse/there/addresses" / DAY_OF_PLAN / "_SUCCESS").unlink()
    with pytest.raises(GuardRefused) as refused:
        live()
    assert str(refused.value) == (
        "here: another repository may refer to objects that would be deleted. Nothing more was deleted. "
        f"{why}Plan it again: `retention plan there`. Then run the same command again."
    )
    pairing.plan(named(0, active=True), named(1, "audit/1", active=True), at=NOW + timedelta(minutes=1))
    assert live() == {address(0), address(1)}


def test_a_repository_that_is_added_after_the_configuration_was_read_must_be_planned_and_keeps_objects(
    pairing: Pairing,
) -> None:
    """Dagster reads the configuration when it loads the code location."""
    others = pairing.others_before()
    why = "there has no complete plan yet. Make one: `retention plan there`."
    assert [warning.endswith(why) for warning in others.for_plan().warnings] == [True]
    with pytest.raises(GuardRefused, match="there has no complete plan yet"):
        others.require_known()
    pairing.plan(named(0, active=True))
    others.require_known()
    parts = others.for_plan().parts
    assert parts is not None
    assert [row["last_part"] for row in parts.collect()] == [address(0).rpartition("/")[2]]


@pytest.mark.parametrize(
    ("planned_at", "why"),
    [
        pytest.param(None, "there has no complete plan yet", id="never_planned"),
        pytest.param(NOW - 25 * HOUR, "The last complete plan of there is of", id="planned_long_ago"),
    ],
)
def test_a_sweep_ends_if_a_repository_with_unknown_references_is_added_between_two_batches(
    pairing: Pairing, planned_at: datetime | None, why: str
) -> None:
    file, others = pairing.directory / "retention.yaml", pairing.others_before()
    with_there = file.read_text(encoding="utf-8")
    document = yaml.safe_load(with_there)
    del document["repositories"]["there"]
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    objects = frames.inventory(pairing.spark, *(frames.Listed(address(number)) for number in range(3)))
    none = objects.select("address").limit(0)

    def live() -> set[str]:
        return {row["address"] for row in others.extended(Liveness(none, none, NOW), objects).live.collect()}

    others.require_known()
    assert live() == set()
    file.write_text(with_there, encoding="utf-8")
    if planned_at:
        pairing.plan(at=planned_at)
    with pytest.raises(GuardRefused) as refused:
        live()
    assert f"which was added to {file}, may refer to objects that would be deleted. Nothing more" in str(refused.value)
    assert why in str(refused.value)
    pairing.plan(named(0, active=True))
    assert live() == {address(0)}


def test_references_of_expired_versions_count_from_the_batch_after_the_other_mode_became_plan(pairing: Pairing) -> None:
    pairing.plan(named(0, active=True), named(1))
    objects = frames.inventory(pairing.spark, *(frames.Listed(address(number)) for number in range(3)))
    none, others = objects.select("address").limit(0), pairing.others()

    def live() -> set[str]:
        return {row["address"] for row in others.extended(Liveness(none, none, NOW), objects).live.collect()}

    assert live() == {address(0)}
    pairing.configure(settings_there={"mode": "plan"})
    assert live() == {address(0), address(1)}
    (pairing.directory / "retention.yaml").write_text("repositories: {", encoding="utf-8")  # someone is writing it
    assert live() == {address(0), address(1)}


@pytest.mark.parametrize(
    ("known", "later", "run_id", "is_refused"),
    [
        pytest.param(None, HOUR, "", True, id="the_list_is_being_written"),
        pytest.param("true", HOUR, "a-later-run", True, id="the_list_is_of_a_later_plan"),
        pytest.param("true", -HOUR, "an-earlier-run", False, id="the_references_were_read_again"),
        pytest.param("true", HOUR, "a-run", False, id="both_are_of_one_plan_from_a_dump"),
        pytest.param("false", HOUR, "a-later-run", False, id="there_is_no_list"),
    ],
)
def test_a_sweep_refuses_while_the_staged_list_and_the_references_are_of_different_plans(
    pairing: Pairing, known: str | None, later: timedelta, run_id: str, is_refused: bool
) -> None:
    """An object that was committed after the references and before the list is in neither."""
    at = NOW - 3 * HOUR
    pairing.plan(named(0, active=True), at=at)
    if known is None:
        pairing.warehouse.remove_directory("there", "uncommitted_objects", at.date().isoformat())
    else:
        pairing.write("uncommitted_objects", frames.staged(pairing.spark), at + later, {"known": known}, run_id)
    if not is_refused:
        assert pairing.kept() == {address(0)}
        return
    with pytest.raises(GuardRefused, match="the references of there are unknown while there is being planned"):
        pairing.kept()
    pairing.plan(named(1, active=True), at=at + later)
    assert pairing.kept() == {address(1)}


def test_a_sweep_refuses_if_the_staged_list_is_written_while_it_is_read(
    pairing: Pairing, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = NOW - 3 * HOUR
    pairing.plan(named(0, active=True), at=at, staged=f"s3://lake/here/{address(1)}")
    read = Warehouse.rows

    def rows(warehouse: Warehouse, spark: SparkSession, repository: str, table: str, *rest: Any) -> Any:
        if table == "uncommitted_objects":
            pairing.write(table, frames.staged(spark), at + HOUR, {"known": "true"}, "a-later-run")
        return read(warehouse, spark, repository, table, *rest)

    monkeypatch.setattr(Warehouse, "rows", rows)
    with pytest.raises(GuardRefused, match="the references of there are unknown while there is being planned"):
        pairing.kept()


def test_a_sweep_sees_the_new_references_when_another_process_plans_the_same_day_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The rows that Spark cached for the earlier plan come from a directory with the same name."""
    of_process = {name: tmp_path / name for name in ("this", "other")}
    for directory in of_process.values():
        directory.mkdir()
    pairing, again = (Pairing(spark, directory) for directory in of_process.values())
    pairing.plan(named(0, active=True), at=NOW)
    again.plan(named(0, active=True), named(1, active=True), at=NOW + timedelta(minutes=1))
    objects = frames.inventory(spark, *(frames.Listed(address(number)) for number in range(3)))
    none, others = objects.select("address").limit(0), pairing.others()

    def live() -> set[str]:
        return {row["address"] for row in others.extended(Liveness(none, none, NOW), objects).live.collect()}

    assert live() == {address(0)}
    tables = Path("warehouse") / "there"
    shutil.rmtree(of_process["this"] / tables)
    shutil.copytree(of_process["other"] / tables, of_process["this"] / tables)
    assert live() == {address(0), address(1)}
    others.release()
