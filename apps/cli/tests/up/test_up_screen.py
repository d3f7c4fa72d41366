"""What the screen shows, with a machine that stands still."""

import io
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from tocsin.cli.demo.figures import Figures, Known
from tocsin.cli.up import screen as module
from tocsin.cli.up.given_postgres import GivenPostgres
from tocsin.cli.up.machine import Machine
from tocsin.cli.up.options import UpOptions
from tocsin.cli.up.screen import Screen
from tocsin.common.clock import SystemClock

START = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)


def machine(*, demo: bool = True, given: str | None = None) -> Machine:
    serves = SimpleNamespace(ready=True, running=True, pid=77)
    stands: Any = SimpleNamespace(
        options=UpOptions(Path("/data dir"), 8080, 8265, 2, demo),
        dsn="postgresql://tocsin:hush@127.0.0.1:5433/tocsin",
        dashboard="127.0.0.1:8265",
        ray_folder=Path("/tmp/tocsin-x/r1"),
        endpoint_port=9000,
        api=serves,
        postgres=GivenPostgres(given, Path("/data dir"), SystemClock()) if given else serves,
        ray=SimpleNamespace(ready=False, pid=78),
        endpoint=serves,
    )
    return cast("Machine", stands)


def figures(calls: int) -> Figures:
    shown = Figures({"t": Known("every 2 s", timedelta(), prompt=True)}, START)
    for number in range(calls):
        shown.arrived(f"run-{number}", "t", 1, "2026-03-01T09:00:00Z", "2026-03-01T09:00:00.004000+00:00")
    return shown


def picture(monkeypatch: pytest.MonkeyPatch, shown: Figures | None, height: int = 50) -> list[str]:
    """The lines of one picture on a terminal of this height."""
    console = Console(file=io.StringIO(), force_terminal=True, width=140, height=height, color_system=None)
    monkeypatch.setattr(module, "Console", lambda: console)
    screen = Screen()
    screen.figures = shown
    assert screen.live
    with console.capture() as captured:
        console.print(screen._picture(machine()))
    return captured.get().splitlines()


def test_a_picture_says_what_runs_where(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = picture(monkeypatch, figures(1))
    assert [" ".join(line.split()) for line in lines] == [
        "Tocsin runs on this machine; Ctrl-C drains and stops it, a second Ctrl-C kills it",
        "API http://127.0.0.1:8080 pid 77",
        "PostgreSQL 127.0.0.1:5433 pid 77 data: /data dir",
        "Ray http://127.0.0.1:8265 starting token: /data dir/ray-token",
        "Executors 2 in cell shared logs: /tmp/tocsin-x/r1/session_latest/logs/worker-*",
        "Endpoint http://127.0.0.1:9000 pid 77",
        "Logs /data dir/logs",
        "task due started delay attempt outcome",
        f"every 2 s {clock(START)}.000 {clock(START)}.004 4.0 ms 1 in flight",
        "start delay at the endpoint: p50 4.0 ms, p99 4.0 ms over 1 first attempts that no policy held back; "
        "1 calls in all",
    ]


def clock(instant: datetime) -> str:
    return instant.astimezone().strftime("%H:%M:%S")


@pytest.mark.parametrize(("height", "calls", "shown"), [(50, 100, 18), (24, 100, 10), (5, 100, 3), (50, 2, 2)])
def test_a_picture_fits_the_terminal(monkeypatch: pytest.MonkeyPatch, height: int, calls: int, shown: int) -> None:
    lines = picture(monkeypatch, figures(calls), height)
    assert len([line for line in lines if line.startswith("every 2 s")]) == shown


def test_the_password_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "hush" not in "\n".join(picture(monkeypatch, None))


def test_lines_are_plain_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen()
    with screen.showing(machine(demo=False), ["Try:"]):
        screen.line(figures(1).newest(1)[0])
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert "every 2 s: due " in said
    assert "Endpoint" not in said
    assert said.splitlines().index("Try:") == 6


def test_a_given_database_is_shown_by_its_setting(capsys: pytest.CaptureFixture[str]) -> None:
    url = "postgresql://tocsin:hush@db.example:5432,other.example/tasks?password=hush"
    with Screen().showing(machine(demo=False, given=url), []):
        pass
    said = capsys.readouterr().out
    assert "  PostgreSQL  db.example:5432,other.example/tasks  from TOCSIN_DATABASE_URL\n" in said
    assert "hush" not in said


def test_a_terminal_that_is_gone_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("builtins.print", gone)
    Screen().say("Tocsin has stopped")
