"""Approvals: a sweep executes only a plan that was approved by its hash and has not changed since."""

import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from random import Random

import pytest
import yaml
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from retention_assets.config.configuration import Repository, load_configuration
from retention_assets.config.limits import ApprovalSettings, BudgetSettings, Limits
from retention_assets.core.amounts import Amount
from retention_assets.core.digest import candidates_digest
from retention_assets.core.remedies import REMEDIES
from retention_assets.errors import GuardRefused
from retention_assets.lakefs.rules.reflog import Memory
from retention_assets.lakefs.source.opening import open_repository
from retention_assets.lakefs.sweep.liveness import LivenessQuery
from retention_assets.lakefs.sweep.memory import keep_memory
from retention_assets.lakefs.sweep.sweeping import report
from retention_assets.lakefs.sweep.verification import verify
from retention_assets.state import approval
from retention_assets.state.approval import (
    APPROVALS,
    APPROVER,
    BUDGET,
    Approval,
    ApprovalState,
    approval_state,
    approve,
    approved_plans_of_other_days,
    approved_terms,
    person,
    planned_terms,
    require_approval,
    require_few_resurrected,
    stored_approval,
    withdraw_approval,
)
from retention_assets.state.plan import (
    PLANNED_HEADS,
    PLANNED_OBJECTS,
    Plan,
    keep_plan,
    load_plan,
    plan_hash,
    withdraw_plan,
)
from retention_assets.state.records import Record, write_record
from retention_assets.sweep.sweep_run import Sweep, verification_inputs
from retention_assets.warehouse.warehouse import Warehouse
from tests.frames import NOW, Candidate, address, candidates
from tests.saved_repositories import api, copy_saved_repository, policy_file
from tests.sweep.small_world import DAY, SETTINGS, TERMS, a_plan

LIFE = timedelta(days=7)


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(str(tmp_path / "warehouse"))


def required(
    warehouse: Warehouse,
    plan: Plan,
    now: datetime = NOW,
    budget: BudgetSettings | None = None,
    changed: Mapping[str, str] | None = None,
    **settings: object,
) -> Approval:
    """Require the approval of a plan under the settings of a repository. `changed`: terms that differ from `TERMS`."""
    terms = {**TERMS, **(changed or {})}
    limits = Limits(approval=ApprovalSettings(**settings), budget=budget or BudgetSettings())
    return require_approval(warehouse, plan, limits, now, terms=terms)


# ---- approving


def test_a_person_without_a_user_name_has_the_id_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may run with an id that its `/etc/passwd` does not have."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 1_234_567)
    assert person({}) == f"uid 1234567@{socket.gethostname()}"
    assert person({"RETENTION_APPROVER": "ada"}) == "ada"


def test_a_plan_is_approved_by_its_full_hash_in_upper_or_lower_case(warehouse: Warehouse) -> None:
    plan = a_plan()
    keep_plan(warehouse, plan)
    with pytest.raises(GuardRefused, match=r"is not approved. Nothing was deleted. Approve it: `retention approve"):
        required(warehouse, plan)
    assert approve(warehouse, "orchard", DAY, plan.plan_hash.upper(), "a-person", NOW, LIFE, TERMS) == plan
    required(warehouse, plan)
    assert warehouse.read_document("orchard", APPROVALS, f"{plan.plan_hash}.json") == {
        "plan_hash": plan.plan_hash,
        "day": "2026-11-01",
        "approved_by": "a-person",
        "approved_at": "2026-11-01T00:00:00+00:00",
        "terms": {"mode": "delete", "storage": "file:///lake", "grace": "1d"},
    }


def test_an_approval_is_of_one_plan_of_one_repository(warehouse: Warehouse) -> None:
    plan = a_plan()
    keep_plan(warehouse, plan)
    approve(warehouse, "orchard", DAY, plan.plan_hash, "a-person", NOW, LIFE, TERMS)
    for other in (replace(plan, plan_hash="f" * 64), replace(plan, repository="meadow")):
        with pytest.raises(GuardRefused, match="is not approved"):
            required(warehouse, other)


@pytest.mark.parametrize("wrong", ["", "f" * 64, a_plan().plan_hash[:12], f"{a_plan().plan_hash}0", "../plans"])
def test_another_hash_approves_nothing(warehouse: Warehouse, wrong: str) -> None:
    keep_plan(warehouse, a_plan())
    with pytest.raises(
        GuardRefused, match=r"is not the current plan of 2026-11-01\. .* Nothing was approved"
    ) as refused:
        approve(warehouse, "orchard", DAY, wrong, "a-person", NOW, LIFE, TERMS)
    assert ("Give the whole hash." in str(refused.value)) == (wrong == a_plan().plan_hash[:12])
    assert warehouse.documents("orchard", APPROVALS) == []


def test_a_blocked_plan_cannot_be_approved(warehouse: Warehouse) -> None:
    plan = a_plan(blocked="no staged list is known.")
    keep_plan(warehouse, plan)
    refusal = r"executed: no staged list is known\. Nothing was approved\. .* plan again: `retention plan orchard --as"
    with pytest.raises(GuardRefused, match=refusal):
        approve(warehouse, "orchard", DAY, plan.plan_hash, "a-person", NOW, LIFE, TERMS)
    assert warehouse.documents("orchard", APPROVALS) == []


def test_a_plan_that_is_not_current_cannot_be_approved(warehouse: Warehouse) -> None:
    with pytest.raises(GuardRefused, match="there is no current plan of 2026-11-01"):
        approve(warehouse, "orchard", DAY, a_plan().plan_hash, "a-person", NOW, LIFE, TERMS)


def test_an_approval_is_valid_only_for_the_day_it_was_given_for(warehouse: Warehouse) -> None:
    """A restored object must not be deleted again because a later day's plan has the same hash."""
    keep_plan(warehouse, a_plan())
    approve(warehouse, "orchard", DAY, a_plan().plan_hash, "a-person", NOW, LIFE, TERMS)
    with pytest.raises(GuardRefused, match="is not approved"):
        required(warehouse, a_plan(day=DAY + timedelta(days=1)))


@pytest.mark.parametrize(
    ("age", "lapsed"),
    [(timedelta(days=3), False), (timedelta(days=3, microseconds=1), True)],
    ids=["the_limit_itself_holds", "older_lapses"],
)
def test_an_approval_lapses_when_the_plan_is_too_old(warehouse: Warehouse, age: timedelta, lapsed: bool) -> None:
    plan = a_plan()
    keep_plan(warehouse, plan)
    approve(warehouse, "orchard", DAY, plan.plan_hash, "a-person", NOW, LIFE, TERMS)
    if lapsed:
        with pytest.raises(GuardRefused, match=r"longer ago than approval.life \(3d\). A plan or approval of this age"):
            required(warehouse, plan, plan.made_at + age, life="3d")
    else:
        assert required(warehouse, plan, plan.made_at + age, life="3d").approved_by == "a-person"


@pytest.mark.parametrize("budget", [BudgetSettings(), BudgetSettings(objects=100)], ids=["a person", "a budget"])
def test_a_plan_from_the_future_is_neither_approved_nor_executed(warehouse: Warehouse, budget: BudgetSettings) -> None:
    """The plan was made with a wrong clock. Its approval would be valid until a time by that clock."""
    plan = a_plan(made_at=NOW + timedelta(hours=2))
    keep_plan(warehouse, plan)
    with pytest.raises(GuardRefused, match="which is later than now"):
        approve(warehouse, "orchard", DAY, plan.plan_hash, "anna", NOW, LIFE, TERMS)
    approve(warehouse, "orchard", DAY, plan.plan_hash, "anna", plan.made_at, LIFE, TERMS)
    with pytest.raises(GuardRefused, match=r"which is later than now, .* If this machine's clock is wrong, set it"):
        required(warehouse, plan, NOW, budget)
    assert required(warehouse, plan, plan.made_at - timedelta(minutes=5)).approved_by == "anna"  # as clocks may differ


def test_a_new_plan_with_the_same_hash_keeps_the_approval_but_no_longer_than_before(warehouse: Warehouse) -> None:
    keep_plan(warehouse, a_plan())
    approve(warehouse, "orchard", DAY, a_plan().plan_hash, "a-person", NOW, LIFE, TERMS)
    anew = replace(a_plan(), made_at=NOW + timedelta(days=6))
    assert required(warehouse, anew, NOW + timedelta(days=6)).approved_by == "a-person"
    with pytest.raises(GuardRefused, match=r"was approved at 2026-11-01 00:00 UTC, longer ago than approval.life"):
        required(warehouse, anew, NOW + timedelta(days=8))


def test_a_plan_that_is_too_old_cannot_be_approved(warehouse: Warehouse) -> None:
    keep_plan(warehouse, a_plan())
    with pytest.raises(GuardRefused, match=r"longer ago than approval.life \(7d\)"):
        approve(
            warehouse, "orchard", DAY, a_plan().plan_hash, "a-person", a_plan().made_at + timedelta(days=8), LIFE, TERMS
        )
    assert warehouse.documents("orchard", APPROVALS) == []


def test_an_approval_can_be_withdrawn_and_given_again(warehouse: Warehouse) -> None:
    plan = a_plan()
    keep_plan(warehouse, plan)
    approve(warehouse, "orchard", DAY, plan.plan_hash, "a-person", NOW, LIFE, TERMS)
    assert withdraw_approval(warehouse, "orchard", DAY, "another", NOW) == plan
    for budget in (None, BudgetSettings(objects=1_000)):
        with pytest.raises(GuardRefused, match=r"another withdrew the approval of .* at 2026-11-01.* Nothing was del"):
            required(warehouse, plan, budget=budget)
    approve(warehouse, "orchard", DAY, plan.plan_hash, "a-person", NOW, LIFE, TERMS)
    assert required(warehouse, plan).approved_by == "a-person"


def test_a_withdrawal_also_ends_the_approval_of_an_earlier_plan_of_the_day(warehouse: Warehouse) -> None:
    shown = a_plan()
    other_day = replace(shown, day=DAY - timedelta(days=1), plan_hash="b" * 64)
    for plan in (shown, other_day):
        keep_plan(warehouse, plan)
        approve(warehouse, "orchard", plan.day, plan.plan_hash, "a-person", NOW, LIFE, TERMS)
    keep_plan(warehouse, replace(shown, plan_hash="c" * 64))
    withdraw_approval(warehouse, "orchard", DAY, "another", NOW)
    keep_plan(warehouse, shown)  # a new plan has the hash that was approved
    with pytest.raises(GuardRefused, match="another withdrew the approval of"):
        required(warehouse, shown)
    assert required(warehouse, other_day).approved_by == "a-person"


def test_an_approval_can_be_withdrawn_while_a_new_plan_of_the_day_is_made(warehouse: Warehouse) -> None:
    """A guard may also have refused the new plan. The next plan can have the hash of the approved one."""
    plan = a_plan()
    keep_plan(warehouse, replace(plan, plan_hash="b" * 64, made_at=plan.made_at - timedelta(hours=1)))
    keep_plan(warehouse, plan)
    approve(warehouse, "orchard", DAY, plan.plan_hash, "a-person", NOW, LIFE, TERMS)
    withdraw_plan(warehouse, "orchard", DAY)
    assert withdraw_approval(warehouse, "orchard", DAY, "another", NOW) == plan
    keep_plan(warehouse, plan)
    with pytest.raises(GuardRefused, match="another withdrew the approval of"):
        required(warehouse, plan, budget=BudgetSettings(objects=1_000))
    with pytest.raises(GuardRefused, match="there is no current plan"):
        withdraw_approval(warehouse, "orchard", DAY + timedelta(days=1), "another", NOW)


def test_plans_of_other_days_that_a_person_approved_are_found_until_they_are_withdrawn_swept_or_too_old(
    warehouse: Warehouse,
) -> None:
    def found(day: date = DAY, now: datetime = NOW) -> list[date]:
        return [plan.day for plan in approved_plans_of_other_days(warehouse, "orchard", day, LIFE, now)]

    days = [DAY - timedelta(days=number) for number in range(6)]
    plans = [replace(a_plan(), day=day, plan_hash=f"{number:064x}") for number, day in enumerate(days)]
    for plan in plans:
        keep_plan(warehouse, plan)
        if plan.day != days[5]:
            approve(warehouse, "orchard", plan.day, plan.plan_hash, "a-person", NOW, LIFE, TERMS)
    required(warehouse, plans[5], budget=BudgetSettings(objects=2))  # approved by a budget only
    assert found() == [*reversed(days[1:5])]
    assert found(days[1]) == [*reversed(days[2:5]), DAY]
    withdraw_approval(warehouse, "orchard", days[4], "another", NOW)
    keep_plan(warehouse, replace(plans[3], plan_hash="f" * 64))
    at = NOW.isoformat()
    swept = Record("sweep", "orchard", days[2].isoformat(), "a-person", at, "a-run", at, at)
    write_record(warehouse, replace(swept, plan_hash=plans[2].plan_hash))
    warehouse.write_text("{", "orchard", APPROVALS, f"{'e' * 64}.json")
    assert found() == [days[1]]
    assert found(now=NOW + LIFE + timedelta(minutes=1)) == []


def test_a_damaged_approval_does_not_prevent_a_withdrawal(warehouse: Warehouse) -> None:
    shown = a_plan()
    keep_plan(warehouse, shown)
    warehouse.write_text("{", "orchard", APPROVALS, f"{shown.plan_hash}.json")
    current = replace(shown, plan_hash="c" * 64)
    keep_plan(warehouse, current)
    assert withdraw_approval(warehouse, "orchard", DAY, "another", NOW) == current


def test_a_budget_does_not_approve_a_withdrawn_plan_on_another_day(warehouse: Warehouse) -> None:
    plan = a_plan()
    keep_plan(warehouse, plan)
    withdraw_approval(warehouse, "orchard", DAY, "another", NOW)
    for day in (DAY + timedelta(days=1), DAY):
        with pytest.raises(GuardRefused, match=rf"another withdrew the approval .* --as-of {day}`"):
            required(warehouse, replace(plan, day=day), budget=BudgetSettings(objects=1_000))


def test_after_a_withdrawal_the_budget_approves_no_plan_until_a_person_approves_one(warehouse: Warehouse) -> None:
    """The next plan names the same objects. Any commit in the repository changes its hash."""
    shown, budget = a_plan(), BudgetSettings(objects=1_000)
    keep_plan(warehouse, shown)
    withdraw_approval(warehouse, "orchard", DAY, "a-person", NOW)
    tomorrow = DAY + timedelta(days=1)
    again = replace(shown, plan_hash="b" * 64, day=tomorrow, made_at=NOW)
    keep_plan(warehouse, again)
    limits = Limits(budget=budget)
    assert approval_state(warehouse, again, limits, NOW, terms=TERMS).waits_for_person
    with pytest.raises(GuardRefused) as refused:
        required(warehouse, again, budget=budget)
    assert f"a-person withdrew the approval of the plan of {DAY} at {NOW.isoformat()}" in str(refused.value)
    assert "the budget approves no plan until a person approves one. Nothing was deleted" in str(refused.value)
    nothing = replace(again, candidates=Amount(0, 0))
    assert required(warehouse, nothing, budget=budget).approved_by == BUDGET
    approve(warehouse, "orchard", tomorrow, again.plan_hash, "ada", NOW, LIFE, TERMS)
    assert required(warehouse, again, budget=budget).approved_by == "ada"
    later = replace(again, plan_hash="c" * 64, day=tomorrow + timedelta(days=1))
    assert required(warehouse, later, budget=budget).approved_by == BUDGET


def test_a_withdrawal_while_a_plan_is_approved_ends_the_budget(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One person approves the plan, and another one withdraws it between the two documents that this writes."""
    plan, write = a_plan(), warehouse.write_document
    keep_plan(warehouse, plan)
    withdrawn: list[Plan] = []

    def withdrawn_between(self: Warehouse, document: Mapping[str, object], *parts: str) -> None:
        write(document, *parts)
        if not withdrawn:
            withdrawn.append(plan)
            withdraw_approval(warehouse, "orchard", DAY, "a-person", NOW)

    with monkeypatch.context() as patched:
        patched.setattr(Warehouse, "write_document", withdrawn_between)
        approve(warehouse, "orchard", DAY, plan.plan_hash, "ada", NOW, LIFE, TERMS)
    later = replace(plan, plan_hash="c" * 64, day=DAY + timedelta(days=1))
    with pytest.raises(GuardRefused, match="a-person withdrew the approval of the plan"):
        required(warehouse, later, budget=BudgetSettings(objects=1_000))


def test_a_withdrawal_is_not_lost_when_the_budget_approves_at_the_same_time(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, budget = a_plan(), BudgetSettings(objects=2)
    keep_plan(warehouse, plan)

    def withdrawn_meanwhile(*arguments: object, **settings: object) -> ApprovalState:
        state = approval_state(*arguments, **settings)  # type: ignore[arg-type]
        withdraw_approval(warehouse, "orchard", DAY, "a-person", NOW)
        return state

    with monkeypatch.context() as patched:
        patched.setattr(approval, "approval_state", withdrawn_meanwhile)
        assert required(warehouse, plan, budget=budget).approved_by == BUDGET
    with pytest.raises(GuardRefused, match="a-person withdrew the approval"):
        required(warehouse, plan, budget=budget)


def test_an_approval_by_the_budget_is_stored_for_its_day_and_a_withdrawal_ends_it(warehouse: Warehouse) -> None:
    plan = a_plan()
    keep_plan(warehouse, plan)
    first = required(warehouse, plan, budget=BudgetSettings(objects=2))
    assert required(warehouse, plan, NOW + timedelta(hours=1), BudgetSettings(objects=2)) == first
    assert stored_approval(warehouse, "orchard", DAY, plan.plan_hash) == first
    assert stored_approval(warehouse, "orchard", DAY + timedelta(days=1), plan.plan_hash) is None
    withdraw_approval(warehouse, "orchard", DAY, "a-person", NOW)
    assert stored_approval(warehouse, "orchard", DAY, plan.plan_hash) is None


def test_a_plan_that_a_budget_approved_is_not_approved_after_the_budget_shrinks(warehouse: Warehouse) -> None:
    plan = a_plan()
    assert required(warehouse, plan, budget=BudgetSettings(objects=2)).approved_by == BUDGET
    with pytest.raises(GuardRefused, match=r"2 objects are more than the budget's 1"):
        required(warehouse, plan, budget=BudgetSettings(objects=1))
    with pytest.raises(GuardRefused, match="is not approved"):
        required(warehouse, plan)


AT = NOW.isoformat()
WRITTEN_OTHERWISE = [
    {},
    {"plan_hash": "f" * 64, "approved_by": "x", "approved_at": AT, "terms": TERMS},
    {"plan_hash": a_plan().plan_hash, "approved_by": "x", "approved_at": "y"},
    {"plan_hash": a_plan().plan_hash, "approved_by": "x", "approved_at": AT, "more": 1},
    {"plan_hash": a_plan().plan_hash, "approved_by": "x", "approved_at": "2026-11-01T00:00:00"},
]


@pytest.mark.parametrize("document", WRITTEN_OTHERWISE)
def test_an_approval_that_was_changed_approves_nothing(warehouse: Warehouse, document: dict) -> None:
    plan = a_plan()
    warehouse.write_document({**document, "day": DAY.isoformat()}, "orchard", APPROVALS, f"{plan.plan_hash}.json")
    with pytest.raises(GuardRefused, match="Nothing was deleted"):
        required(warehouse, plan)


# a_plan: 2 of 5 objects, 20 of 50 bytes
@pytest.mark.parametrize(
    ("budget", "violation"),
    [
        pytest.param({"objects": 2}, None, id="objects"),
        pytest.param({"objects": 1}, "2 objects are more than the budget's 1", id="too_many_objects"),
        pytest.param({"bytes": "20 B"}, None, id="bytes"),
        pytest.param({"bytes": "19 B"}, "20 bytes are more than the budget's 19", id="too_many_bytes"),
        pytest.param({"share": 0.4}, None, id="share"),
        pytest.param({"share": 0.39}, "40% of the repository is more than the budget's 39%", id="too_large_a_share"),
        pytest.param({"share": 0.0004}, "is more than the budget's 0.04%", id="a_small_share"),
        pytest.param({"objects": 2, "bytes": "20 B", "share": 0.1}, "of the repository", id="one_limit_of_three"),
        pytest.param({}, "is not approved. Nothing", id="no_budget"),
    ],
)
def test_a_budget_approves_a_plan_within_all_of_its_limits(
    warehouse: Warehouse, budget: dict, violation: str | None
) -> None:
    plan = a_plan()
    if violation is None:
        assert required(warehouse, plan, budget=BudgetSettings(**budget)).approved_by == BUDGET
        noted = warehouse.read_document("orchard", APPROVALS, f"{plan.plan_hash}.budget.json")
        assert noted is not None
        assert noted["approved_by"] == BUDGET
    else:
        with pytest.raises(GuardRefused, match=violation):
            required(warehouse, plan, budget=BudgetSettings(**budget))


@pytest.mark.parametrize(
    ("first_wait_ends", "remedy"),
    [
        pytest.param(None, r"Plan again tomorrow: `retention plan orchard`\.$", id="nothing_waits"),
        pytest.param(
            NOW,
            r"Plan again after 2026-11-01 00:00 UTC: `retention plan orchard`\. Objects wait until then\.$",
            id="objects_wait",
        ),
    ],
)
def test_the_refusal_of_a_sweep_of_an_empty_plan_says_that_there_is_nothing_to_delete(
    warehouse: Warehouse, first_wait_ends: datetime | None, remedy: str
) -> None:
    empty = a_plan(candidates=Amount(), first_wait_ends=first_wait_ends)
    nothing = r"has nothing to delete, so it needs no approval\. Nothing was deleted\."
    with pytest.raises(GuardRefused, match=rf"{nothing} {remedy}"):
        required(warehouse, empty)
    with pytest.raises(GuardRefused, match="is not approved"):
        require_approval(warehouse, empty, Limits(), NOW, terms=TERMS, history_changes=1)


def test_an_approval_lapses_if_too_many_planned_objects_are_live_again() -> None:
    plan, settings = a_plan(candidates=Amount(8, 80)), ApprovalSettings()
    require_few_resurrected(plan, 2, settings)
    with pytest.raises(GuardRefused, match=r"of 8 planned objects, 3 are live again \(37.5%; .*Nothing was deleted"):
        require_few_resurrected(plan, 3, settings)


def test_the_environment_names_who_approves() -> None:
    assert person({APPROVER: "ada@example.org"}) == "ada@example.org"
    assert "@" in person({})


# ---- the settings that an approval is for


def test_an_approval_is_for_the_settings_under_which_it_was_given(warehouse: Warehouse) -> None:
    plan = a_plan()
    keep_plan(warehouse, plan)
    approve(warehouse, "orchard", DAY, plan.plan_hash, "a-person", NOW, LIFE, {**TERMS, "mode": "quarantine"})
    with pytest.raises(
        GuardRefused, match=r"since a-person approved the plan: mode was quarantine, is delete\. Nothing"
    ):
        required(warehouse, plan)
    assert required(warehouse, plan, changed={"mode": "quarantine"}).approved_by == "a-person"


def test_an_approval_to_delete_is_none_to_quarantine(warehouse: Warehouse) -> None:
    """The approval did not show the location of the quarantine."""
    plan = a_plan()
    keep_plan(warehouse, plan)
    approve(warehouse, "orchard", DAY, plan.plan_hash, "a-person", NOW, LIFE, TERMS)
    with pytest.raises(GuardRefused) as refused:
        required(warehouse, plan, changed={"mode": "quarantine", "quarantine.url": "s3://attic"})
    assert "mode was delete, is quarantine; quarantine.url was not set, is s3://attic." in str(refused.value)
    assert f"`retention approve orchard {plan.plan_hash} --as-of {DAY}`" in str(refused.value)


def test_a_budget_does_not_replace_a_persons_approval_for_other_settings(warehouse: Warehouse) -> None:
    plan = a_plan()
    keep_plan(warehouse, plan)
    approve(warehouse, "orchard", DAY, plan.plan_hash, "a-person", NOW, LIFE, {**TERMS, "mode": "quarantine"})
    with pytest.raises(GuardRefused, match="mode was quarantine, is delete"):
        required(warehouse, plan, budget=BudgetSettings(objects=1_000))


def test_a_budget_approves_a_plan_for_the_current_settings(warehouse: Warehouse) -> None:
    plan, budget = a_plan(), BudgetSettings(objects=2)
    for mode in ("quarantine", "delete"):
        assert required(warehouse, plan, budget=budget, changed={"mode": mode}).terms == {**TERMS, "mode": mode}
        noted = warehouse.read_document("orchard", APPROVALS, f"{plan.plan_hash}.budget.json")
        assert noted is not None
        assert noted["terms"]["mode"] == mode


def test_an_approval_without_settings_must_be_given_again(warehouse: Warehouse) -> None:
    plan = a_plan()
    document = {"plan_hash": plan.plan_hash, "day": DAY.isoformat(), "approved_by": "x", "approved_at": AT}
    warehouse.write_document(document, "orchard", APPROVALS, f"{plan.plan_hash}.json")
    keep_plan(warehouse, plan)
    with pytest.raises(
        GuardRefused, match=r"does not say for which mode .* Nothing was deleted. Approve it again: `ret"
    ):
        required(warehouse, plan)
    approve(warehouse, "orchard", DAY, plan.plan_hash, "a-person", NOW, LIFE, TERMS)
    assert required(warehouse, plan).approved_by == "a-person"


def state_of(warehouse: Warehouse, plan: Plan, history_changes: int = 0, **changed: str) -> ApprovalState:
    terms = {**TERMS, **changed}
    return approval_state(warehouse, plan, Limits(), NOW, terms=terms, history_changes=history_changes)


def test_a_plan_that_only_changes_the_history_waits_for_a_person_and_an_empty_one_does_not(
    warehouse: Warehouse,
) -> None:
    empty = a_plan(candidates=Amount())
    assert state_of(warehouse, empty, history_changes=1).waits_for_person
    assert not state_of(warehouse, empty).waits_for_person
    assert not state_of(warehouse, a_plan(blocked="no staged list is known.")).waits_for_person


def test_a_damaged_approval_waits_for_a_person(warehouse: Warehouse) -> None:
    plan = a_plan()
    damaged = {"plan_hash": plan.plan_hash, "day": DAY.isoformat(), "approved_by": "x", "approved_at": "y"}
    warehouse.write_document(damaged, "orchard", APPROVALS, f"{plan.plan_hash}.json")
    state = state_of(warehouse, plan)
    assert (state.name, state.approval, state.waits_for_person) == ("not approved", None, True)
    assert "cannot be read" in str(state.refusal)


def test_the_state_of_an_approval_writes_nothing(warehouse: Warehouse) -> None:
    plan = a_plan()
    state = approval_state(warehouse, plan, Limits(budget=BudgetSettings(objects=2)), NOW, terms=TERMS)
    assert (state.name, state.refusal, state.waits_for_person) == ("within the budget", None, False)
    assert warehouse.documents("orchard", APPROVALS) == []


def test_in_mode_plan_nothing_is_approved(warehouse: Warehouse) -> None:
    plan = a_plan()
    keep_plan(warehouse, plan)
    with pytest.raises(GuardRefused, match=r"its mode is `plan`.* Nothing was approved, .* Set `mode: quarantine` or"):
        approve(warehouse, "orchard", DAY, plan.plan_hash, "a-person", NOW, LIFE, {**TERMS, "mode": "plan"})
    assert warehouse.documents("orchard", APPROVALS) == []


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_a_plan_that_was_made_under_other_settings_is_neither_approved_nor_executed(
    warehouse: Warehouse, name: str
) -> None:
    plan = a_plan()
    keep_plan(warehouse, plan)
    changed = {name: "another"}
    message = rf"settings were changed since the plan was made: {name} was {SETTINGS[name]}, is another\. Nothing was"
    with pytest.raises(GuardRefused, match=rf"{message} approved. Plan again: `retention plan orchard"):
        approve(warehouse, "orchard", DAY, plan.plan_hash, "a-person", NOW, LIFE, {**TERMS, **changed})
    approve(warehouse, "orchard", DAY, plan.plan_hash, "a-person", NOW, LIFE, TERMS)
    for budget in (None, BudgetSettings(objects=1_000)):
        with pytest.raises(GuardRefused, match=rf"{message} deleted. Plan again: `retention plan orchard"):
            required(warehouse, plan, budget=budget, changed=changed)


def test_a_new_plan_under_other_settings_needs_a_new_approval(warehouse: Warehouse) -> None:
    keep_plan(warehouse, a_plan())
    approve(warehouse, "orchard", DAY, a_plan().plan_hash, "a-person", NOW, LIFE, TERMS)
    longer = {"grace": "3d"}
    with pytest.raises(
        GuardRefused, match=r"a-person approved the plan: grace was 1d, is 3d. Nothing was deleted. Change"
    ):
        required(warehouse, a_plan(terms={**SETTINGS, **longer}), changed=longer)


def test_a_plan_without_settings_must_be_made_again(warehouse: Warehouse) -> None:
    plan = a_plan(terms={})
    keep_plan(warehouse, plan)
    with pytest.raises(
        GuardRefused,
        match=r"has no settings, because an earlier version made it. Nothing was approved. Plan again",
    ):
        approve(warehouse, "orchard", DAY, plan.plan_hash, "a-person", NOW, LIFE, TERMS)
    with pytest.raises(
        GuardRefused,
        match=r"has no settings, because an earlier version made it. Nothing was deleted. Plan again",
    ):
        required(warehouse, plan, budget=BudgetSettings(objects=1_000))


def test_a_plan_of_the_version_before_is_read(warehouse: Warehouse) -> None:
    document = {name: value for name, value in a_plan().document().items() if name != "terms"}
    warehouse.write_document(document, "orchard", "plans", DAY.isoformat(), "current.json")
    assert load_plan(warehouse, "orchard", DAY) == a_plan(terms={})


ORCHARD: Mapping[str, object] = {
    "kind": "lakefs",
    "namespace": "s3a://lake/orchard/",
    "storage": "lake",
    "source": {"dump": "dump.json"},
    "policy": "policy.json",
    "grace": "36h",
}
FIELD: Mapping[str, object] = {
    "kind": "icechunk",
    "storage": "field",
    "policy": "policy.yaml",
    "mode": "quarantine",
    "collect_overwritten": "30d",
}


def configured(directory: Path, settings: Mapping[str, object], **changes: object) -> Repository:
    """Return a repository as a configuration in `directory` has it."""
    file = directory / "retention.yaml"
    repositories = {"a_repository": {**settings, **changes}}
    file.write_text(yaml.safe_dump({"warehouse": "warehouse", "repositories": repositories}), encoding="utf-8")
    return load_configuration(file).repository("a_repository")


def test_an_approval_stores_the_settings_by_their_keys(tmp_path: Path) -> None:
    orchard = approved_terms(configured(tmp_path, ORCHARD, mode="delete", tags="ignore"))
    assert orchard.items() >= {
        ("mode", "delete"),
        ("namespace", "s3://lake/orchard"),
        ("storage", f"file://{tmp_path}/lake"),
        ("grace", "36h"),
        ("token_life", "1d"),
        ("tags", "ignore"),
    }
    assert "quarantine.url" not in orchard
    field = approved_terms(configured(tmp_path, FIELD))
    assert field.items() >= {
        ("mode", "quarantine"),
        ("quarantine.url", f"file://{tmp_path}/field.quarantine"),
        ("storage", f"file://{tmp_path}/field"),
        ("collect_overwritten", "30d"),
    }
    assert not field.keys() & {"tags", "token_life"}


@pytest.mark.parametrize(
    ("settings", "name", "value"),
    [
        (ORCHARD, "namespace", "s3://lake/other"),
        (ORCHARD, "storage", "other"),
        (ORCHARD, "grace", "37h"),
        (ORCHARD, "token_life", "25h"),
        (ORCHARD, "tags", "ignore"),
        (ORCHARD, "legacy_names", True),
        (ORCHARD, "settle", "0s"),
        (ORCHARD, "settle_expired", False),
        (ORCHARD, "reflog", False),
        (FIELD, "settle", "1h"),
        (FIELD, "storage", "other"),
        (FIELD, "grace", "37h"),
        (FIELD, "collect_overwritten", None),
    ],
)
def test_a_change_of_a_setting_that_determines_the_candidates_is_detected(
    tmp_path: Path, settings: Mapping[str, object], name: str, value: object
) -> None:
    before, after = (planned_terms(configured(tmp_path, settings, **change)) for change in ({}, {name: value}))
    assert [key for key in {**before, **after} if before.get(key) != after.get(key)] == [name]


def test_a_duration_in_another_spelling_is_the_same_setting(tmp_path: Path) -> None:
    one, other = (planned_terms(configured(tmp_path, ORCHARD, grace=grace)) for grace in ("48h", "2d"))
    assert one == other


@pytest.mark.parametrize("seed", range(20))
def test_no_order_of_edits_approvals_and_withdrawals_executes_a_plan_that_was_not_shown(
    warehouse: Warehouse, seed: int
) -> None:
    """Plans, approvals, budgets and edits of the configuration happen in any order. The latest state decides."""
    dice = Random(seed)
    now, budget = dict(TERMS), BudgetSettings()
    planned: Mapping[str, str] | None = None  # the settings of the current plan
    word: Mapping[str, str] | str | None = None  # a person's last: the terms approved, or "withdrawn"
    allowed = 0
    for _ in range(120):
        match dice.choice(["edit", "withdraw", "budget", *["plan", "approve", "sweep"] * 3]):
            case "edit":
                name = dice.choice(["mode", "storage", "grace"])
                now[name] = dice.choice(["quarantine", "delete", "plan"] if name == "mode" else ["1d", "3d"])
            case "plan":
                planned = {name: value for name, value in now.items() if name != "mode"}
                keep_plan(warehouse, a_plan(terms=planned))
            case "budget":
                budget = dice.choice([BudgetSettings(), BudgetSettings(objects=2)])
            case "withdraw" if planned is not None:
                withdraw_approval(warehouse, "orchard", DAY, "a-person", NOW)
                word = "withdrawn"
            case "approve":
                is_shown = planned == {name: value for name, value in now.items() if name != "mode"}
                with nullcontext() if is_shown and now["mode"] != "plan" else pytest.raises(GuardRefused):
                    approve(warehouse, "orchard", DAY, a_plan().plan_hash, "a-person", NOW, LIFE, now)
                    word = dict(now)
            case "sweep" if planned is not None and now["mode"] != "plan":
                is_shown = planned == {name: value for name, value in now.items() if name != "mode"}
                may = is_shown and (word == now or (word is None and budget.is_set))
                with nullcontext() if may else pytest.raises(GuardRefused):
                    approval = required(warehouse, load_plan(warehouse, "orchard", DAY), budget=budget, changed=now)
                    assert approval.terms == now
                    allowed += 1
    assert allowed


# ---- executing an approved plan


@dataclass(frozen=True)
class Approved:
    """A repository on disk, with an approved plan that names three of its objects."""

    root: Path
    sweep: Sweep
    plan: Plan

    def write(self, *rows: Candidate) -> None:
        """Rewrite the candidates of the plan."""
        where = self.sweep.warehouse.location("orchard", PLANNED_OBJECTS, self.plan.plan_hash)
        candidates(self.sweep.spark, *rows).write.mode("overwrite").parquet(where)

    def files(self) -> dict[str, tuple[int, int]]:
        """Return size and time of every file of the repository."""
        found = (path for path in (self.root / "namespace").rglob("*") if path.is_file())
        return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in found}


CONFIGURATION = """\
warehouse: warehouse
repositories:
  orchard:
    kind: lakefs
    namespace: s3://lake/orchard
    storage: namespace
    source: {dump: dump.json, dump_age: 3650d}
    policy: policy.json
    mode: delete
"""
ROWS = tuple(Candidate(address(number), size=number) for number in (1, 2, 3))


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Approved:
    root = tmp_path_factory.mktemp("approved")
    copy_saved_repository("orchard", root / "namespace")
    (root / "dump.json").write_text(json.dumps(api("orchard")["refs_dump"]), encoding="utf-8")
    (root / "policy.json").write_text(policy_file("orchard", "gc_rules.json").read_text("utf-8"), encoding="utf-8")
    (root / "retention.yaml").write_text(CONFIGURATION, encoding="utf-8")
    configuration = load_configuration(root / "retention.yaml")
    opened = open_repository(configuration.repository("orchard"), lambda: datetime(2026, 11, 22, tzinfo=UTC))
    policy_hash, digest = opened.policy().policy_hash, candidates_digest(candidates(spark, *ROWS).drop("etag"))
    plan = a_plan(
        policy_hash=policy_hash,
        plan_hash=plan_hash("orchard", policy_hash, a_plan().references_hash, digest),
        terms=planned_terms(opened.repository),
    )
    sweep = Sweep(spark, Warehouse(configuration.warehouse), opened, DAY, "an-attempt", lambda _: None, lambda: NOW)
    return Approved(root, sweep, plan)


@pytest.fixture
def approved(lake: Approved) -> Iterator[Approved]:
    """The lake with a valid approval. Changes of a test are undone."""
    policy = (lake.root / "policy.json").read_bytes()
    opened = lake.sweep.opened
    lake.write(*ROWS)
    keep_memory(lake.sweep.warehouse, lake.plan, opened.source.references(), opened.policy())
    keep_plan(lake.sweep.warehouse, lake.plan)
    heads = f"{lake.plan.plan_hash}.json"
    lake.sweep.warehouse.write_document({"branches": {}, "tags": {}}, "orchard", PLANNED_HEADS, heads)
    terms = approved_terms(lake.sweep.opened.repository)
    approve(lake.sweep.warehouse, "orchard", DAY, lake.plan.plan_hash, "a-person", NOW, LIFE, terms)
    yield lake
    (lake.root / "policy.json").write_bytes(policy)


def forget_the_approval(lake: Approved) -> None:
    lake.sweep.warehouse.remove_document("orchard", APPROVALS, f"{lake.plan.plan_hash}.json")


def withdraw(lake: Approved) -> None:
    withdraw_plan(lake.sweep.warehouse, "orchard", DAY)


def block(lake: Approved) -> None:
    keep_plan(lake.sweep.warehouse, replace(lake.plan, blocked="the staged list is newer."))


def add_a_candidate(lake: Approved) -> None:
    lake.write(*ROWS, Candidate(address(4)))


def exchange_a_candidate(lake: Approved) -> None:
    lake.write(*ROWS[:2], replace(ROWS[2], address=address(4)))


def take_a_candidate_away(lake: Approved) -> None:
    lake.write(*ROWS[:2])


def change_the_policy(lake: Approved) -> None:
    rules = json.loads((lake.root / "policy.json").read_text("utf-8"))
    rules["default_retention_days"] += 1
    (lake.root / "policy.json").write_text(json.dumps(rules), encoding="utf-8")


def name_another_policy_in_the_plan(lake: Approved) -> None:
    change_the_policy(lake)
    keep_plan(lake.sweep.warehouse, replace(lake.plan, policy_hash=lake.sweep.opened.policy().policy_hash))


CHANGES: dict[str, tuple[Callable[[Approved], None], str]] = {
    "the plan is not approved": (forget_the_approval, "is not approved"),
    "the plan was withdrawn": (withdraw, "there is no current plan of 2026-11-01"),
    "it is blocked": (block, "the staged list is newer"),
    "a candidate was added": (add_a_candidate, "deletion_candidates do not match the hash of the plan"),
    "a candidate was exchanged": (exchange_a_candidate, "deletion_candidates do not match the hash of the plan"),
    "a candidate was taken away": (take_a_candidate_away, "deletion_candidates do not match the hash of the plan"),
    "the policy changed": (change_the_policy, "the policy was changed after the plan was made"),
    "the plan was edited to name the changed policy": (
        name_another_policy_in_the_plan,
        "deletion_candidates do not match the hash of the plan",
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_plan_that_is_not_what_was_approved_deletes_nothing(approved: Approved, what: str) -> None:
    change, violation = CHANGES[what]
    before = approved.files()
    change(approved)
    with pytest.raises(GuardRefused, match=f"{violation}.*Nothing was deleted"):
        report(approved.sweep)
    assert approved.files() == before
    assert approved.sweep.warehouse.directories("orchard", "ledger") == []


def test_the_approved_plan_passes_the_check_of_its_approval(approved: Approved) -> None:
    """The dump has no staged list, so the sweep is refused at its next step, the liveness check."""
    before = approved.files()
    with pytest.raises(GuardRefused, match="the staged list is unknown"):
        report(approved.sweep)
    assert approved.files() == before


def test_verification_fails_without_a_staged_list(approved: Approved) -> None:
    sweep = approved.sweep
    query = LivenessQuery(sweep.opened, sweep.opened.policy(), DAY, Memory())
    refused = {one.guard: one.message for one in verify(verification_inputs(sweep), query, NOW) if not one.passed}
    assert refused == {"staged_read": f"no staged list is known. {REMEDIES['staged_read']}"}


def test_a_run_that_names_a_plan_executes_no_other(approved: Approved) -> None:
    """The plan may be replaced by one within a budget between the start of the run and its sweep."""
    with pytest.raises(GuardRefused, match=r"is not the current plan of .* Nothing was deleted"):
        report(approved.sweep, plan_hash="f" * 64)


def test_planned_candidates_that_are_stored_in_another_order_pass_the_check(approved: Approved) -> None:
    where = approved.sweep.warehouse.location("orchard", PLANNED_OBJECTS, approved.plan.plan_hash)
    shuffled = candidates(approved.sweep.spark, *reversed(ROWS)).repartition(3, F.col("size"))
    shuffled.write.mode("overwrite").parquet(where)
    with pytest.raises(GuardRefused, match="the staged list is unknown"):
        report(approved.sweep)
