"""The command line: `list`, or the name of a measurement."""

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from bench import begin, drill, heads, p0, p1, p2, p3, p3b, p4, p5, p6, p7, p7b, p8, p9, p9b, p10, transport
from bench.collector import SERIES
from bench.faults import FAULTS
from bench.frame import Measurement, Options, Screen
from bench.quotas import beside

MEASUREMENTS: dict[str, Measurement] = {
    module.MEASUREMENT.name: module.MEASUREMENT
    for module in (p0, p1, p2, p3, p3b, p4, p5, p6, p7, p7b, p8, p9, p9b, p10, begin, heads, drill, transport)
}


def main(arguments: Sequence[str]) -> int:
    """Exit code: 0, 1 where a target was missed, 2 for a usage error."""
    parsed = _parser().parse_args(arguments)
    console = Console(width=None if Console().is_terminal else 140)
    if parsed.test == "list":
        for measurement in MEASUREMENTS.values():
            console.print(f"{measurement.name:6} {measurement.summary}", highlight=False)
        return 0
    names = list(MEASUREMENTS) if parsed.test == "all" else [parsed.test]
    options = Options(
        short=parsed.short,
        seed=parsed.seed,
        scale=parsed.scale,
        ray=parsed.ray,
        executors=parsed.executors,
        steps=parsed.steps,
        step_seconds=parsed.step_seconds,
        network=parsed.network,
        quotas=parsed.quotas,
        profile=parsed.profile,
        hours=parsed.hours,
        report=parsed.report,
        work_dir=parsed.work_dir,
        faults=tuple(parsed.fault),
    )
    met = [_measure(MEASUREMENTS[name], options.named(name), console) for name in names]
    return 0 if all(met) else 1


def _measure(measurement: Measurement, options: Options, console: Console) -> bool:
    if (series := options.beside(SERIES)) is not None:
        series.unlink(missing_ok=True)
    try:
        report = replace(asyncio.run(measurement.run(options, Screen())), test=options.test)
    except Exception:  # of `all`, the others are still wanted
        Console(stderr=True).print_exception()
        return False
    if "quotas" in report.environment and options.quotas:
        report = beside(report)
    report.show(console)
    if options.report is not None:
        console.print(f"Written to {report.write(options.report)}", highlight=False)
    return report.met


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m bench", description=__doc__)
    parser.add_argument("test", choices=["list", *MEASUREMENTS, "all"])
    parser.add_argument("--short", action="store_true", help="the form for every change: seconds to a minute")
    parser.add_argument("--report", type=Path, metavar="DIR", help="write DIR/<test>.json")
    parser.add_argument("--seed", type=int, default=1, help="of the ids (default: 1)")
    parser.add_argument("--scale", type=_positive, default=1.0, help="multiplies amounts, and targets that are amounts")
    parser.add_argument("--executors", type=int, default=1, metavar="N", help="executor processes (default: 1)")
    parser.add_argument("--steps", type=_steps, default=(), metavar="N,N", help="runs per second that p2 tries")
    parser.add_argument("--step-seconds", type=int, metavar="S", help="length of each of p2's steps")
    parser.add_argument(
        "--network", choices=["direct", "az"], default="direct", help="az: the database is 1 ms a round trip away"
    )
    parser.add_argument("--quotas", action="store_true", help="processor limits per role, where the machine allows")
    parser.add_argument("--profile", action="store_true", help="flame graphs of the busiest 20 s, by py-spy")
    parser.add_argument("--hours", type=_positive, metavar="H", help="length of the long watch, p9")
    parser.add_argument("--work-dir", type=Path, metavar="DIR", help="where the database lies while measuring")
    parser.add_argument(
        "--fault", action="append", default=[], choices=sorted(FAULTS), help="of the drill; may be repeated"
    )
    parser.add_argument("--ray", action=argparse.BooleanOptionalAction, help="start executors through Ray")
    parser.add_argument("--plain", dest="ray", action="store_false", help="start them as plain processes")
    parser.set_defaults(ray=None)
    return parser


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value <= 100:
        raise argparse.ArgumentTypeError("must be above 0 and at most 100")
    return value


def _steps(text: str) -> tuple[int, ...]:
    steps = tuple(int(part) for part in text.split(","))
    if any(step < 1 for step in steps):
        raise argparse.ArgumentTypeError("must be numbers of runs a second, rising")
    return steps
