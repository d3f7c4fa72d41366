"""A chaos ends with a verdict whatever breaks meanwhile, and says what did not happen."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest
from rich.console import Console

from bench.frame import Screen
from property_tests.chaos import command
from property_tests.chaos import run as runs
from property_tests.chaos.books import Books
from property_tests.chaos.clients import ApiTenant, Promised
from property_tests.chaos.command import chaos, main
from property_tests.chaos.delays import Recovery
from property_tests.chaos.faults import catalogue
from property_tests.chaos.judge import Verdict, judge
from property_tests.chaos.ledger import Evidence, Row, Struck, call_line, read_calls
from property_tests.chaos.report import Result, fault_rows, misses, not_judged, report_of, write
from property_tests.chaos.run import Run, ask, keep_watching, without_time
from property_tests.chaos.scene import Scene
from property_tests.chaos.stage import Options, Stage
from property_tests.chaos.watch import Watch
from tocsin.common.clock import SystemClock

FIRST = 1_800_000_000.0
OPTIONS = Options(seconds=85, rate=50, seed=3)
SCREEN = Screen(Console(quiet=True))


def evidence_of(*faults: Struck) -> Evidence:
    return Evidence(expected={}, tasks={}, calls=[], rows=[], lives={}, faults=faults, ttl=10.0, margin=2.0)


def result_with(*faults: Struck, planned: int | None = None, recovery: Recovery | None = None, **more: Any) -> Result:
    """A run in which nothing is wrong but what is given; its verdict holds."""
    evidence = evidence_of(*faults)
    run = Run(
        evidence,
        FIRST,
        Promised(),
        len(faults) if planned is None else planned,
        more.get("left_out", ()),
        more.get("missed", ()),
        {},
    )
    books = Books.of(evidence)
    findings = [finding for finding in judge(evidence).findings if finding.held]
    recoveries = [recovery or Recovery(0, 0.0, 0.0, 0.0)] * len(faults)
    return Result(OPTIONS, run, Verdict(findings, books), [], recoveries, more.get("left", ()))


def struck(name: str, missed: str | None = None) -> Struck:
    return Struck(name, FIRST, FIRST + 1, missed or "done", database=False, missed=missed)


# what did not happen


def test_a_run_in_which_all_was_struck_is_met() -> None:
    assert report_of(result_with(struck("kill-api"))).met


@pytest.mark.parametrize(
    "result",
    [
        result_with(struck("kill-api"), planned=2, left_out=["kill-gcs at 9 s: no time"]),
        result_with(struck("kill-api", "the API answers: not within 60 s")),
        result_with(struck("kill-api"), missed=["the watch ended"]),
        result_with(struck("kill-api"), left=["123 raylet"]),
    ],
    ids=["left out", "missed", "broken", "left behind"],
)
def test_what_did_not_happen_is_a_missed_target_and_is_said(result: Result) -> None:
    assert not report_of(result).met
    assert len(misses(result)) == 1


def test_a_run_without_late_results_says_nothing_of_the_fence() -> None:
    result = result_with(struck("kill-api"))
    assert sorted(not_judged(result)) == [4, 9, 11, 12]
    late = Row(UUID(int=1), UUID(int=2), 1, "slot", None, None, None, None, FIRST, None, "success", True, True, None)
    result.run.evidence.rows = [late]
    assert sorted(not_judged(result)) == [9, 11, 12]


@pytest.mark.parametrize("name", sorted(catalogue()))
def test_every_fault_has_a_bound_that_a_slot_never_called_exceeds(name: str, tmp_path: Path) -> None:
    never = Recovery(1, float("inf"), float("inf"), float("inf"))
    result = result_with(struck(name), recovery=never)
    assert not report_of(result).met
    assert fault_rows(result)[0]["on_time_after"] == "never"
    write(result, tmp_path)


def test_a_named_fault_for_which_there_is_no_time_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--minutes", "1.25", "--fault", "freeze-dedicated", "--fault", "kill-executor"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "no time for freeze-dedicated" in said


def test_only_named_faults_must_all_have_time() -> None:
    assert without_time(OPTIONS) == []
    assert without_time(Options(seconds=85, rate=50, seed=3, faults=("kill-executor",))) == []
    assert without_time(Options(seconds=10, rate=50, seed=3)) == sorted(catalogue())


# what breaks meanwhile


@dataclass
class FakeScene:
    missed: list[str]

    def now(self) -> float:
        return FIRST

    def miss(self, text: str) -> None:
        self.missed.append(text)


async def answered_by(body: bytes, status: int = 202) -> Promised:
    """What a tenant makes of an API that answers everything so, in one round."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 %d x\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (status, len(body), body))
        await writer.drain()
        writer.close()

    clock = SystemClock()
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    end = clock.now().timestamp() + 3600
    tenant = ApiTenant(base, "key", UUID(int=1), UUID(int=2), "http://127.0.0.1:1/", clock, end)
    running = asyncio.create_task(tenant.run())
    async with server:
        while sum(tenant.promised.answers.values()) < 2 and not running.done():
            await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return tenant.promised


@pytest.mark.parametrize("body", [b"<html>", b"\xff\xfe", b"[]", b"null", b'{"run_id": 7, "id": 7}', b"{}"])
async def test_an_answer_that_cannot_be_read_is_noted_and_promises_nothing(body: bytes) -> None:
    promised = await answered_by(body)
    assert promised.answers[202] >= 2
    assert len(promised.unreadable) >= 2
    assert promised.runs == []
    assert promised.slots == {}


async def test_an_answer_that_can_be_read_promises_a_run() -> None:
    promised = await answered_by(b'{"run_id": "00000000-0000-0000-0000-000000000007", "id": "7"}')
    assert set(promised.runs) == {UUID(int=7)}


async def test_a_tenant_that_breaks_is_a_miss_and_raises_nothing() -> None:
    class Broken:
        async def run(self) -> None:
            raise KeyError("what")

    scene = FakeScene([])
    await ask(cast(ApiTenant, Broken()), FIRST, cast(Scene, scene))
    assert scene.missed == ["the API's tenant ended: KeyError: 'what'"]


class Dying(Watch):
    async def _look(self) -> None:
        raise RuntimeError("no more")


class LosesACancellation(Dying):
    """Broken: where a part has just failed, `gather` raises its error."""

    async def run(self, tasks: Sequence[UUID]) -> None:
        parts = [asyncio.create_task(work) for work in (self._look(), self._again(self._follow_leases))]
        try:
            await asyncio.gather(*parts)
        finally:
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)


async def ends_when_cancelled(kind: type[Watch], steps: int) -> bool:
    """After so many steps of the loop since it died and was begun anew. What it told is looked at on the way."""
    watch = kind(_no_database, SystemClock(), random.Random(1))
    scene = FakeScene([])
    watching = asyncio.create_task(keep_watching(cast(Scene, scene), watch, []))
    while len(scene.missed) < 2:
        await asyncio.sleep(0)
    for _ in range(steps):
        await asyncio.sleep(0)
    watching.cancel()
    for _ in range(20):
        await asyncio.sleep(0)
    ended = watching.done()
    while not watching.done():
        watching.cancel()
        await asyncio.sleep(0)
    assert scene.missed[0] == "the watch ended: RuntimeError: no more"
    assert asyncio.all_tasks() == {asyncio.current_task()}  # none of its parts goes on alone
    return ended


async def test_a_watch_that_ends_is_said_at_once_and_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_AGAIN_SECONDS", 0.0)
    assert all([await ends_when_cancelled(Dying, steps) for steps in range(12)])
    assert not all([await ends_when_cancelled(LosesACancellation, steps) for steps in range(12)])


def _no_database() -> str:
    raise OSError("away")


# the order in which it ends


@pytest.mark.parametrize("left", [[], ["123 raylet"]])
async def test_it_judges_when_all_has_ended_and_then_decides_on_the_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: Sequence[str]
) -> None:
    told: list[str] = []

    class FakeEndpoint:
        log: Path

    @asynccontextmanager
    async def staged(folder: Path, *_: object) -> AsyncIterator[Stage]:
        (folder / "up.log").write_text("what it said")
        endpoint = FakeEndpoint()
        endpoint.log = folder / "calls.log"
        stage = Stage(folder, "", cast(Any, None), cast(Any, endpoint), cast(Any, None))
        yield stage
        run, task = (str(UUID(int=n)).encode() for n in (1000, 1))
        endpoint.log.write_bytes(call_line((FIRST, FIRST + 1, run, task, b"1", b"2027-01-15T08:00:00Z")))
        stage.left += left
        told.append("ended")

    async def run(*_: object) -> Run:
        told.append("ran")
        return Run(evidence_of(), FIRST, Promised(), 0, (), (), {})

    def result_of(options: Options, ran: Run, left: Sequence[str]) -> Result:
        told.append(f"judged {len(ran.evidence.calls)} call")
        return result_with(left=left)

    for name, fake in (("staged", staged), ("run", run), ("result_of", result_of)):
        monkeypatch.setattr(command, name, fake)
    await chaos(OPTIONS, SCREEN, tmp_path / "report")
    assert told == ["ran", "ended", "judged 1 call"]
    assert (tmp_path / "report" / "logs" / "up.log").exists() is bool(left)


def test_calls_share_what_is_the_same(tmp_path: Path) -> None:
    log = tmp_path / "calls.log"
    run, task = (str(UUID(int=n)).encode() for n in (1000, 1))
    log.write_bytes(2 * call_line((FIRST, FIRST + 1, run, task, b"1", b"2027-01-15T08:00:00Z")))
    one, other = read_calls(log)
    assert one.task_id is other.task_id
    assert one.scheduled is other.scheduled
