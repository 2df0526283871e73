"""Reads the garbage-collection rules that the server stores in the repository. Source: lakeFS facts 1.2, 4.1."""

from retention_assets.lakefs.formats.records import GarbageCollectionRules, parse


def read_gc_rules(content: bytes, name: str) -> tuple[int, dict[str, int]] | None:
    """Return (default days, days by branch name) of `config.json`, which is protobuf. `None`: no rules are set.

    A deleted document is empty. A document with the default 0 and no branches is empty too, and the server reads it as
    "no rules". So both are `None`, and all commits are kept. Source: lakeFS facts, H13.

    Raises:
        CorruptFile: the document cannot be parsed.
    """
    if not content:
        return None
    rules = parse(GarbageCollectionRules, content, name)
    return rules.default_retention_days, dict(rules.branch_retention_days)
