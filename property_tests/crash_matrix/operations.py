"""The operations that lie between two crash points, the processes in which they occur, and how each is come to."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from property_tests.crash_matrix import work
from property_tests.crash_matrix.scenarios import SCENARIOS
from property_tests.crash_matrix.strike import CUTS, Fault
from property_tests.crash_matrix.work import Work
from property_tests.network.wire import COMMIT
from tocsin.common.crashpoints import POINTS

ROLES = ("executor", "supervisor", "api")


@dataclass(frozen=True, slots=True)
class Operation:
    """`name`.before and `name`.after are its points. `statement`: the one between them, whose connection is cut; None
    where nothing is committed. The fault is struck at one of the first `reaches` times that there is something to do;
    `work` tells it, of a statement that may be sent though it finds nothing."""

    name: str
    role: str
    scenario: str
    statement: str | None
    reaches: int = 1
    work: Work | None = None


OPERATIONS = (
    Operation("begin", "executor", "steady", "begin", 8),
    Operation("call", "executor", "steady", None, 8),
    Operation("complete", "executor", "steady", "complete", 8),
    Operation("beat", "executor", "steady", "lease_beat", 8),
    Operation("put_back", "executor", "stalled", "put_back"),
    Operation("give_back", "executor", "orphans", "give_back", work=work.giving_back),
    Operation("expire", "executor", "sibling_killed", "lease_expire"),
    Operation("take_shards", "executor", "sibling_killed", "shard_take", work=work.taking),
    Operation("judge", "executor", "sibling_frozen", "lease_judge", work=work.judging),
    Operation("give_shards", "executor", "sibling_joins", "shard_give"),
    Operation("leave", "executor", "drained", "lease_expire"),
    Operation("cancel_of_tasks", "executor", "overlap", "cancel_of_tasks", 3, work.cancelling),
    Operation("mark_faulty", "executor", "broken_plan", "mark_faulty", 2),
    Operation("move_tenant", "executor", "promotion", "tenant_move", work=work.moving),
    Operation("ask_move", "supervisor", "promotion", "tenant_ask_move"),
    Operation("move_unowned", "supervisor", "unowned", "tenant_move", work=work.moving_unowned),
    Operation("api.write", "supervisor", "zone_data", COMMIT, 3, work.committing),
    Operation("api.write", "api", "writes", COMMIT, 12, work.committing),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One fault at one point of one role."""

    operation: Operation
    point: str
    fault: Fault

    @property
    def name(self) -> str:
        return f"{self.point} / {self.operation.role} / {self.fault.value}"


def cells() -> Iterator[Cell]:
    """All cells in which the fault can occur. The cuts are armed where the statement is about to be sent."""
    for operation in OPERATIONS:
        for when in ("before", "after"):
            point = f"{operation.name}.{when}"
            assert point in POINTS
            for fault in Fault:
                if fault not in CUTS or (when == "before" and operation.statement is not None):
                    yield Cell(operation, point, fault)


SHORT = (
    ("begin.after", "executor", Fault.KILL),
    ("begin.before", "executor", Fault.CUT_AFTER),
    ("call.after", "executor", Fault.KILL),
    ("complete.before", "executor", Fault.CUT_AFTER),
    ("complete.before", "executor", Fault.CUT_BEFORE),
    ("give_back.after", "executor", Fault.KILL),
    ("take_shards.before", "executor", Fault.RAISE),
    ("api.write.before", "api", Fault.CUT_AFTER),
)
"""A telling sample: (point, role, fault)."""


def chosen(only: str | None, among: Sequence[Cell] | None = None, *, short: bool) -> list[Cell]:
    """The cells to play, of all cells or `among` others. `only`: a point, an operation, a scenario or a cell's name."""
    found = list(cells() if among is None else among)
    if short:
        found = [cell for key in SHORT for cell in found if (cell.point, cell.operation.role, cell.fault) == key]
    if only is not None:
        found = [c for c in found if only in (c.point, c.operation.name, c.operation.scenario, c.name)]
    assert all(cell.operation.scenario in SCENARIOS for cell in found)
    return found
