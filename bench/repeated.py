"""Measurements run once or several times, and what is then written of them."""

from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from bench.folder import read_test
from bench.medians import median_report
from bench.page.build import write_page
from bench.report import Report

ONCE = ("p9",)
"""Run a single time, whatever is asked: half an hour or more each, in which its own windows are the repetition."""

Round = Callable[[Sequence[str], Path | None], Sequence[Report]]
"""Runs the measurements of these names, each of which writes its report into the folder where one is given."""


def repeated(names: Sequence[str], times: int, folder: Path | None, run: Round, console: Console) -> bool:
    """Runs every measurement `times` times, round after round, so that a slow spell of the machine does not fall on one
    of them alone; says whether all targets were met, of several rounds by their medians.

    Of one round the reports lie in `folder`; of several, those of round n lie in `folder/n` and the medians in
    `folder`. A page is written beside them. Raises ValueError for several rounds without a folder.
    """
    if times == 1:
        reports = run(names, folder)
    elif folder is None:
        raise ValueError("several rounds need a folder for their reports")
    else:
        written: dict[str, list[Path]] = {}
        for number in range(1, times + 1):
            for report in run([name for name in names if number == 1 or name not in ONCE], folder / str(number)):
                written.setdefault(report.test, []).append(folder / str(number))
        reports = [median_report([read_test(path, test) for path in paths]) for test, paths in written.items()]
        for report in reports:
            report.write(folder)
            (folder / f"{report.test}.series.json").unlink(missing_ok=True)  # of an earlier single round: not its series
            report.show(console)
    if folder is not None:
        console.print(f"Page: {write_page(folder, names if len(names) > 1 else ())}", highlight=False)
    return all(report.met for report in reports)
