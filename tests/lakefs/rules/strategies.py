"""Hypothesis strategies for lakeFS histories: merges, version 0, wrong clocks, deleted branches, shared heads."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

from retention_assets.lakefs.rules.references import Commit, References
from retention_assets.policy.rules import BranchRetention, CommittedRetention
from tests.lakefs.rules.naive import Duration, History, NaiveCommit

AS_OF = datetime(2026, 11, 1, tzinfo=UTC)
BRANCHES = ("dev", "exp", "feature", "main")


@dataclass(frozen=True)
class Repository:
    history: History
    branches: dict[str, str]
    tags: dict[str, str]
    durations: dict[str, Duration]
    default: Duration
    has_default: bool

    def references(self) -> References:
        return references_of(self.history, self.branches, self.tags)

    def retention(self) -> CommittedRetention:
        rules = tuple(BranchRetention(f"r-{branch}", branch, duration) for branch, duration in self.durations.items())
        return CommittedRetention(rules, self.default, has_default=self.has_default)


def references_of(history: History, branches: dict[str, str], tags: dict[str, str] | None = None) -> References:
    commits = {
        commit: Commit(commit, made.parents, made.at, f"metarange-of-{commit}", 0 if made.main_is_last else 1)
        for commit, made in history.items()
    }
    return References(commits, branches, tags or {}, AS_OF)


ages = st.integers(min_value=-1, max_value=12).map(lambda age: AS_OF - timedelta(days=age))
durations = st.one_of(st.none(), st.integers(min_value=1, max_value=10).map(lambda days: timedelta(days=days)))


@st.composite
def repositories(draw: st.DrawFn) -> Repository:
    ids = draw(st.permutations("abcdefghijkl"))[: draw(st.integers(min_value=1, max_value=12))]
    history: History = {}
    for place, commit in enumerate(ids):
        number = min(place, draw(st.sampled_from((0, 1, 1, 1, 2, 2))))
        parents = tuple(draw(st.sampled_from(ids[:place])) for _ in range(number))
        history[commit] = NaiveCommit(parents, draw(ages), draw(st.booleans()))
    anywhere = st.sampled_from(ids)
    has_default = draw(st.booleans())
    return Repository(
        history,
        draw(st.dictionaries(st.sampled_from(BRANCHES), anywhere)),
        draw(st.dictionaries(st.sampled_from(("v1", "v2")), anywhere)),
        draw(st.dictionaries(st.sampled_from(BRANCHES), durations)),
        draw(durations) if has_default else None,
        has_default,
    )
