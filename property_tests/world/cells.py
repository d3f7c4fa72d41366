"""The Supervisor's cells: processes of the world, which live and drain when the world has them do it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from property_tests.supervising import by_cell

if TYPE_CHECKING:
    from property_tests.world.world import World

GRACE = 5.0


class WorldCells:
    """In the shared cell the machine itself ends processes: of those there are never too many."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._surplus: list[str] = []

    async def running(self) -> dict[str, list[str]]:
        return by_cell(each for each in self._world.processes if not each.dead and each.draining is None)

    async def start(self, cell: str, generation: int) -> str:
        return self._world.add_process(cell=cell, generation=generation).name

    async def drain(self, names: Sequence[str]) -> None:
        self._surplus += names

    async def end_silent(self, names: Sequence[str], most: int) -> list[str]:
        return []  # whoever is frozen in the world wakes again

    def drain_surplus(self) -> None:
        """What the Supervisor has asked for."""
        names, self._surplus = self._surplus, []
        for process in self._world.processes:
            if process.name in names and process.cell != "shared":
                process.drain(GRACE)
