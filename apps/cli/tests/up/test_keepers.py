"""What `up` keeps running: where one keeper fails, none of the others starts anything again."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from tocsin.cli.up import machine
from tocsin.cli.up.machine import Machine
from tocsin.cli.up.options import UpOptions
from tocsin.common.clock import SystemClock


async def keepers_left(folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many go on once that of PostgreSQL has failed."""

    async def fails(_: Machine) -> None:
        raise RuntimeError("a fault")

    async def keeps(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Machine, "_keep_postgres", fails)
    monkeypatch.setattr(Machine, "_keep_child", keeps)
    made = Machine(UpOptions(folder / "data", 1, 2, 1, demo=True), SystemClock(), "")
    with pytest.raises(RuntimeError, match="a fault"):
        await made._keep_all()
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    await made.stop()
    return len(left)


async def test_a_failed_keeper_leaves_none_that_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await keepers_left(tmp_path, monkeypatch) == 0


async def test_keepers_that_are_merely_gathered_are_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def gathered(*works: Coroutine[Any, Any, object]) -> None:
        await asyncio.gather(*works)

    monkeypatch.setattr(machine, "together", gathered)
    assert await keepers_left(tmp_path, monkeypatch) == 3
