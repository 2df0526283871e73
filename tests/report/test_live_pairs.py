"""The live pairs of a batch are those that the rules find pair by pair."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from retention_assets.lakefs.rules.keepers import Entry, lifecycle_end
from retention_assets.policy.matching import UNREADABLE
from retention_assets.policy.rules import Hold, LifecycleRule
from retention_assets.report.groups import LIVE_PAIR, LivePairs
from retention_assets.tables import ADDRESSES

AS_OF = datetime(2026, 11, 1, tzinfo=UTC)
SPANS = st.sampled_from([None, timedelta(0), timedelta(days=10), timedelta(days=20, hours=1)])
BRANCHES = st.lists(st.sampled_from(["main", "dev", "exp-1"]), max_size=3, unique=True)
GENERATED = "data/fu2qb0hksduf3vibnmug/db4lqvhksduf3vibnmv0"
RULES = st.builds(
    LifecycleRule,
    rule_id=st.just("r"),
    prefix=st.sampled_from(["", "raw", "raw/", "raw/a"]),
    default=SPANS,
    per_branch=st.dictionaries(st.sampled_from(["main", "dev", "exp-*"]), SPANS, max_size=2),
    glob=st.sampled_from([None, None, "**/b*"]),
)
ROWS = st.fixed_dictionaries(
    {
        "address": st.sampled_from([GENERATED, f"s3://there/{GENERATED}", "s3://there/report.csv", "local file"]),
        "key": st.sampled_from(["raw", "raw/a", "raw/a/b1", "rawer/b2", "x", "a\nb", f"raw/{UNREADABLE}"]),
        "size": st.integers(0, 9),
        "branches": BRANCHES,
        "left_branches": st.none() | BRANCHES,
        "added_at": st.sampled_from([AS_OF - timedelta(days=days) for days in (0, 10, 20, 30)]),
        "active": st.booleans(),
        "protected": st.booleans(),
    }
)


@given(st.lists(RULES, max_size=3), st.lists(ROWS, max_size=12), st.booleans())
def test_a_batch_has_the_pairs_that_the_rules_leave_live(
    rules: list[LifecycleRule], rows: list[dict], held: bool
) -> None:
    holds = [Hold("h", "prefix", "raw/a", "audit")] if held else []
    schema = pa.schema([pa.field(name, ADDRESSES.schema.field(name).type) for name in LIVE_PAIR])
    found = LivePairs(rules, holds, AS_OF).in_batch(pa.RecordBatch.from_pylist(rows, schema=schema))

    def is_live(row: dict) -> bool:
        branches, left = tuple(row["branches"]), tuple(row["left_branches"] or ())
        ends, _ = lifecycle_end(Entry(row["key"], "", 0, row["added_at"], branches, left, ()), rules)
        kept = row["active"] and (ends is None or ends > AS_OF)
        return kept or row["protected"] or any(hold.covers(row["key"]) for hold in holds)

    assert found.to_pylist() == [row for row in rows if is_live(row) and row["address"] != "s3://there/report.csv"]
