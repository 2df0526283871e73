"""The names of a repository's jobs."""

SWEEP = "retention/sweep"  # tag of a run that may sweep, whatever its job is called; its value is "true"


def plan_job(repository: str) -> str:
    """Return the name of the job that plans: everything up to the candidates."""
    return f"{repository}_plan"


def sweep_job(repository: str) -> str:
    """Return the name of the job that carries a plan out, or reports its totals in `plan` mode."""
    return f"{repository}_sweep"


def verify_job(repository: str) -> str:
    """Return the name of the job that proves what was done."""
    return f"{repository}_verify"
