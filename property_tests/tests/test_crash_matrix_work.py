"""A fault counts only where its statement did something, or would have: how that is known, and that it is asked for."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import urlsplit
from uuid import UUID

import pytest

from bench.system import connected
from property_tests.chaos.up_behind_proxy import at_port
from property_tests.crash_matrix.operations import OPERATIONS
from property_tests.crash_matrix.play import struck_in_vain
from property_tests.crash_matrix.stage import Stage
from property_tests.crash_matrix.strike import Evidence, Fault, Strike
from property_tests.crash_matrix.work import Work, committing, giving_back, judging, taking
from property_tests.network.proxy import Cut, Proxy, Trap
from property_tests.network.wire import COMMIT, Message, Tally
from tocsin.common.clock import SystemClock
from tocsin.common.errors import OutcomeUnknownError
from tocsin.common.store.postgres.database import Database


def message(kind: bytes, body: bytes) -> Message:
    return Message(kind, kind + (4 + len(body)).to_bytes(4, "big") + body)


def tag(text: bytes) -> Message:
    return message(b"C", text + b"\0")


IDLE, IN_TRANSACTION = message(b"Z", b"I"), message(b"Z", b"T")
TRANSACTION = [tag(b"INSERT 0 1"), IN_TRANSACTION, tag(b"SELECT 9"), IN_TRANSACTION, tag(b"UPDATE 2"), IN_TRANSACTION]
VOID = message(b"D", b"\0\2" + b"\xff" * 8)
ROW = message(b"D", b"\0\2" + b"\xff" * 4 + b"\0\0\0\1x")


def answers(*messages: Message) -> list[int]:
    """What is told at the end of each answer."""
    tally = Tally()
    return [rows for each in messages if (rows := tally.sees(each)) is not None]


@pytest.mark.parametrize(
    ("messages", "rows"),
    [
        ([tag(b"SELECT 3"), IDLE, IDLE], [3, 0]),
        ([tag(b"UPDATE 2"), IDLE, tag(b"INSERT 0 1"), IDLE, tag(b"DELETE 0"), IDLE], [2, 1, 0]),
        ([ROW, VOID, tag(b"SELECT 2"), IDLE], [1]),
        ([VOID, tag(b"SELECT 1"), IDLE, ROW, tag(b"SELECT 1"), IDLE], [0, 1]),
        ([message(b"E", b"\0"), IDLE], [0]),
        ([tag(b"BEGIN"), IN_TRANSACTION, tag(b"COMMIT"), IDLE], [0, 0]),
        (
            [*TRANSACTION, tag(b"COMMIT"), IDLE, tag(b"COMMIT"), IDLE],
            [1, 9, 2, 3, 0],
        ),
        ([tag(b"DELETE 4"), IN_TRANSACTION, tag(b"ROLLBACK"), IDLE, tag(b"COMMIT"), IDLE], [4, 0, 0]),
    ],
)
def test_the_servers_answers_tell_their_rows(messages: Sequence[Message], rows: list[int]) -> None:
    assert answers(*messages) == rows


@pytest.fixture
async def proxy(database_url: str) -> AsyncIterator[Proxy]:
    parts = urlsplit(database_url)
    address = cast(str, parts.hostname), cast(int, parts.port)
    async with Proxy(lambda: address, SystemClock()) as made:
        yield made


@pytest.fixture
async def database(database_url: str, proxy: Proxy) -> AsyncIterator[Database]:
    made = Database(at_port(database_url, proxy.port), "test", size=2)
    await made.open()
    yield made
    await made.close()


async def test_a_proxy_knows_on_how_many_rows_a_statement_took_effect(database: Database, proxy: Proxy) -> None:
    await database.fetch("placement_size", "shared", 5)
    await database.fetch("shard_give", None, [1, 2])
    assert proxy.rows["placement_size"] == 1
    assert proxy.rows["shard_give"] == 0
    async with database.transaction() as transaction:
        await transaction.fetch("placement_size", "shared", 7)
        assert proxy.written == 1
    assert (proxy.written, proxy.rows[COMMIT]) == (0, 1)
    async with database.transaction() as transaction:
        await transaction.fetch("placement_list")
    assert proxy.rows[COMMIT] == 0


@pytest.mark.parametrize(("cell", "rows"), [("shared", 1), ("none of that name", 0)])
async def test_a_trap_knows_what_the_answer_told_that_it_took(
    database: Database, proxy: Proxy, cell: str, rows: int
) -> None:
    trap = proxy.trap = Trap("placement_size", Cut.AFTER)
    with pytest.raises(OutcomeUnknownError):
        await database.fetch("placement_size", cell, 5)
    assert trap.rows == rows


ME, DEAD, TENANT = (UUID(int=number) for number in range(1, 4))
LEASE = (
    "insert into leases (id, cell, generation, node, boot, pid_namespace, pid, process_started, zone_data, ttl,"
    " heartbeat_at, steady_since, expired_at) values ($1, 'shared', 1, 'n', 'b', 'p', $2, 0, 'z', interval '10 s',"
    " clock_timestamp() - $3::float8 * interval '1 s', clock_timestamp() - interval '1 h', $4)"
)
EVERYTHING = (
    "select (select array_agg(l order by id) from leases l), (select array_agg(s order by shard) from shards s)"
)


async def test_what_a_statement_would_do_is_counted_and_not_done(database_url: str, database: Database) -> None:
    stage = cast(Stage, SimpleNamespace(dsn=database_url))
    child: Any = SimpleNamespace(pid=11, cell="shared")
    async with connected(database_url) as connection:
        await connection.execute(LEASE, ME, 11, 0.0, None)
        assert await judging(stage, child) == 0
        await connection.execute(LEASE, DEAD, 12, 15.0, None)
        before = await connection.fetchrow(EVERYTHING)
        assert await judging(stage, child) == 1
        assert await judging(stage, child) == 1
        assert await taking(stage, child) == 64
        assert await connection.fetchrow(EVERYTHING) == before
        await connection.execute("update shards set owner = $1", ME)
        assert await taking(stage, child) == 0
        await connection.execute("insert into tenants (id, name, shard) values ($1, 't', 3)", TENANT)
        await connection.execute(
            "insert into running (run_id, tenant_id, task_id, due_at, fence, version, plan_version, priority, lane,"
            " losses, kind, lease_id) values ($1, $1, $1, now(), 1, 1, 1, 2, 0, 0, 'slot', $2)",
            *(TENANT, DEAD),
        )
        assert await giving_back(stage, child) == 0
        await connection.execute("update leases set expired_at = now() where id = $1", DEAD)
        assert await giving_back(stage, child) == 1
        assert await connection.fetchval("select count(*) from running") == 1


async def test_what_a_commit_would_do_its_transaction_has_written(database: Database, proxy: Proxy) -> None:
    child: Any = SimpleNamespace(proxy=proxy)
    async with database.transaction() as transaction:
        await transaction.fetch("placement_list")
        assert await committing(cast(Stage, None), child) == 0
        await transaction.fetch("placement_size", "shared", 7)
        assert await committing(cast(Stage, None), child) == 1


class Standing:
    """A process that stands still at its point: `answered`, rows of its last statement; `would`, of the next one."""

    def __init__(self) -> None:
        self.answered: dict[str, int] = {}
        self.would: list[int] = []
        self.killed = 0
        proxy = SimpleNamespace(rows=self.answered, unanswered=lambda _statement: 0, trap=None)
        self.child = SimpleNamespace(proxy=proxy)
        self.stage = cast(
            Stage,
            SimpleNamespace(
                control=SimpleNamespace(traces={"a": SimpleNamespace(since=lambda _point: [])}),
                keeper=SimpleNamespace(children={"a": self.child}, kill=self._kill),
            ),
        )

    async def work(self, _stage: Stage, _child: object) -> int:
        return self.would.pop(0)

    def _kill(self, _name: str) -> float:
        self.killed += 1
        return 1.0


async def decided(strike: Strike, standing: Standing, times: int) -> list[str]:
    strike.arm(standing.stage)
    return [await strike.decide("a", strike.point) for _ in range(times)]


async def test_what_would_do_nothing_is_not_struck() -> None:
    standing = Standing()
    standing.would = [0, 1, 0, 0, 3]
    strike = Strike("a", "judge.before", Fault.KILL, "lease_judge", 2, cast(Work, standing.work))
    assert await decided(strike, standing, 5) == ["go", "go", "go", "go", "raise"]
    assert strike.evidence == Evidence(0, None, 3)
    assert standing.killed == 1


async def test_what_has_done_nothing_is_not_struck() -> None:
    standing = Standing()
    strike = Strike("a", "judge.after", Fault.KILL, "lease_judge", 1)
    assert await decided(strike, standing, 1) == ["go"]  # nothing was answered at all
    standing.answered["lease_judge"] = 0
    assert await decided(strike, standing, 1) == ["go"]
    standing.answered["lease_judge"] = 2
    assert await decided(strike, standing, 1) == ["raise"]
    assert strike.evidence == Evidence(0, (), 2)


@pytest.mark.parametrize("rows", [0, 1])
async def test_of_a_swallowed_answer_its_own_rows_count(rows: int) -> None:
    standing = Standing()
    standing.would = [1]
    strike = Strike("a", "judge.before", Fault.CUT_AFTER, "lease_judge", 1, cast(Work, standing.work))
    assert await decided(strike, standing, 1) == ["go"]
    trap: Any = standing.child.proxy.trap
    trap.rows, trap.struck = rows, 2.0
    trap.done.set()
    await asyncio.wait_for(strike.struck.wait(), 5)
    assert strike.evidence == Evidence(0, None, rows)
    await strike.close()
    assert bool(struck_in_vain(strike.evidence)) is (rows == 0)


def test_only_what_is_known_to_have_done_nothing_was_struck_in_vain() -> None:
    assert struck_in_vain(Evidence(0, (), 0))
    assert not struck_in_vain(Evidence(0, (), 1))
    assert not struck_in_vain(Evidence(0, ()))  # nothing is committed there, or the rows were in hand
    assert not struck_in_vain(None)


def test_where_a_statement_may_find_nothing_it_is_asked_before() -> None:
    """Of the others, the code that sends them has the rows in its hand."""
    in_hand = {"begin", "complete", "beat", "put_back", "expire", "give_shards", "leave", "mark_faulty", "ask_move"}
    in_hand |= {"call"}
    assert {operation.name for operation in OPERATIONS if operation.work is None} == in_hand
