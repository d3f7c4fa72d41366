"""The states of a run and every arc between them: the one table that code, docs and tests are made from."""

from dataclasses import dataclass
from enum import StrEnum


class RunState(StrEnum):
    """Where a run is. The first two are tables of their own; the others are a word on its last history row."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    DEAD = "dead"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"

    @property
    def terminal(self) -> bool:
        return self not in (RunState.PENDING, RunState.RUNNING)


@dataclass(frozen=True, slots=True)
class Arc:
    """One way from a state to another, and who takes it.

    `statement` names the SQL file that moves the row; `fenced` says whether a fence must match.
    """

    name: str
    source: RunState
    target: RunState
    actor: str
    statement: str
    fenced: bool
    why: str


def _arc(  # one constructor, so that no arc is written with a field forgotten
    name: str,
    source: RunState,
    target: RunState,
    actor: str,
    statement: str,
    why: str,
    *,
    fenced: bool = True,
) -> Arc:
    return Arc(name, source, target, actor, statement, fenced, why)


_P, _R = RunState.PENDING, RunState.RUNNING

ARCS: tuple[Arc, ...] = (
    _arc("begin", _P, _R, "owner", "begin", "due within the lead, within caps; the fence grows by one"),
    _arc("succeed", _R, RunState.SUCCEEDED, "executor", "complete", "the endpoint answered 2xx"),
    _arc("die", _R, RunState.DEAD, "executor", "complete", "410, no more attempts, or past its deadline"),
    _arc("retry", _R, _P, "executor", "complete", "failed; due again after its back-off"),
    _arc("put_back", _R, _P, "executor", "put_back", "begun by a living executor and never called"),
    _arc("give_back", _R, _P, "owner", "give_back", "its lease is gone; perhaps called, recorded as lost"),
    _arc("lose", _R, RunState.DEAD, "owner", "give_back", "lost five times, or its task says dead when lost"),
    _arc("skip", _P, RunState.SKIPPED, "owner", "begin", "misfire, overlap, faulty, paused or deleted"),
    _arc(
        "withdraw",
        _P,
        RunState.SKIPPED,
        "api",
        "withdraw_waiting",
        "its task was paused or deleted",
        fenced=False,
    ),
    _arc(
        "cancel_pending",
        _P,
        RunState.CANCELLED,
        "api",
        "cancel_pending",
        "cancelled before its begin",
        fenced=False,
    ),
    _arc(
        "supersede",
        _P,
        RunState.CANCELLED,
        "owner",
        "cancel_of_tasks",
        "waited for its retry when the next run of its task was due",
        fenced=False,
    ),
    _arc(
        "cancel_running",
        _R,
        RunState.CANCELLED,
        "executor",
        "complete",
        "marked by the API; the call was aborted",
    ),
    _arc("cancel_lost", _R, RunState.CANCELLED, "owner", "give_back", "marked by the API; its lease is gone"),
    _arc("cancel_put_back", _R, RunState.CANCELLED, "executor", "put_back", "marked by the API; never called"),
)

TERMINAL: frozenset[RunState] = frozenset(state for state in RunState if state.terminal)


def allowed(source: RunState, target: RunState) -> bool:
    """Whether some arc leads from `source` to `target`."""
    return any(arc.source is source and arc.target is target for arc in ARCS)


def mermaid() -> str:
    """The state chart of the docs, as Mermaid text."""
    lines = ["stateDiagram-v2", "    [*] --> pending: plant"]
    lines += [f"    {arc.source} --> {arc.target}: {arc.name}" for arc in ARCS]
    lines += [f"    {state} --> [*]" for state in RunState if state.terminal]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(mermaid(), end="")  # noqa: T201
