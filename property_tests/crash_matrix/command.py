"""The command line of the crash matrix."""

import argparse
import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from bench.environment import environment
from bench.system import connected, server, work_folder
from property_tests.crash_matrix.operations import Cell, chosen
from property_tests.crash_matrix.play import play
from property_tests.crash_matrix.processes import TTL_SECONDS
from property_tests.crash_matrix.ray_column import ROLE, play_ray, ray_cells
from property_tests.crash_matrix.report import Matrix, row, show, write
from property_tests.crash_matrix.stage import Cluster
from tocsin.common.clock import SystemClock


def main(arguments: Sequence[str]) -> int:
    """Exit code: 0, 1 where a cell was broken, 2 for a usage error."""
    parsed = _parser().parse_args(arguments)
    wanted = chosen(parsed.only, ray_cells() if parsed.ray else None, short=parsed.short)
    if not wanted:
        _parser().error(f"no cell is called {parsed.only}")
    console = Console(width=None if Console().is_terminal else 200)
    matrix = asyncio.run(run(wanted, parsed.seed, Console(stderr=True), parsed.report))
    show(matrix, console)
    if parsed.report is not None:
        console.print(f"Written to {parsed.report}", highlight=False)
    return 0 if matrix.held else 1


async def run(wanted: Sequence[Cell], seed: int, console: Console, report: Path | None = None) -> Matrix:
    """Plays cells one after the other on one PostgreSQL. After each one, what was found so far is written to the folder
    `report`, where the processes' logs of a broken cell are kept too."""
    clock = SystemClock()
    async with work_folder(None) as folder, server(folder) as postgres:
        cluster = Cluster(postgres.dsn)
        await cluster.make_template()
        async with connected(postgres.dsn) as connection:
            where = await environment(connection, folder, runtime=_runtime(wanted))
        through_ray = any(cell.operation.role == ROLE for cell in wanted)
        every = chosen(None, ray_cells() if through_ray else None, short=False)
        matrix = Matrix([], where, whole=len(wanted) == len(every), through_ray=through_ray)
        for number, cell in enumerate(wanted, 1):
            logs = folder / "logs" / str(number)
            one = await (play_ray if through_ray else play)(cluster, cell, logs, clock, seed)
            matrix.played.append(one)
            console.print(f"{number}/{len(wanted)} {'  '.join(row(one))}", highlight=False)
            if report is not None:
                await asyncio.to_thread(_keep, matrix, logs, report)
    return matrix


def _runtime(wanted: Sequence[Cell]) -> str:
    through_ray = any(cell.operation.role == ROLE for cell in wanted)
    return "Ray, as tocsin up starts it, ttl 10 s" if through_ray else f"plain processes, ttl {TTL_SECONDS:g} s"


def _keep(matrix: Matrix, logs: Path, report: Path) -> None:
    write(matrix, report)
    one = matrix.played[-1]
    if not one.held:
        shutil.copytree(logs, report / "logs" / one.cell.name.replace(" / ", "-").replace(" ", "_"), dirs_exist_ok=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m property_tests.crash_matrix", description=__doc__)
    parser.add_argument("--short", action="store_true", help="a telling sample of the cells: about a minute")
    parser.add_argument("--ray", action="store_true", help="kills of the executor actor's process, under Ray, instead")
    parser.add_argument("--only", metavar="POINT", help="the cells of a point (or an operation, or a scenario)")
    parser.add_argument("--seed", type=int, default=1, help="of the instants of the faults (default: 1)")
    parser.add_argument("--report", type=Path, metavar="DIR", help="write DIR/crash_matrix.json and .md")
    return parser
