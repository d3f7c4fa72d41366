"""The commands that measure nothing and read reports: `page`, `summary` and `compare`."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from bench.compare import compare
from bench.page.build import write_page
from bench.summary import summary

READERS = {
    "page": "DIR: write DIR/index.html of the reports in DIR",
    "summary": "DIR: print the reports in DIR as Markdown",
    "compare": "A B: what became worse from the reports in A to those in B",
}


def read(command: str, folders: Sequence[Path], ratio: float, expected: Sequence[str], console: Console) -> int:
    """Exit code: 0, 1 where `compare` found a regression, 2 for a usage error. Tests that are `expected` and have no
    report are shown as not run."""
    wanted = 2 if command == "compare" else 1
    if len(folders) != wanted:
        console.print(f"{command} takes {wanted} folder{'s' * (wanted - 1)}", highlight=False)
        return 2
    try:
        if command == "compare":
            return compare(folders[0], folders[1], console, ratio)
        if command == "page":
            console.print(f"Page: {write_page(folders[0], expected)}", highlight=False)
        else:
            print(summary(folders[0], expected), end="")
    except FileNotFoundError as error:
        console.print(str(error), highlight=False)
        return 2
    return 0
