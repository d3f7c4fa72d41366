"""A raylet or GCS that dies is not waited for, though Ray would; and where Ray does not come up, it is tried again."""

import asyncio
import contextlib
import os
import shutil
import signal
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from pydantic import SecretStr

from tocsin.cli.up import machine
from tocsin.cli.up.child import Child, ChildError, Message
from tocsin.cli.up.machine import Machine
from tocsin.cli.up.options import UpError, UpOptions
from tocsin.cli.up.ray_keeper import VitalWatch
from tocsin.common.clock import SystemClock
from up_process import lives

HANG_SECONDS = 60.0
"""Only ends a test that hangs."""

LOOKS = 4
"""As many looks end after a death though the first began before it, and a nameless zombie counts at its second one."""

STARTS = """
import json, os, signal, subprocess, sys
import psutil
from tocsin.cli.up.ray_keeper import VitalWatch

def say(event, **values):
    os.write(1, json.dumps({{"event": event, **values}}).encode() + b"\\n")

watch = VitalWatch()
{twin}
look = watch.gone
def gone():
    found = look()
    say("looked")
    return found
watch.gone = gone
vital = {{name: subprocess.Popen(["sleep", "60"], executable=name) for name in sys.argv[1:]}}  # kept: else reaped
say("started", **{{name: process.pid for name, process in vital.items()}})
watch.start()
signal.pause()  # as ray.init: it does not come back, and lets no event loop run
"""
NAMELESS_ZOMBIES = """
name = psutil.Process.name
def or_none(self):
    if self.status() == psutil.STATUS_ZOMBIE:
        raise psutil.ZombieProcess(self.pid)
    return name(self)
psutil.Process.name = or_none
"""
NAMES_ONLY = """
find = watch._find
watch._find = lambda: find() and set()
"""
FAILING_LOOK = """
find_gone = watch.gone
def fails():
    if find_gone():
        raise RuntimeError("no more memory")
    return []
watch.gone = fails
"""
ENDS_SILENTLY = """
watch._end_process = lambda reason: [say("looked") for _ in range(9)]
"""
FAILS = """
import json, os, subprocess, sys
from pathlib import Path
tries = Path("{folder}") / "tries"
left = subprocess.Popen(["sleep", "60"]).pid
with tries.open("a") as file:
    file.write(f"{{left}}\\n")
if len(tries.read_text().split()) <= {failures}:
    os.write(1, json.dumps({{"event": "error", "text": "Ray cannot be started: no room"}}).encode() + b"\\n")
    sys.exit(1)
os.write(1, json.dumps({{"event": "ready", "dashboard": ""}}).encode() + b"\\n")
sys.stdin.read()
"""


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(folder)}


def named(folder: Path, name: str, program: str) -> str:
    """A way to a program by which its process has that name."""
    found = shutil.which(program)
    assert found is not None
    (folder / name).symlink_to(found)
    return str(folder / name)


async def check_is_not_waited_for(
    folder: Path, victim: str, *programs: str, twin: str = "", reason: str = "its {} ended before it was ready"
) -> None:
    """Starts what waits for these programs, kills one that is not dead yet, and checks that it ends and says why."""
    (folder / "starts_ray.py").write_text(STARTS.format(twin=twin))
    started = asyncio.get_running_loop().create_future()
    looked: asyncio.Queue[None] = asyncio.Queue()

    def heard(message: Message) -> None:
        if message["event"] == "started":
            started.set_result(message)
        elif message["event"] == "looked":
            looked.put_nowait(None)

    async def looks_on() -> None:
        for _ in range(looked.qsize() + LOOKS):
            await looked.get()

    made = Child("ray", "starts_ray", "test-of-watch", folder, heard)
    await made.start(environment(folder), *programs)
    waiting = asyncio.create_task(made.wait_ready())
    try:
        message: dict[str, Any] = await asyncio.wait_for(started, HANG_SECONDS)
        await asyncio.wait_for(looked.get(), HANG_SECONDS)
        with contextlib.suppress(ProcessLookupError):  # it was dead before the first look, and so found
            os.kill(message[str(folder / victim)], signal.SIGKILL)
        looking = asyncio.create_task(looks_on())
        await asyncio.wait({waiting, looking}, timeout=HANG_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        looking.cancel()
        if not waiting.done():
            pytest.fail("it waits on")
        with pytest.raises(ChildError, match=reason.format(victim)):
            await waiting
        assert await made.ended() == 1
    finally:
        waiting.cancel()
        await made.stop(HANG_SECONDS)


@pytest.mark.parametrize("victim", ["raylet", "gcs_server"])
async def test_what_dies_while_ray_starts_is_not_waited_for(tmp_path: Path, victim: str) -> None:
    programs = [named(tmp_path, name, "sleep") for name in ("gcs_server", "raylet")]
    await check_is_not_waited_for(tmp_path, victim, *programs)


async def test_what_died_before_the_first_look_is_not_waited_for(tmp_path: Path) -> None:
    await check_is_not_waited_for(tmp_path, "raylet", named(tmp_path, "raylet", "true"))


async def test_a_zombie_that_does_not_tell_its_name_is_not_waited_for(tmp_path: Path) -> None:
    program = named(tmp_path, "raylet", "true")
    reason = "its raylet or gcs_server ended before it was ready"
    await check_is_not_waited_for(tmp_path, "raylet", program, twin=NAMELESS_ZOMBIES, reason=reason)
    with pytest.raises(pytest.fail.Exception, match="waits on"):
        await check_is_not_waited_for(tmp_path, "raylet", program, twin=NAMELESS_ZOMBIES + NAMES_ONLY)


async def test_without_the_watch_it_would_be_waited_for(tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match="waits on"):
        await check_is_not_waited_for(
            tmp_path, "raylet", named(tmp_path, "raylet", "sleep"), twin="watch.gone = lambda: []"
        )


async def test_a_watch_that_fails_ends_the_process(tmp_path: Path) -> None:
    reason = "the watch over it failed: no more memory"
    program = named(tmp_path, "raylet", "sleep")
    await check_is_not_waited_for(tmp_path, "raylet", program, twin=FAILING_LOOK, reason=reason)
    with pytest.raises(pytest.fail.Exception, match="waits on"):
        await check_is_not_waited_for(tmp_path, "raylet", program, twin=FAILING_LOOK + ENDS_SILENTLY, reason=reason)


async def test_what_dies_when_ray_serves_is_not_said_to_have_kept_it_from_starting(tmp_path: Path) -> None:
    program = named(tmp_path, "raylet", "sleep")
    await check_is_not_waited_for(
        tmp_path, "raylet", program, twin="watch._ready.set()", reason="^Ray is at an end: its raylet ended$"
    )


def test_a_ray_without_a_raylet_of_its_own_is_refused() -> None:
    with pytest.raises(RuntimeError, match="without gcs_server and raylet"):
        VitalWatch().ready()


class Lock:
    """A lock that tells when somebody comes who may have to wait."""

    def __init__(self, comes: Callable[[], None]) -> None:
        self._comes = comes
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._comes()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def look_twice_at_once(monkeypatch: pytest.MonkeyPatch, watch: VitalWatch, moved: threading.Event) -> list[str]:
    """A look in whose midst another thread looks, and would find one more; `moved` when that one has gone on."""

    def process(name: str) -> Any:
        return SimpleNamespace(name=lambda: name, is_running=meddle, status=lambda: psutil.STATUS_RUNNING)

    def meddle() -> bool:
        if not thread.is_alive():
            found.append(process("raylet"))
            thread.start()
            assert moved.wait(HANG_SECONDS)
        return True

    def other() -> None:
        with contextlib.suppress(RuntimeError):  # it starts no third thread
            watch.gone()
        moved.set()

    thread = threading.Thread(target=other, daemon=True)
    found = [process("gcs_server")]
    monkeypatch.setattr(psutil.Process, "children", lambda _: list(found))
    try:
        return watch.gone()
    finally:
        thread.join(HANG_SECONDS)


def test_two_threads_may_look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    watch, moved = VitalWatch(), threading.Event()
    main = threading.current_thread()
    lock: Any = Lock(lambda: None if threading.current_thread() is main else moved.set())
    watch._lock = lock
    assert look_twice_at_once(monkeypatch, watch, moved) == []
    assert sorted(watch._seen) == ["gcs_server", "raylet"]


def test_without_the_lock_one_changes_what_the_other_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = VitalWatch()
    none: Any = contextlib.nullcontext()
    watch._lock = none
    with pytest.raises(RuntimeError, match="changed size"):
        look_twice_at_once(monkeypatch, watch, threading.Event())


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_FIRST_PAUSE", 0.01)


async def first_start(folder: Path, monkeypatch: pytest.MonkeyPatch, failures: int) -> int:
    """The first start of a Ray that fails so often, and leaves a process each time; says how often it was tried."""
    (folder / "fails.py").write_text(FAILS.format(folder=folder, failures=failures))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    options = UpOptions(folder / "data", 1, 2, 1, demo=False)
    options.logs.mkdir(parents=True)
    made = Machine(options, SystemClock(), "")
    made.ray = Child("ray", "fails", made._up_id, options.logs, made._heard_ray)
    try:
        await made._start_ray()
        await made._wait_for_ray()
        left = [int(pid) for pid in (folder / "tries").read_text().split()][:-1]
        assert [pid for pid in left if psutil.pid_exists(pid) and lives(psutil.Process(pid))] == []
        return made.ray.starts
    finally:
        await made.stop()


async def test_ray_is_tried_again_at_the_first_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, brief: None
) -> None:
    """Nothing that a try has left behind lives when the next one begins."""
    assert await first_start(tmp_path, monkeypatch, 2) == 3


async def test_a_ray_that_never_comes_up_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, brief: None
) -> None:
    with pytest.raises(UpError, match=r"Ray cannot be started: no room; see .*/data/logs/ray-last"):
        await first_start(tmp_path, monkeypatch, 3)
    assert len((tmp_path / "tries").read_text().split()) == 3


async def test_one_that_does_not_try_again_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, brief: None
) -> None:
    monkeypatch.setattr(machine, "_RAY_TRIES", 1)
    with pytest.raises(UpError):
        await first_start(tmp_path, monkeypatch, 1)


SERVES = """
import os, sys
os.write(1, b'{"event": "ready"}\\n')
sys.stdin.read()
"""
DIES_ONCE = """
import os, sys
from pathlib import Path
os.write(1, b'{{"event": "ready", "dashboard": ""}}\\n')
first = Path("{folder}") / "first"
if not first.exists():
    first.touch()
    sys.exit(1)
sys.stdin.read()
"""


async def starts_until_owners(folder: Path, monkeypatch: pytest.MonkeyPatch, least: int) -> int:
    """The first start of a Ray that dies once when it has been ready; its executors take up their work only at its
    start number `least`. Says how often it was started."""
    (folder / "serves.py").write_text(SERVES)
    (folder / "dies_once.py").write_text(DIES_ONCE.format(folder=folder))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    options = UpOptions(folder / "data", 1, 2, 1, demo=False, database_url=SecretStr("postgresql://db.example/x"))
    options.logs.mkdir(parents=True)
    made = Machine(options, SystemClock(), "")
    made.api = Child("api", "serves", made._up_id, options.logs, lambda message: None)
    made.ray = Child("ray", "dies_once", made._up_id, options.logs, made._heard_ray)

    async def cell_shards(_: str) -> list[tuple[int, int | None]]:
        return [(0, 1 if made.ray.starts >= least and made.ray.ready else None)]

    @contextlib.asynccontextmanager
    async def store(_: str) -> AsyncIterator[Any]:
        yield SimpleNamespace(tenants=SimpleNamespace(cell_shards=cell_shards))

    monkeypatch.setattr(machine, "open_store", store)
    try:
        await made._start_api()
        await made._start_ray()
        await made._take_up_work()
        return made.ray.starts
    finally:
        await made.stop()
        assert (made.ray.pid, made.api.pid) == (None, None), "something was started while it stopped"


async def test_a_ray_that_dies_before_the_first_owners_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, brief: None
) -> None:
    assert await starts_until_owners(tmp_path, monkeypatch, 2) == 2


async def test_without_its_keeping_the_first_start_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, brief: None
) -> None:
    async def nothing(_: Machine) -> None:
        return

    monkeypatch.setattr(machine, "_OWNERS_SECONDS", 0.5)
    monkeypatch.setattr(Machine, "_keep_all", nothing)
    with pytest.raises(UpError, match="no executor took up its work"):
        await starts_until_owners(tmp_path, monkeypatch, 2)
