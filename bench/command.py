"""The command line: `list`, the name of a measurement, or what is done with reports."""

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter

from rich.console import Console

from bench.collector import SERIES
from bench.compare import RATIO
from bench.faults import FAULTS
from bench.frame import Measurement, Options, Screen
from bench.measurements import MEASUREMENTS, OWN_NETWORK
from bench.quotas import beside
from bench.reach import judged_distance
from bench.reading import READERS, read
from bench.repeated import repeated
from bench.report import Report, failed, not_run


def main(arguments: Sequence[str]) -> int:
    """Exit code: 0, 1 where a target was missed, 2 for a usage error."""
    parser = _parser()
    parsed = parser.parse_args(arguments)
    if parsed.repeat < 1 or (parsed.repeat > 1 and parsed.report is None):
        parser.error("--repeat takes a number from 1, and with more than one round --report DIR too")
    if parsed.folders and parsed.test not in READERS:
        parser.error(f"only {', '.join(READERS)} take folders; a measurement's reports go to --report DIR")
    if parsed.network != "direct" and (reason := OWN_NETWORK.get(parsed.test)) is not None:
        parser.error(f"{parsed.test} takes no --network: {reason}")
    console = Console(width=None if Console().is_terminal else 140)
    if parsed.test == "list":
        for measurement in MEASUREMENTS.values():
            console.print(f"{measurement.name:10} {measurement.summary}", highlight=False)
        return 0
    if parsed.test in READERS:
        return read(parsed.test, parsed.folders, parsed.ratio, list(MEASUREMENTS), console)
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

    def run(names: Sequence[str], folder: Path | None) -> list[Report]:
        return [_measure(MEASUREMENTS[name], replace(options, report=folder).named(name), console) for name in names]

    return 0 if repeated(names, parsed.repeat, parsed.report, run, console) else 1


def _measure(measurement: Measurement, options: Options, console: Console) -> Report:
    if (series := options.beside(SERIES)) is not None:
        series.unlink(missing_ok=True)
    began = perf_counter()
    try:
        report = _run(measurement, options)
    except Exception as error:  # of `all`, the others are still wanted
        Console(stderr=True).print_exception()
        report = failed(options.test, error)
    report = replace(report, figures={**report.figures, "bench_seconds": round(perf_counter() - began, 1)})
    if "quotas" in report.environment and options.quotas:
        report = beside(report)
    report.show(console)
    if options.report is not None:
        console.print(f"Written to {report.write(options.report)}", highlight=False)
    return report


def _run(measurement: Measurement, options: Options) -> Report:
    reason = OWN_NETWORK.get(measurement.name)
    if reason is not None and options.network != "direct":  # of `all`
        return not_run(options.test, f"it takes no --network: {reason}")
    return replace(judged_distance(asyncio.run(measurement.run(options, Screen()))), test=options.test)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m bench", description=__doc__)
    parser.add_argument("test", choices=["list", *MEASUREMENTS, "all", *READERS])
    parser.add_argument("folders", nargs="*", type=Path, metavar="DIR", help="of page, summary and compare")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="rounds, of which medians are reported")
    parser.add_argument("--ratio", type=float, default=RATIO, help="by how much compare lets a value become worse")
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
