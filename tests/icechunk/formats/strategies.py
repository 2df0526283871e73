"""Hypothesis strategies for repo objects that icechunk could have written."""

from collections.abc import Sequence

from hypothesis import strategies as st

from retention_assets.icechunk.formats.flat_reader import LAST_TIMESTAMP
from retention_assets.icechunk.formats.model import Availability, Repo, RepoStatus, SnapshotInfo, Update, UpdateKind

ids = st.binary(min_size=12, max_size=12)
instants = st.integers(0, LAST_TIMESTAMP)
words = st.text(st.characters(codec="utf-8"), max_size=6)
items = st.dictionaries(words, st.binary(max_size=6), max_size=3)
flags = st.none() | st.frozensets(st.integers(0, 0xFFFF), max_size=3)
statuses = st.builds(RepoStatus, st.sampled_from(Availability), instants, st.none() | words)

_OWN = {
    UpdateKind.REPO_MIGRATED: {"from_version": st.integers(0, 255), "to_version": st.integers(0, 255)},
    UpdateKind.TAG_CREATED: {"name": words},
    UpdateKind.TAG_DELETED: {"name": words, "previous_snapshot_id": ids},
    UpdateKind.BRANCH_CREATED: {"name": words},
    UpdateKind.BRANCH_DELETED: {"name": words, "previous_snapshot_id": ids},
    UpdateKind.BRANCH_RESET: {"name": words, "previous_snapshot_id": ids},
    UpdateKind.NEW_COMMIT: {"name": words, "new_snapshot_id": ids},
    UpdateKind.COMMIT_AMENDED: {"name": words, "previous_snapshot_id": ids, "new_snapshot_id": ids},
    UpdateKind.NEW_DETACHED_SNAPSHOT: {"new_snapshot_id": ids},
    UpdateKind.FEATURE_FLAG_CHANGED: {"flag_id": st.integers(0, 0xFFFF), "flag_value": st.none() | st.booleans()},
    UpdateKind.REPO_STATUS_CHANGED: {"status": statuses},
}
updates = st.one_of(
    *(
        st.builds(Update, kind=st.just(kind), updated_at=instants, backup_path=st.none() | words, **_OWN.get(kind, {}))
        for kind in UpdateKind
    )
)


@st.composite
def repos(draw: st.DrawFn) -> Repo:
    known = draw(st.lists(ids, min_size=1, max_size=6, unique=True))
    snapshots = [_snapshot(draw, its_id, known) for its_id in known]
    references = st.dictionaries(words, st.sampled_from(known), max_size=4)
    return Repo(
        branches={**draw(references), "main": draw(st.sampled_from(known))},
        snapshots={snapshot.id: snapshot for snapshot in snapshots},
        status=draw(statuses),
        latest_updates=tuple(draw(st.lists(updates, min_size=1, max_size=6))),
        tags=draw(references),
        deleted_tags=draw(st.frozensets(words, max_size=3)),
        metadata=draw(items),
        repo_before_updates=draw(st.none() | words),
        config=draw(st.none() | st.binary(max_size=9)),
        enabled_feature_flags=draw(flags),
        disabled_feature_flags=draw(flags),
        extra=draw(st.none() | st.binary(max_size=9)),
    )


def _snapshot(draw: st.DrawFn, its_id: bytes, known: Sequence[bytes]) -> SnapshotInfo:
    return SnapshotInfo(
        id=its_id,
        parent_id=draw(st.none() | st.sampled_from(known)),
        flushed_at=draw(instants),
        message=draw(words),
        metadata=draw(items),
        pruned_ancestor_tx_logs=tuple(draw(st.lists(ids, max_size=3))),
    )
