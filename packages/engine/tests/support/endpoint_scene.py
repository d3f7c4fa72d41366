"""A tenant with a dead endpoint and a healthy one."""

from datetime import timedelta
from uuid import UUID

from engine_bench import EngineBench
from tocsin.common.models import CallSpec
from tocsin.common.store.rows import Begun, Pending, Task
from tocsin.common.store.tenants import Tenant
from tocsin.engine.tenant import FULL

CAP = 2
MILLISECOND = timedelta(milliseconds=1)


class Scene:
    """A tenant with an endpoint `slow.example`, at its cap from the first begin on, and one that answers at once.

    `backlog` rows of the slow one are an hour old, each a millisecond after the last.
    """

    def __init__(self, bench: EngineBench) -> None:
        self.bench = bench
        self.tenant: Tenant
        self.slow: Task
        self.other: Task
        self.rows: list[Pending] = []
        self.calling: list[Begun] = []
        self.begun: list[UUID] = []
        self.answers = False

    async def set(self, backlog: int, **slow: object) -> None:
        self.tenant = await self.bench.a_tenant(max_in_flight_per_endpoint=CAP)
        self.slow = await self.a_task("slow", **slow)
        self.other = await self.a_task("other")
        start = self.bench.clock.now() - timedelta(hours=1)
        self.rows = [self.bench.put(self.slow, start + n * MILLISECOND) for n in range(backlog)]
        await self.bench.first.own()

    async def a_task(self, name: str, **plan: object) -> Task:
        call = CallSpec(url=f"https://{name}.example/hook")
        return await self.bench.a_task(self.tenant, call=call, **{"schedule": self.bench.every(7200), **plan})

    async def round(self, seconds: float = 0.2) -> None:
        """The reader and the begins, once; calls of the slow endpoint end only once it `answers`."""
        await self.bench.advance(seconds)
        await self.bench.owner.reader.run_once()
        self.check_memory()
        for run in await self.bench.first.begin():
            self.begun.append(run.run_id)
            self.calling.append(run)
        going, self.calling = self.calling, []
        for run in going:
            if run.task_id == self.slow.id and not self.answers:
                self.calling.append(run)
            else:
                await self.bench.first.end(run)
        assert sum(run.task_id == self.slow.id for run in self.bench.owner.board.in_flight.values()) <= CAP

    def check_memory(self) -> None:
        assert self.bench.owner.board.known_of(self.tenant.id, int(self.slow.plan.priority)) <= 2 * FULL

    async def seconds_until_begun(self, row: Pending, at_most: float) -> float:
        for turn in range(round(at_most / 0.2)):
            if row.run_id in self.begun:
                return turn * 0.2
            await self.round()
        return at_most
