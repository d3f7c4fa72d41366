"""The idempotent-create machine: one task for a tenant's key, whoever asks how often, and whatever crashes meanwhile.

Creates come one by one or several at once, by two tenants with few keys; any may crash just before its commit or just
after it, so that its client has no answer and asks again. Keys are forgotten once they are a day old.
"""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from property_tests.create_sites import Answer, Found, HttpSite, MemorySite, PostgresSite, Request, Site
from property_tests.machine import Machine
from property_tests.stepping import Steps
from property_tests.world.backends import Server

DAY = 86_400.0
"""How long a key is kept."""

Key = tuple[int, str]


@dataclass
class Holder:
    """What a tenant's key stands for. `age` in seconds."""

    name: str
    task_id: UUID
    age: float = 0.0


REQUESTS = st.builds(
    Request,
    tenant=st.integers(0, 1),
    key=st.sampled_from("ab"),
    body=st.integers(1, 2),
    crash=st.sampled_from([None, None, None, "before", "after"]),
)


class IdempotencyMachine(Machine):
    """On the store in memory, its statements in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = Steps()
        self.site = self.a_site()
        self.loop.run(self.site.open())
        self.holders: dict[Key, Holder] = {}
        self.known: dict[UUID, Found] = {}

    def a_site(self) -> Site:
        return MemorySite()

    def teardown(self) -> None:
        self.loop.run(self.site.close())
        self.loop.close()

    @rule(requests=st.lists(REQUESTS, min_size=1, max_size=4), order=st.integers(0, 99), forget=st.booleans())
    def create(self, requests: list[Request], order: int, forget: bool) -> None:
        """Creates at once, in an order by chance; `forget`: old keys are forgotten at the same time."""
        if len(requests) > 1 and not self.site.crashes_apart:
            requests = [Request(r.tenant, r.key, r.body) for r in requests]
        answers, found = self.loop.run(self._at_once(requests, order, forget))
        new = {task_id: task for task_id, task in found.items() if task_id not in self.known}
        for request, answer in zip(requests, answers, strict=True):
            self._check_tenant(request, answer, found)
        asked = {(request.tenant, request.key) for request in requests}
        assert {(task.tenant, task.name[0]) for task in new.values()} <= asked, "promise 12: made for who did not ask"
        for tenant, key in sorted(asked):
            mine = [
                pair for pair in zip(requests, answers, strict=True) if (pair[0].tenant, pair[0].key) == (tenant, key)
            ]
            made = {task_id: task.name for task_id, task in new.items() if (task.tenant, task.name[0]) == (tenant, key)}
            self._check_key((tenant, key), mine, made, forget)
        if forget:
            self._forgotten()
        self.known = found

    async def _at_once(
        self, requests: Sequence[Request], order: int, forget: bool
    ) -> tuple[list[Answer], dict[UUID, Found]]:
        if isinstance(self.site, MemorySite):
            self.site.database.rng = random.Random(order)
        work = [asyncio.create_task(self.site.create(request)) for request in requests]
        if forget:
            await self.site.forget(DAY)
        answers = await asyncio.gather(*work)
        return answers, await self.site.found()

    @rule(hours=st.sampled_from([7, 25]))
    def time_goes_by(self, hours: int) -> None:
        self.loop.run(self.site.pass_time(hours * 3_600))
        for holder in self.holders.values():
            holder.age += hours * 3_600

    @rule()
    def old_keys_are_forgotten(self) -> None:
        self.loop.run(self.site.forget(DAY))
        self._forgotten()

    def _forgotten(self) -> None:
        self.holders = {key: holder for key, holder in self.holders.items() if holder.age <= DAY}

    # --- what must hold

    def _check_tenant(self, request: Request, answer: Answer, found: dict[UUID, Found]) -> None:
        if answer.task_id is None:
            return
        task = found.get(answer.task_id)
        assert task is not None, f"promise 1: {request} is answered with a task that does not exist"
        assert task.tenant == request.tenant, f"promise 12: {request} is answered with another tenant's task"
        assert task.name == request.name, f"promise 1: {request} is answered with the task of another request"

    def _check_key(self, key: Key, mine: Sequence[tuple[Request, Answer]], made: dict[UUID, str], forget: bool) -> None:
        """What became of one key. `made`: the new tasks of it, by what made them."""
        old = self.holders.get(key)
        is_sure = old is not None and not (forget and old.age > DAY)
        assert len(made) <= (0 if is_sure else 1), f"promise 1: {key} has made more than one task"
        names = set(made.values()) | ({old.name} if old is not None else set())
        for request, answer in mine:
            if answer.lost:
                assert request.crash is not None, f"{request} got no answer"
                continue
            refused = answer.task_id is None
            alone = not names - {request.name}
            assert not (refused and alone), (
                f"promises 1 and 12: {request} is refused, and nothing of its tenant is there"
            )
            assert refused or request.name in names, f"promise 1: {request} is taken beside another of its key"
        for task_id, name in made.items():
            firsts = [answer for _, answer in mine if answer.task_id == task_id and not answer.replayed]
            creators = [request for request, answer in mine if answer.lost and request.name == name]
            assert len(firsts) == 1 or (not firsts and creators), (
                f"promise 1: {len(firsts)} were told that they made it"
            )
            self.holders[key] = Holder(name, task_id)

    @invariant()
    def promise_1_every_task_has_its_next_row(self) -> None:
        for task_id, task in self.known.items():
            assert task.next_rows == 1, f"promise 1: {task_id} has {task.next_rows} next rows"

    @invariant()
    def promise_12_a_key_is_its_tenants_alone(self) -> None:
        for (tenant, _), holder in self.holders.items():
            assert self.known[holder.task_id].tenant == tenant, "promise 12: a key stands for another tenant's task"


class PostgresIdempotencyMachine(IdempotencyMachine):
    """On a database: `url`, or, where that is empty, one of the running `Server`."""

    url: ClassVar[str] = ""

    def a_site(self) -> Site:
        return PostgresSite(self.address())

    def address(self) -> str:
        self.database = "" if self.url else Server.here().create()
        return self.url or Server.here().url(self.database)

    def teardown(self) -> None:
        super().teardown()
        if self.database:
            Server.here().drop(self.database)


class HttpIdempotencyMachine(PostgresIdempotencyMachine):
    """Through the API's socket."""

    def a_site(self) -> Site:
        return HttpSite(self.address())
