"""The checks of `retention lint`: the policy against the repository and the server's own rules."""

from collections.abc import Sequence

from retention_assets.config.configuration import Repository
from retention_assets.config.durations import format_duration
from retention_assets.config.timestamps import utc_now
from retention_assets.icechunk.formats.ids import encode_id
from retention_assets.icechunk.source.opening import open_icechunk
from retention_assets.lakefs.source.api import ApiSource
from retention_assets.lakefs.source.opening import OpenRepository, open_repository
from retention_assets.policy.lint import Finding, lint
from retention_assets.policy.snapshot_lint import lint_snapshots
from retention_assets.repositories.other_repositories import not_configured


def findings_of(repository: Repository, others: Sequence[Repository] = ()) -> list[Finding]:
    """Return the findings about the policy of `repository`, and about unconfigured repositories of its server.

    `others` are the other repositories of the configuration. Errors: ConfigurationError if the policy is invalid.
    """
    if repository.is_icechunk:
        return _findings_of_icechunk(repository)
    opened = open_repository(repository, utc_now)
    policy = opened.policy()
    references = opened.source.references()
    rules = opened.source.rules()
    warning = not_configured(opened.source, [repository, *others])
    unconfigured = [Finding("warning", "repositories", warning)] if warning else []
    found = list(
        lint(
            policy,
            branches=references.branches,
            tags=references.tags,
            commits=references.commits,
            server_rules=None if rules is None else (rules.default_days, dict(rules.branches)),
            as_of=utc_now().date(),
        )
    )
    return found + unconfigured + _shorter_grace(repository, opened)


def _shorter_grace(repository: Repository, opened: OpenRepository) -> list[Finding]:
    """Return a warning if `grace` is shorter than the server's own. No other tool deletes such young objects."""
    if not isinstance(opened.source, ApiSource):
        return []
    ours, servers = repository.settings.grace, opened.source.grace()
    if ours >= servers:
        return []
    return [
        Finding(
            "warning",
            "grace",
            f"grace is {format_duration(ours)}, the server's own is {format_duration(servers)}: an upload that is "
            f"linked late can be deleted. Set grace to {format_duration(servers)} or more.",
        )
    ]


def _findings_of_icechunk(repository: Repository) -> list[Finding]:
    opened = open_icechunk(repository, utc_now)
    policy = opened.policy()
    history = opened.source.state().history
    snapshots = set(map(encode_id, history.snapshots))
    return lint_snapshots(policy, history.branches.keys(), history.tags.keys(), snapshots, utc_now().date())
