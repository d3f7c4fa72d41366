"""History's partitions on PostgreSQL: bounds, what strays, what ages out, and locks that are not waited for.

B62: rows in the DEFAULT partition never block the partition of their day.
"""

import asyncio
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import asyncpg
import pytest

from store_bench import Bench, PostgresBench
from store_builders import a_lease, a_run, ended
from tocsin.common.errors import StoreUnavailableError
from tocsin.common.store.postgres import history
from tocsin.common.store.postgres.migrate import migrate
from tocsin.common.store.postgres.queries import query
from tocsin.common.store.rows import PARTITION_DAYS_AHEAD

DAY = timedelta(days=1)


def name(day: date) -> str:
    return f"history_{day:%Y%m%d}"


async def today(bench: Bench) -> date:
    return (await bench.now()).astimezone(UTC).date()


async def end_at(bench: Bench, *instants: datetime) -> list[Any]:
    """Runs whose results bear these instants."""
    lease = await a_lease(bench)
    runs = [await a_run(bench, lease) for _ in instants]
    rows = [await ended(bench, run, ended_at=at) for run, at in zip(runs, instants, strict=True)]
    assert len((await bench.store.runs.complete(lease, rows)).applied) == len(rows)
    return runs


async def partition_of(bench: PostgresBench, run: Any) -> str:
    found = await bench.admin.fetchval("select tableoid::regclass::text from history where run_id = $1", run.run_id)
    assert isinstance(found, str)
    return found


def midday(day: date) -> datetime:
    return datetime.combine(day, time(12), UTC)


async def check_days_ahead_are_made_once(bench: Bench) -> None:
    day = await today(bench) + DAY * (PARTITION_DAYS_AHEAD + 2)
    result = await bench.store.history.keep(None, PARTITION_DAYS_AHEAD + 2)
    assert result.made == (name(day - DAY), name(day))
    assert (result.moved, result.postponed) == (0, ())
    assert (await bench.store.history.keep(None, PARTITION_DAYS_AHEAD + 2)).made == ()


async def check_keeping_starts_yesterday(bench: Bench) -> None:
    result = await bench.store.history.keep(date(2035, 1, 10), 1)
    assert result.made == ("history_20350109", "history_20350110", "history_20350111")


async def check_stray_rows_leave_default(bench: Bench) -> None:
    """B62: the keeper was late. It moves the rows and attaches the partition."""
    far = [midday(date(2030, 5, 1)), midday(date(2030, 5, 1)), midday(date(2019, 5, 1))]
    assert await bench.store.history.default_rows() == 0
    runs = await end_at(bench, *far)
    assert await bench.store.history.default_rows() == 3
    before = [await bench.history(run.task_id) for run in runs]
    result = await bench.store.history.keep(None, PARTITION_DAYS_AHEAD)
    assert (result.made, result.moved) == (("history_20190501", "history_20300501"), 3)
    assert await bench.store.history.default_rows() == 0
    assert [await bench.history(run.task_id) for run in runs] == before


async def check_old_days_are_dropped_whole(bench: Bench) -> None:
    day = await today(bench)
    old, young = await end_at(bench, midday(day - DAY * 31), midday(day - DAY * 30))
    await bench.store.history.keep(None, PARTITION_DAYS_AHEAD)
    assert await bench.store.history.expire(30) == [name(day - DAY * 31)]
    assert await bench.history(old.task_id) == []
    assert len(await bench.history(young.task_id)) == 1
    assert await bench.store.history.expire(30) == []


@pytest.mark.parametrize(
    "check",
    [
        check_days_ahead_are_made_once,
        check_keeping_starts_yesterday,
        check_stray_rows_leave_default,
        check_old_days_are_dropped_whole,
    ],
)
async def test_history(bench: Bench, check: Any) -> None:
    await check(bench)


async def test_migrations_leave_partitions_for_the_next_days(empty_database_url: str) -> None:
    assert await migrate(empty_database_url)
    connection = await asyncpg.connect(empty_database_url)
    try:
        now = await connection.fetchval("select now()")
        first = now.astimezone(UTC).date() - DAY
        found = await connection.fetch(
            "select inhrelid::regclass::text as name from pg_inherits where inhparent = 'history'::regclass"
        )
    finally:
        await connection.close()
    expected = {name(first + DAY * n) for n in range(PARTITION_DAYS_AHEAD + 2)}
    assert {row["name"] for row in found} == expected | {"history_default"}
    assert await migrate(empty_database_url) == []


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Niue"])
async def test_bounds_are_utc_whatever_zone_the_connection_has(postgres_bench: PostgresBench, zone: str) -> None:
    bench = postgres_bench
    database = await bench.admin.fetchval("select current_database()")
    await bench.admin.execute(f"alter database {database} set timezone = '{zone}'")
    connection = await asyncpg.connect(bench.url)
    try:
        assert await connection.fetchval("show timezone") == zone
        day = date(2031, 7, 1)
        values = {
            "name": name(day),
            "first": history._midnight(day),
            "end": history._midnight(day + DAY),
        }
        for script in ("history_fill", "history_attach"):
            async with connection.transaction():
                await connection.execute(query(script).format(**values))
    finally:
        await connection.close()
    midnight = datetime.combine(day, time(), UTC)
    microsecond = timedelta(microseconds=1)
    runs = await end_at(bench, midnight - microsecond, midnight, midnight + DAY - microsecond, midnight + DAY)
    places = [await partition_of(bench, run) for run in runs]
    assert places == ["history_default", name(day), name(day), "history_default"]


async def test_a_partition_has_its_parents_indexes_and_checks(postgres_bench: PostgresBench) -> None:
    count = "select count(*) from pg_index where indrelid = $1::regclass"
    admin = postgres_bench.admin
    day = name(await today(postgres_bench))
    assert await admin.fetchval(count, day) == await admin.fetchval(count, "history") == 2
    valid = "select bool_and(indisvalid) from pg_index where indrelid = 'history'::regclass"
    assert await admin.fetchval(valid)
    with pytest.raises(asyncpg.CheckViolationError):
        await admin.execute(
            f"insert into {day} (run_id, tenant_id, task_id, ended_at, fence, losses, sent, kind, outcome)"
            " values (gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), now(), 1, 0, true, 'slot', 'skipped')"
        )


async def read_history(bench: PostgresBench) -> "asyncpg.Connection[asyncpg.Record]":
    """Somebody's transaction that has read history and stays open."""
    connection = await asyncpg.connect(bench.url)
    await connection.execute("begin; select count(*) from history")
    return connection


async def test_b62_a_long_transaction_makes_no_lock_queue(
    postgres_bench: PostgresBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = postgres_bench
    monkeypatch.setattr(history, "_KEEP_LOCK_SECONDS", 0.05)
    monkeypatch.setattr(history, "_EXPIRE_LOCK_SECONDS", 0.05)
    (old,) = await end_at(bench, midday(await today(bench) - DAY * 31))
    reader = await read_history(bench)
    result = await bench.store.history.keep(None, PARTITION_DAYS_AHEAD)
    assert (result.made, result.postponed) == ((), (name(await today(bench) - DAY * 31),))
    await reader.execute("rollback")
    await bench.store.history.keep(None, PARTITION_DAYS_AHEAD)
    await reader.execute("begin; select count(*) from history")
    assert await bench.store.history.expire(30) == []
    lease = await a_lease(bench)
    run = await a_run(bench, lease)
    assert (await bench.store.runs.complete(lease, [await ended(bench, run)])).applied
    assert len(await bench.history(old.task_id)) == 1
    await reader.close()
    assert len(await bench.store.history.expire(30)) == 1


async def test_b62_days_ahead_are_made_while_others_write(postgres_bench: PostgresBench) -> None:
    bench = postgres_bench
    writer = await asyncpg.connect(bench.url)
    await writer.execute("begin; lock table only history in row exclusive mode")
    result = await bench.store.history.keep(None, PARTITION_DAYS_AHEAD + 1)
    assert len(result.made) == 1
    await writer.close()


async def test_two_keepers_make_each_day_once(postgres_bench: PostgresBench) -> None:
    bench = postgres_bench
    keepers = (bench.store.history, bench.other.history)
    first, second = await asyncio.gather(*(keeper.keep(None, PARTITION_DAYS_AHEAD + 3) for keeper in keepers))
    assert len({*first.made, *second.made}) == len(first.made) + len(second.made) == 3


async def test_what_was_detached_and_not_dropped_is_dropped_next(postgres_bench: PostgresBench) -> None:
    bench = postgres_bench
    day = await today(bench) - DAY * 40
    await end_at(bench, midday(day))
    await bench.store.history.keep(None, PARTITION_DAYS_AHEAD)
    await bench.admin.execute(f"alter table history detach partition {name(day)}")
    assert await bench.store.history.expire(30) == [name(day)]
    assert await bench.admin.fetchval("select to_regclass($1)", name(day)) is None


async def test_b62_a_keeper_that_does_not_move_strays_is_caught(
    postgres_bench: PostgresBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken twin: what the move is for."""

    def without_move(script: str) -> str:
        text = query(script)
        return text.replace(text[text.index("with stray") :], "") if script == "history_fill" else text

    monkeypatch.setattr(history, "query", without_move)
    with pytest.raises((asyncpg.CheckViolationError, StoreUnavailableError, ValueError)):
        await check_stray_rows_leave_default(postgres_bench)
