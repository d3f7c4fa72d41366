"""What the demo's table and percentiles say, from calls and from runs as the API lists them."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from tocsin.cli.demo import figures as module
from tocsin.cli.demo.figures import Figures, Known, known_task
from tocsin.cli.demo.tasks import demo_tasks
from tocsin.common.models import EverySchedule, PlanSpec
from tocsin.common.time.schedule import due_at

START = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
TICK, HELD, SPREAD = "tick", "held", "spread"


def figures() -> Figures:
    return Figures(
        {
            TICK: Known("every 2 s", timedelta(), prompt=True),
            HELD: Known("overlap: buffer one", timedelta(), prompt=False),
            SPREAD: Known("spread", timedelta(seconds=4), prompt=True),
        },
        START,
    )


def call(
    shown: Figures, number: int, delay_ms: int, *, task: str = TICK, second: int = 0, attempt: int = 1
) -> module.Line:
    slot = START + timedelta(seconds=second)
    instant = slot + timedelta(milliseconds=delay_ms)
    return shown.arrived(f"run-{number:05}", task, attempt, slot.strftime("%Y-%m-%dT%H:%M:%SZ"), instant.isoformat())


def run(number: int, state: str, outcome: str, **more: Any) -> dict[str, Any]:
    return {
        "id": f"run-{number:05}",
        "state": state,
        "outcome": outcome,
        "attempts": 1,
        "http_status": None,
        "scheduled_for": "2026-03-01T09:00:02Z",
        "due_at": "2026-03-01T09:00:02Z",
        "ended_at": "2026-03-01T09:00:03Z",
        "reason": None,
        **more,
    }


def check_percentiles(make: Callable[[], Figures]) -> None:
    """Nearest rank: of 100 delays of 1 to 100 ms, p50 is 50 and p99 is 99. Broken twins must fail it."""
    shown = make()
    assert shown.percentile(0.5) is None
    for number in range(100):
        call(shown, number, 100 - number)
    assert shown.percentile(0.5) == pytest.approx(0.050)
    assert shown.percentile(0.99) == pytest.approx(0.099)
    assert shown.percentile(1.0) == pytest.approx(0.100)
    assert (shown.counted, shown.calls) == (100, 100)


def test_percentiles_are_by_nearest_rank() -> None:
    check_percentiles(figures)


def test_percentiles_that_are_one_off_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("math.ceil", lambda value: int(value) + 1)
    with pytest.raises(AssertionError):
        check_percentiles(figures)


@pytest.mark.parametrize(
    ("task", "second", "attempt"),
    [
        pytest.param(HELD, 0, 1, id="held back by its policy"),
        pytest.param(TICK, -1, 1, id="due before the start"),
        pytest.param(TICK, 0, 2, id="a retry"),
        pytest.param("gone", 0, 1, id="of a task that is not the demo's"),
    ],
)
def test_delays_that_tocsin_did_not_cause_are_not_counted(task: str, second: int, attempt: int) -> None:
    shown = figures()
    call(shown, 1, 700, task=task, second=second, attempt=attempt)
    assert (shown.counted, shown.calls) == (0, 1)


def test_a_share_of_a_spread_is_no_delay() -> None:
    line = call(figures(), 1, 4_003, task=SPREAD)
    assert line.due == START + timedelta(seconds=4)
    assert line.delay == pytest.approx(0.003)


def test_the_share_is_the_schedulers() -> None:
    task_id = UUID("01890000-0000-7000-8000-000000000001")
    plan = PlanSpec(schedule=EverySchedule(every_seconds=60, anchor=START), spread_seconds=10)
    known = known_task({"id": str(task_id), "name": "spread", "spread_seconds": 10}, prompt=True)
    assert known.offset == due_at(plan, task_id, START) - START
    assert known.offset > timedelta()


def test_a_call_and_its_run_are_one_line() -> None:
    shown = figures()
    line = call(shown, 1, 3, second=2)
    assert shown.settled(TICK, [run(1, "succeeded", "success", http_status=200)]) == [line]
    assert line.outcome == "succeeded 200"
    assert shown.settled(TICK, [run(1, "succeeded", "success", http_status=200)]) == []
    assert shown.newest(9) == [line]


def test_a_retry_is_due_when_its_run_says() -> None:
    shown = figures()
    line = shown.arrived("run-00001", TICK, 2, "2026-03-01T09:00:02Z", "2026-03-01T09:00:07.004+00:00")
    assert line.due is None
    shown.settled(TICK, [run(1, "succeeded", "success", attempts=2, due_at="2026-03-01T09:00:07Z")])
    assert line.due == START + timedelta(seconds=7)
    assert line.delay == pytest.approx(0.004)


def test_what_no_endpoint_saw_gets_a_line() -> None:
    shown = figures()
    runs = [
        run(1, "skipped", "skipped", reason="overlap", attempts=0),
        run(2, "dead", "egress_refused"),
        run(3, "skipped", "skipped", reason="misfire", ended_at="2026-03-01T08:59:59Z"),
        run(4, "running", "") | {"outcome": None},
        run(5, "pending", "http_error", http_status=503),
    ]
    assert [line.outcome for line in shown.settled(TICK, runs)] == ["skipped: overlap", "dead: egress_refused"]


def test_a_run_that_waits_for_its_retry_says_so() -> None:
    shown = figures()
    line = call(shown, 1, 3)
    shown.settled(TICK, [run(1, "pending", "http_error", http_status=503)])
    assert line.outcome == "http_error 503, will retry"


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_LINES", 10)
    shown = figures()
    for number in range(25):
        call(shown, number, 1)
    assert [line.run for line in shown.newest(99)] == [f"run-{number:05}" for number in range(24, 14, -1)]


def test_demo_tasks_have_names_of_their_own_and_one_single_instant() -> None:
    tasks = demo_tasks(START + timedelta(microseconds=5))
    assert len({task.name for task in tasks}) == len(tasks) == 22
    [once] = [task for task in tasks if "at" in task.schedule]
    assert once.schedule["at"] == "2026-03-01T09:00:10Z"
