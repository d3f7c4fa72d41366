"""B39, B40, B48 and B50, between the endpoint's socket and the row: what is asked of a retry, and odd bytes."""

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from uuid import UUID

import pytest

from node_bench import SECOND, NodeBench
from scripted_endpoint import Answering, Request, Said
from tocsin.api.definitions import read_definition
from tocsin.api.json_text import MAX_DEPTH, decode
from tocsin.common import backoff
from tocsin.common.models import AtSchedule, PlanSpec
from tocsin.common.tasks import NewTask

AT_ONCE = {"max_attempts": 2, "base_seconds": 0.0}
"""With no back-off of its own, whatever a run waits for is what its endpoint asked for."""


def always(said: Said) -> Answering:
    async def answer(_request: Request) -> Said:
        return said

    return answer


def once(said: Said) -> Answering:
    async def answer(request: Request) -> int | Said:
        return said if request.fence == 1 else 200

    return answer


USABLE: dict[str, Callable[[datetime], tuple[str, datetime | float]]] = {
    "seconds": lambda _now: ("120", 120.0),
    "more than a day": lambda _now: ("1000000", 86_400.0),
    "more than an integer holds": lambda _now: ("99999999999999999999", 86_400.0),
    "the last date": lambda _now: ("Fri, 31 Dec 9999 23:59:59 GMT", 86_400.0),
    "a date": lambda now: (format_datetime(now + 90 * SECOND, usegmt=True), now + 90 * SECOND),
    "a date of no zone": lambda now: (f"{now + 90 * SECOND:%a, %d %b %Y %H:%M:%S} -0000", now + 90 * SECOND),
    "asctime": lambda now: (f"{now + 90 * SECOND:%a %b %e %H:%M:%S %Y}", now + 90 * SECOND),
    "RFC 850": lambda now: (f"{now + 90 * SECOND:%A, %d-%b-%y %H:%M:%S} GMT", now + 90 * SECOND),
}
IGNORED = {
    "a past date": "Wed, 21 Oct 2015 07:28:00 GMT",
    "negative": "-5",
    "a fraction": "1.5",
    "an exponent": "1e9",
    "two values": "120, 240",
    "two headers": "120\r\nRetry-After: 240",
    "empty": "",
    "a word": "soon",
}


@pytest.mark.parametrize("status", [429, 503])
async def test_b40_what_an_endpoint_asks_for_is_when_the_run_is_due(bench: NodeBench, status: int) -> None:
    """Never earlier than asked, never later than a second after; what cannot be read asks nothing."""
    tenant = await bench.a_tenant()
    now = (await bench.now()).astimezone(UTC).replace(microsecond=0)
    asked = {name: made(now) for name, made in USABLE.items()}
    headers = {name: value for name, (value, _) in asked.items()} | IGNORED
    runs: dict[str, UUID] = {}
    for number, (name, value) in enumerate(headers.items()):
        bench.endpoint.answers[f"/{number}"] = once(Said(status, f"Retry-After: {value}"))
        runs[name] = await bench.run_now(await bench.an_idle_task(tenant, f"/{number}", call={"retry": AT_ONCE}))
    bench.start()
    for name in IGNORED:
        (row,) = await bench.until_ended(runs[name])
        assert (row["state"], row["fence"]) == ("succeeded", 2), name
    for name, (_, when) in asked.items():
        await bench.until(partial(bench.history_of, runs[name]), f"{name}: its attempt has ended")
        (failed,) = await bench.history_of(runs[name])
        (row,) = await bench.fetch("select due_at from pending where run_id = $1", runs[name])
        wanted = when if isinstance(when, datetime) else failed["ended_at"] + timedelta(seconds=when)
        assert wanted <= row["due_at"] <= wanted + SECOND, name
        assert len(bench.endpoint.of_run(runs[name])) == 1


async def fail_with_fence(bench: NodeBench, fence: int, losses: int) -> UUID:
    """A failing run that is set by hand to what a great many begins leave, and fails once more."""
    bench.endpoint.answers["/failing"] = always(Said(500))
    retry = {"max_attempts": 100, "base_seconds": 1.0, "factor": 2.0, "cap_seconds": 3600.0}
    task = await bench.an_idle_task(await bench.a_tenant(), "/failing", call={"retry": retry})
    run_id = await bench.run_now(task)
    await bench.execute("update pending set fence = $2, losses = $3 where run_id = $1", run_id, fence, losses)
    bench.start()
    await bench.until(lambda: bench.history_of(run_id), "it has failed once more")
    return run_id


@pytest.mark.parametrize("attempts", [99, 100, 1099, 1_000_000])
async def test_b39_an_attempt_far_beyond_the_last_one_is_the_last_one(bench: NodeBench, attempts: int) -> None:
    await fail_with_fence(bench, attempts, 0)
    (row,) = await bench.fetch("select * from history")
    assert (row["state"], row["reason"], row["fence"]) == ("dead", "max_attempts", attempts + 1)
    assert len(bench.endpoint.seen) == 1


async def check_the_wait_is_within_the_cap(bench: NodeBench) -> None:
    run_id = await fail_with_fence(bench, 1099, 1084)
    (failed,) = await bench.history_of(run_id)
    assert (failed["fence"], failed["state"], failed["outcome"]) == (1100, None, "http_error")
    (row,) = await bench.fetch("select due_at, fence from pending where run_id = $1", run_id)
    assert timedelta(0) < row["due_at"] - failed["ended_at"] <= 3601 * SECOND


async def test_b39_the_sixteenth_attempt_waits_for_the_cap_at_most(bench: NodeBench) -> None:
    await check_the_wait_is_within_the_cap(bench)


async def test_b39_a_power_that_is_not_capped_is_caught(bench: NodeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    def uncapped(failures: int, rng: random.Random, *, base: float, factor: float, cap: float) -> float:
        return base * factor ** (failures - 1)

    monkeypatch.setattr(backoff, "delay", uncapped)
    with pytest.raises(AssertionError):
        await check_the_wait_is_within_the_cap(bench)


BYTES = [b"\0", b"a\0b", b"\xff\xfe\0", b'{"a":"\\u0000"}', b"\0" * 300]


@pytest.mark.parametrize("status", [200, 500])
async def test_b48_an_answer_of_any_bytes_is_kept_and_holds_nobody_up(bench: NodeBench, status: int) -> None:
    tenant = await bench.a_tenant()
    runs = []
    for number, body in enumerate(BYTES):
        bench.endpoint.answers[f"/{number}"] = always(Said(status, body=body))
        task = await bench.an_idle_task(tenant, f"/{number}", call={"retry": {"max_attempts": 1}})
        runs.append(await bench.run_now(task))
    good = await bench.run_now(await bench.an_idle_task(tenant, "/good"))
    bench.start()
    rows = {row["run_id"]: row for row in await bench.until_ended(good, *runs)}
    assert rows[good]["state"] == "succeeded"
    for run_id, body in zip(runs, BYTES, strict=True):
        assert rows[run_id]["state"] == ("succeeded" if status == 200 else "dead")
        assert rows[run_id]["response"] == body


@pytest.mark.parametrize("header", ["X-A: a\0b", "X\0A: b", "X-A: \x01\x7f", "X-A: \x0b", "X-A: \u00e9"])
async def test_b48_a_head_of_any_bytes_ends_the_attempt_with_a_reason(bench: NodeBench, header: str) -> None:
    tenant = await bench.a_tenant()
    bench.endpoint.answers["/odd"] = always(Said(200, header))
    odd = await bench.run_now(await bench.an_idle_task(tenant, "/odd", call={"retry": {"max_attempts": 1}}))
    good = await bench.run_now(await bench.an_idle_task(tenant, "/good"))
    bench.start()
    rows = {row["run_id"]: row for row in await bench.until_ended(good, odd)}
    assert rows[good]["state"] == "succeeded"
    assert (rows[odd]["state"], rows[odd]["outcome"]) in {("succeeded", "success"), ("dead", "protocol_error")}
    assert rows[odd]["sent"]
    assert len(bench.endpoint.of_run(odd)) == 1


VALUES = [
    "9007199254740993",
    "-" + "9" * 999,
    "1.10",
    "-0.0",
    "1e-9999",
    "null",
    '"scalar"',
    "[" * (MAX_DEPTH - 2) + "]" * (MAX_DEPTH - 2),
    '{"b":1,"a":[1.50,{"c":null}],"\\\\u0000":"\U0001f514"}',
    '"' + "x" * 200_000 + '"',
]


async def test_b50_a_value_arrives_digit_by_digit(bench: NodeBench) -> None:
    """From the text of a request to the API to the bytes that the endpoint reads."""
    tenant = await bench.a_tenant()
    far = AtSchedule(at=(await bench.now()).replace(microsecond=0) + timedelta(days=30))
    runs = []
    for text in VALUES:
        request = f'{{"url":"{bench.endpoint.url("/value")}","json":{text}}}'
        document = decode(f'{{"name":"x","schedule":{{"cron":"@daily"}},"request":{request}}}'.encode())
        read = read_definition(document)
        created = await bench.tasks.create(
            tenant.id, NewTask("x", lambda _now: PlanSpec(schedule=far), read.call, read.body)
        )
        runs.append(await bench.run_now(await bench.task(created.task_id)))
    bench.start()
    await bench.until_ended(*runs)
    for text, run_id in zip(VALUES, runs, strict=True):
        (seen,) = bench.endpoint.of_run(run_id)
        assert seen.body == text.encode()
