"""Numbers of objects and bytes, and their texts for people."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

NO_BRANCH, NO_PATH = "(no branch)", "(no path)"  # names of the groups of objects without a branch or path
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_STEP = 1024
_GB = 10**9  # prices are per GB
_CENT = 0.01


@dataclass(frozen=True, slots=True)
class Amount:
    """A number of objects and their total size in bytes."""

    objects: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class HistoryChanges:
    """How many snapshots, branches and tags a plan of an Icechunk repository removes from the history."""

    snapshots: int = 0
    branches: int = 0
    tags: int = 0

    @property
    def total(self) -> int:
        """The number of removed snapshots, branches and tags. A budget counts each as one object."""
        return self.snapshots + self.branches + self.tags

    def counts(self) -> list[str]:
        """Return a text for each number that is not 0, such as `2 snapshots` or `1 branch`."""
        named = (
            (self.snapshots, "snapshot", None),
            (self.branches, "branch", "branches"),
            (self.tags, "tag", None),
        )
        return [counted(number, one, many) for number, one, many in named if number]


def sum_of(amounts: Iterable[Amount]) -> Amount:
    """Return the sum of the amounts."""
    known = list(amounts)
    return Amount(sum(one.objects for one in known), sum(one.bytes for one in known))


def sums_of(one: Mapping[str, Amount], other: Mapping[str, Amount]) -> dict[str, Amount]:
    """Return the sum of the two amounts of each name."""
    return {name: sum_of([one.get(name, Amount()), other.get(name, Amount())]) for name in {**one, **other}}


def plot_numbers(amounts: Mapping[str, Amount]) -> dict[str, float]:
    """Return `<name>_objects` and `<name>_bytes` of each amount: the numbers that Dagster plots."""
    objects = {f"{name}_objects": amount.objects for name, amount in amounts.items()}
    return {**objects, **{f"{name}_bytes": amount.bytes for name, amount in amounts.items()}}


def human_bytes(size: float) -> str:
    """Return a size with its unit, such as `1.5 GiB`."""
    for unit in _UNITS:
        if size < _STEP or unit == _UNITS[-1]:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= _STEP
    raise AssertionError("the loop returns at the last unit")


def human_share(share: float) -> str:
    """Return a share (1: all) in percent with up to six decimals, such as `25%` or `0.04%`."""
    return f"{100 * share:.6f}".rstrip("0").rstrip(".") + "%"


def counted(number: int, one: str, many: str | None = None) -> str:
    """Return a number and the words after it, such as `1 object` or `1,200 objects`.

    `one`: the words after 1. `many`: the words after any other number; None: `one` with an `s`.
    """
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def human_amount(amount: Amount) -> str:
    """Return a number of objects and their size, such as `12 objects, 1.5 GiB`."""
    return f"{counted(amount.objects, 'object')}, {human_bytes(amount.bytes)}"


def human_removal(amount: Amount, changes: HistoryChanges) -> str:
    """Return what a plan removes, such as `12 objects, 1.5 GiB, and from the history 2 snapshots and 1 tag`."""
    *others, last = changes.counts() or [""]
    text = f"{', '.join(others)} and {last}" if others else last
    return f"{human_amount(amount)}, and from the history {text}" if text else human_amount(amount)


def monthly_cost(size: int, price: float) -> float:
    """Return the cost of `size` bytes per month. `price` is per GB (10^9 bytes)."""
    return size / _GB * price


def human_cost(cost: float) -> str:
    """Return an amount of money to the cent, or `< 0.01` for less than a cent."""
    return "< 0.01" if 0 < cost < _CENT else f"{cost:,.2f}"
