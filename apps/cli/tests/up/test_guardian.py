"""What cleans up after a killed `up`: it ends that one's server, and nobody else's."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from tocsin.cli.postgres import EmbeddedPostgres, PostgresError, cluster, earlier, processes, throwaway_settings
from tocsin.cli.up import guardian
from tocsin.common.clock import Clock
from up_process import LEAVES_A_SERVER, lives

BLIND = "import os; guardian.take_lock = lambda *_, **__: os.open(os.devnull, os.O_RDONLY);"
MAIN = """
import sys
from pathlib import Path
from tocsin.cli.up import guardian
{twin}
guardian.main("no such up", Path(sys.argv[1]), Path(sys.argv[2]))
"""


def check_is_left_alone(home: Path, twin: str = "") -> None:
    """Starts a server as a new `up` does, and lets the guardian of one before it go."""
    data_dir = home / f"new {len(twin)}"
    with EmbeddedPostgres(data_dir, settings=throwaway_settings()) as server:
        arguments = [str(data_dir / "cluster"), str(home / "no such folder")]
        guardian = subprocess.run(
            [sys.executable, "-c", MAIN.format(twin=twin), *arguments],
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )
        assert (guardian.returncode, guardian.stdout) == (0, b'{"event": "ready"}\n'), guardian.stderr
        assert server.running, "it was shut down"


def test_the_guardian_of_a_killed_up_leaves_the_next_ones_server_alone(home: Path) -> None:
    check_is_left_alone(home)


def test_one_that_does_not_ask_whose_the_data_are_is_caught(home: Path) -> None:
    with pytest.raises(AssertionError, match="shut down"):
        check_is_left_alone(home, BLIND)


class Next:
    """The next `up` in a data directory, which starts as soon as it can."""

    def __init__(self, data_dir: Path) -> None:
        self.server = EmbeddedPostgres(data_dir, settings=throwaway_settings())

    def try_to_start(self) -> None:
        with contextlib.suppress(PostgresError):
            self.server.start()

    def before_the_look(self, found: Path) -> psutil.Process | None:
        self.try_to_start()
        return earlier.left_behind(found)

    def before_the_end(self, process: psutil.Process, clock: Clock, *, grace: float) -> None:
        self.try_to_start()
        processes.shut_down(process, clock, grace=grace)


def check_the_next_is_left_alone(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed `up` has left a server; its guardian ends that one, and not that of the next `up`."""
    said = subprocess.run([sys.executable, "-c", LEAVES_A_SERVER, data_dir], check=True, capture_output=True, text=True)
    left = psutil.Process(int(said.stdout))
    following = Next(data_dir)
    monkeypatch.setattr(guardian, "left_behind", following.before_the_look)
    monkeypatch.setattr(guardian, "servers", SimpleNamespace(shut_down=following.before_the_end))
    guardian._end_server(data_dir / "cluster")
    try:
        assert not lives(left)
        assert following.server.running, "it was shut down"
    finally:
        following.server.stop()


def test_a_next_up_that_starts_meanwhile_is_left_alone(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_LOCK_SLICE", 0.01)
    check_the_next_is_left_alone(home / "meanwhile", monkeypatch)


def test_one_that_looks_without_the_lock_is_caught(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guardian, "take_lock", lambda *_, **__: os.open(os.devnull, os.O_RDONLY))
    with pytest.raises(AssertionError, match="shut down"):
        check_the_next_is_left_alone(home / "without the lock", monkeypatch)


LEAVES_ITS_CHILD = """
import subprocess, sys
wait = "import signal; print(flush=True); signal.signal(15, signal.SIG_IGN); signal.pause()"
left = subprocess.Popen([sys.executable, "-c", wait], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env={})
left.stdout.readline()
print(left.pid)
"""


def check_a_session_is_ended(tmp_path: Path, told: str) -> None:
    """A child of a killed `up` has ended, and so has all that carried the marker; what it had started lives on."""
    child = subprocess.Popen(
        [sys.executable, "-c", LEAVES_ITS_CHILD],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    left = psutil.Process(int(child.communicate(timeout=30)[0]))
    command = [sys.executable, "-m", "tocsin.cli.up.guardian", "no such up", "", str(tmp_path / "no such folder")]
    subprocess.run(command, check=True, input=told.format(child.pid).encode(), capture_output=True, timeout=30)
    try:
        assert not lives(left), "it lives on"
    finally:
        if lives(left):
            left.kill()


def test_what_is_left_of_a_child_is_ended_though_nothing_tells_whose_it_is(tmp_path: Path) -> None:
    """As Ray's agents are, when raylet and keeper have died first."""
    check_a_session_is_ended(tmp_path, "ray 1\nray {}\n")


def test_a_guardian_that_is_not_told_of_the_last_start_is_caught(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="lives on"):
        check_a_session_is_ended(tmp_path, "ray {}\nray 1\n")


def test_where_up_ran_no_server_the_folder_alone_is_removed(tmp_path: Path) -> None:
    """As with a database of the operator's."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    command = [sys.executable, "-m", "tocsin.cli.up.guardian", "no such up", "", str(folder)]
    said = subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True, cwd=tmp_path)
    assert (said.stderr, folder.exists(), tmp_path.exists()) == (b"", False, True)
