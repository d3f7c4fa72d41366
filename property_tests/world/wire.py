"""The way of one process to the database: it can be cut, refuse, lose an answer, or deliver late."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import UUID

from property_tests.world.struck import STRUCK
from tocsin.common.errors import OutcomeUnknownError, StoreUnavailableError
from tocsin.common.store.ports import Store, TaskTransaction
from tocsin.common.store.rows import Backend, BeginItem, BeginResult


class Fault(StrEnum):
    """What becomes of one statement."""

    REFUSED = "refused"
    """It does not take effect, and its sender knows."""
    LOST = "lost"
    """It does not take effect, and its sender cannot know."""
    UNANSWERED = "unanswered"
    """It takes effect, and its sender cannot know."""
    LATE = "late"
    """As above, and it takes effect only when its server process is being ended. Of a begin alone."""


Witness = Callable[[str, Sequence[Any], Any, bool], None]
"""Told of each statement that took effect, in that step: its name, its arguments, its result, and whether its sender
gets to know."""


def nobody(_statement: str, _arguments: Sequence[Any], _result: Any, _answered: bool) -> None:
    """Takes no note."""


class Late(NamedTuple):
    """A begin that is under way. `send`: over the connection on which it was sent."""

    lease_id: UUID
    items: Sequence[BeginItem]
    send: Callable[[], Awaitable[BeginResult]]


class Wire:
    """`down`: nothing passes. `cut_off`: the process is dead, and no statement of it takes effect any more.

    `refusing`: the statements that are refused until further notice.
    """

    def __init__(self, witness: Witness = nobody) -> None:
        self.witness = witness
        self.refusing: set[str] = set()
        self.down = False
        self.cut_off = False
        self.under_way = 0
        self.faults: dict[str, Fault] = {}
        self.late: Late | None = None
        self.hold_before: str | None = None
        self.held: asyncio.Future[None] | None = None

    async def pass_on(self, statement: str) -> None:
        """Where a write is to wait before this statement, it does, until `held` is resolved."""
        if statement == self.hold_before:
            self.hold_before = None
            self.held = asyncio.get_running_loop().create_future()
            await self.held

    def refuse(self) -> None:
        if self.cut_off or self.down:
            raise StoreUnavailableError("the database is away")

    def fault_of(self, statement: str) -> Fault | None:
        self.refuse()
        fault = self.faults.pop(statement, None)
        if fault is not None:
            STRUCK[statement, fault.value] += 1
        if fault is Fault.REFUSED or statement in self.refusing:
            raise StoreUnavailableError(f"{statement} was refused")
        if fault is Fault.LOST:
            raise OutcomeUnknownError(f"{statement} was lost")
        return fault

    async def carry(self, statement: str, run: Callable[[], Awaitable[Any]], *arguments: Any) -> Any:
        fault = self.fault_of(statement)
        self.under_way += 1
        try:
            result = await run()
        finally:
            self.under_way -= 1
        answered = fault is None and not (self.cut_off or self.down)
        self.witness(statement, arguments, result, answered)
        if not answered:
            raise OutcomeUnknownError(f"the answer to {statement} was lost")
        return result


class _Part:
    """One of the store's parts, each of its statements over the wire."""

    def __init__(self, part: object, wire: Wire) -> None:
        self._part = part
        self._wire = wire

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._part, name)

        async def over_the_wire(*args: Any, **named: Any) -> Any:
            return await self._wire.carry(name, lambda: method(*args, **named), *args)

        return over_the_wire


class _Leases(_Part):
    async def end_backend(self, backend: Backend, wait: float) -> bool:
        """What was under way takes effect at the last moment; then its server process is gone."""

        async def ended() -> bool:
            late, self._wire.late = self._wire.late, None
            if late is not None:
                self._wire.witness("begin", (late.lease_id,), await late.send(), False)
            gone: bool = await self._part.end_backend(backend, wait)  # type: ignore[attr-defined]
            return gone

        result: bool = await self._wire.carry("end_backend", ended, backend)
        return result


class _Runs(_Part):
    async def begin(
        self, lease_id: UUID, items: Sequence[BeginItem], note: Callable[[Backend], None] | None = None
    ) -> BeginResult:
        begin = self._part.begin  # type: ignore[attr-defined]
        if self._wire.faults.get("begin") is Fault.LATE and self._wire.late is None:
            self._wire.fault_of("begin")
            if note is not None:
                note(Backend(2**31 - 1, "tocsin"))
            self._wire.late = Late(lease_id, items, lambda: begin(lease_id, items, None))
            raise OutcomeUnknownError("begin is under way")
        result: BeginResult = await self._wire.carry("begin", lambda: begin(lease_id, items, note), lease_id)
        return result


class _Transaction:
    """The statements of one write, each of which may have to wait."""

    def __init__(self, transaction: TaskTransaction, wire: Wire) -> None:
        self._transaction = transaction
        self._wire = wire

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._transaction, name)

        async def over_the_wire(*args: Any, **named: Any) -> Any:
            await self._wire.pass_on(name)
            return await method(*args, **named)

        return over_the_wire


class _Tasks(_Part):
    @asynccontextmanager
    async def write(self) -> AsyncIterator[Any]:
        fault = self._wire.fault_of("write")
        self._wire.under_way += 1
        try:
            async with self._part.write() as transaction:  # type: ignore[attr-defined]
                yield _Transaction(transaction, self._wire)
                self._wire.refuse()
        finally:
            self._wire.under_way -= 1
        if fault is not None:
            raise OutcomeUnknownError("the answer to the commit was lost")


class WiredStore:
    """A `Store` whose every statement goes over a wire."""

    def __init__(self, store: Store, wire: Wire) -> None:
        self.wire = wire
        self._store = store
        self.leases: Any = _Leases(store.leases, wire)
        self.runs: Any = _Runs(store.runs, wire)
        self.tasks: Any = _Tasks(store.tasks, wire)
        self.tenants: Any = _Part(store.tenants, wire)
        self.history: Any = _Part(store.history, wire)
        self.next_rows: Any = _Part(store.next_rows, wire)

    @property
    def name(self) -> str:
        return self._store.name

    async def open(self) -> None:
        await self.wire.carry("open", self._store.open)

    async def close(self) -> None:
        await self._store.close()
