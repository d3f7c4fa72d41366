"""One process of the product, which tells the harness of every crash point that it reaches.

At the points named in its arguments it asks, and stands still until it is told to go on, or to raise; or until it is
killed. All else is the product as the command line starts it; the Supervisor, which the product runs in a Ray actor
only, is composed here as that actor composes it, with cells that the harness keeps.

Arguments: role, the harness's port, the process's name, and the points to ask at, with commas.
"""

import asyncio
import json
import logging
import os
import random
import socket
import sys
from collections.abc import Sequence
from typing import Any

from tocsin.common import crashpoints
from tocsin.common.clock import SystemClock
from tocsin.common.errors import StoreUnavailableError
from tocsin.common.ids import Ids
from tocsin.common.service import Service
from tocsin.common.settings import Settings
from tocsin.common.store.postgres.store import PostgresStore
from tocsin.common.tasks import Tasks
from tocsin.common.telemetry.meter import MemoryMeter
from tocsin.common.time.zones import zone_data_version

HOST = "127.0.0.1"
SUPERVISOR_EVERY = 1.0
_REOPEN_SECONDS = 0.5


class RaisedHereError(Exception):
    """The fault "exception": nothing in the product knows of it."""


class Handler:
    """What happens at a crash point. The harness is told the name of the task that came to it."""

    def __init__(self, port: int, name: str, asking: frozenset[str]) -> None:
        self._asking = asking
        self._socket = socket.create_connection((HOST, port))
        self._socket.sendall(json.dumps({"name": name, "pid": os.getpid()}).encode() + b"\n")
        self._answers = self._socket.makefile("rb")

    def __call__(self, point: str) -> None:
        task = asyncio.current_task()
        asks = point in self._asking
        line = f"{point} {'ask' if asks else 'say'} {task.get_name() if task is not None else '-'}\n"
        self._socket.sendall(line.encode())
        if not asks:
            return
        answer = self._answers.readline()  # the whole process stands still
        if answer == b"raise\n":
            raise RaisedHereError(point)
        if answer != b"go\n":
            os._exit(3)  # the harness is gone

    def close(self) -> None:
        self._answers.close()
        self._socket.close()


class HarnessCells:
    """The Supervisor's `Cells`: the harness keeps the processes, as Ray keeps actors."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def running(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = await self._ask("running")
        return found

    async def start(self, cell: str, generation: int) -> str:
        name: str = await self._ask("start", cell)
        return name

    async def drain(self, names: Sequence[str]) -> None:
        await self._ask("drain", *names)

    async def end_silent(self, names: Sequence[str], most: int) -> list[str]:
        return []  # what is silent here, the harness has struck, and ends

    async def _ask(self, *words: str) -> Any:
        reader, writer = await asyncio.open_connection(HOST, self._port)
        try:
            writer.write(json.dumps({"cells": words}).encode() + b"\n")
            return json.loads(await reader.readline())
        finally:
            writer.close()


def supervise(port: int) -> None:
    """The Supervisor's process; ends by a signal only."""
    from tocsin.cli.logs import configure_logging

    configure_logging()
    asyncio.run(_supervise(HarnessCells(port)))


async def _supervise(cells: HarnessCells) -> None:
    from tocsin.engine.supervisor import Supervisor
    from tocsin.engine.zone_data import ZoneDataConfig, ZoneDataUpgrade

    store = PostgresStore(Settings().database_url.get_secret_value(), name="tocsin supervisor", size=2)
    clock = SystemClock()
    tasks = Tasks(store.tasks, Ids(clock, random.SystemRandom()), lambda _tenant, _priority: None)
    upgrade = ZoneDataUpgrade(store.next_rows, tasks, ZoneDataConfig(zone_data_version()))
    supervisor = Supervisor(store, cells, clock, MemoryMeter(), upgrade)
    while True:
        try:
            await store.open()
            if await cells.running():
                supervisor.generation = await store.tenants.generation()
            else:
                await supervisor.begin_generation()
            break
        except StoreUnavailableError as error:
            logging.getLogger("tocsin.supervisor").warning("the database cannot be reached (%s)", error)
            await store.close()
            await asyncio.sleep(_REOPEN_SECONDS)
    await Service("supervisor", supervisor.run_once, SUPERVISOR_EVERY).run()


def main(arguments: Sequence[str]) -> None:
    from tocsin.cli.commands.serve import api, engine

    role, port, name, points = arguments
    crashpoints.set_handler(Handler(int(port), name, frozenset(points.split(","))))
    if role == "executor":
        engine()
    elif role == "api":
        api()
    else:
        supervise(int(port))


if __name__ == "__main__":
    main(sys.argv[1:])
