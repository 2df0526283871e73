"""Finds the rows of a table, and the plan, that an earlier run made from the same inputs.

The same inputs give the same result, so a run copies the earlier rows, or reuses the earlier plan. The digest of
the inputs has the digests of all tables that are read, the settings, and the code of this package. Any doubt, such as
a file of another run or a plan that is no longer stored, leads to a computation from the beginning. So does a run that
reads all files again, and a week since the last computation. Source: docs/safety.md, "Plans without changes".
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import retention_assets
from retention_assets.config.documents import plain
from retention_assets.core.remedies import CheckResult
from retention_assets.errors import RetentionError
from retention_assets.state.plan import Plan, made_name, plan_made
from retention_assets.warehouse.metadata import PartitionMetadata
from retention_assets.warehouse.warehouse import Rows, Warehouse, Written

if TYPE_CHECKING:  # Spark is imported in the functions that use it: commands without Spark start faster
    from pyspark.sql import SparkSession

_LAST = "last_inputs.json"  # the document of `KnownPlan`
_PRECISION = timedelta(milliseconds=1)  # of the times in `changes_at`: their rounding is less
_LONGEST = timedelta(days=7)  # afterwards, rows and plans are computed again, although their inputs are the same


def inputs_digest(**inputs: Any) -> str | None:
    """Return the digest of inputs by name, with the code of this package; None if an input is None, so unknown."""
    if _CODE is None or None in inputs.values():
        return None
    return hashlib.sha256(json.dumps([_CODE, plain(inputs)], sort_keys=True).encode()).hexdigest()


def _code() -> str | None:
    """Return a digest of this package's code and the version of Spark; None if the files cannot be found."""
    digest, package = hashlib.sha256(version("pyspark").encode()), Path(retention_assets.__file__).parent
    files = sorted(package.rglob("*.py"))
    for file in files:
        digest.update(f"{file.relative_to(package)}\n".encode() + file.read_bytes())
    return digest.hexdigest() if files else None


# Computed when the code is imported: an upgrade replaces the files of a process that goes on with this code.
_CODE = _code()


def reused_rows(
    spark: "SparkSession",
    warehouse: Warehouse,
    repository: str,
    table: str,
    day: date,
    inputs: str | None,
    now: datetime,
) -> Rows | None:
    """Return the rows of a table that were made from these inputs, in the partition of `day`; None if there are none.

    The rows are those of `day` itself, or a copy of those of the newest other day.
    """
    target = repository, table, day.isoformat()
    for source, known in _made_from(warehouse, target, inputs):
        if not is_recent(known.details.computed_at, now):
            continue
        try:
            files = known.files if source == target else warehouse.copy_table(source, target)
            is_whole = warehouse.content_digest(*target) == known.content
            warehouse.require_rows(repository, table, day, known.rows)
            frame = warehouse.frame(spark, *target)
            # Last: other files have other names, so the rows above were those of these files.
            is_same = (warehouse.files_digest(*source), warehouse.files_digest(*target)) == (known.files, files)
        except (RetentionError, OSError):  # another run replaced or removed the rows
            continue
        if is_whole and is_same:
            return Rows(frame, known.taken_at, known.details, written=Written(known.rows, known.size or 0, files=files))
    return None


def is_recent(computed_at: datetime | None, now: datetime) -> bool:
    """Return whether a result need not be computed again because of its age."""
    return computed_at is not None and timedelta(0) <= now - computed_at < _LONGEST


def _made_from(
    warehouse: Warehouse, target: tuple[str, str, str], inputs: str | None
) -> Iterator[tuple[tuple[str, str, str], PartitionMetadata]]:
    """Yield the complete partitions that were made from these inputs: the target itself, and the newest other day."""
    if inputs is None:
        return
    repository, table, day = target
    others = [one for one in warehouse.directories(repository, table) if one != day]
    for one in (day, *others[-1:]):
        try:
            known = warehouse.metadata_if_there(repository, table, one)
        except RetentionError:  # damaged
            continue
        is_same = known is not None and known.details.inputs == inputs and not known.details.refused
        if known is not None and is_same and warehouse.is_complete(repository, table, one):
            yield (repository, table, one), known


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of a plan, and the times at which they were read.

    `digest`: of all inputs but the times; None: not all of them are known. `read_at`: each time by its name. The ages
    and waits of objects are counted up to these times.
    """

    digest: str | None
    read_at: Mapping[str, datetime]

    def is_not_before(self, earlier: "Inputs") -> bool:
        """Return whether no time is older than the same time of the earlier plan."""
        return all(name in self.read_at and self.read_at[name] >= at for name, at in earlier.read_at.items())


@dataclass(frozen=True, slots=True)
class KnownPlan:
    """A plan that passed all guards, its inputs, and what it does not store itself.

    `digest`: of the candidates; see `core.digest`. `changes_at`: for a name of `read_at`, the first time at which an
    object is old enough, or has waited long enough. A plan from the same inputs is the same up to this time.
    `computed_at`: when the objects were classified. `unused_prefixes`: the held prefixes that keep nothing.
    """

    plan: Plan
    inputs: Inputs
    digest: str
    changes_at: Mapping[str, datetime]
    check_results: Sequence[CheckResult]
    computed_at: datetime
    unused_prefixes: Sequence[str] = ()

    def holds_for(self, inputs: Inputs, now: datetime) -> bool:
        """Return whether a plan from these inputs has the same candidates, and need not be computed again."""
        is_same = self.inputs.digest is not None and inputs.digest == self.inputs.digest
        is_due = any(inputs.read_at[name] >= at - _PRECISION for name, at in self.changes_at.items())
        return is_same and inputs.is_not_before(self.inputs) and not is_due and is_recent(self.computed_at, now)


def keep_known(warehouse: Warehouse, known: KnownPlan) -> None:
    """Store the plan that was made last, for later plans from the same inputs."""
    document = plain(
        {
            "day": known.plan.day,
            "plan": made_name(known.plan),
            "inputs": known.inputs,
            "digest": known.digest,
            "changes_at": known.changes_at,
            "check_results": known.check_results,
            "computed_at": known.computed_at,
            "unused_prefixes": known.unused_prefixes,
        }
    )
    warehouse.write_document(document, known.plan.repository, _LAST)


def known_plan(warehouse: Warehouse, repository: str, inputs: Inputs, now: datetime) -> KnownPlan | None:
    """Return the plan that was made last if a plan from these inputs has the same candidates; else None."""
    try:
        document = warehouse.read_document(repository, _LAST)
        if document is None:
            return None
        plan = plan_made(warehouse, repository, document["day"], document["plan"])
        if plan is None:
            return None
        known = KnownPlan(
            plan,
            Inputs(document["inputs"]["digest"], _times(document["inputs"]["read_at"])),
            document["digest"],
            _times(document["changes_at"]),
            [CheckResult(**one) for one in document["check_results"]],
            datetime.fromisoformat(document["computed_at"]),
            tuple(document["unused_prefixes"]),
        )
        passed = [one.passed for one in known.check_results]
        return known if passed and all(passed) and known.holds_for(inputs, now) else None
    except (RetentionError, KeyError, TypeError, ValueError, AttributeError):  # damaged, or of another version
        return None


def _times(texts: Mapping[str, str]) -> dict[str, datetime]:
    return {name: datetime.fromisoformat(text) for name, text in texts.items()}
