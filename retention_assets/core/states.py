"""The states of a listed object, and the reasons for deleting one. Source: DESIGN.md, Decisions (Reasons)."""

FOREIGN, KEPT, HELD, YOUNG, CANDIDATE = "foreign", "kept", "held", "young", "candidate"
MAY_BE_STAGED = "may_be_staged"  # no commit references the object, but a branch head has its content: `same_content`
WAITING = "waiting"  # the object is due, but no plan found it due long enough ago: see `settle`
STATES = (KEPT, YOUNG, HELD, FOREIGN, MAY_BE_STAGED, WAITING, CANDIDATE)

EXPIRED, LIFECYCLE, UNREFERENCED = "expired", "lifecycle", "unreferenced"  # the reasons for deleting an object
