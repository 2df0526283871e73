"""The states of a listed object, and the reasons for deleting one. Source: docs/runbook.md."""

FOREIGN, KEPT, HELD, YOUNG, CANDIDATE = "foreign", "kept", "held", "young", "candidate"
MAY_BE_STAGED = "may_be_staged"  # unreferenced, but may be staged: see `same_content` and `keep_old_names`
WAITING = "waiting"  # due, but plans have not found the object due for long enough: see `settle`
STATES = (KEPT, YOUNG, HELD, FOREIGN, MAY_BE_STAGED, WAITING, CANDIDATE)

EXPIRED, LIFECYCLE, UNREFERENCED = "expired", "lifecycle", "unreferenced"  # the reasons for deleting an object
