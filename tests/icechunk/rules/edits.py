"""Operations on branches and tags, and an expiration, each as one edit of the repo object."""

from datetime import datetime

from retention_assets.icechunk.formats.model import Repo
from retention_assets.icechunk.rules.expiration import Expiration, expiration_v2, expired
from retention_assets.icechunk.rules.operations import creation, deletion, reset, with_change
from retention_assets.icechunk.rules.snapshots import history_of
from retention_assets.icechunk.rules.updates import Stamp
from retention_assets.policy.snapshots import SnapshotPolicy


def create_branch(repo: Repo, name: str, snapshot_id: bytes, stamp: Stamp) -> Repo:
    return with_change(repo, creation(repo, "branch", name, snapshot_id), stamp)


def delete_branch(repo: Repo, name: str, stamp: Stamp) -> Repo:
    return with_change(repo, deletion(repo, "branch", name), stamp)


def reset_branch(repo: Repo, name: str, snapshot_id: bytes, stamp: Stamp, expected: bytes | None = None) -> Repo:
    return with_change(repo, reset(repo, name, snapshot_id, expected), stamp)


def create_tag(repo: Repo, name: str, snapshot_id: bytes, stamp: Stamp) -> Repo:
    return with_change(repo, creation(repo, "tag", name, snapshot_id), stamp)


def delete_tag(repo: Repo, name: str, stamp: Stamp) -> Repo:
    return with_change(repo, deletion(repo, "tag", name), stamp)


def expire_v2(repo: Repo, policy: SnapshotPolicy, as_of: datetime, stamp: Stamp) -> tuple[Repo, Expiration]:
    expiration = expiration_v2(history_of(repo), policy, as_of)
    return expired(repo, expiration, stamp), expiration
