"""A part of the product alone: a server with no executor beside it, as near and as fast as was asked for."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.environment import environment
from bench.frame import Options
from bench.quotas import Quotas, quotas
from bench.reach import REACHES
from bench.report import Environment
from bench.system import connected, server, work_folder


@dataclass(frozen=True, slots=True)
class Alone:
    """`dsn` leads to the server, through the network that was chosen; `pid` is its process. `folder` takes logs."""

    dsn: str
    pid: int
    folder: Path
    limits: Quotas
    environment: Environment


@asynccontextmanager
async def alone(options: Options, runtime: str = "the store's methods from one process") -> AsyncIterator[Alone]:
    """`runtime`: what is measured, and from where."""
    async with (
        work_folder(options.work_dir) as folder,
        quotas(options.quotas) as limits,
        server(folder) as postgres,
        REACHES[options.network](postgres.dsn) as reached,
        connected(postgres.dsn) as connection,
    ):
        assert postgres.pid is not None
        limits.limit("database", [postgres.pid])
        where = {
            **await environment(connection, folder, runtime=runtime),
            **reached.environment(),
            "quotas": limits.text,
        }
        yield Alone(reached.dsn, postgres.pid, folder, limits, where)
