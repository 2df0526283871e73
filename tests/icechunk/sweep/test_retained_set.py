"""The retained set: the snapshots that stay after a plan, and at the liveness check of its sweep."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from retention_assets.icechunk.formats.ids import decode_id, encode_id
from retention_assets.icechunk.rules.expiration import Reparented, edited
from retention_assets.icechunk.source.repository import IcechunkSource, IcechunkState
from retention_assets.icechunk.sweep.retained_set import (
    RetainedSet,
    current_retained_set,
    decision_rows,
    edits_of,
    held_ids,
    retained_set_of,
)
from retention_assets.objectstore.access import StoreAccess
from retention_assets.policy.rules import Hold
from retention_assets.policy.snapshots import Keep, SnapshotPolicy
from tests.icechunk_repositories import FORMATS, INITIAL, Commit, Format, build_history, set_stored_at

AS_OF = datetime(2026, 11, 1, tzinfo=UTC)
CUTOFF = AS_OF - timedelta(days=1)
TEN_DAYS = SnapshotPolicy(default=Keep("default", timedelta(days=10)))
both_formats = pytest.mark.parametrize("spec_version", FORMATS, ids=["format_1", "format_2"])

# root <- a <- b <- c (main);  a <- lost (no reference)
COMMITS = tuple(
    Commit(name, parent, AS_OF - timedelta(days=age))
    for name, parent, age in (("a", None, 30), ("b", "a", 20), ("c", "b", 5), ("lost", "a", 19))
)


def built(directory: Path, spec_version: Format) -> tuple[IcechunkState, dict[str, bytes]]:
    ids = build_history(directory, spec_version, COMMITS, {"main": "c"})
    set_stored_at(directory, AS_OF - timedelta(days=3))
    state = IcechunkSource(StoreAccess(f"file://{directory}"), lambda: AS_OF).state()
    return state, {"root": decode_id(INITIAL), **{name: decode_id(one) for name, one in ids.items()}}


def staying(retained: RetainedSet, ids: dict[str, bytes]) -> set[str]:
    names = {one: name for name, one in ids.items()}
    return {names[one] for one in retained.snapshots}


@both_formats
def test_released_snapshots_are_not_retained_and_all_others_are(tmp_path: Path, spec_version: Format) -> None:
    state, ids = built(tmp_path, spec_version)
    retained = retained_set_of(state, TEN_DAYS, AS_OF, CUTOFF)
    assert staying(retained, ids) == {"root", "c"}
    assert retained.expiration is not None
    assert retained.expiration.reparented[ids["c"]] == ids["root"]
    edits = edits_of(state, retained, AS_OF, CUTOFF)
    assert len(edits.released) == (2 if spec_version == 1 else 3)  # format 1 lists no snapshot that nothing reaches
    assert retained.leaving(state) == {decode_id(one) for one in edits.released}


def test_logs_of_removed_ancestors_stay_in_format_2(tmp_path: Path) -> None:
    state, ids = built(tmp_path, 2)
    retained = retained_set_of(state, TEN_DAYS, AS_OF, CUTOFF)
    assert retained.transaction_logs == {ids["root"], ids["a"], ids["b"], ids["c"]}


@both_formats
def test_an_old_unreachable_snapshot_is_dropped_without_a_rule(tmp_path: Path, spec_version: Format) -> None:
    state, ids = built(tmp_path, spec_version)
    retained = retained_set_of(state, SnapshotPolicy(), AS_OF, CUTOFF)
    assert staying(retained, ids) == {"root", "a", "b", "c"}
    assert retained.dropped == (frozenset() if spec_version == 1 else {ids["lost"]})
    assert not retained.leaving(state)


@both_formats
def test_the_reason_of_a_dropped_snapshot_does_not_say_that_the_default_keeps_it(
    tmp_path: Path, spec_version: Format
) -> None:
    state, ids = built(tmp_path, spec_version)
    year = SnapshotPolicy(default=Keep("default", timedelta(days=365)))
    rows = decision_rows(state, retained_set_of(state, year, AS_OF, CUTOFF)).to_pylist()
    (lost,) = (row for row in rows if row["snapshot_id"] == encode_id(ids["lost"]))
    assert (lost["decision"], lost["stays"], lost["due_since"], lost["rule_id"]) == ("dropped", False, None, None)
    assert "kept" not in lost["reason"]
    assert lost["reason"].endswith("its file is older than the grace period")


@both_formats
def test_a_young_file_keeps_its_snapshot_though_the_policy_released_it(tmp_path: Path, spec_version: Format) -> None:
    state, ids = built(tmp_path, spec_version)
    young = replace(state, stored={**state.stored, ids["lost"]: CUTOFF})
    retained = retained_set_of(young, TEN_DAYS, AS_OF, CUTOFF)
    assert "lost" in staying(retained, ids)
    assert ids["lost"] not in retained.leaving(young)


@both_formats
def test_a_held_snapshot_stays(tmp_path: Path, spec_version: Format) -> None:
    state, ids = built(tmp_path, spec_version)
    held = replace(TEN_DAYS, holds=(Hold("audit", "snapshot", encode_id(ids["b"]), "asked for", None),))
    assert held_ids(state, held, AS_OF) == {ids["b"]}
    assert "b" in staying(retained_set_of(state, held, AS_OF, CUTOFF), ids)
    assert "b" in staying(current_retained_set(state, CUTOFF, held_ids(state, held, AS_OF)), ids)


@both_formats
def test_before_deletion_everything_that_the_history_still_contains_stays(tmp_path: Path, spec_version: Format) -> None:
    state, ids = built(tmp_path, spec_version)
    linked = {"root", "a", "b", "c"} | ({"lost"} if spec_version == 2 else set())
    assert staying(current_retained_set(state, CUTOFF, ()), ids) == linked


def test_after_the_edits_the_current_and_the_projected_set_agree(tmp_path: Path) -> None:
    state, _ = built(tmp_path, 1)
    planned = retained_set_of(state, TEN_DAYS, AS_OF, CUTOFF)
    assert planned.expiration is not None
    published = replace(state, history=edited(state.history, planned.expiration.edits))
    again = current_retained_set(published, CUTOFF, ())
    assert again.snapshots == planned.snapshots
    assert again.transaction_logs == planned.transaction_logs


@pytest.mark.parametrize(
    ("default", "stays"),
    [(None, True), (Keep("last", timedelta(0), last=1), True), (Keep("both", timedelta(days=10), last=1), False)],
    ids=["no_default", "only_keep_last", "keep_newer"],
)
def test_an_unreachable_snapshot_whose_file_is_lost_stays_until_the_default_has_keep_newer(
    tmp_path: Path, default: Keep | None, *, stays: bool
) -> None:
    """`retention_assets.icechunk.rules.retention.LOST_UNREACHED` names this remedy."""
    state, ids = built(tmp_path, 2)
    stored = {snapshot_id: at for snapshot_id, at in state.stored.items() if snapshot_id != ids["lost"]}
    retained = retained_set_of(replace(state, stored=stored), SnapshotPolicy(default=default), AS_OF, CUTOFF)
    assert (ids["lost"] in retained.snapshots) == stays
    assert retained.expiration is not None
    assert (ids["lost"] in retained.expiration.released) != stays


@both_formats
def test_the_projected_set_keeps_what_was_in_use_when_the_plan_was_made(tmp_path: Path, spec_version: Format) -> None:
    state, ids = built(tmp_path, spec_version)
    for_ever = SnapshotPolicy()
    planned = retained_set_of(replace(state, left={ids["lost"]: CUTOFF}), for_ever, AS_OF, CUTOFF)
    edits = edits_of(state, planned, AS_OF, CUTOFF)
    assert edits.in_use == (encode_id(ids["lost"]),)
    projected = retained_set_of(state, for_ever, AS_OF, CUTOFF, edits)
    assert projected.snapshots == planned.snapshots
    assert "lost" in staying(projected, ids)


# ---- sessions that began on a snapshot before its child was committed


@both_formats
def test_an_expired_snapshot_stays_in_the_history_while_its_child_is_young(
    tmp_path: Path, spec_version: Format
) -> None:
    state, ids = built(tmp_path, spec_version)
    young = replace(state, stored={**state.stored, ids["c"]: CUTOFF})
    retained = retained_set_of(young, TEN_DAYS, AS_OF, CUTOFF)
    assert retained.expiration is not None
    assert retained.expiration.reparented == {ids["b"]: ids["root"]}
    assert staying(retained, ids) == {"root", "b", "c"}
    assert retained.expiration.selection.decisions[ids["b"]].reason.startswith("kept: it was a tip within")
    later = retained_set_of(young, TEN_DAYS, AS_OF, CUTOFF + timedelta(seconds=1, microseconds=1))
    assert staying(later, ids) == {"root", "c"}


@both_formats
def test_a_young_child_of_a_snapshot_that_has_not_expired_changes_nothing(tmp_path: Path, spec_version: Format) -> None:
    state, ids = built(tmp_path, spec_version)
    young = replace(state, stored={**state.stored, ids["c"]: CUTOFF})
    three_weeks = SnapshotPolicy(default=Keep("default", timedelta(days=21)))
    kept, expected = (retained_set_of(one, three_weeks, AS_OF, CUTOFF) for one in (young, state))
    assert kept.expiration is not None
    assert expected.expiration is not None
    assert kept.expiration.edits == expected.expiration.edits
    assert Reparented(ids["b"], ids["root"]) in kept.expiration.edits
