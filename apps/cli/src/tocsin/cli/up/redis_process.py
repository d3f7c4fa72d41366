"""A Redis for the hint index as a child of `up`: it ends with us, and we end with it; `up` then starts both again."""

import asyncio
import sys
from pathlib import Path

from tocsin.cli.logs import configure_logging
from tocsin.cli.redis_server import RedisError, RedisServer
from tocsin.cli.up.lifeline import stop_signals, tell_parent


async def main(folder: Path) -> int:
    """`folder`: the private one with its socket."""
    stop = asyncio.Event()
    server = RedisServer(folder)
    with stop_signals(stop, parent=True):
        try:
            await server.start()
        except RedisError as error:
            tell_parent("error", text=f"TOCSIN_HINTS asks for a Redis, and {error}")
            return 1
        tell_parent("ready")
        stopping, ended = asyncio.create_task(stop.wait()), asyncio.create_task(server.ended())
        await asyncio.wait({stopping, ended}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        await server.stop()
        await ended
    return 0 if stop.is_set() else 1


if __name__ == "__main__":
    configure_logging()
    sys.exit(asyncio.run(main(Path(sys.argv[1]))))
