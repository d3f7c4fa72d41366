"""The Supervisor's cells as nodes of this process."""

import asyncio
import itertools
from collections.abc import Sequence

from node_bench import Node, NodeBench


class NodeCells:
    """`drained`: the nodes that were told to drain."""

    def __init__(self, bench: NodeBench) -> None:
        self._bench = bench
        self._numbers = itertools.count(1)
        self._nodes: dict[str, tuple[str, Node]] = {}
        self.drained: list[asyncio.Task[bool]] = []

    async def running(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name, (cell, _) in self._nodes.items():
            found.setdefault(cell, []).append(name)
        return found

    async def start(self, cell: str, generation: int) -> str:
        name = f"{cell} {next(self._numbers)}"
        self._nodes[name] = (cell, self._bench.start(name, cell=cell, ttl=1))
        return name

    async def drain(self, names: Sequence[str]) -> None:
        for name in names:
            _, node = self._nodes.pop(name)
            self.drained.append(asyncio.create_task(node.drain()))

    async def end_silent(self, names: Sequence[str], most: int) -> list[str]:
        return []  # these answer for as long as this process does
