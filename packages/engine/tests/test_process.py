"""A process is known by its pid and start: the dead are gone, and no step of the wall clock buries the living."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil
import pytest

from tocsin.engine.process import StartOf, is_gone, start_in_seconds, start_in_ticks, this_process

STAT = "{pid} ({command}) {state} 1 7 7 0 -1 4194560 1 0 0 0 5 2 0 0 20 0 9 0 {ticks} 1000 50 18446744073709551615 1"


@contextmanager
def a_child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends when its input does."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    with child:
        yield child
        assert child.stdin is not None
        child.stdin.close()


def a_proc(path: Path, pid: int, ticks: int, command: str = "tocsin", state: str = "S") -> StartOf:
    """The reading of a /proc that shows this one process."""
    (path / str(pid)).mkdir(exist_ok=True)
    (path / str(pid) / "stat").write_text(STAT.format(pid=pid, command=command, state=state, ticks=ticks))
    return partial(start_in_ticks, proc=path)


def test_this_process_is_not_gone() -> None:
    me = this_process()
    assert me.pid == os.getpid()
    assert not is_gone(me.pid, me.started)


def test_a_recycled_pid_is_another_process() -> None:
    me = this_process()
    assert is_gone(me.pid, me.started - 1)
    assert is_gone(me.pid, me.started + 1)


def start_of(pid: int) -> float:
    found = start_in_ticks(pid) if psutil.LINUX else start_in_seconds(pid)
    assert found is not None
    return found


@pytest.mark.parametrize("reaped", [False, True], ids=["a zombie", "waited for"])
def test_a_child_that_ended_is_gone(*, reaped: bool) -> None:
    with a_child() as child:
        started = start_of(child.pid)
        assert not is_gone(child.pid, started)
        child.kill()
        if reaped:
            child.wait()
        else:
            os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert is_gone(child.pid, started)


def buried_by_a_clock_step(reading: StartOf, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether this living process is taken for gone once the wall clock, and the boot time with it, was moved."""
    started = reading(os.getpid())
    assert started is not None
    with monkeypatch.context() as stepped:
        true_boot, true_start = psutil.boot_time, psutil.Process.create_time
        stepped.setattr(psutil, "boot_time", lambda: true_boot() + 3.0)
        stepped.setattr(psutil.Process, "create_time", lambda process: true_start(process) + 3.0)
        return is_gone(os.getpid(), started, reading)


def test_a_moved_boot_time_buries_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not buried_by_a_clock_step(a_proc(tmp_path, os.getpid(), 4711), monkeypatch)
    assert buried_by_a_clock_step(start_in_seconds, monkeypatch)  # broken where seconds rest on the boot time


def first_field_after_the_command_by_split(path: Path, pid: int) -> float:
    """Broken: takes the command for one word."""
    return float((path / str(pid) / "stat").read_text().split()[21])


COMMANDS = ["tocsin", "a b", "a) S 1 2", "((", "", "ray::Executor shared/1-0", "line\nbreak)"]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_may_hold_anything(tmp_path: Path, command: str) -> None:
    assert a_proc(tmp_path, 7, 123_456, command)(7) == 123_456.0


def test_the_commands_catch_a_reading_by_words(tmp_path: Path) -> None:
    found = []
    for command in COMMANDS:
        a_proc(tmp_path, 7, 123_456, command)
        found.append(first_field_after_the_command_by_split(tmp_path, 7))
    assert set(found) != {123_456.0}


@pytest.mark.parametrize("state", ["Z", "X"])
def test_the_dead_have_no_start(tmp_path: Path, state: str) -> None:
    assert a_proc(tmp_path, 7, 5, state=state)(7) is None


def test_ticks_are_compared_exactly(tmp_path: Path) -> None:
    reading = a_proc(tmp_path, 7, 2**52)
    assert not is_gone(7, float(2**52), reading)
    assert is_gone(7, float(2**52 + 1), reading)


@pytest.mark.parametrize(
    ("kill", "gone"), [(ProcessLookupError, True), (PermissionError, False)], ids=["nobody", "hidden"]
)
def test_what_proc_does_not_show_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kill: type[OSError], *, gone: bool
) -> None:
    def refuse(_pid: int, _signal: int) -> None:
        raise kill

    monkeypatch.setattr(os, "kill", refuse)
    assert is_gone(7, 5.0, partial(start_in_ticks, proc=tmp_path)) is gone


def test_what_is_hidden_and_lives_is_not_gone(tmp_path: Path) -> None:
    assert not is_gone(os.getpid(), 5.0, partial(start_in_ticks, proc=tmp_path))


@pytest.mark.parametrize(
    ("error", "gone"), [(psutil.NoSuchProcess(7), True), (psutil.AccessDenied(7), False)], ids=["nobody", "denied"]
)
def test_seconds_are_read_as_ticks_are(monkeypatch: pytest.MonkeyPatch, error: psutil.Error, *, gone: bool) -> None:
    def refuse(_process: psutil.Process) -> float:
        raise error

    monkeypatch.setattr(psutil.Process, "status", refuse)
    assert is_gone(os.getpid(), 5.0, start_in_seconds) is gone
