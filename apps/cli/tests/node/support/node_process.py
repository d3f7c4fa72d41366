"""An executor as a process of its own, which can be killed, stopped, and made to stand still at a crash point.

As a script, `node_process.py URL TTL`: lines on its stdin name a crash point and for how many seconds the event loop is
to stand still there, once; 0: the process is killed there. It is killed where its stdin ends.
"""

import asyncio
import os
import signal
import sys
import threading
import time
from uuid import UUID

from tocsin.cli.node import ExecutorNode
from tocsin.common import crashpoints
from tocsin.common.settings import Settings
from tocsin.common.telemetry.meter import MemoryMeter


class NodeProcess:
    """The process, as a test has it in hand."""

    def __init__(self, url: str, ttl: float) -> None:
        self._arguments = (__file__, url, str(ttl))
        self._process: asyncio.subprocess.Process
        self.lease_id: UUID

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, *self._arguments, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    async def arm(self, point: str, seconds: float = 0) -> None:
        """Says what happens at a crash point, and waits until it is heard."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{point} {seconds}\n".encode())
        assert await self._process.stdout.readline() == b"heard\n"

    def stop(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    async def died(self) -> None:
        """Waits until it was killed at its point."""
        assert await self._process.wait() == -signal.SIGKILL

    async def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()


def main(url: str, ttl: float) -> None:
    armed: dict[str, float] = {}

    def listen() -> None:
        for line in sys.stdin:
            point, seconds = line.split()
            armed[point] = float(seconds)
            print("heard", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    def reached(point: str) -> None:
        seconds = armed.pop(point, None)
        if seconds == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        elif seconds is not None:
            time.sleep(seconds)  # noqa: TID251 - the loop is to stand still

    threading.Thread(target=listen, daemon=True).start()
    crashpoints.set_handler(reached)
    settings = Settings(database_url=url, lease_ttl_seconds=ttl, egress_allow="127.0.0.0/8")
    asyncio.run(ExecutorNode(settings, "shared", 0, MemoryMeter()).run())


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
