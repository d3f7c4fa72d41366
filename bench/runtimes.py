"""How executors are started for a measurement: through Ray as `tocsin up` does it, or as plain processes."""

import asyncio
import secrets
import shutil
import socket
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType

from bench.frame import Options
from bench.system import STOP_SECONDS, Executors, PlainExecutors, environment_of
from tocsin.cli.database import open_store
from tocsin.cli.up.child import Child
from tocsin.cli.up.ray_keeper import ray_environment

CELL = "shared"


def chosen(options: Options, folder: Path, settings: Mapping[str, str] = MappingProxyType({})) -> Executors:
    """Through Ray unless plain processes were asked for. Logs go to `folder`; `settings` are environment variables."""
    return PlainExecutors(folder, settings) if options.ray is False else RayExecutors(folder, settings)


class RayExecutors:
    """The keeper of `tocsin up`: a Ray head with its dashboard, the Supervisor, and the executors it starts."""

    runtime = "Ray, as tocsin up starts it"

    def __init__(self, folder: Path, settings: Mapping[str, str] = MappingProxyType({})) -> None:
        self._folder = folder
        self._settings = settings
        self._temporary: Path | None = None
        self._child: Child | None = None

    async def start(self, dsn: str, count: int) -> None:
        async with open_store(dsn) as store:
            await store.tenants.set_executors(CELL, count)
        # Its sockets need a short path.
        self._temporary = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="tocsin-", dir="/tmp"))
        self._child = Child("ray", "tocsin.cli.up.ray_keeper", secrets.token_hex(8), self._folder, lambda message: None)
        environment = {**environment_of(dsn, self._settings), **ray_environment(secrets.token_hex(32))}
        await self._child.start(environment, str(self._temporary / "r"), str(free_port()))
        await self._child.wait_ready()

    async def stop(self) -> None:
        if self._child is not None:
            await self._child.stop(STOP_SECONDS)
        if self._temporary is not None:
            await asyncio.to_thread(shutil.rmtree, self._temporary, ignore_errors=True)

    def logs(self) -> list[Path]:
        return [] if self._temporary is None else sorted(self._temporary.glob("r/session_latest/logs/worker-*.err"))

    def overhead(self) -> list[int]:
        return [] if self._child is None or self._child.pid is None else [self._child.pid]


def free_ports(count: int) -> list[int]:
    """Different ports of the loopback address that nobody listens on by now."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def free_port() -> int:
    """One such port."""
    return free_ports(1)[0]
