"""Lets the test files here import what lies in `support`, and takes the real time out of pauses."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "support"))

from pool_bench import PoolBench


@pytest.fixture
async def bench() -> AsyncIterator[PoolBench]:
    made = PoolBench()
    yield made
    await made.pool.close()


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were asked for; each is a turn of the event loop instead."""
    asked: list[float] = []
    sleep = asyncio.sleep

    async def turn(seconds: float, result: None = None) -> None:
        if seconds:
            asked.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", turn)
    return asked
