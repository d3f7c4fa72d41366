"""What a person sees of `up`: one screen on a terminal, lines elsewhere."""

import asyncio
import contextlib
import logging
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from urllib.parse import urlsplit

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tocsin.cli.demo.figures import Figures, Line
from tocsin.cli.up.given_postgres import GivenPostgres
from tocsin.cli.up.machine import CELL, Machine
from tocsin.cli.up.options import SETTING

_REFRESH_SECONDS = 0.5
_LEAST, _MOST = 3, 18
"""Runs shown."""

_OTHER_LINES = 14


class Screen:
    """Where `up` prints. Log lines go above what is live."""

    def __init__(self) -> None:
        self._console = Console()
        self.live = self._console.is_terminal
        self.figures: Figures | None = None

    def say(self, text: str) -> None:
        """One line; a terminal that is gone is no error."""
        with contextlib.suppress(OSError):
            if self.live:
                self._console.print(text, markup=False, highlight=False, soft_wrap=True)
            else:
                print(text, flush=True)

    @contextlib.contextmanager
    def showing(self, machine: Machine, hints: Sequence[str]) -> Iterator[None]:
        """Shows what runs where until the block ends, kept up to date on a terminal; and `hints`, once."""
        for line in hints if self.live else [*_where(machine), *hints]:
            self.say(line)
        if not self.live:
            yield
            return
        live = Live(
            get_renderable=lambda: self._picture(machine),
            console=self._console,
            auto_refresh=False,  # its thread would read what the loop is changing
            redirect_stdout=False,
            redirect_stderr=False,
        )
        with live:
            refreshing = asyncio.create_task(_refresh(live), name="refresh the screen")
            try:
                yield
            finally:
                refreshing.cancel()

    def line(self, line: Line) -> None:
        """A call's end, where nothing is live."""
        if not self.live:
            self.say(
                f"{line.task}: due {_time(line.due)}, started {_time(line.arrived)}, delay {_delay(line.delay)}, "
                f"attempt {line.attempt}, {line.outcome}"
            )

    def summary(self) -> None:
        """The running figures, where nothing is live."""
        if not self.live and self.figures is not None:
            self.say(summary_line(self.figures))

    def _picture(self, machine: Machine) -> RenderableType:
        parts: list[RenderableType] = [Text("\n".join(_where(machine)))]
        if self.figures is not None:
            room = max(_LEAST, min(_MOST, self._console.height - _OTHER_LINES))
            parts += [_table(self.figures, room), Text(summary_line(self.figures), style="bold")]
        return Group(*parts)


class ScreenHandler(logging.Handler):
    """Log lines onto the screen."""

    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):
            if self._screen.live:
                self._screen.say(self.format(record))
            else:
                print(self.format(record), file=sys.stderr, flush=True)


async def _refresh(live: Live) -> None:
    while True:
        with contextlib.suppress(OSError):
            live.refresh()
        await asyncio.sleep(_REFRESH_SECONDS)


def summary_line(figures: Figures) -> str:
    """The percentiles of the start delay, as the endpoint saw it."""
    half, most = figures.percentile(0.5), figures.percentile(0.99)
    return (
        f"start delay at the endpoint: p50 {_delay(half)}, p99 {_delay(most)} "
        f"over {figures.counted} first attempts that no policy held back; {figures.calls} calls in all"
    )


def _where(machine: Machine) -> list[str]:
    options = machine.options
    lines = [
        "Tocsin runs on this machine; Ctrl-C drains and stops it, a second Ctrl-C kills it",
        f"  API         http://127.0.0.1:{options.port}  {_state(machine.api.ready, machine.api.pid)}",
        f"  PostgreSQL  {_database(machine)}",
        f"  Ray         http://{machine.dashboard}  {_state(machine.ray.ready, machine.ray.pid)}"
        f"  token: {options.ray_token}",
        f"  Executors   {options.executors} in cell {CELL}  logs: {machine.ray_folder}/session_latest/logs/worker-*",
        f"  Logs        {options.logs}",
    ]
    if options.demo:
        lines.insert(
            5,
            f"  Endpoint    http://127.0.0.1:{machine.endpoint_port}"
            f"  {_state(machine.endpoint.ready, machine.endpoint.pid)}",
        )
    return lines


def _database(machine: Machine) -> str:
    postgres = machine.postgres
    if isinstance(postgres, GivenPostgres):
        return f"{postgres.place}  from {SETTING}"
    port = urlsplit(machine.dsn).port
    return f"127.0.0.1:{port}  {_state(postgres.running, postgres.pid)}  data: {machine.options.data_dir}"


def _state(serves: bool, pid: int | None) -> str:
    return f"pid {pid}" if serves and pid is not None else "starting"


def _table(figures: Figures, count: int) -> Table:
    table = Table(expand=True, box=None, pad_edge=False)
    for name, justify in (
        *(("task", "left"), ("due", "left"), ("started", "left"), ("delay", "right")),
        *(("attempt", "right"), ("outcome", "left")),
    ):
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for line in figures.newest(count):
        table.add_row(
            line.task,
            _time(line.due),
            _time(line.arrived),
            _delay(line.delay),
            str(line.attempt or ""),
            Text(line.outcome, style=_style(line.outcome)),
        )
    return table


def _style(outcome: str) -> str:
    word = outcome.partition(":")[0].partition(" ")[0]
    return {"succeeded": "green", "dead": "red", "skipped": "yellow", "cancelled": "yellow"}.get(word, "")


def _time(instant: datetime | None) -> str:
    return "-" if instant is None else instant.astimezone().strftime("%H:%M:%S.%f")[:-3]


def _delay(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.1f} ms"
