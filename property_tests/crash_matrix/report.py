"""The matrix as a table, as JSON and as Markdown; with the cells in which a fault cannot occur, and why."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.report import Environment
from property_tests.crash_matrix.operations import OPERATIONS, ROLES, Operation, cells
from property_tests.crash_matrix.play import RECOVERY_SECONDS, RESTART_SECONDS, Played
from property_tests.crash_matrix.strike import Fault
from tocsin.common.crashpoints import POINTS

_COLUMNS = (
    "point", "process", "fault", "rows", "lost", "unrecorded", "duplicates", "bound", "recovery s", "first again s",
    "worst delay s", "slowest start s", "verdict",
)  # fmt: skip
NOT_MEANING = (
    "a proof: each fault is struck once in each cell, at a moment that the seed chose. All processes share one "
    "machine, so a death is proven by its pid; on several machines it takes a lease's ttl."
)


@dataclass(frozen=True, slots=True)
class NotCounted:
    """A cell in which the fault cannot occur. `checked`: that was seen in this run; else it is only believed."""

    point: str
    role: str
    fault: Fault
    reason: str
    checked: bool


@dataclass(frozen=True, slots=True)
class Matrix:
    """`whole`: every cell was to be played. `through_ray`: it is the one column that is played through Ray."""

    played: list[Played]
    environment: Environment
    whole: bool
    through_ray: bool = False

    @property
    def name(self) -> str:
        return "crash_matrix_ray" if self.through_ray else "crash_matrix"

    @property
    def not_counted(self) -> list[NotCounted]:
        return [] if self.through_ray else not_counted(self.played)

    @property
    def held(self) -> bool:
        unchecked = self.whole and any(not cell.checked for cell in self.not_counted)
        return bool(self.played) and all(one.held for one in self.played) and not unchecked


def not_counted(played: Sequence[Played]) -> list[NotCounted]:
    """Every cell of point, process and fault that is not one of the matrix, with the reason."""
    counted = {(cell.point, cell.operation.role, cell.fault) for cell in cells()}
    by_role = {(operation.name, operation.role): operation for operation in OPERATIONS}
    found = []
    for point in sorted(POINTS):
        for role in ROLES:
            for fault in Fault:
                if (point, role, fault) in counted:
                    continue
                operation = by_role.get((point.rpartition(".")[0], role))
                reason, checked = (
                    _never(played, point, role) if operation is None else _no_statement(played, point, operation)
                )
                found.append(NotCounted(point, role, fault, reason, checked))
    return found


def _never(played: Sequence[Played], point: str, role: str) -> tuple[str, bool]:
    reaches = sum(one.reached.get(role, {}).get(point, 0) for one in played)
    lived = sum(role in one.reached for one in played)
    if reaches:
        return f"has no cell, though this process came to the point {reaches} times", False
    return f"this process never came to the point, in {lived} cells", lived > 0


def _no_statement(played: Sequence[Played], point: str, operation: Operation) -> tuple[str, bool]:
    """Why no connection can be cut there: what was seen when the process stood still at the point itself."""
    look_at = f"{operation.name}.after"
    looks = [
        one.evidence
        for one in played
        if one.cell.point == look_at and one.cell.operation == operation and one.evidence is not None
    ]
    clean = [look for look in looks if look.on_the_wire == 0 and look.between == ()]
    checked = bool(looks) and clean == looks
    seen = f"(seen {len(clean)} times of {len(looks)})"
    if operation.statement is None:
        return f"nothing is committed between {operation.name}.before and {look_at} {seen}", checked
    return f"{operation.statement} has been answered, and nothing of it is on the wire {seen}", checked


def row(one: Played) -> tuple[str, ...]:
    """The columns of a played cell."""
    judged = one.judgement
    counts = ("-",) * 4
    if judged is not None:
        counts = (str(judged.lost), str(judged.unrecorded), str(judged.duplicates), str(judged.bound))
    seconds = tuple(
        "-" if not math.isfinite(s) else f"{s:.2f}"
        for s in (one.recovery, one.first_again, one.worst_delay, one.slowest_start)
    )
    rows = "-" if one.evidence is None or one.evidence.rows is None else str(one.evidence.rows)
    verdict = "held" if one.held else "BROKEN: " + "; ".join(one.broken[:2])
    return (one.cell.point, one.cell.operation.role, one.cell.fault.value, rows, *counts, *seconds, verdict)


def show(matrix: Matrix, console: Console) -> None:
    table = Table(*_COLUMNS, title=matrix.name.replace("_", " "), title_justify="left")
    for one in matrix.played:
        *others, verdict = row(one)
        table.add_row(*others, verdict if one.held else f"[bold red]{verdict}[/]")
    console.print(table)
    console.print(_summary(matrix), highlight=False)
    console.print(f"Not meant: {NOT_MEANING}", highlight=False)


def _summary(matrix: Matrix) -> str:
    judged = [one.judgement for one in matrix.played if one.judgement is not None]
    lost, unrecorded = sum(j.lost for j in judged), sum(j.unrecorded for j in judged)
    duplicates, bound = sum(j.duplicates for j in judged), sum(j.bound for j in judged)
    slowest = max((one.recovery for one in matrix.played if math.isfinite(one.recovery)), default=math.nan)
    left = matrix.not_counted
    return (
        f"{sum(one.held for one in matrix.played)} of {len(matrix.played)} cells held: lost {lost}, unrecorded calls "
        f"{unrecorded}, duplicates {duplicates} with {bound} calls in flight, slowest recovery {slowest:.2f} s. "
        f"{'' if matrix.whole else 'They are a part of the matrix only. '}"
        f"{len(left)} cells are not counted, {sum(not cell.checked for cell in left)} of them for reasons that this "
        f"run did not check."
    )


def write(matrix: Matrix, folder: Path) -> None:
    """Writes `<name>.json` and `<name>.md` into `folder`, which is made if missing."""
    folder.mkdir(parents=True, exist_ok=True)
    document = json.dumps(_document(matrix), indent=2, allow_nan=False, default=str)
    (folder / f"{matrix.name}.json").write_text(document + "\n")
    (folder / f"{matrix.name}.md").write_text(_markdown(matrix))


def _finite(seconds: float) -> float | None:
    return round(seconds, 3) if math.isfinite(seconds) else None


def _document(matrix: Matrix) -> dict[str, object]:
    return {
        "test": matrix.name,
        "environment": matrix.environment,
        "recovery_bound_s": RECOVERY_SECONDS,
        "recovery_bound_where_a_process_must_start_s": RESTART_SECONDS,
        "held": matrix.held,
        "cells": [
            {
                "point": one.cell.point,
                "process": one.cell.operation.role,
                "fault": one.cell.fault.value,
                "scenario": one.cell.operation.scenario,
                "rows": one.evidence.rows if one.evidence else None,
                "lost": one.judgement.lost if one.judgement else None,
                "unrecorded": one.judgement.unrecorded if one.judgement else None,
                "unseen": one.judgement.unseen if one.judgement else None,
                "duplicates": one.judgement.duplicates if one.judgement else None,
                "bound": one.judgement.bound if one.judgement else None,
                "recovery_s": _finite(one.recovery),
                "first_again_s": _finite(one.first_again),
                "settle_s": _finite(one.settle),
                "worst_delay_s": _finite(one.worst_delay),
                "slowest_start_s": _finite(one.slowest_start),
                "held": one.held,
                "broken": one.broken,
            }
            for one in matrix.played
        ],
        "not_counted": [
            {"point": c.point, "process": c.role, "fault": c.fault.value, "reason": c.reason, "checked": c.checked}
            for c in matrix.not_counted
        ],
        "not_meaning": NOT_MEANING,
    }


def _markdown(matrix: Matrix) -> str:
    lines = ["# Crash matrix", "", _summary(matrix), "", f"Not meant: {NOT_MEANING}", ""]
    machine = (f"{name}: {value}" for name, value in matrix.environment.items() if isinstance(value, str | int | float))
    lines += ["On " + ", ".join(machine) + ".", ""]
    lines += ["| " + " | ".join(_COLUMNS) + " |", "|---" * len(_COLUMNS) + "|"]
    lines += ["| " + " | ".join(row(one)) + " |" for one in matrix.played]
    if not matrix.not_counted:
        return "\n".join(lines) + "\n"
    lines += ["", "## Not counted", "", "| point | process | faults | reason | checked |", "|---|---|---|---|---|"]
    groups: dict[tuple[str, str, str, bool], list[str]] = {}
    for cell in matrix.not_counted:
        groups.setdefault((cell.point, cell.role, cell.reason, cell.checked), []).append(cell.fault.value)
    lines += [
        f"| {point} | {role} | {', '.join(faults) if len(faults) < len(Fault) else 'all'} | {reason} | "
        f"{'yes' if checked else 'no'} |"
        for (point, role, reason, checked), faults in groups.items()
    ]
    return "\n".join(lines) + "\n"
