"""The command line."""

import argparse
import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from bench.frame import Screen
from bench.system import work_folder
from property_tests.chaos.faults import catalogue
from property_tests.chaos.ledger import read_calls
from property_tests.chaos.report import Result, report_of, result_of, show, write
from property_tests.chaos.run import planned_faults, run, without_time
from property_tests.chaos.stage import Options, keep_logs, staged


def main(arguments: Sequence[str]) -> int:
    """Exit code: 0, 1 where something was not held, 2 for a usage error."""
    parser = _parser()
    parsed = parser.parse_args(arguments)
    options = Options(
        seconds=round(60 * parsed.minutes),
        rate=parsed.rate,
        seed=parsed.seed,
        faults=tuple(parsed.fault),
        executors=parsed.executors,
        skewed=parsed.skewed,
        ttl=parsed.ttl,
        work_dir=parsed.work_dir,
    )
    if missing := without_time(options):
        parser.error(f"no time for {', '.join(missing)} in {parsed.minutes:g} minutes")
    console = Console(width=None if Console().is_terminal else 160)
    if parsed.plan:
        for planned in planned_faults(options)[1]:
            console.print(f"{planned.at:8.1f} s  {planned.name}, {planned.seconds:g} s", highlight=False)
        return 0
    result = asyncio.run(chaos(options, Screen(), parsed.report))
    show(result, console)
    if parsed.report is not None:
        write(result, parsed.report)
        console.print(f"Written to {parsed.report}", highlight=False)
    return 0 if report_of(result).met else 1


async def chaos(options: Options, screen: Screen, folder: Path | None = None) -> Result:
    """Runs, and judges when all has been stopped: that takes long, and neither the proxy nor a lease may wait for it.
    Where something was not held, the logs are kept in `folder`."""
    rng = random.Random(options.seed)
    async with work_folder(options.work_dir) as work:
        held = False
        try:
            async with staged(work, options, screen, rng) as stage:
                ran = await run(options, stage, screen, rng)
            screen.say("judging")
            ran.evidence.calls = list(read_calls(stage.endpoint.log))
            result = result_of(options, ran, stage.left)
            held = report_of(result).met
        finally:
            if folder is not None and not held:
                keep_logs(work, folder / "logs")
    return result


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m property_tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=_minutes, default=2.0, help="of load (default: 2)")
    parser.add_argument("--rate", type=_count, default=100, help="runs a second (default: 100)")
    parser.add_argument("--seed", type=int, default=1, help="of the schedule and of all that is drawn (default: 1)")
    parser.add_argument("--report", type=Path, metavar="DIR", help="write DIR/chaos.json, chaos.md and chaos.svg")
    parser.add_argument("--fault", action="append", default=[], choices=sorted(catalogue()), help="may be repeated")
    parser.add_argument("--executors", type=_count, default=2, metavar="N", help="through Ray (default: 2)")
    parser.add_argument("--skewed", type=_count, default=1, metavar="N", help="with a wrong clock (default: 1)")
    parser.add_argument("--ttl", type=float, default=10.0, metavar="SECONDS", help="of leases (default: 10)")
    parser.add_argument("--work-dir", type=Path, metavar="DIR", help="where the database lies meanwhile")
    parser.add_argument("--plan", action="store_true", help="print the schedule of faults, and do nothing")
    return parser


def _minutes(text: str) -> float:
    value = float(text)
    if not 1 <= value <= 24 * 60:
        raise argparse.ArgumentTypeError("must be from a minute to a day")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value
