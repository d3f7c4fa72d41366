"""Pages show each row once and leave none out."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from api_client import Client, Connection
from tocsin.api.cursors import decode_cursor, encode_cursor
from tocsin.common.errors import FieldError

RUNS = 201
Pager = Callable[[str | None], Awaitable[tuple[list[str], str | None]]]


async def read_all(page: Pager, between: Callable[[], Awaitable[None]] | None = None) -> list[str]:
    """Every id of every page; `between` runs after the third page."""
    ids: list[str] = []
    cursor, pages = None, 0
    while True:
        found, cursor = await page(cursor)
        ids += found
        pages += 1
        if pages == 3 and between is not None:
            await between()
        if cursor is None:
            return ids


def pager(client: Client, path: str, what: str, limit: int = 10) -> Pager:
    async def page(cursor: str | None) -> tuple[list[str], str | None]:
        query = f"?limit={limit}" + (f"&cursor={cursor}" if cursor else "")
        document: Any = (await client.call("GET", path + query)).document
        return [row["id"] for row in document[what]], document["next_cursor"]

    return page


def assert_each_once(ids: list[str], expected: set[str]) -> None:
    assert len(ids) == len(set(ids)), "a row was shown twice"
    assert expected <= set(ids), "a row was left out"


async def add_history(sql: Connection, client: Client, task_id: str, first: int, count: int) -> None:
    """Runs that ended, all with one and the same instant in every time column."""
    await sql.execute(
        """insert into history (run_id, tenant_id, task_id, ended_at, due_at, slot, fence, losses, sent, kind, state,
        outcome)
        select ('01980000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, $1, $2, $3, $3, $3, 1, 0, true, 'slot',
               'succeeded', 'success'
          from generate_series($4::int, $5::int) n""",
        client.tenant_id,
        UUID(task_id),
        datetime(2026, 1, 1, tzinfo=UTC),
        first,
        first + count - 1,
    )


async def test_b71_runs_of_one_instant_are_each_shown_once(client: Client, sql: Connection) -> None:
    task_id = await client.made()
    await add_history(sql, client, task_id, 1, RUNS)
    expected = {str(row["run_id"]) for row in await sql.fetch("select run_id from history")}
    ids = await read_all(pager(client, f"/v1/tasks/{task_id}/runs", "runs"))
    assert_each_once(ids, expected)
    assert len(ids) == RUNS + 1  # and the next row


async def test_b71_runs_that_come_go_and_move_while_paging(client: Client, sql: Connection) -> None:
    task_id = await client.made()
    await add_history(sql, client, task_id, 100, RUNS)
    rows = await sql.fetch("select run_id from history order by run_id desc")
    newest, oldest, *stay = rows[0]["run_id"], rows[-1]["run_id"], *(row["run_id"] for row in rows[1:])

    async def disturb() -> None:
        await client.call("POST", f"/v1/tasks/{task_id}/run-now")
        await add_history(sql, client, task_id, 1, 20)  # planted earlier, committed late
        await sql.execute("delete from history where run_id = $1", newest)
        await sql.execute(
            """with gone as (delete from history where run_id = $1 returning *)
            insert into pending (run_id, tenant_id, task_id, due_at, slot, fence, plan_version, priority, lane, kind)
            select run_id, tenant_id, task_id, due_at, slot, fence, 1, 2, 0, kind from gone""",
            oldest,
        )

    ids = await read_all(pager(client, f"/v1/tasks/{task_id}/runs", "runs"), disturb)
    assert_each_once(ids, {str(run_id) for run_id in stay})


async def test_a_run_with_many_attempts_is_one_row(client: Client, sql: Connection) -> None:
    task_id = await client.made()
    await add_history(sql, client, task_id, 1, 21)
    await sql.execute(
        """insert into history (run_id, tenant_id, task_id, ended_at, due_at, fence, losses, sent, kind, outcome)
        select run_id, tenant_id, task_id, ended_at, due_at, -n, 0, true, kind, 'timeout'
          from history, generate_series(1, 12) n"""
    )
    ids = await read_all(pager(client, f"/v1/tasks/{task_id}/runs", "runs", 5))
    assert len(ids) == len(set(ids)) == 22


async def test_tasks_are_each_shown_once(client: Client, sql: Connection) -> None:
    made = {await client.made() for _ in range(23)}

    async def disturb() -> None:
        await client.made()
        await client.call("DELETE", f"/v1/tasks/{max(made)}")

    ids = await read_all(pager(client, "/v1/tasks", "tasks", 4), disturb)
    assert_each_once(ids, made)


async def test_a_cursor_of_time_alone_would_be_caught(client: Client, sql: Connection) -> None:
    """The broken twin: paging by an instant loses the ties, and the check sees it."""
    task_id = await client.made()
    await add_history(sql, client, task_id, 1, RUNS)

    async def by_time(cursor: str | None) -> tuple[list[str], str | None]:
        before = None if cursor is None else datetime.fromisoformat(cursor)
        rows = await sql.fetch(
            """select run_id, ended_at from history where $1::timestamptz is null or ended_at < $1
            order by ended_at desc limit 10""",
            before,
        )
        return [str(row["run_id"]) for row in rows], rows[-1]["ended_at"].isoformat() if len(rows) == 10 else None

    async def by_offset(cursor: str | None) -> tuple[list[str], str | None]:
        offset = int(cursor or 0)
        rows = await sql.fetch("select run_id from history order by run_id desc limit 10 offset $1", offset)
        return [str(row["run_id"]) for row in rows], str(offset + 10) if len(rows) == 10 else None

    async def disturb() -> None:
        await add_history(sql, client, task_id, 10_000, 3)

    expected = {str(row["run_id"]) for row in await sql.fetch("select run_id from history")}
    with pytest.raises(AssertionError, match="left out"):
        assert_each_once(await read_all(by_time), expected)
    with pytest.raises(AssertionError, match="twice"):
        assert_each_once(await read_all(by_offset, disturb), expected)


@pytest.mark.parametrize("limit", ["0", "-1", "1000000000", "101", "1.5", "", "x", "+5", "9" * 5000])
async def test_b71_limits_out_of_range(client: Client, limit: str) -> None:
    task_id = await client.made()
    for path in ("/v1/tasks", f"/v1/tasks/{task_id}/runs"):
        answer = await client.call("GET", f"{path}?limit={limit}")
        assert (answer.status, answer.fields) == (422, ["limit"])


async def test_b71_bad_cursors(client: Client, other: Client, sql: Connection) -> None:
    task_id, second = await client.made(), await client.made()
    good = (await client.call("GET", "/v1/tasks?limit=1")).document["next_cursor"]
    assert (await client.call("GET", f"/v1/tasks?cursor={good}")).status == 200
    theirs = [await other.made() for _ in range(2)]
    for cursor in ("", "x", "%00", good[:-1], good + "A", good[::-1], "A" * 5_000, "\u00fc", good + "=", "A" * 32):
        answer = await client.call("GET", f"/v1/tasks?cursor={cursor}")
        assert (answer.status, answer.fields) == (422, ["cursor"])
    for path in (f"/v1/tasks/{task_id}/runs", f"/v1/tasks/{second}/runs"):
        assert (await client.call("GET", f"{path}?cursor={good}")).status == 422
    of_other = (await other.call("GET", "/v1/tasks?limit=1")).document["next_cursor"]
    answer = await client.call("GET", f"/v1/tasks?cursor={of_other}")
    assert answer.status == 422
    assert not any(their in answer.text for their in theirs)


def test_a_cursor_belongs_to_one_listing() -> None:
    tenant, task, last = UUID(int=1), UUID(int=2), UUID(int=3)
    cursor = encode_cursor(last, "runs", tenant, task)
    assert decode_cursor(cursor, "runs", tenant, task) == last
    for listing, scope in ("tasks", (tenant, task)), ("runs", (task, tenant)), ("runs", (tenant,)):
        with pytest.raises(FieldError):
            decode_cursor(cursor, listing, *scope)
