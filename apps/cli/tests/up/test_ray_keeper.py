"""A raylet or GCS that dies is not waited for, though Ray would; and where Ray does not come up, it is tried again."""

import asyncio
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from tocsin.cli.up import machine
from tocsin.cli.up.child import Child, ChildError, Message
from tocsin.cli.up.machine import Machine
from tocsin.cli.up.options import UpError, UpOptions
from tocsin.cli.up.ray_keeper import VitalWatch
from tocsin.common.clock import SystemClock
from up_process import lives

SECONDS = 2.0
STARTS = """
import json, os, signal, subprocess, sys
from tocsin.cli.up.ray_keeper import VitalWatch
{twin}
VitalWatch().start()
vital = {{name: subprocess.Popen(["sleep", "60"], executable=name).pid for name in sys.argv[1:]}}
os.write(1, json.dumps({{"event": "started", **vital}}).encode() + b"\\n")
signal.pause()  # as ray.init: it does not come back, and lets no event loop run
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


async def check_is_not_waited_for(folder: Path, victim: str, *programs: str, twin: str = "") -> None:
    """Starts what waits for these programs, kills one that is not dead yet, and checks that it ends and says why."""
    (folder / "starts_ray.py").write_text(STARTS.format(twin=twin))
    started = asyncio.get_running_loop().create_future()

    def heard(message: Message) -> None:
        if message["event"] == "started":
            started.set_result(message)

    made = Child("ray", "starts_ray", "test-of-watch", folder, heard)
    await made.start(environment(folder), *programs)
    try:
        message: dict[str, Any] = await started
        os.kill(message[str(folder / victim)], signal.SIGKILL)
        with pytest.raises(ChildError, match=f"its {victim} ended before it was ready"):
            await asyncio.wait_for(made.wait_ready(), SECONDS)
        assert await made.ended() == 1
    except TimeoutError:
        pytest.fail("it waits on")
    finally:
        await made.stop(SECONDS)


@pytest.mark.parametrize("victim", ["raylet", "gcs_server"])
async def test_what_dies_while_ray_starts_is_not_waited_for(tmp_path: Path, victim: str) -> None:
    programs = [named(tmp_path, name, "sleep") for name in ("gcs_server", "raylet")]
    await check_is_not_waited_for(tmp_path, victim, *programs)


async def test_what_died_before_the_first_look_is_not_waited_for(tmp_path: Path) -> None:
    await check_is_not_waited_for(tmp_path, "raylet", named(tmp_path, "raylet", "true"))


async def test_without_the_watch_it_would_be_waited_for(tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match="waits on"):
        await check_is_not_waited_for(
            tmp_path, "raylet", named(tmp_path, "raylet", "sleep"), twin="VitalWatch.gone = lambda self: []"
        )


def test_a_ray_without_a_raylet_of_its_own_is_refused() -> None:
    with pytest.raises(RuntimeError, match="without gcs_server and raylet"):
        VitalWatch().require_all()


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
