"""Finding and ending everything that one child, or one `up`, has started, however far it has strayed.

Each child leads a session and carries a marker in its environment. Ray's processes stay in the session, but
some hide their environment behind a process title; what should leave the session keeps the marker. Both
outlive the child, and neither can belong to anybody else.
"""

import contextlib
import math
import os
import signal
from collections.abc import Iterable

import psutil

MARKER = "TOCSIN_UP"
"""The environment variable of every child: `<id of the up>.<name of the child>`."""

_TERM_SECONDS = 1.0
_KILL_SECONDS = 5.0
_SLICE = 0.1


def started_by(marker: str, sessions: Iterable[int] = ()) -> list[psutil.Process]:
    """The living processes whose marker begins with `marker`, and all others of their sessions and of `sessions`.

    This process and its own session are never among them, nor is a session whose leader lives without the marker: its
    number was given anew.
    """
    own = os.getsid(0)
    wanted = {*sessions} - {own}
    marked: list[psutil.Process] = []
    others: list[tuple[int, psutil.Process]] = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            session = os.getsid(process.pid)
            if session == own or _is_zombie(process):
                continue
            if _marker_of(process).startswith(marker):
                wanted.add(session)
                marked.append(process)
            else:
                others.append((session, process))
    wanted -= {session for session, process in others if process.pid == session}
    return marked + [process for session, process in others if session in wanted]


def end(processes: list[psutil.Process], *, gently: bool = True) -> None:
    """Ends processes: SIGTERM and, a second later, SIGKILL; returns when they are gone. Blocks."""
    if gently:
        processes = _signal_all(processes, signal.SIGTERM, _TERM_SECONDS)
    _signal_all(processes, signal.SIGKILL, _KILL_SECONDS)


def end_all(marker: str, sessions: Iterable[int] = (), *, gently: bool = True) -> int:
    """Ends what `started_by` finds, until it finds nothing; says how many there were. Blocks."""
    ended = 0
    sessions = tuple(sessions)
    while found := started_by(marker, sessions):
        ended += len(found)
        end(found, gently=gently)
        gently = False  # what a dying process has started meanwhile
    return ended


def wait_gone(processes: list[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Waits up to so many seconds; returns those that still live. A zombie that nobody reaps has ended. Blocks."""
    for _ in range(math.ceil(seconds / _SLICE)):
        if not processes:
            break
        processes = [p for p in psutil.wait_procs(processes, timeout=_SLICE)[1] if not _is_zombie(p)]
    return processes


def _is_zombie(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return True


def _signal_all(processes: list[psutil.Process], number: signal.Signals, wait: float) -> list[psutil.Process]:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)
    return wait_gone(processes, wait)


def _marker_of(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error, OSError):
        return str(process.environ().get(MARKER, ""))
    return ""
