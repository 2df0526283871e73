"""The names of a repository's jobs."""

SWEEP = "retention/sweep"  # a run with this tag ("true") may sweep, whatever its job is called

HOUSEKEEPING = "housekeeping"  # the operation that removes old tables of the warehouse


def plan_job(repository: str) -> str:
    """Return the name of the job that plans: all assets up to the candidates."""
    return f"{repository}_plan"


def sweep_job(repository: str) -> str:
    """Return the name of the job that executes a plan, or reports its totals in `plan` mode."""
    return f"{repository}_sweep"


def verify_job(repository: str) -> str:
    """Return the name of the job that verifies what was done."""
    return f"{repository}_verify"


def operation_job(operation: str, repository: str) -> str:
    """Return the name of the job of an operation: approve, withdraw, stop, resume, restore, purge or housekeeping."""
    return f"{repository}_{operation}"
