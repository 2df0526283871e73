"""The rule for branches that got another commit while branches and tags were read.

Someone can create a tag at the commit of a branch, and then reset the branch. A reading can miss the commit: it has
already passed the place where the new tag is listed, and then finds the branch on another commit. A new commit on the
branch hides no commit: the earlier commit is then the parent of a young commit, and so it stays.
"""

from collections.abc import Callable, Collection


def moved_on_by_commits[Id](
    head: Id, earlier: Id, main_parent: Callable[[Id], Id | None], known: Collection[Id]
) -> bool:
    """Return whether new commits alone moved a branch from `earlier` to `head`.

    Args:
        head: the commit (Icechunk: the snapshot) of the branch now.
        earlier: its commit in an earlier reading.
        main_parent: returns the commit that a branch had before this commit; None: there is none, or it is not known.
        known: the commits that existed before the first reading.
    """
    at: Id | None = head
    while at is not None and at != earlier:
        at = None if at in known else main_parent(at)
    return at is not None
