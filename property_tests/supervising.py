"""The Supervisor as the machines play it: rebuilt from the database, over cells whose processes a machine steps."""

from collections.abc import Iterable
from typing import Protocol

from tocsin.common.clock import Clock
from tocsin.common.ids import Ids
from tocsin.common.store.ports import Store
from tocsin.common.tasks import Tasks
from tocsin.common.telemetry.meter import MemoryMeter
from tocsin.engine.supervisor import Cells, Supervisor
from tocsin.engine.zone_data import ZoneDataConfig, ZoneDataUpgrade

ZONE_DATA = "2026a"


class InCell(Protocol):
    @property
    def cell(self) -> str: ...

    @property
    def name(self) -> str: ...


def a_supervisor(store: Store, cells: Cells, ids: Ids, clock: Clock) -> Supervisor:
    """Nothing of the last one is left but what the database holds."""
    tasks = Tasks(store.tasks, ids, lambda _tenant, _priority: None)
    zone_data = ZoneDataUpgrade(store.next_rows, tasks, ZoneDataConfig(ZONE_DATA))
    return Supervisor(store, cells, clock, MemoryMeter(), zone_data)


def by_cell(processes: Iterable[InCell]) -> dict[str, list[str]]:
    """Their names, by cell."""
    found: dict[str, list[str]] = {}
    for process in processes:
        found.setdefault(process.cell, []).append(process.name)
    return found
