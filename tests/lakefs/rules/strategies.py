"""Histories as they come: merges, version 0, clocks that disagree, deleted branches, several heads on one commit."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

from retention_assets.lakefs.rules.references import Commit, References
from retention_assets.policy.rules import BranchRetention, CommittedRetention
from tests.lakefs.rules.naive import History, Made, Span

AS_OF = datetime(2026, 11, 1, tzinfo=UTC)
BRANCHES = ("dev", "exp", "feature", "main")


@dataclass(frozen=True)
class Repository:
    history: History
    branches: dict[str, str]
    tags: dict[str, str]
    spans: dict[str, Span]
    default: Span
    has_default: bool

    def references(self) -> References:
        return references_of(self.history, self.branches, self.tags)

    def retention(self) -> CommittedRetention:
        rules = tuple(BranchRetention(f"r-{branch}", branch, span) for branch, span in self.spans.items())
        return CommittedRetention(rules, self.default, has_default=self.has_default)


def references_of(history: History, branches: dict[str, str], tags: dict[str, str] | None = None) -> References:
    commits = {
        commit: Commit(commit, made.parents, made.at, f"metarange-of-{commit}", 0 if made.main_is_last else 1)
        for commit, made in history.items()
    }
    return References(commits, branches, tags or {}, AS_OF)


ages = st.integers(min_value=-1, max_value=12).map(lambda age: AS_OF - timedelta(days=age))
spans = st.one_of(st.none(), st.integers(min_value=1, max_value=10).map(lambda days: timedelta(days=days)))


@st.composite
def repositories(draw: st.DrawFn) -> Repository:
    ids = draw(st.permutations("abcdefghijkl"))[: draw(st.integers(min_value=1, max_value=12))]
    history: History = {}
    for place, commit in enumerate(ids):
        number = min(place, draw(st.sampled_from((0, 1, 1, 1, 2, 2))))
        parents = tuple(draw(st.sampled_from(ids[:place])) for _ in range(number))
        history[commit] = Made(parents, draw(ages), draw(st.booleans()))
    anywhere = st.sampled_from(ids)
    has_default = draw(st.booleans())
    return Repository(
        history,
        draw(st.dictionaries(st.sampled_from(BRANCHES), anywhere)),
        draw(st.dictionaries(st.sampled_from(("v1", "v2")), anywhere)),
        draw(st.dictionaries(st.sampled_from(BRANCHES), spans)),
        draw(spans) if has_default else None,
        has_default,
    )
