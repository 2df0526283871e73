"""Compares two plans, and shows what another policy would change in the current plan.

For another policy, the planner classifies the objects of the day's stored tables. The store is not listed again, and no
request is sent to a server. No plan is written, withdrawn or approved.
"""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from datetime import datetime, timedelta

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from retention_assets.config.configuration import Repository
from retention_assets.core.amounts import Amount
from retention_assets.core.guards import CheckResult
from retention_assets.core.other_references import NO_OTHERS, OtherReferences
from retention_assets.core.totals import BRANCH, PREFIX, REASON, TOTAL, largest_groups, top_of, top_prefix
from retention_assets.errors import GuardRefused
from retention_assets.lakefs.names.generated import namespace_urls
from retention_assets.lakefs.rules.references import References
from retention_assets.lakefs.rules.reflog import Memory
from retention_assets.lakefs.rules.tables import REFERENCES, references_of
from retention_assets.lakefs.sweep.liveness import CommittedContents, commits_under, committed_contents
from retention_assets.lakefs.sweep.memory import read_memory
from retention_assets.lakefs.sweep.planning import PlanInputs, PlanParameters, blocked, classify, run_checks
from retention_assets.objectstore.access import open_store
from retention_assets.policy.lint import Finding, lint
from retention_assets.policy.rules import Policy
from retention_assets.spark.frames import CachedFrames, from_arrow, union_of
from retention_assets.state.approval import planned_terms
from retention_assets.state.memory import due_objects_of
from retention_assets.state.plan import Plan, planned_objects
from retention_assets.tables import COMMIT_GRAPH, STORAGE_INVENTORY, UNCOMMITTED_OBJECTS
from retention_assets.warehouse.table_cache import TableCache
from retention_assets.warehouse.warehouse import Rows, Warehouse

NEWLY_FREED = "newly_freed"  # only the later set has the object
NO_LONGER_FREED = "no_longer_freed"  # only the earlier set has the object
FREED_OTHERWISE = "freed_otherwise"  # both sets have the object, for other reasons or under other rules
FREED_ALIKE = "freed_alike"  # both sets have the object, with the same reason and rules
CHANGES = (NEWLY_FREED, NO_LONGER_FREED, FREED_OTHERWISE, FREED_ALIKE)

_COMPARED = ("size", "reason", "rule_ids", "paths", "branches")
_EARLIER, _LATER = "before", "after"


def compared(before: DataFrame, after: DataFrame) -> DataFrame:
    """Return one row per address of either set, with its `change` and the reasons and rules in both sets.

    A reason or rule is null if that set does not have the object. `size`, `paths` and `branches` come from the later
    set if it has the object, else from the earlier set.

    `before`, `after`: rows of `deletion_candidates`.
    """
    both = _side(before, _EARLIER).join(_side(after, _LATER), on="address", how="full")
    differs = (F.col("reason_before") != F.col("reason_after")) | (F.col("rule_ids_before") != F.col("rule_ids_after"))
    change = (
        F.when(F.col("reason_before").isNull(), NEWLY_FREED)
        .when(F.col("reason_after").isNull(), NO_LONGER_FREED)
        .when(differs, FREED_OTHERWISE)
        .otherwise(FREED_ALIKE)
    )
    return both.select(
        "address",
        change.alias("change"),
        *(F.coalesce(f"{name}_after", f"{name}_before").alias(name) for name in ("size", "paths", "branches")),
        *(f"{name}_{side}" for name in ("reason", "rule_ids") for side in (_EARLIER, _LATER)),
    )


def _side(candidates: DataFrame, name: str) -> DataFrame:
    return candidates.select("address", *(F.col(column).alias(f"{column}_{name}") for column in _COMPARED))


def changed_amounts(changes: DataFrame, most: int, *, have_paths: bool = True) -> DataFrame:
    """Return the `largest_groups` of each change. `changes`: the rows that `compared` returns."""
    prefix = top_prefix() if have_paths else top_of(F.col("address"))
    return largest_groups(changes, "change", _reason_text(), prefix, most)


def _reason_text() -> Column:
    """Return the reason as text. If the two sets free the object for different reasons, the text has both."""
    earlier, later = F.col("reason_before"), F.col("reason_after")
    both = F.when(earlier == later, F.concat(later, F.lit(", other rules"))).otherwise(
        F.concat(earlier, F.lit(" → "), later)
    )
    return F.when(F.col("change") == FREED_OTHERWISE, both).otherwise(F.coalesce(later, earlier))


def at_heads(commits: DataFrame, graph: DataFrame) -> DataFrame:
    """Return the rows of `potential_commits` that a branch or tag names now. `branches` has these names.

    A tag is written `tag <name>`, because a branch can have the same name.
    """
    tags = F.transform("tags", lambda tag: F.concat(F.lit("tag "), tag))
    heads = graph.select("commit_id", F.concat("head_of", tags).alias("names")).where(F.size("names") > 0)
    return commits.join(heads, on="commit_id", how="inner").withColumn("branches", F.col("names")).drop("names")


def with_heads(changes: DataFrame, pairs_at_heads: DataFrame) -> DataFrame:
    """Return the changes with the column `heads`: the branches and tags whose current commit has the object.

    Only newly freed objects have `heads`. The list is empty if only older commits have the object.

    `pairs_at_heads`: the `addresses` of the commits that `at_heads` returns.
    """
    heads = pairs_at_heads.groupBy("address").agg(union_of("branches").alias("heads"))
    none = F.array().cast("array<string>")
    joined = changes.join(heads, on="address", how="left")
    is_new = F.col("change") == NEWLY_FREED
    return joined.withColumn("heads", F.when(is_new, F.coalesce("heads", none)).otherwise(none))


def head_amounts(changes: DataFrame, most: int) -> DataFrame:
    """Return (name, objects, bytes) of the `most` heads that lose the most bytes, and a total with an empty name.

    Objects that are in no head are not counted. `changes`: the rows that `with_heads` returns.
    """
    names = F.explode(F.concat(F.array(F.lit("")), F.col("heads"))).alias("name")
    return (
        changes.where(F.size("heads") > 0)
        .select("size", names)
        .groupBy("name")
        .agg(F.count(F.lit(1)).alias("objects"), F.sum("size").alias("bytes"))
        .orderBy(F.col("name") != "", F.col("bytes").desc(), "name")
        .limit(most + 1)
    )


_MOST = 12  # groups shown of each change
Groups = Sequence[tuple[str, Amount]]


@dataclass(frozen=True, slots=True)
class Change:
    """Objects and bytes of one kind of change: the total, and the largest groups."""

    amount: Amount
    reasons: Groups
    prefixes: Groups
    branches: Groups


@dataclass(frozen=True, slots=True)
class Difference:
    """The differences between two sets of candidates. `changes` has every kind of change, even without objects."""

    rows: DataFrame  # the objects that are not `freed_alike`, the largest first
    changes: Mapping[str, Change]
    cached: DataFrame  # the objects of both sets, in Spark's cache

    def release(self) -> None:
        """Release the cached objects. After that, `rows` is computed again each time it is read."""
        self.cached.unpersist()


@dataclass(frozen=True, slots=True)
class Proposal:
    """Another policy for a repository, and the current plan of the day."""

    repository: Repository
    policy: Policy
    plan: Plan
    now: datetime
    run_id: str

    def parameters(self, memory: Memory) -> PlanParameters:
        """Return the parameters of a plan under the proposed policy, with no settling time."""
        unsettled = {"settle": timedelta(0), "settle_expired": False}
        return PlanParameters(
            repository=self.repository.name,
            day=self.plan.day,
            policy=self.policy,
            policy_run=self.run_id,
            settings=self.repository.lakefs.model_copy(update=unsettled),
            now=self.now,
            run_id=self.run_id,
            access=open_store(self.repository),
            memory=memory,
            terms=planned_terms(self.repository),
        )


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a proposal would change in the current plan, with the results of the guards and the linter.

    `at_heads`: the newly freed objects that are in the current commit of a branch or tag. `heads`: the same for each
    branch and tag.
    """

    difference: Difference
    at_heads: Amount
    heads: Groups
    check_results: Sequence[CheckResult]
    blocked: str | None  # why no sweep may execute the proposed plan; None: a sweep may
    findings: Sequence[Finding]


def compare_plans(
    spark: SparkSession, warehouse: Warehouse, first: Plan, second: Plan, *, have_paths: bool = True
) -> Difference:
    """Return the differences between two plans. Errors: GuardRefused when the objects of a plan are not complete.

    `have_paths`: whether the repository's objects have paths. Without paths, objects are grouped by directory of the
    store.
    """
    before, after = (planned_objects(spark, warehouse, plan) for plan in (first, second))
    return _difference(compared(before, after), have_paths=have_paths)


def outlook(
    spark: SparkSession, warehouse: Warehouse, proposal: Proposal, others: OtherReferences = NO_OTHERS
) -> Outlook:
    """Return what the proposal would change in its plan. `others`: references of other repositories.

    Errors: TableContractError when a table of the day is missing. GuardRefused when the tables are not those of the
    plan, or when a hold names a branch, tag or commit that does not exist. AccessDenied or StoreError when a range must
    be read again and cannot be read.
    """
    name, day = proposal.repository.name, proposal.plan.day
    parameters = proposal.parameters(read_memory(warehouse, name, proposal.repository.lakefs))
    planned = due_objects_of(spark, warehouse, proposal.plan)
    inventory, staged, graph = (
        warehouse.rows(spark, name, table.name, day) for table in (STORAGE_INVENTORY, UNCOMMITTED_OBJECTS, COMMIT_GRAPH)
    )
    _require_same_inputs(proposal.plan, inventory, graph)
    references = references_of(graph.columns(*REFERENCES), graph.taken_at)
    commits, contents = _contents(spark, warehouse, proposal, parameters, references)
    with CachedFrames() as frames:
        pairs = Rows(frames.cache(contents.pairs()), graph.taken_at, graph.details)
        inputs = PlanInputs(inventory, staged, graph, pairs, others)
        classification = classify(parameters, inputs, frames, planned=planned)
        checks_of_plan = run_checks(spark, warehouse, parameters, inputs, classification)
        pairs_at_heads = contents.pairs_of(at_heads(commits, graph.frame))
        difference = _difference(with_heads(compared(planned, classification.candidates), pairs_at_heads))
    (_, total), *heads = _groups(head_amounts(difference.rows, _MOST)) or [("", Amount())]
    return Outlook(
        difference,
        at_heads=total,
        heads=heads,
        check_results=[contents.check_complete(), *checks_of_plan.check_results],
        blocked=blocked(parameters, inputs, references),
        findings=lint(parameters.policy, references.branches, references.tags, references.commits, None, day),
    )


def _contents(
    spark: SparkSession, warehouse: Warehouse, proposal: Proposal, parameters: PlanParameters, references: References
) -> tuple[DataFrame, CommittedContents]:
    """Return the commits, classified under the proposed policy, and their contents."""
    repository = proposal.repository
    tags_protect = repository.lakefs.tags == "protect"
    rows = commits_under(
        proposal.policy, references, (), tags_protect=tags_protect, as_of=parameters.as_of, memory=parameters.memory
    )
    commits = from_arrow(spark, rows)
    cache = TableCache(spark, warehouse, repository.name, open_store(repository), proposal.run_id)
    return commits, committed_contents(cache, namespace_urls(repository.namespace, repository.storage), rows)


def _difference(changes: DataFrame, *, have_paths: bool = True) -> Difference:
    changes = changes.cache()
    found: dict[tuple[str, str], list[tuple[str, Amount]]] = {}
    for row in changed_amounts(changes, _MOST, have_paths=have_paths).collect():
        found.setdefault((row["change"], row["by"]), []).append((row["name"], Amount(row["objects"], row["bytes"])))
    amounts = {change: found.get((change, TOTAL), [("", Amount())])[0][1] for change in CHANGES}
    rows = changes.where(F.col("change") != FREED_ALIKE).orderBy(F.col("size").desc(), "address")
    return Difference(
        rows,
        {
            change: Change(amount, *(found.get((change, by), []) for by in (REASON, PREFIX, BRANCH)))
            for change, amount in amounts.items()
        },
        changes,
    )


def _groups(frame: DataFrame) -> list[tuple[str, Amount]]:
    return [(row["name"], Amount(row["objects"], row["bytes"])) for row in frame.collect()]


def _require_same_inputs(plan: Plan, inventory: Rows, graph: Rows) -> None:
    """Raise GuardRefused if tables were made again after the plan: the policy would not be the only difference."""
    if graph.details.references_hash != plan.references_hash:
        raise _other_inputs(plan, f"{COMMIT_GRAPH.name} has other references")
    listed = inventory.frame.agg(F.count(F.lit(1)), F.coalesce(F.sum("size"), F.lit(0))).collect()[0]
    known = Amount(*(sum(column) for column in zip(*map(astuple, plan.totals.values()), strict=True)))
    if Amount(*listed) != known:
        raise _other_inputs(plan, f"{STORAGE_INVENTORY.name} has other objects")


def _other_inputs(plan: Plan, what: str) -> GuardRefused:
    return GuardRefused(f"{plan.repository} {plan.day}: {what} than the plan. Nothing was compared. {plan.again}")
