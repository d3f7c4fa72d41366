"""The verdict as people and programs read it: tables, `chaos.json`, `chaos.md` and the plot."""

import gc
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.ledger import percentile
from bench.report import Report, Target, at_most, exactly
from property_tests.chaos.books import Finding
from property_tests.chaos.delays import Recovery, Second, first_calls, recoveries, timeline
from property_tests.chaos.faults import catalogue
from property_tests.chaos.judge import Verdict, judge
from property_tests.chaos.ledger import Struck
from property_tests.chaos.plot import plot
from property_tests.chaos.run import Run
from property_tests.chaos.stage import Options

NOT_JUDGED = {
    9: "priority: all of the load has one; the bench measures it",
    11: "hints: there is no hint index in this load; the hint machine lies to it",
    12: "other tenants' data: nobody here tries to read any; the API's tests do",
}
NOT_MEANING = (
    "a proof: each fault is struck at a few moments, and the machines of property_tests strike everywhere. Everything "
    "shares one machine, so a death is proven by its pid, and delays are also those of the faults' own tools."
)


@dataclass(frozen=True, slots=True)
class Result:
    """A run, judged."""

    options: Options
    run: Run
    verdict: Verdict
    seconds: Sequence[Second]
    recoveries: Sequence[Recovery]
    left: Sequence[str]

    @property
    def faults(self) -> Sequence[Struck]:
        return self.run.evidence.faults


def result_of(options: Options, run: Run, left: Sequence[str]) -> Result:
    """Judges, where the evidence is whole: about 20 s for a million calls."""
    gc.disable()  # millions of objects, and no cycles among them
    try:
        verdict = judge(run.evidence)
        first = first_calls(run.evidence)
        found = recoveries(verdict.books, first)
        return Result(options, run, verdict, timeline(run.evidence, first), found, left)
    finally:
        gc.enable()


def report_of(result: Result) -> Report:
    evidence, run = result.run.evidence, result.run
    lost = result.verdict.of_promise(1)[0]
    extra = sum(finding.found for finding in result.verdict.of_promise(3) if finding.fault is not None)
    calm = sorted(second.p99 for second in result.seconds if evidence.fault_at(second.at + 1) is None)
    return Report(
        test="chaos",
        environment=run.environment,
        targets=[
            *(_target(finding) for finding in result.verdict.findings),
            *_recovery_targets(result),
            exactly("faults struck as planned, seen to have worked", run.planned, sum(_worked(result))),
            exactly("parts of the chaos itself that failed", 0, len(run.missed)),
            exactly("processes and folders left behind", 0, len(result.left)),
        ],
        figures={
            "seconds": result.options.seconds,
            "runs_per_second": result.options.rate,
            "seed": result.options.seed,
            "slots": len(evidence.expected),
            "calls": len(evidence.calls),
            "history_rows": len(evidence.rows),
            "faults": len(result.faults),
            "faults_planned": run.planned,
            "leases": len(evidence.lives),
            "lost_attempts": len(result.verdict.books.lost),
            "stale_results": sum(row.stale for row in evidence.rows),
            "skips": sum(len(skips) for skips in result.verdict.books.skips.values()),
            "run_nows_promised": len(run.promised.runs),
            "tasks_promised": len(run.promised.slots),
            "api_answers": ", ".join(f"{status}: {n}" for status, n in sorted(run.promised.answers.items())),
            "calm_p99_ms": None if not calm else round(1000 * percentile(calm, 0.5), 1),
        },
        lost=int(lost.found),
        duplicates=int(extra),
        not_meaning=NOT_MEANING,
    )


def _target(finding: Finding) -> Target:
    unit = f" {finding.unit}" if finding.unit else ""
    number = "" if finding.fault is None else f"fault {finding.fault + 1}, "
    name = f"{finding.promise}: {number}{finding.what}"
    sign = ">=" if finding.least else "<="
    return Target(name, f"{sign} {finding.bound:g}{unit}", finding.found, finding.held)


def _worked(result: Result) -> list[bool]:
    return [fault.missed is None for fault in result.faults]


def _recovery_targets(result: Result) -> list[Target]:
    """Each fault has a bound. A slot that was never called is in none."""
    every = catalogue()
    targets = []
    for number, (struck, recovery) in enumerate(zip(result.faults, result.recoveries, strict=True), 1):
        fault = every[struck.name]
        text = f"fault {number}, {fault.name}:"
        if fault.recovery is None:
            targets.append(_within(f"{text} on time again after its end", fault.recover, recovery.after_ended))
        else:
            targets.append(_within(f"{text} on time again", fault.recovery, recovery.after_began))
        if fault.worst is not None:
            targets.append(_within(f"{text} worst start delay", fault.worst, recovery.worst))
    return targets


def _within(name: str, limit: float, seconds: float) -> Target:
    return at_most(name, limit, seconds if math.isfinite(seconds) else math.nan, "s")


def _said(seconds: float) -> float | str:
    return round(seconds, 2) if math.isfinite(seconds) else "never"


def fault_rows(result: Result) -> list[dict[str, Any]]:
    """What came of each fault."""
    of_fault = {f.fault: f for f in result.verdict.of_promise(3) if f.fault is not None}
    rows = []
    for number, (struck, recovery) in enumerate(zip(result.faults, result.recoveries, strict=True)):
        extra = of_fault.get(number)
        rows.append(
            {
                "number": number + 1,
                "name": struck.name,
                "at": round(struck.began - result.run.first, 1),
                "lasted": round(struck.ended - struck.began, 1),
                "detail": struck.detail if struck.missed is None else f"NOT STRUCK: {struck.missed}",
                "in_flight": 0 if extra is None else int(extra.bound),
                "called_again": 0 if extra is None else int(extra.found),
                "late": recovery.late,
                "worst_delay": _said(recovery.worst),
                "on_time_after": _said(recovery.after_began),
                "on_time_after_its_end": _said(recovery.after_ended),
            }
        )
    return rows


def show(result: Result, console: Console) -> None:
    report_of(result).show(console)
    table = Table(title="faults", title_justify="left")
    rows = fault_rows(result)
    for name in rows[0] if rows else ():
        table.add_column(name.replace("_", " "), justify="left" if name in ("name", "detail") else "right")
    for row in rows:
        table.add_row(*(f"{value:,}" if isinstance(value, int | float) else value for value in row.values()))
    console.print(table)
    for line in misses(result):
        console.print(line, highlight=False, markup=False)


def misses(result: Result) -> list[str]:
    """Examples of what was not held."""
    run = result.run
    return [
        *(f"promise {f.promise}: {f.what}: {e}" for f in result.verdict.findings if not f.held for e in f.examples),
        *(f"not struck: {fault.name}: {fault.missed}" for fault in result.faults if fault.missed is not None),
        *(f"not struck: {text}" for text in run.left_out),
        *(f"of the chaos itself: {text}" for text in run.missed),
        *(f"left: {text}" for text in result.left),
    ]


def write(result: Result, folder: Path) -> None:
    """`chaos.json`, `chaos.md` and `chaos.svg` in `folder`, which is made if missing."""
    folder.mkdir(parents=True, exist_ok=True)
    report = report_of(result)
    more = {
        "faults": fault_rows(result),
        "misses": misses(result),
        "not_judged": {str(number): why for number, why in not_judged(result).items()},
    }
    document = {**json.loads(report.json()), **more}
    (folder / "chaos.json").write_text(json.dumps(document, indent=2, allow_nan=False) + "\n")
    (folder / "chaos.md").write_text(markdown(result, report))
    (folder / "chaos.svg").write_text(plot(result.seconds, result.faults, _title(result)))


def not_judged(result: Result) -> dict[int, str]:
    """Promises that this run says nothing about, and why."""
    late = any(row.stale for row in result.run.evidence.rows)
    return NOT_JUDGED if late else {4: "fenced: no result came after its run had been given to another", **NOT_JUDGED}


def _title(result: Result) -> str:
    return f"Chaos: {result.options.rate} runs/s for {result.options.seconds} s, seed {result.options.seed}"


def markdown(result: Result, report: Report) -> str:
    """The same for a document."""
    lines = [
        f"# {_title(result)}",
        "",
        f"{'All held.' if report.met else 'NOT all held.'} Not meant: {report.not_meaning}",
        "",
        "![start delay over time](chaos.svg)",
        "",
        *_md_table([_target_row(target) for target in report.targets]),
        *(f"- Promise {number} is not judged here: {why}." for number, why in not_judged(result).items()),
        "",
        "## Faults",
        "",
        *_md_table(fault_rows(result)),
        "## Figures",
        "",
        *_md_table([{"figure": name.replace("_", " "), "value": value} for name, value in report.figures.items()]),
    ]
    if found := misses(result):
        lines += ["## Misses", "", *(f"- {line}" for line in found), ""]
    return "\n".join(lines)


def _target_row(target: Target) -> dict[str, Any]:
    held = "yes" if target.met else "**NO**"
    return {"promise or bound": target.name, "bound": target.target, "found": target.value, "held": held}


def _md_table(rows: Sequence[dict[str, Any]]) -> list[str]:
    if not rows:
        return ["none", ""]
    names = [name.replace("_", " ") for name in rows[0]]
    return [
        f"| {' | '.join(names)} |",
        f"|{'---|' * len(names)}",
        *(f"| {' | '.join(str(value) for value in row.values())} |" for row in rows),
        "",
    ]
