"""`python -m bench.executor`: one executor as `tocsin engine` runs it, until SIGTERM drains it."""

import asyncio
import logging
import signal

from tocsin.cli.serve import serve_engine
from tocsin.common.settings import Settings


async def serve() -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGINT, lambda: None)  # the terminal's Ctrl-C is for the measuring side
    await serve_engine(Settings(), stop)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    asyncio.run(serve())
