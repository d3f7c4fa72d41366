"""The processes of one cell and their keeper: each has its own way to the database, and is restarted when it ends."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from bench.system import environment_of
from property_tests.network.proxy import Proxy
from tocsin.common.clock import Clock

ROOT = Path(__file__).parents[2]
TTL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Failure:
    """A process that ended by a fault, or stood still, at the Unix second `at`."""

    name: str
    pid: int
    at: float


@dataclass(eq=False)
class Child:
    """`role`: executor, api or supervisor. `may_start` is set while its keeper would restart it."""

    name: str
    role: str
    cell: str
    proxy: Proxy
    asking: Sequence[str]
    process: asyncio.subprocess.Process | None = None
    started: float = 0.0
    killed_at: float | None = None
    retired: bool = False
    may_start: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid


class Keeper:
    """`failures`: every failure of a process, in order. `api_port`: where the API listens. `slowest_start`: the longest
    that a process took to load its code, in seconds."""

    def __init__(self, dsn: str, control_port: int, folder: Path, clock: Clock) -> None:
        self._dsn = urlsplit(dsn)
        self._control_port = control_port
        self._folder = folder
        self._clock = clock
        self._tasks: list[asyncio.Task[None]] = []
        self._adopted: dict[str, int] = {}
        self.children: dict[str, Child] = {}
        self.failures: list[Failure] = []
        self.slowest_start = 0.0
        self.api_port = _free_port()

    async def add(self, name: str, role: str, *, cell: str = "shared", asking: Sequence[str] = ()) -> Child:
        """Starts a process, and from then on starts it again whenever it has ended. It asks at the points `asking` in
        its first life only."""
        host, port = self._dsn.hostname, self._dsn.port
        assert host is not None
        assert port is not None
        address = host, port
        proxy = Proxy(lambda: address, self._clock)
        await proxy.open()
        child = self.children[name] = Child(name, role, cell, proxy, asking)
        child.may_start.set()
        await self._start(child, asking)
        self._tasks.append(asyncio.create_task(self._keep(child), name=f"keep {name}"))
        return child

    def adopt(self, name: str, pid: int) -> None:
        """A process that somebody else started and keeps: it can be killed."""
        self._adopted[name] = pid

    def kill(self, name: str, *, restart: bool = True) -> float:
        """SIGKILL; says when. With `restart` False it stays down until `release`."""
        if (pid := self._adopted.get(name)) is not None:
            self.failures.append(Failure(name, pid, self._clock.now().timestamp()))
            os.kill(pid, signal.SIGKILL)
            return self.failures[-1].at
        child = self.children[name]
        if not restart:
            child.may_start.clear()
        child.killed_at = self._clock.now().timestamp()
        child.process.kill()  # type: ignore[union-attr]
        return child.killed_at

    def release(self, *names: str) -> None:
        for name in names:
            self.children[name].may_start.set()

    def signal(self, name: str, number: signal.Signals) -> None:
        child = self.children[name]
        if number == signal.SIGSTOP:
            self.failures.append(Failure(name, child.pid, self._clock.now().timestamp()))
        child.process.send_signal(number)  # type: ignore[union-attr]

    def greeted(self, name: str) -> None:
        """A process has said its first word: it begins with the product's own work now."""
        if (child := self.children.get(name)) is not None:
            self.slowest_start = max(self.slowest_start, self._clock.monotonic() - child.started)

    async def cells(self, words: list[str]) -> object:
        """What the Supervisor asks of its cells."""
        verb, names = words[0], words[1:]
        if verb == "start":
            name = f"{names[0]}-{len(self.children)}"
            await self.add(name, "executor", cell=names[0])
            return name
        if verb == "drain":
            for name in names:
                self.children[name].retired = True
                self.signal(name, signal.SIGTERM)
            return None
        found: dict[str, list[str]] = {}
        for child in self.children.values():
            if child.role == "executor" and not child.retired:
                found.setdefault(child.cell, []).append(child.name)
        return found

    async def stop(self) -> None:
        """Ends everything at once: what was to be seen has been seen."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for child in self.children.values():
            if child.process is not None and child.process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    child.process.kill()
                await child.process.wait()
            await child.proxy.close()

    async def _keep(self, child: Child) -> None:
        while True:
            assert child.process is not None
            code = await child.process.wait()
            if code != 0:
                at = self._clock.now().timestamp() if child.killed_at is None else child.killed_at
                self.failures.append(Failure(child.name, child.pid, at))
            child.killed_at = None
            if child.retired:
                return
            await child.may_start.wait()
            await self._start(child, ())

    async def _start(self, child: Child, asking: Sequence[str]) -> None:
        database = self._dsn._replace(
            netloc=f"{self._dsn.username}:{self._dsn.password}@127.0.0.1:{child.proxy.port}", query="sslmode=disable"
        )
        environment = {
            **environment_of(database.geturl()),
            "TOCSIN_LEASE_TTL_SECONDS": str(TTL_SECONDS),
            "TOCSIN_CELL": child.cell,
            "TOCSIN_API_PORT": str(self.api_port),
        }
        child.started = self._clock.monotonic()
        with (self._folder / f"{child.name}.log").open("ab") as log:
            child.process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "property_tests.crash_matrix.launcher",
                child.role,
                str(self._control_port),
                child.name,
                ",".join(asking),
                cwd=ROOT,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,  # the terminal's Ctrl-C is for the harness
            )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
