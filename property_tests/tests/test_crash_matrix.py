"""The crash matrix: a sample of it with real processes; and its judge, which must see what is broken."""

import asyncio
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console

from property_tests.crash_matrix.command import run
from property_tests.crash_matrix.control import Control, Trace
from property_tests.crash_matrix.launcher import Handler, RaisedHereError
from property_tests.crash_matrix.ledger import Call, Death, Judgement, Ledger, Row, judge
from property_tests.crash_matrix.operations import OPERATIONS, Cell, cells, chosen
from property_tests.crash_matrix.play import Played
from property_tests.crash_matrix.ray_column import ray_cells
from property_tests.crash_matrix.report import Matrix, not_counted, write
from property_tests.crash_matrix.strike import Evidence, Fault
from tocsin.common.crashpoints import POINTS

FIRST = datetime(2026, 1, 1, tzinfo=UTC)
TASK = uuid.UUID(int=1)
LEASE, OTHER_LEASE = uuid.UUID(int=10), uuid.UUID(int=11)
SLOTS = [FIRST + timedelta(seconds=n) for n in range(4)]
RUNS = [uuid.UUID(int=100 + n) for n in range(4)]
AT = FIRST.timestamp()


def ended(number: int, **other: object) -> Row:
    row = Row(
        run_id=RUNS[number],
        task_id=TASK,
        kind="slot",
        slot=SLOTS[number],
        last_slot=SLOTS[number - 1] if number else None,
        fence=1,
        state="succeeded",
        outcome="ok",
        sent=True,
        lease_id=LEASE,
    )
    return replace(row, **other)  # type: ignore[arg-type]


def call(number: int, fence: int = 1, at: float = 0.0, ended: float | None = 0.3) -> Call:
    return Call(AT + number + at, RUNS[number], TASK, fence, None if ended is None else AT + number + at + ended)


def clean() -> Ledger:
    return Ledger({TASK: SLOTS}, [call(n) for n in range(4)], [ended(n) for n in range(4)])


def given_back() -> Ledger:
    """Run 1 was in flight when its process failed, and was called again."""
    rows = [
        ended(0),
        ended(1, state=None, outcome="lost"),
        ended(1, fence=2, lease_id=OTHER_LEASE),
        ended(2, lease_id=OTHER_LEASE),
        ended(3, lease_id=OTHER_LEASE),
    ]
    calls = [call(0), call(1, ended=None), call(1, fence=2, at=0.9), call(2), call(3)]
    return Ledger({TASK: SLOTS}, calls, rows, [Death(frozenset({LEASE}), AT + 1.2)])


def test_what_is_as_it_should_be_is_held() -> None:
    found = judge(clean())
    assert found.held
    assert (found.lost, found.unrecorded, found.unseen, found.duplicates, found.bound) == (0, 0, 0, 0, 0)


def test_a_call_of_what_was_in_flight_in_a_failed_process_may_be_made_again() -> None:
    found = judge(given_back())
    assert found.held
    assert (found.duplicates, found.bound, found.strays) == (1, 1, 0)
    assert found.first_again == AT + 1.9


BROKEN: dict[str, Ledger] = {
    "the endpoint saw nothing": replace(clean(), calls=[]),
    "the database says nothing": replace(clean(), rows=[]),
    "a call is missing": replace(clean(), calls=clean().calls[1:]),
    "a run has no end": replace(clean(), rows=[*clean().rows[:3], ended(3, state="running", sent=False)]),
    "a slot is nowhere": replace(clean(), calls=clean().calls[:3], rows=clean().rows[:3]),
    "a gap in the chain": replace(
        clean(), slots={}, calls=[call(0), call(1), call(3)], rows=[ended(0), ended(1), ended(3)]
    ),
    "a slot twice": replace(
        clean(),
        calls=[*clean().calls, Call(AT + 9, uuid.UUID(int=200), TASK, 1, AT + 9.3)],
        rows=[*clean().rows, ended(3, run_id=uuid.UUID(int=200))],
    ),
    "a run ended twice": replace(
        clean(), calls=[*clean().calls, call(3, fence=2, at=5)], rows=[*clean().rows, ended(3, fence=2)]
    ),
    "an ended run goes on": replace(clean(), rows=[*clean().rows, ended(3, state="pending", sent=False)]),
    "a call doubled on the wire": replace(clean(), calls=[*clean().calls, call(3, at=0.1)]),
    "a call again without a failure": replace(given_back(), deaths=[]),
    "a call again of what had ended long before": replace(
        given_back(), calls=[call(0), call(1), call(1, fence=2, at=3), call(2), call(3)],
        deaths=[Death(frozenset({LEASE}), AT + 2.5)],
    ),
    "a call again of what another process had in flight": replace(
        given_back(), deaths=[Death(frozenset({OTHER_LEASE}), AT + 1.2)]
    ),
    "an attempt that nobody recorded": replace(
        given_back(), rows=[row for row in given_back().rows if row.outcome != "lost"]
    ),
    "a next row is missing": replace(clean(), next_rows={TASK: 1}),
    "a next row too many": replace(
        clean(), rows=[*clean().rows, ended(3, run_id=uuid.UUID(int=300), kind="next", state="pending", sent=False)]
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_the_judge_sees(what: str) -> None:
    found = judge(BROKEN[what])
    assert not found.held
    assert found.faults or found.duplicates > found.bound


def test_more_calls_again_than_were_in_flight_are_too_many() -> None:
    ledger = given_back()
    rows = [*ledger.rows[:2], ended(1, state=None, outcome="lost", fence=2), ended(1, fence=3), *ledger.rows[3:]]
    calls = [*ledger.calls, call(1, fence=3, at=2.5)]
    found = judge(replace(ledger, rows=rows, calls=calls))
    assert (found.duplicates, found.bound) == (2, 1)
    assert not found.held


def test_a_skip_accounts_for_its_slots() -> None:
    skip = ended(1, state="skipped", outcome="skipped", until_slot=SLOTS[2], sent=False, kind="next")
    ledger = replace(clean(), calls=[call(0), call(3)], rows=[ended(0), skip, ended(3)])
    assert judge(ledger).held


def test_every_point_has_its_cells_and_every_other_cell_its_reason() -> None:
    counted = list(cells())
    assert {cell.point for cell in counted} == POINTS
    assert len({cell.name for cell in counted}) == len(counted)
    left = not_counted([])
    assert len(counted) + len(left) == len(POINTS) * 3 * len(Fault)
    assert not any(cell.checked for cell in left)  # nothing was played


def _played(point: str, role: str, fault: Fault, **other: object) -> Played:
    (cell,) = [c for c in cells() if (c.point, c.operation.role, c.fault) == (point, role, fault)]
    judgement = judge(clean())
    return Played(cell, judgement=judgement, recovery=0.1, **other)  # type: ignore[arg-type]


def test_a_reason_counts_only_where_it_was_seen() -> None:
    def reason(played: Played, point: str, role: str, fault: Fault) -> bool:
        (found,) = [c for c in not_counted([played]) if (c.point, c.role, c.fault) == (point, role, fault)]
        return found.checked

    reached = {"executor": {"begin.after": 3}}
    seen = _played("begin.after", "executor", Fault.KILL, evidence=Evidence(0, ()), reached=reached)
    assert reason(seen, "begin.after", "executor", Fault.CUT_AFTER)
    assert reason(seen, "ask_move.before", "executor", Fault.KILL)
    assert not reason(seen, "call.before", "executor", Fault.CUT_AFTER)
    assert not reason(seen, "begin.after", "api", Fault.KILL)  # no API was there
    on_the_wire = replace(seen, evidence=Evidence(1, ()))
    assert not reason(on_the_wire, "begin.after", "executor", Fault.CUT_AFTER)
    among_others = replace(seen, evidence=Evidence(0, ("complete.before",)))
    assert not reason(among_others, "begin.after", "executor", Fault.CUT_AFTER)
    came = replace(seen, reached={"executor": {"ask_move.before": 1}})
    assert not reason(came, "ask_move.before", "executor", Fault.KILL)


def test_a_matrix_is_held_only_with_all_of_its_cells() -> None:
    one = _played("begin.after", "executor", Fault.KILL)
    assert Matrix([one], {}, whole=False).held
    assert not Matrix([one], {}, whole=True).held
    assert not Matrix([replace(one, broken=["lost"])], {}, whole=False).held
    assert not Matrix([], {}, whole=False).held


def test_a_part_of_a_matrix_says_that_it_is_one(tmp_path: Path) -> None:
    one = _played("begin.after", "executor", Fault.KILL)
    for whole in (True, False):
        write(Matrix([one], {}, whole=whole), tmp_path)
        assert ("a part of the matrix only" in (tmp_path / "crash_matrix.md").read_text()) is not whole


def test_through_ray_a_kill_is_struck_at_each_point_of_a_run() -> None:
    points = {point for point in POINTS if point.partition(".")[0] in ("begin", "call", "complete")}
    assert {cell.point for cell in ray_cells()} == points
    assert len(points) == len(ray_cells()) == 6
    assert {cell.fault for cell in ray_cells()} == {Fault.KILL}


async def test_a_process_stands_still_at_its_point_until_it_is_told() -> None:
    asked: list[tuple[str, str]] = []
    answers = iter(["go", "raise"])

    async def decide(name: str, point: str) -> str:
        asked.append((name, point))
        return next(answers)

    async def work(handler: Handler) -> None:
        for point in ("begin.before", "beat.before", "begin.after"):
            handler(point)
        with pytest.raises(RaisedHereError):
            handler("begin.before")
        handler.close()

    control = Control(decide)
    await control.open()
    try:
        handler = await asyncio.to_thread(Handler, control.port, "a", frozenset({"begin.before"}))
        await asyncio.to_thread(lambda: asyncio.run(work(handler)))
    finally:
        await control.close()
    assert asked == [("a", "begin.before")] * 2
    trace = control.traces["a"]
    assert trace.counts == {"begin.before": 2, "begin.after": 1, "beat.before": 1}


def test_a_trace_knows_what_one_task_came_to_since() -> None:
    trace = Trace()
    assert trace.since("begin.before") is None
    trace.latest += [("begin.before", "x"), ("complete.before", "y"), ("call.before", "x"), ("begin.after", "x")]
    assert trace.since("begin.before") == ["call.before"]
    assert trace.since("judge.before") is None


def sample() -> list[Cell]:
    return chosen(None, short=True)


def test_the_sample_has_every_kind_of_fault() -> None:
    assert {cell.fault for cell in sample()} == set(Fault)
    assert len(sample()) == 8
    assert {cell.operation for cell in sample()} <= set(OPERATIONS)


@pytest.mark.chaos
@pytest.mark.timeout(240)  # about a minute where nothing else runs
async def test_a_sample_of_the_matrix_is_held() -> None:
    matrix = await run(sample(), 1, Console(stderr=True))
    judged = [one.judgement for one in matrix.played]
    assert matrix.held, [one.broken for one in matrix.played]
    assert all(isinstance(judgement, Judgement) and judgement.lost == 0 for judgement in judged)
