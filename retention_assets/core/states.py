"""The states of a listed object, and the reasons for deleting one. Source: DESIGN.md, Decisions (Reasons)."""

FOREIGN, KEPT, HELD, YOUNG, CANDIDATE = "foreign", "kept", "held", "young", "candidate"


MAY_BE_STAGED = "may_be_staged"  # no commit references it, but a branch head has the same content: see `same_content`


WAITING = "waiting"  # not a candidate yet, because no plan named it long enough ago: see `settle`


STATES = (KEPT, YOUNG, HELD, FOREIGN, MAY_BE_STAGED, WAITING, CANDIDATE)


EXPIRED, LIFECYCLE, UNREFERENCED = "expired", "lifecycle", "unreferenced"
