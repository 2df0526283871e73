"""The guards that only lakeFS has."""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from retention_assets.config.durations import format_duration
from retention_assets.core.amounts import counted
from retention_assets.core.guards import CheckResult, namespaces_apart
from retention_assets.core.states import UNREFERENCED
from retention_assets.errors import GuardRefused
from retention_assets.lakefs.names.generated import NEW_NAMES, has_other_spellings
from retention_assets.lakefs.names.legacy import is_own_name, kinds_in_use
from retention_assets.lakefs.rules.references import References, has_older
from retention_assets.lakefs.source.opening import OpenRepository
from retention_assets.state.plan import Plan

_APART = timedelta(hours=2)  # a dump may take an hour. Source: docs/lakefs-formats.md, "Dumps"
_PROTECTS = timedelta(hours=1)  # with this `settle`, the list of a later plan is newer than the references of this one
ONE_RUN = (
    "Make all tables of the day again in one run: `retention plan`, or the plan job in Dagster. If the list is still "
    "too old, set `settle` to at least 1h."
)
USE_SERVER = "Configure `source.api` instead of `source.dump`."
NEW_LIST = (
    "Let the server write a new staged list, name its folder in `staged`, and take a new dump just after that: "
    "`lakectl refs-dump lakefs://REPOSITORY -o FILE`. If both take longer than two hours, configure `source.api`."
)


def unusable_staged_list(
    staged_at: datetime,
    complete_until: datetime,
    references_at: datetime,
    *,
    of_dump: bool,
    settle: timedelta | None = None,
) -> str | None:
    """Return why a staged list must not be used with these references; None if it may be used.

    - If the list is newer, an object that was committed in between is neither in the list nor in the references.
    - The list does not have a staged object if an entry of HEAD has the same content (see `same_content`). If the list
      is much older, the HEAD may have moved since, and the references may not show that entry either. With a dump, such
      a list is always refused. With a server (not `of_dump`), the list is only so old if the server took long to write
      it, or if the tables of a plan were made in several runs. A plan with a server is refused only if its `settle` is
      less than `_PROTECTS`. Otherwise, `settle` protects the object: see `PlanInputs.settling_until`.

    `staged_at` and `complete_until`: see `StagedList`. `settle`: the setting of a plan; None: a liveness check, which
    has just read both.
    """
    times = (at.astimezone(UTC).replace(tzinfo=None) for at in (staged_at, complete_until, references_at))
    staged, begun, references = (f"({at} UTC)" for at in times)  # with microseconds, if there are any
    if staged_at > references_at:
        return (
            f"the staged list {staged} is newer than the references {references}: objects that were committed in "
            "between are in neither."
        )
    is_short = settle is not None and settle < _PROTECTS
    if references_at - complete_until > _APART and (of_dump or is_short):
        problem = (
            f"the staged list {begun} is more than {format_duration(_APART)} older than the references {references}: "
            "the list leaves out staged objects whose content is in the HEAD of a branch. If that branch moved since, "
            "the references do not show this content either."
        )
        if of_dump or settle is None:
            return problem
        needed = format_duration(_PROTECTS)
        too_short = f"`settle` ({format_duration(settle)}) is less than {needed}"
        return f"{problem} {too_short}, so it does not protect these objects."
    return None


def partial_staged_list(namespace: str, *, of_dump: bool) -> str | None:
    """Return why staged objects may be missing from all inputs of a plan; None if none can be missing.

    An object is missing from the list if a client linked it under another spelling of the namespace than the server's.
    With a server (not `of_dump`), the staged objects of the branches are read too (see `StagedScan`).
    """
    if not (of_dump and has_other_spellings(namespace)):
        return None
    return (
        f"the staged list may be incomplete: addresses inside the namespace {namespace} have several spellings. "
        "Objects that clients linked under another spelling are missing from the server's list, and a dump has no "
        "staged objects."
    )


def locations_apart(
    opened: OpenRepository, configured: Mapping[str, tuple[str, ...]] = MappingProxyType({})
) -> CheckResult:
    """Run the guard `namespaces_apart` for the other repositories of the server and the locations `configured`.

    lakeFS itself does not prevent two repositories in one namespace: someone can restore the references of a repository
    into a second one. The references of one repository do not have the objects of the other, so a sweep of one would
    delete objects of the other.
    """
    repository, others = opened.repository, opened.source.other_repositories() or {}
    of_server = {f"{name} of the lakeFS server": (namespace,) for name, namespace in others.items()}
    own = {repository.name: repository.locations()}
    return namespaces_apart(repository.name, {**of_server, **configured, **own})


def heads_present(references: References, commits: pa.Table) -> CheckResult:
    """Check that the table has the commit of every branch and tag. A missing commit may have live objects.

    `require_complete` refuses references without such a commit. This guard detects a commit that was read and lost
    afterwards.

    `commits`: rows of `commit_graph` or `potential_commits`.
    """
    if not references.branches:
        return CheckResult("heads_present", False, "there is no branch, but every lakeFS repository has one")
    heads = {f"branch {branch}": commit for branch, commit in references.branches.items()}
    heads |= {f"tag {tag}": commit for tag, commit in references.tags.items()}
    found = pc.is_in(pa.array(heads.values(), pa.string()), commits["commit_id"]).to_pylist()
    missing = sorted(name for name, is_found in zip(heads, found, strict=True) if not is_found)
    detail = f"the commits of all heads ({len(heads):,}) were read"
    if missing:
        detail = f"the commit of {missing[0]} was not read"
    return CheckResult("heads_present", not missing, detail, len(missing))


def ranges_complete(metarange_ranges: DataFrame, range_entries: DataFrame, ranges: DataFrame) -> CheckResult:
    """Check that every range has as many entries as its metarange says. Otherwise live addresses are missing.

    A range that is in no metarange fails the check, because its number of entries is unknown.
    """
    nothing = F.lit(None).cast("bigint")
    of_metaranges = metarange_ranges.select("range_id", "count", nothing.alias("entries"), F.lit(False).alias("needed"))
    needed = ranges.select("range_id", nothing, nothing, F.lit(True))
    entries = range_entries.select("range_id", nothing, F.lit(1).cast("bigint"), F.lit(False))
    is_complete = (F.col("least") == F.col("most")) & (F.col("most") == F.coalesce("found", F.lit(0)))
    row = (
        of_metaranges.unionAll(needed)
        .unionAll(entries)
        .groupBy("range_id")
        .agg(
            F.min("count").alias("least"),
            F.max("count").alias("most"),
            F.sum("entries").alias("found"),
            F.bool_or("needed").alias("needed"),
        )
        .where(F.col("needed") & ~F.coalesce(is_complete, F.lit(False)))
        .agg(F.count(F.lit(1)).alias("short"), F.min("range_id").alias("first"))
        .collect()[0]
    )
    detail = "every range is complete"
    if row["short"]:
        which = counted(row["short"], f"range, {row['first']}, does", f"ranges, {row['first']} first, do")
        detail = f"{which} not have as many entries as the metarange says"
    return CheckResult("ranges_complete", not row["short"], detail, row["short"])


def require_no_old_names(plan: Plan, planned: DataFrame) -> None:
    """Refuse a plan with an unreferenced object that has an old name. A dump may not show that it is staged.

    Such a plan was made with a server, or by an earlier version without this rule. Errors: GuardRefused.
    """
    is_old = ~is_own_name(F.col("address"), legacy=frozenset())
    found = planned.where(is_old & (F.col("reason") == UNREFERENCED)).orderBy("address").first()
    if found is not None:
        raise GuardRefused(
            f"{plan.repository} {plan.day}: the plan names {found['address']}, which no commit has. Old versions of "
            "lakeFS generated such names, and a dump does not show whether they staged the object. Nothing was "
            f"deleted. {plan.again}"
        )


def kinds_given(times: Iterable[datetime], entries: Callable[[], DataFrame]) -> frozenset[str]:
    """Return the kinds of old names that lakeFS gave to entries. There are none if all commits are of newer servers.

    `times`: the creation times of all commits. `entries`: returns the entries of all commits; see `kinds_in_use`.
    """
    return kinds_in_use(entries()) if has_older(times, NEW_NAMES) else frozenset()


def require_own_names(plan: Plan, planned: DataFrame, references: References, entries: Callable[[], DataFrame]) -> None:
    """Refuse a plan with an object whose name is of an old kind that lakeFS gave to no entry of the repository.

    Args:
        plan: the plan that a sweep is about to execute.
        planned: the objects of the plan.
        references: the current references.
        entries: as in `kinds_given`. It is called only if the plan has old names.

    Raises:
        GuardRefused: the plan has such an object.
    """
    old = planned.where(~is_own_name(F.col("address"), legacy=frozenset()))
    if old.isEmpty():
        return
    kinds = kinds_given(references.commit_times(), entries)
    foreign = old.where(~is_own_name(F.col("address"), legacy=kinds)).orderBy("address").first()
    if foreign is not None:
        raise GuardRefused(
            f"{plan.repository} {plan.day}: the plan names {foreign['address']}. No entry of the repository has a name "
            f"of this kind that lakeFS generated, so the file may be another system's. Nothing was deleted. "
            f"{plan.again}"
        )
