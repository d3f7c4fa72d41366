"""Give back: what no live lease holds returns, and what one's own lease holds unknown is put back."""

from engine_bench import EngineBench
from tocsin.common.store.rows import BeginItem, Begun, Outcome, Task
from tocsin.engine.give_back import NET_EVERY, GiveBack


def net_of(bench: EngineBench) -> GiveBack:
    owner = bench.owner
    return GiveBack(
        bench.store, bench.first.lease_id, owner.board, owner.reader, owner.beginner, bench.clock, bench.first.meter
    )


async def a_run(bench: EngineBench) -> tuple[Task, Begun]:
    task = await bench.a_task(schedule=bench.every(3600))
    bench.put(task, bench.clock.now())
    (run,) = await bench.go()
    return task, run


async def test_a_begin_that_commits_after_its_leases_end_is_given_back_by_the_next_pass(bench: EngineBench) -> None:
    """A condition, not an event: nobody has to notice the end."""
    second = bench.executor()
    task = await bench.a_task(schedule=bench.every(3600))
    row = bench.put(task, bench.clock.now())
    await second.owner._beat.register("shared", 0, second.process, "2026a")
    await bench.first.own()
    give_back = net_of(bench)
    assert (await give_back.run_once())["given_back"] == 0
    await second.runs.begin(second.lease_id, [BeginItem(row)])
    del bench.database.leases[second.lease_id]
    assert (await give_back.run_once())["given_back"] == 1
    (lost,) = bench.history(task)
    assert (lost.outcome, lost.state) == (Outcome.LOST, None)
    await bench.owner.reader.run_once()
    (again,) = await bench.first.begin()
    assert (again.run_id, again.fence, again.losses, again.attempt) == (row.run_id, 2, 1, 1)


async def test_what_a_live_lease_holds_is_left_alone(bench: EngineBench) -> None:
    task, run = await a_run(bench)
    assert await net_of(bench).run_once() == {"given_back": 0, "put_back": 0}
    assert bench.running(task) == [run]


async def seconds_until_put_back(bench: EngineBench, give_back: GiveBack, task: Task) -> float:
    seconds = 0.0
    while bench.running(task) and seconds < 60:
        await bench.advance(1)
        seconds += 1
        await give_back.run_once()
    return seconds


async def test_what_the_lease_holds_unknown_twice_running_is_put_back(bench: EngineBench) -> None:
    give_back = net_of(bench)
    task, run = await a_run(bench)
    bench.owner.board.land(run)  # as if its begin's answer had never been taken in
    assert await seconds_until_put_back(bench, give_back, task) == 2 * NET_EVERY
    row = next(row for row in bench.pending(task) if row.run_id == run.run_id)
    assert (row.fence, row.losses) == (1, 1)


async def test_what_is_known_is_never_put_back(bench: EngineBench) -> None:
    give_back = net_of(bench)
    task, _ = await a_run(bench)
    assert await seconds_until_put_back(bench, give_back, task) == 60


async def begun_between_two_looks(bench: EngineBench, give_back: GiveBack) -> int:
    """At each look some run is unknown for a moment, but never the same one twice. How many are put back."""
    put_back = 0
    for _ in range(4):
        _, run = await a_run(bench)
        bench.owner.board.land(run)
        await bench.advance(NET_EVERY)
        put_back += (await give_back.run_once())["put_back"]
        if put_back:
            break
        bench.owner.board.take_flight(run, None)
    return put_back


async def test_once_is_not_enough(bench: EngineBench) -> None:
    assert await begun_between_two_looks(bench, net_of(bench)) == 0


class Hasty(GiveBack):
    """Broken: what is unknown once is put back."""

    async def _net(self) -> int:
        self._unknown = {(row.run_id, row.fence) for row in await self._store.runs.held(self._lease_id)}
        return await super()._net()


async def test_the_check_catches_a_net_that_does_not_look_twice(bench: EngineBench) -> None:
    owner = bench.owner
    hasty = Hasty(
        bench.store, bench.first.lease_id, owner.board, owner.reader, owner.beginner, bench.clock, bench.first.meter
    )
    assert await begun_between_two_looks(bench, hasty) > 0
