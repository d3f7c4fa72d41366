"""What the demo shows: calls as the endpoint saw them, joined with what the API says of their runs. Pure."""

import itertools
import math
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from tocsin.api.timestamps import parse_timestamp
from tocsin.common.models import EARLIEST, AtSchedule, PlanSpec
from tocsin.common.time.schedule import due_at

KEPT_LINES = 5_000
IN_FLIGHT = "in flight"
KEPT_DELAYS = 10_000


@dataclass(slots=True)
class Line:
    """One attempt of a run, or a run that was skipped. `delay` in seconds, where it can be told."""

    task: str
    run: str
    attempt: int
    due: datetime | None
    arrived: datetime | None = None
    delay: float | None = None
    outcome: str = IN_FLIGHT


@dataclass(frozen=True, slots=True)
class Known:
    """A task of the demo. `offset`: its own share of a spread."""

    name: str
    offset: timedelta
    prompt: bool


def known_task(document: Mapping[str, Any], *, prompt: bool) -> Known:
    """From a task as the API shows it."""
    spread = PlanSpec(schedule=AtSchedule(at=EARLIEST), spread_seconds=document["spread_seconds"])
    return Known(document["name"], due_at(spread, UUID(document["id"]), EARLIEST) - EARLIEST, prompt)


class Figures:
    """The newest lines, and the delays of first attempts.

    Delay = first byte at the endpoint minus the due instant. It is counted where Tocsin alone can cause one:
    the first attempt, of a task without an overlap or catch-up policy that holds runs back, due after `since`.
    """

    def __init__(self, tasks: Mapping[str, Known], since: datetime) -> None:
        self._tasks = tasks
        self._since = since
        self._lines: OrderedDict[tuple[str, int], Line] = OrderedDict()
        self._delays: deque[float] = deque(maxlen=KEPT_DELAYS)
        self.calls = 0

    def newest(self, count: int) -> list[Line]:
        """The newest lines, the last one first."""
        return list(itertools.islice(reversed(self._lines.values()), count))

    def arrived(self, run: str, task: str, attempt: int, slot: str, instant: str) -> Line:
        """A call, as the endpoint reports it."""
        self.calls += 1
        known = self._tasks.get(task, Known(task, timedelta(), prompt=False))
        arrived = datetime.fromisoformat(instant)
        line = Line(known.name, run, attempt, None, arrived)
        if attempt == 1 and slot:
            line.due = parse_timestamp(slot) + known.offset
            line.delay = (arrived - line.due).total_seconds()
            if known.prompt and line.due >= self._since:
                self._delays.append(line.delay)
        self._keep(line)
        return line

    def settled(self, task: str, runs: Sequence[Mapping[str, Any]]) -> list[Line]:
        """A task's newest runs, as the API lists them; returns the lines whose outcome has become known."""
        changed = []
        for run in sorted(runs, key=lambda run: str(run["id"])):
            if run["outcome"] is None:
                continue
            line = self._lines.get((run["id"], run["attempts"]))
            if line is None and run["state"] in ("skipped", "dead") and self._is_new(run):
                due = run["scheduled_for"] or run["due_at"]
                line = Line(
                    self._tasks[task].name, run["id"], run["attempts"], None if due is None else parse_timestamp(due)
                )
                self._keep(line)
            if line is not None and line.due is None and line.arrived is not None and run["due_at"] is not None:
                line.due = parse_timestamp(run["due_at"])  # of a retry, only the run knows
                line.delay = (line.arrived - line.due).total_seconds()
            if line is not None and line.outcome != (outcome := _outcome(run)):
                line.outcome = outcome
                changed.append(line)
        return changed

    def percentile(self, share: float) -> float | None:
        """The delay, in seconds, that this share of the counted calls did not exceed (nearest rank)."""
        if not self._delays:
            return None
        ordered = sorted(self._delays)
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)]

    @property
    def counted(self) -> int:
        return len(self._delays)

    def _is_new(self, run: Mapping[str, Any]) -> bool:
        return run["ended_at"] is not None and parse_timestamp(run["ended_at"]) >= self._since

    def _keep(self, line: Line) -> None:
        self._lines[line.run, line.attempt] = line
        while len(self._lines) > KEPT_LINES:
            self._lines.popitem(last=False)


def _outcome(run: Mapping[str, Any]) -> str:
    state, outcome = str(run["state"]), str(run["outcome"])
    status = f" {run['http_status']}" if run["http_status"] else ""
    if state == "skipped":
        return f"skipped: {run['reason']}"
    if state == "pending":
        return f"{outcome}{status}, will retry"
    return f"{state}: {outcome}{status}" if state != "succeeded" else f"succeeded{status}"
