"""The processes that the chaos has started, however far they have strayed; and that none is left at the end.

They carry a marker in their environment, or live in the session of one that does (Ray hides the environment of some
behind a process title), or work in our database's folder (its server gets an environment of its own).
"""

import contextlib
import os
from pathlib import Path

import psutil

from tocsin.cli.postgres import processes as servers
from tocsin.cli.up import processes

MARKER = "TOCSIN_CHAOS"


class Family:
    """`token` marks it. `cluster` is the folder of its PostgreSQL's data."""

    def __init__(self, token: str, cluster: Path) -> None:
        self.token = token
        self._cluster = cluster
        self._sessions: set[int] = set()

    def living(self) -> list[psutil.Process]:
        """All of them now; never this process. Blocks for tens of milliseconds."""
        own = os.getsid(0)
        found = {process.pid: process for process in servers.of_cluster(self._cluster)}
        others: list[tuple[int, psutil.Process]] = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                session = os.getsid(process.pid)
                if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                    continue
                if self._is_marked(process):
                    found[process.pid] = process
                    self._sessions |= {session} - {own}
                else:
                    others.append((session, process))
        found.update({process.pid: process for session, process in others if session in self._sessions})
        return list(found.values())

    def named(self, text: str) -> psutil.Process:
        """The one whose name is `text`; else the first that has it in its name or command line.

        Raises:
            LookupError: there is none.
        """
        like: list[psutil.Process] = []
        for process in self.living():
            with contextlib.suppress(psutil.Error):
                if process.name() == text:
                    return process
                if text in process.name() or text in " ".join(process.cmdline()):
                    like.append(process)
        if not like:
            raise LookupError(f"no process of ours is named {text}")
        return like[0]

    def end_rest(self, seconds: float) -> list[str]:
        """Waits so long for the last to end, ends what is left, and says what that was."""
        left = processes.wait_gone(self.living(), seconds)
        said = []
        for process in left:
            with contextlib.suppress(psutil.Error):
                said.append(f"{process.pid} {' '.join(process.cmdline())[:80] or process.name()}")
        processes.end(left)
        return said

    def _is_marked(self, process: psutil.Process) -> bool:
        with contextlib.suppress(psutil.Error, OSError):
            return process.environ().get(MARKER) == self.token
        return False
