"""The API as a child of `up`."""

import asyncio
import sys

from tocsin.api.main import ListenError
from tocsin.cli.logs import configure_logging
from tocsin.cli.serve import serve_api
from tocsin.cli.up.lifeline import stop_signals, tell_parent
from tocsin.common.settings import Settings

GRACE = 2.0


async def main() -> int:
    stop = asyncio.Event()
    with stop_signals(stop, parent=True):
        try:
            await serve_api(Settings(), stop, lambda port: tell_parent("ready", port=port), grace=GRACE)
        except ListenError as error:
            tell_parent("error", text=str(error))
            return 1
    return 0


if __name__ == "__main__":
    configure_logging()
    sys.exit(asyncio.run(main()))
