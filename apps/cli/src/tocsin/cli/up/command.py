"""`tocsin up`, from its first check to its exit code."""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Coroutine, Iterator
from typing import Any

from tocsin.cli.egress import read_egress
from tocsin.cli.logs import configure_logging
from tocsin.cli.up.machine import Machine
from tocsin.cli.up.options import UpOptions, require_free_ports
from tocsin.cli.up.screen import Screen, ScreenHandler
from tocsin.common.clock import SystemClock

log = logging.getLogger("tocsin.up")

_SAME_SIGNAL_SECONDS = 1.0
"""`timeout`, `uv run` and terminals can send one wish to stop twice: to us, and to our whole group."""


async def up(options: UpOptions, egress_allow: str) -> None:
    """Runs everything until SIGINT, SIGTERM or SIGHUP; then drains it, within 10 s. A second signal kills it.

    Raises:
        TocsinError: something cannot be started; nothing is left running.
    """
    screen = Screen()
    configure_logging(ScreenHandler(screen))
    read_egress(egress_allow)
    require_free_ports(options)
    machine = Machine(options, SystemClock(), egress_allow)
    stop = asyncio.Event()
    with _signals(stop, machine):
        try:
            await _until(stop, _serve(machine, screen))
        finally:
            if stop.is_set():
                screen.say("Tocsin is draining; a second Ctrl-C kills it")
            await machine.stop()
    screen.say("Tocsin has stopped")


async def _serve(machine: Machine, screen: Screen) -> None:
    await machine.start()
    if not machine.options.demo:
        with screen.showing(machine, ()):
            await machine.keep()
    from tocsin.cli.demo.show import Demo  # its HTTP client takes half a second to import

    demo = Demo(machine, screen)
    await demo.prepare()
    with screen.showing(machine, demo.curl()):
        await asyncio.gather(machine.keep(), demo.watch())


async def _until(stop: asyncio.Event, serving: Coroutine[Any, Any, None]) -> None:
    """Runs until `stop` is set; whatever is raised before is raised here."""
    work = asyncio.create_task(serving)
    waiting = asyncio.create_task(stop.wait())
    await asyncio.wait({work, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if not work.done():
        work.cancel()
        await asyncio.wait({work})
    if not work.cancelled():
        work.result()


@contextlib.contextmanager
def _signals(stop: asyncio.Event, machine: Machine) -> Iterator[None]:
    """The first signal sets `stop`, the next one kills. A shell's `&` leaves SIGINT ignored: it is taken all the same;
    SIGHUP ignored is `nohup`'s wish, and kept."""
    loop = asyncio.get_running_loop()

    first = 0.0

    def on_signal() -> None:
        nonlocal first
        if not stop.is_set():
            first = loop.time()
            stop.set()
        elif loop.time() - first > _SAME_SIGNAL_SECONDS:
            machine.abandon()

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
