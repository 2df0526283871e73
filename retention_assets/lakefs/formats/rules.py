"""The server's own garbage-collection rules, as it stores them in the repository. Source: lakeFS facts 1.2, 4.1."""

from retention_assets.lakefs.formats.records import GarbageCollectionRules, parse


def read_gc_rules(content: bytes, name: str) -> tuple[int, dict[str, int]] | None:
    """Return (default days, days by branch name) of `config.json`, which is protobuf; `None` when no rules are set.

    A deleted document has no bytes. Nor has one with the default 0 and no branches: the server itself reads that
    one as "no rules", so it is `None` here too, which keeps everything. Source: lakeFS facts, H13.

    Raises:
        CorruptFile: the bytes are no such document.
    """
    if not content:
        return None
    rules = parse(GarbageCollectionRules, content, name)
    return rules.default_retention_days, dict(rules.branch_retention_days)
