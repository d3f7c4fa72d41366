"""A begin whose answer was lost in an outage: how soon after the outage it is closed, for nothing is begun before."""

import asyncio

import pytest

from engine_bench import EngineBench, a_due_task
from tocsin.engine import begin as module


async def longest_pause(bench: EngineBench, patch: pytest.MonkeyPatch) -> float:
    """Between two tries, in an outage of many."""
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def no_wait(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    task = await a_due_task(bench)
    bench.runs.lose_begin = "after"
    bench.runs.away["held"] = 12
    with patch.context() as context:
        context.setattr(asyncio, "sleep", no_wait)
        await bench.first.begin()
    assert bench.runs.away["held"] == 0
    assert len(bench.running(task)) == 1
    return max(pauses)


async def test_a_lost_begin_is_closed_within_half_a_second_of_the_databases_return(
    bench: EngineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await longest_pause(bench, monkeypatch) == 0.5


async def test_one_that_waits_longer_and_longer_is_caught(bench: EngineBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LONGEST_PAUSE", 60.0)
    assert await longest_pause(bench, monkeypatch) > 0.5
