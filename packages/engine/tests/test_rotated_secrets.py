"""Signing secrets: a rotated one takes effect within ten seconds, in the life of one lease."""

from collections.abc import Iterable
from uuid import UUID

import pytest

from engine_bench import EngineBench
from tocsin.common.errors import StoreUnavailableError
from tocsin.common.store.rows import Task
from tocsin.engine.planner import Planner

WITHIN = 10.2
OLD, NEW = "b2xk", "bmV3"


async def signed_with(bench: EngineBench, task: Task) -> tuple[str, ...]:
    """The secrets of a call that is begun now."""
    bench.put(task, bench.clock.now())
    await bench.first.read()
    (run,) = await bench.first.begin()
    await bench.first.end(run)
    return bench.calls.orders[-1].secrets


async def rounds(bench: EngineBench, seconds: float) -> None:
    for _ in range(round(seconds / 0.2)):
        await bench.advance(0.2)
        await bench.owner.reader.run_once()


async def check_rotation(bench: EngineBench) -> None:
    """The old one, then both while receivers are told of the new one, then the new one alone; of several tenants."""
    tasks = [await bench.a_task(schedule=bench.every(7200)) for _ in range(7)]
    await bench.first.own()
    for secrets in ((OLD,), (NEW, OLD), (NEW,)):
        for task in tasks:
            bench.database.secrets[task.tenant_id] = secrets
        await rounds(bench, WITHIN)
        assert [await signed_with(bench, task) for task in tasks] == [secrets] * len(tasks)


async def test_a_rotated_secret_takes_effect_within_ten_seconds(bench: EngineBench) -> None:
    await check_rotation(bench)


async def test_the_check_catches_secrets_that_are_read_once(
    bench: EngineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(_self: Planner, _tenants: Iterable[UUID]) -> None:
        """Broken: as they were first read."""

    monkeypatch.setattr(Planner, "refresh_secrets", never)
    with pytest.raises(AssertionError):
        await check_rotation(bench)


async def test_calls_go_on_with_the_secrets_known_while_the_database_is_away(bench: EngineBench) -> None:
    task = await bench.a_task(schedule=bench.every(7200))
    await bench.first.own()
    before = await signed_with(bench, task)
    bench.database.unavailable = True
    with pytest.raises(StoreUnavailableError):
        await bench.owner.reader._planner.refresh_secrets([task.tenant_id])
    bench.database.unavailable = False
    assert await signed_with(bench, task) == before


async def test_a_tenant_given_away_while_its_secrets_are_read_is_not_taken_up_again(
    bench: EngineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = await bench.a_task(schedule=bench.every(7200))
    await bench.first.own()
    await signed_with(bench, task)
    secrets = bench.store.tenants.secrets

    async def and_given_away(tenant_ids: list[UUID]) -> dict[UUID, tuple[str, ...]]:
        found = await secrets(tenant_ids)
        bench.owner.board.drop_tenant(task.tenant_id)
        return found

    monkeypatch.setattr(bench.store.tenants, "secrets", and_given_away)
    await bench.owner.reader._planner.refresh_secrets([task.tenant_id])
    assert task.tenant_id not in bench.owner.board.secrets
