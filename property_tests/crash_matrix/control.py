"""The harness's side of the crash points: it hears of every one that a process reaches, and decides at some."""

import asyncio
import json
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

Decide = Callable[[str, str], Awaitable[str]]
"""(name of the process, point) -> "go" or "raise"."""

CellsOf = Callable[[list[str]], Awaitable[Any]]

_KEPT = 2_000


@dataclass(slots=True)
class Trace:
    """What a process has reached: counts by point, and the latest points, each with the task that came to it."""

    counts: Counter[str] = field(default_factory=Counter)
    latest: deque[tuple[str, str]] = field(default_factory=lambda: deque(maxlen=_KEPT))

    def since(self, point: str) -> list[str] | None:
        """The points that the task which came last has come to since it came to `point`; None: it never did."""
        if not self.latest:
            return None
        task = self.latest[-1][1]
        found: list[str] = []
        for reached, by in list(self.latest)[-2::-1]:
            if by != task:
                continue
            if reached == point:
                return found
            found.append(reached)
        return None


class Control:
    """Listens to the processes. `decide` is asked where one stands still; `cells` where the Supervisor asks;
    `greeted` is told the name of each process that has connected."""

    def __init__(self, decide: Decide) -> None:
        self._decide = decide
        self.cells: CellsOf | None = None
        self.greeted: Callable[[str], None] = lambda name: None
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.traces: defaultdict[str, Trace] = defaultdict(Trace)
        self.port = 0

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            first = json.loads(await reader.readline() or b"{}")
            if "cells" in first and self.cells is not None:
                writer.write(json.dumps(await self.cells(first["cells"])).encode() + b"\n")
            elif "name" in first:
                await self._listen(first["name"], reader, writer)
        except ConnectionError:
            return  # it was killed
        finally:
            writer.close()

    async def _listen(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.greeted(name)
        trace = self.traces[name]
        trace.latest.clear()  # the names of tasks begin anew with each life
        while line := (await reader.readline()).decode():
            point, how, task = line.rstrip("\n").split(" ", 2)
            trace.counts[point] += 1
            trace.latest.append((point, task))
            if how == "ask":
                writer.write((await self._decide(name, point)).encode() + b"\n")
