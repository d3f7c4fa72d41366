"""One column through Ray: kill -9 of the executor actor's process, as `tocsin up` starts it, at each point of a run.

Ray restarts the actor. The ttl is the product's own, 10 s: on one node a death is proven by its pid.
"""

import asyncio
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from bench.runtimes import RayExecutors
from property_tests.crash_matrix.operations import OPERATIONS, Cell
from property_tests.crash_matrix.play import Played, settled, steady_load
from property_tests.crash_matrix.processes import ROOT
from property_tests.crash_matrix.scenarios import SCENARIOS, VICTIM
from property_tests.crash_matrix.stage import Cluster, staged
from property_tests.crash_matrix.strike import Fault, Strike
from tocsin.common.clock import Clock

ROLE = "actor"
_HOOK = Path(__file__).parent / "ray_hook"


def ray_cells() -> list[Cell]:
    """A kill at each point that a run comes to."""
    return [
        Cell(replace(operation, role=ROLE), f"{operation.name}.{when}", Fault.KILL)
        for operation in OPERATIONS
        if operation.name in ("begin", "call", "complete")
        for when in ("before", "after")
    ]


@contextmanager
def _hooked(port: int, point: str) -> Iterator[None]:
    """What is started meanwhile asks the harness at `point`."""
    before = dict(os.environ)
    paths = [str(_HOOK), str(ROOT), *filter(None, [before.get("PYTHONPATH")])]
    os.environ |= {"PYTHONPATH": os.pathsep.join(paths), "CRASH_MATRIX_PORT": str(port), "CRASH_MATRIX_ASKS": point}
    try:
        yield
    finally:
        os.environ.clear()
        os.environ |= before


async def play_ray(cluster: Cluster, cell: Cell, folder: Path, clock: Clock, seed: int) -> Played:
    """Plays a cell with one executor under a Ray head of its own."""
    rng = random.Random(f"{seed} {cell.name}")
    strike = Strike("", cell.point, cell.fault, None, rng.randint(1, cell.operation.reaches))
    played, executors = Played(cell), RayExecutors(folder)
    await asyncio.to_thread(folder.mkdir, parents=True)
    async with staged(cluster, folder, strike.decide, clock, rng) as stage:
        try:
            with _hooked(stage.control.port, cell.point):
                await executors.start(stage.dsn, 1)
            await stage.until_owned(1)
            pid: int = await stage.connection.fetchval("select pid from leases where expired_at is null")
            strike.victim = f"ray {pid}"
            stage.keeper.adopt(strike.victim, pid)
            await stage.seed_tenants({VICTIM: pid})
            act = await steady_load(stage, strike)
            await settled(act, SCENARIOS["steady"], played)
        except Exception as error:  # one cell must not end the others
            played.broken.append(f"{type(error).__name__}: {error}")
        finally:
            await executors.stop()
    return played
