"""Copies one object."""

from retention_assets.objectstore.mutate.copying import Copy, ObjectCopier, VerifiedCopy
from retention_assets.objectstore.outcomes import ObjectResult


def copy_one(
    copier: ObjectCopier, path: str, to: str, size: int, e_tag: str | None = None
) -> VerifiedCopy | ObjectResult:
    """Return the verified copy, or the reason why there is none."""
    (copied,) = copier.copy_all([Copy(path, to, size, e_tag)])
    return copied
