"""Children of `up`: ready or not, ended with all that they have started, and gone when their parent is."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tocsin.cli.up import child, processes
from tocsin.cli.up.child import Child, ChildError, Message
from up_process import eventually, lives

UP_ID = "test-of-children"
READY = 'import os; os.write(1, b\'a print\\n{"event": "ready", "port": 7}\\n\');'
WAIT = "import signal; signal.pause()"
GRANDCHILD = """
import subprocess, sys
p = subprocess.Popen([sys.executable, '-c', 'import signal; signal.signal(15, signal.SIG_IGN); print(1, flush=True);'
                      'signal.pause()'], stdout=subprocess.PIPE, start_new_session={own_session}, env={env})
p.stdout.readline()
"""


class Place:
    """Children whose module is a file of the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.messages: list[Message] = []

    def child(self, code: str) -> Child:
        (self.folder / "made_child.py").write_text(code)
        return Child("made", "made_child", UP_ID, self.folder, self.messages.append)

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(self.folder)}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


async def test_a_child_is_ready_when_it_says_so(place: Place) -> None:
    made = place.child(READY + WAIT)
    await made.start(place.env)
    await made.wait_ready()
    assert (made.ready, made.pid is None) == (True, False)
    assert place.messages == [{"event": "ready", "port": 7}]
    await made.stop(5.0)
    assert (made.ready, made.pid is None) == (False, True)


async def test_a_line_without_end_is_dropped(place: Place) -> None:
    made = place.child("import os; os.write(1, b'x' * 300_000 + b'\\n');" + READY + WAIT)
    await made.start(place.env)
    await made.wait_ready()
    await made.stop(5.0)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ('import os; os.write(1, b\'{"event": "error", "text": "the port is taken"}\\n\')', "the port is taken"),
        ("1/0", r"made ended before it was ready; see .*made\.log"),
    ],
)
async def test_a_child_that_gives_up_says_why(place: Place, code: str, reason: str) -> None:
    made = place.child(code)
    await made.start(place.env)
    with pytest.raises(ChildError, match=reason):
        await made.wait_ready()
    if code == "1/0":
        assert "ZeroDivisionError" in made.log_file.read_text()


async def test_a_child_that_does_not_stop_is_killed(place: Place) -> None:
    made = place.child("import signal; signal.signal(15, signal.SIG_IGN);" + READY + WAIT)
    await made.start(place.env)
    await made.wait_ready()
    await made.stop(0.1)
    assert await made.ended() == -signal.SIGKILL


def check_grandchild_ends(place: Place, code: str, stop: Callable[[Child], None] | None = None) -> None:
    """Starts a child with a grandchild that ignores SIGTERM, kills the child, and checks the grandchild's end."""

    async def work() -> None:
        made = place.child(code + READY + WAIT)
        await made.start(place.env)
        await made.wait_ready()
        assert made.pid is not None
        [grandchild] = psutil.Process(made.pid).children()
        os.kill(made.pid, signal.SIGKILL)
        assert await made.ended() == -signal.SIGKILL
        await made.end_strays()
        try:
            assert not lives(grandchild), "it lives on"
        finally:
            if lives(grandchild):
                grandchild.kill()

    asyncio.run(work())


@pytest.mark.parametrize(
    ("own_session", "env"),
    [
        pytest.param(False, "{}", id="in the session, without the marker"),
        pytest.param(True, "None", id="with the marker, in a session of its own"),
    ],
)
def test_what_a_child_leaves_is_ended(place: Place, own_session: bool, env: str) -> None:
    check_grandchild_ends(place, GRANDCHILD.format(own_session=own_session, env=env))


def test_without_sessions_a_grandchild_would_live_on(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    found = processes.started_by
    monkeypatch.setattr(processes, "started_by", lambda marker, sessions=(): found(f"no {marker}", ()))
    with pytest.raises(AssertionError, match="lives on"):
        check_grandchild_ends(place, GRANDCHILD.format(own_session=False, env="{}"))


@pytest.mark.parametrize("ours", [True, False])
def test_a_session_whose_number_was_given_anew_is_left_alone(ours: bool) -> None:
    leader = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); import signal; signal.pause()"],
        stdout=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, processes.MARKER: f"{UP_ID}.made"} if ours else None,
    )
    with leader:
        assert leader.stdout is not None
        leader.stdout.readline()
        assert [process.pid for process in processes.started_by(f"{UP_ID}.", [leader.pid])] == [leader.pid] * ours
        leader.kill()


def test_the_end_of_the_parent_ends_a_child() -> None:
    """Whatever became of the parent: the endpoint stands for all that watch their standard input."""
    made = subprocess.Popen(
        [sys.executable, "-m", "tocsin.cli.demo.endpoint", "0"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert made.stdin is not None
    assert made.stdout is not None
    with made:
        assert b'"ready"' in made.stdout.readline()
        made.stdin.close()
        assert made.wait(10) == 0


async def test_a_log_that_has_grown_is_set_aside(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "_LOG_LIMIT", 10)
    made = place.child("import sys; sys.stderr.write('x' * 20)")
    for _ in range(2):
        await made.start(place.env)
        await made.ended()
    assert made.log_file.read_text() == "x" * 20
    assert made.log_file.with_suffix(".log.1").read_text() == "x" * 20
    assert made.log_file.stat().st_mode & 0o777 == 0o600


def test_a_zombie_has_ended() -> None:
    made = subprocess.Popen([sys.executable, "-c", ""])
    process = psutil.Process(made.pid)
    eventually(lambda: process.status() == psutil.STATUS_ZOMBIE, 10, "its end")
    assert processes.wait_gone([process], 5.0) == []
    made.wait()
