"""Whether a statement that is about to be sent would do anything: asked of the database, which then forgets it.

Some statements are sent again and again, and mostly find nothing to do. A fault at such a one shows nothing.
"""

from collections.abc import Awaitable, Callable
from uuid import UUID

from bench.system import Connection, connected
from property_tests.crash_matrix.processes import Child
from property_tests.crash_matrix.stage import Stage
from tocsin.common.ids import SHARED_SHARDS
from tocsin.common.store.postgres.queries import query
from tocsin.common.store.rows import MAX_LOSSES

Work = Callable[[Stage, Child], Awaitable[int]]
"""On how many rows the statement of a process would take effect in this instant."""

_LIMIT = 1_000


async def judging(stage: Stage, child: Child) -> int:
    async with connected(stage.dsn) as connection:
        return await _would(connection, "lease_judge", await _lease_of(connection, child))


async def taking(stage: Stage, child: Child) -> int:
    async with connected(stage.dsn) as connection:
        return await _would(connection, "shard_take", await _lease_of(connection, child), child.cell, SHARED_SHARDS)


async def giving_back(stage: Stage, child: Child) -> int:
    async with connected(stage.dsn) as connection:
        owned = await connection.fetch(
            "select t.id from tenants t join shards s on s.shard = t.shard where s.owner = $1",
            await _lease_of(connection, child),
        )
        return await _would(connection, "give_back", [row["id"] for row in owned], _LIMIT, MAX_LOSSES)


async def cancelling(stage: Stage, _child: Child) -> int:
    """Of all tasks of the scenario: which of them are asked for is not known."""
    async with connected(stage.dsn) as connection:
        tasks = await connection.fetch("select id from tasks where name = 'overlap'")
        return await _would(connection, "cancel_of_tasks", [row["id"] for row in tasks])


async def moving(stage: Stage, child: Child) -> int:
    async with connected(stage.dsn) as connection:
        return await _moving(connection, await _lease_of(connection, child))


async def moving_unowned(stage: Stage, _child: Child) -> int:
    async with connected(stage.dsn) as connection:
        return await _moving(connection, None)


async def _moving(connection: Connection, owner: UUID | None) -> int:
    moving = await connection.fetch("select id from tenants where move_to is not null")
    return await _would(connection, "tenant_move", [row["id"] for row in moving], owner)


async def committing(_stage: Stage, child: Child) -> int:
    """What its open transactions have written."""
    return child.proxy.written


async def _lease_of(connection: Connection, child: Child) -> UUID | None:
    found: UUID | None = await connection.fetchval(
        "select id from leases where pid = $1 and expired_at is null", child.pid
    )
    return found


async def _would(connection: Connection, statement: str, *arguments: object) -> int:
    """How many rows a statement of the product returns, in a transaction that is rolled back."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        return len(await connection.fetch(query(statement), *arguments))
    finally:
        await transaction.rollback()
