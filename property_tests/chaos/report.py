"""The verdict as people and programs read it: tables, `chaos.json`, `chaos.md` and the plot."""

import gc
import json
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
from property_tests.chaos.run import Run, planned_faults
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
    """Judges: about 20 s for a million calls."""
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
            exactly("faults that could not be struck, or after which Ray did not come back", 0, len(run.unstruck)),
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
            "faults_planned": len(planned_faults(result.options)[1]),
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
    return Target(name, f"<= {finding.bound:g}{unit}", finding.found, finding.held)


def _recovery_targets(result: Result) -> list[Target]:
    every = catalogue()
    targets = []
    for number, (struck, recovery) in enumerate(zip(result.faults, result.recoveries, strict=True), 1):
        fault = every[struck.name]
        if fault.recovery is not None:
            text = f"fault {number}, {fault.name}: on time again"
            targets.append(at_most(text, fault.recovery, recovery.after_began, "s"))
        if fault.worst is not None:
            targets.append(
                at_most(f"fault {number}, {fault.name}: worst start delay", fault.worst, recovery.worst, "s")
            )
    return targets


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
                "detail": struck.detail,
                "in_flight": 0 if extra is None else int(extra.bound),
                "called_again": 0 if extra is None else int(extra.found),
                "late": recovery.late,
                "worst_delay": round(recovery.worst, 2),
                "on_time_after": round(recovery.after_began, 2),
                "on_time_after_its_end": round(recovery.after_ended, 2),
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
    found = [f"promise {f.promise}: {f.what}: {e}" for f in result.verdict.findings if not f.held for e in f.examples]
    return [*found, *(f"not struck: {text}" for text in result.run.unstruck), *(f"left: {t}" for t in result.left)]


def write(result: Result, folder: Path) -> None:
    """`chaos.json`, `chaos.md` and `chaos.svg` in `folder`, which is made if missing."""
    folder.mkdir(parents=True, exist_ok=True)
    report = report_of(result)
    more = {
        "faults": fault_rows(result),
        "misses": misses(result),
        "not_judged": {str(number): why for number, why in NOT_JUDGED.items()},
    }
    document = {**json.loads(report.json()), **more}
    (folder / "chaos.json").write_text(json.dumps(document, indent=2, allow_nan=False) + "\n")
    (folder / "chaos.md").write_text(markdown(result, report))
    (folder / "chaos.svg").write_text(plot(result.seconds, result.faults, _title(result)))


def _title(result: Result) -> str:
    return f"Chaos: {result.options.rate} runs/s for {result.options.seconds} s, seed {result.options.seed}"


def markdown(result: Result, report: Report) -> str:
    """The same for a document."""
    lines = [
        f"# {_title(result)}",
        "",
        f"{'All held.' if report.met else 'NOT all held.'} {report.not_meaning}",
        "",
        "![start delay over time](chaos.svg)",
        "",
        *_md_table([_target_row(target) for target in report.targets]),
        *(f"- Promise {number} is not judged here: {why}." for number, why in NOT_JUDGED.items()),
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
