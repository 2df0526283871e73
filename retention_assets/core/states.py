"""The states of a listed object, and the reasons for which one may go. Source: DESIGN.md, Decisions (Reasons)."""

FOREIGN, KEPT, HELD, YOUNG, CANDIDATE = "foreign", "kept", "held", "young", "candidate"


MAY_BE_STAGED = "may_be_staged"  # no commit holds it, and a head has its content: see `same_content`


WAITING = "waiting"  # would be a candidate, but no plan named it long enough ago: see `settle`


STATES = (KEPT, YOUNG, HELD, FOREIGN, MAY_BE_STAGED, WAITING, CANDIDATE)


EXPIRED, LIFECYCLE, UNREFERENCED = "expired", "lifecycle", "unreferenced"
