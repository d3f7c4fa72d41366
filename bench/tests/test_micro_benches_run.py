"""Every measurement of one part of the product runs, small, on the tests' own server: the store and the API are the
real ones."""

import gc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest
from rich.console import Console

from bench import alone, completion, create, fairness, heads, retention
from bench.frame import Options, Screen
from bench.report import Environment, Report
from bench.system import connected


@dataclass(frozen=True)
class Server:
    """The tests' server as a measurement sees its own."""

    dsn: str
    pid: int


@asynccontextmanager
async def running(dsn: str) -> AsyncIterator[Server]:
    async with connected(dsn) as connection:
        backend: int = await connection.fetchval("select pg_backend_pid()")
        yield Server(dsn, psutil.Process(backend).ppid())


async def unmeasured(*_: object, **__: object) -> Environment:
    """Measuring the machine takes longer than these runs."""
    return {}


@dataclass(frozen=True)
class Small:
    """Runs a measurement, small, over the server of `dsn`."""

    dsn: str
    monkeypatch: pytest.MonkeyPatch

    async def __call__(self, module: ModuleType, scale: float, **options: Any) -> Report:
        """The module's report on a small run; what is counted must be right, whatever the times."""
        self.monkeypatch.setattr(alone, "server", lambda folder: running(self.dsn))
        self.monkeypatch.setattr(alone, "environment", unmeasured)
        report: Report = await module.run(Options(short=True, scale=scale, **options), Screen(Console(quiet=True)))
        assert report.test == module.MEASUREMENT.name
        assert all(target.value is not None for target in report.targets)
        counted = [target for target in report.targets if target.target.startswith("=")]
        assert counted
        assert all(target.met for target in counted), counted
        assert report.lost in (None, 0)
        assert report.not_meaning
        assert report.json()
        return report


@pytest.fixture
def small(empty_database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Small]:
    threshold = gc.get_threshold()
    yield Small(empty_database_url, monkeypatch)
    gc.set_threshold(*threshold)  # measurements set it as an executor does
    gc.unfreeze()


async def test_heads(small: Small) -> None:
    report = await small(heads, 0.002)
    for how in (heads.START, heads.HELD_START, heads.HELD_MARGIN):
        assert report.figures[f"ms_8_queues_beside_2000_{how}"]


async def test_completion(small: Small) -> None:
    report = await small(completion, 0.02)
    for ending in completion.ENDINGS:
        assert report.figures[f"held_rows_per_second_{ending}_20"]


async def test_retention(small: Small) -> None:
    report = await small(retention, 0.002)
    assert report.figures["drop_dead_rows"] == 0
    assert report.figures["delete_dead_rows"] == report.figures["rows"] == 1000


async def test_fairness(small: Small) -> None:
    report = await small(fairness, 0.01)
    unfair = next(target for target in report.targets if "part of the picks" in target.name)
    assert unfair.met


async def test_create(small: Small, tmp_path: Path) -> None:
    report = await small(create, 0.01, profile=True, report=tmp_path, test="create")
    assert all(report.figures[f"tasks_per_second_over_{connections}"] for connections in create.CONNECTIONS)
    said = str(report.figures["profile_api"])
    if "could not be recorded" not in said:  # ptrace is not allowed everywhere
        assert (tmp_path / "create-api.svg").exists()
        assert said == "create-api.svg, create-api.speedscope.json"
