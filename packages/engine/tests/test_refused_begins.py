"""Begins that the database refuses for one of their rows, and what fails on the way: no row is forgotten."""

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from engine_bench import EngineBench
from tocsin.common.errors import RowRefusedError, StoreUnavailableError
from tocsin.common.store.rows import Backend, BeginItem, BeginResult, Held
from tocsin.engine.begin import Beginner


async def due_rows(bench: EngineBench, count: int) -> set[UUID]:
    task = await bench.a_task(schedule=bench.every(3600))
    rows = {bench.put(task, bench.clock.now()).run_id for _ in range(count)}
    await bench.first.own()
    await bench.first.read()
    return rows


def begun(bench: EngineBench) -> set[UUID]:
    return {run.run_id for run in bench.calls.runs}


async def test_all_but_the_row_at_fault_are_begun(bench: EngineBench) -> None:
    rows = await due_rows(bench, 8)
    bad = sorted(rows)[5]
    begin = bench.runs.begin

    async def refuses(lease_id: UUID, items: Sequence[BeginItem], note: Any = None) -> BeginResult:
        if bad in {item.row.run_id for item in items}:
            raise RowRefusedError("the row cannot be stored")
        return await begin(lease_id, items, note)

    bench.runs.begin = refuses  # type: ignore[method-assign]
    await bench.first.begin()
    assert begun(bench) == rows - {bad}
    bench.runs.begin = begin  # type: ignore[method-assign]
    await bench.advance(60)
    await bench.first.begin()
    assert begun(bench) == rows


async def begun_after_a_half_failed(bench: EngineBench, error: BaseException) -> bool:
    """The begin is refused, and that of its first half fails. Whether all rows are begun, read but once."""
    rows = await due_rows(bench, 8)
    begin = bench.runs.begin
    errors = [RowRefusedError("the row cannot be stored"), error]

    async def fails(*args: Any, **how: Any) -> BeginResult:
        if errors:
            raise errors.pop(0)
        return await begin(*args, **how)

    bench.runs.begin = fails  # type: ignore[method-assign]
    with pytest.raises(type(error)):
        await bench.owner.beginner.run_once()
    bench.runs.pages.clear()
    await bench.first.begin()
    assert bench.runs.pages == []
    return begun(bench) == rows


@pytest.mark.parametrize("error", [StoreUnavailableError("away"), ValueError("a fault"), asyncio.CancelledError()])
async def test_a_half_that_fails_takes_the_other_with_it_to_the_queue(bench: EngineBench, error: BaseException) -> None:
    assert await begun_after_a_half_failed(bench, error)


async def test_the_check_catches_a_begin_that_forgets_the_other_half(
    bench: EngineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def halves(self: Beginner, items: Sequence[BeginItem], _error: RowRefusedError) -> int:
        rows = [item.row for item in items]
        middle = len(rows) // 2
        return await self._begin(rows[:middle]) + await self._begin(rows[middle:])

    monkeypatch.setattr(Beginner, "_begin_halves", halves)
    assert not await begun_after_a_half_failed(bench, StoreUnavailableError("away"))


async def begun_once_after_closing_failed(bench: EngineBench, lost: str) -> bool:
    """A begin's answer is lost, and closing it fails. Whether what it had not taken is begun, and nothing twice."""
    rows = await due_rows(bench, 4)
    held = bench.runs.held

    async def fails(lease_id: UUID) -> list[Held]:
        raise ValueError("a fault")

    bench.runs.lose_begin = lost
    bench.runs.held = fails  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="a fault"):
        await bench.owner.beginner.run_once()
    bench.runs.held = held  # type: ignore[method-assign]
    await bench.first.begin()
    assert all(row.run.fence == 1 for row in bench.database.running.values())
    return begun(bench) == (rows if lost == "before" else set())


@pytest.mark.parametrize("lost", ["before", "after"])
async def test_what_a_begin_took_up_outlives_a_closing_that_fails(bench: EngineBench, lost: str) -> None:
    assert await begun_once_after_closing_failed(bench, lost)


async def test_the_check_catches_a_closing_that_forgets(bench: EngineBench, monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolve(
        self: Beginner, _items: Sequence[BeginItem], backends: Sequence[Backend], _error: Exception
    ) -> None:
        await self._closed(backends)

    monkeypatch.setattr(Beginner, "_resolve", resolve)
    assert not await begun_once_after_closing_failed(bench, "before")
