"""Why a run failed, as an error of this project. The terminal and the messages of sensors both show this error."""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from retention_assets import errors
from retention_assets.assets.runs import verify_job
from retention_assets.errors import GuardRefused, RetentionError, error_named_in

_OWN_ERRORS = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type)}
_VERIFY_SUFFIX = verify_job("")  # of the names of verification jobs


def failure_of(events: Sequence[dg.DagsterEvent], job: str, run_id: str) -> RetentionError:
    """Return the error that ended a run: GuardRefused with all failed checks, or else the error of the failed step."""
    checks = [event for event in events if event.event_type == dg.DagsterEventType.ASSET_CHECK_EVALUATION]
    refused = [check for check in (event.asset_check_evaluation_data for event in checks) if not check.passed]
    if refused:
        lines = "\n  ".join(f"{check.check_name}: {check.description}" for check in refused)
        if job.endswith(_VERIFY_SUFFIX):
            return GuardRefused(f"{job}: the verification failed. Nothing was changed.\n  {lines}")
        return GuardRefused(f"{job}: a guard refused. Nothing was deleted, and there is no plan.\n  {lines}")
    for event in events:
        if event.is_step_failure:
            return _own_error(event.step_failure_data.error, event.step_key or job, run_id)
    return RetentionError(f"{job}: the run {run_id} failed before any step. See it in the Dagster UI.")


def _own_error(error: Any, step: str, run_id: str) -> RetentionError:
    chain = []
    while error is not None:
        chain.append(error)
        error = error.cause
    for link in reversed(chain):
        if found := error_named_in(link.message):
            return found
        if link.cls_name in _OWN_ERRORS:
            return _OWN_ERRORS[link.cls_name](link.message.partition(": ")[2].strip() or link.message.strip())
    first = chain[-1].message.strip().splitlines()[0] if chain else "no reason was recorded"
    return RetentionError(
        f"{step.rpartition('__')[2]}: {first} Nothing more was done. The Dagster UI has the details: run {run_id}."
    )
