"""The child's end: when to stop, and how to tell the parent something.

A child's standard input is a pipe that nobody writes to. Its end means that the parent is gone, however
it went; no signal and no polling of parent pids is needed, and it works on every Unix.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

_READ = 4_096


@contextlib.contextmanager
def stop_signals(stop: asyncio.Event, *, parent: bool) -> Iterator[None]:
    """Sets `stop` on SIGINT and SIGTERM, and with `parent` when standard input ends. In the running loop.

    Handlers are installed even where a shell's `&` left SIGINT ignored.
    """
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if parent:
        loop.add_reader(sys.stdin.fileno(), _at_end, loop, stop)
    try:
        yield
    finally:
        if parent:
            loop.remove_reader(sys.stdin.fileno())
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def _at_end(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), _READ):
        loop.remove_reader(sys.stdin.fileno())
        stop.set()


def tell_parent(event: str, **values: Any) -> None:
    """Writes one message on standard output, a line of JSON; a parent that is gone is no error."""
    line = json.dumps({"event": event, **values}) + "\n"
    with contextlib.suppress(BrokenPipeError):
        os.write(sys.stdout.fileno(), line.encode())
