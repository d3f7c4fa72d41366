"""The rows beside a report, and the profiles."""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from bench.collector import peaks, resident_mib, write_series
from bench.frame import Options
from bench.profile import profiled, recorded


def test_peaks_are_the_largest_of_each_column() -> None:
    rows = [{"at": 1.0, "commits": 5.0}, {"at": 3.0, "commits": 9.0, "lock_waits": 1.0}, {"at": 5.0, "commits": 2.0}]
    assert peaks(rows) == {"commits_peak": 9.0, "lock_waits_peak": 1.0}
    assert peaks([]) == {}


def test_parts_of_a_series_have_one_value_in_every_column(tmp_path: Path) -> None:
    path = tmp_path / "reports" / "p2.series.json"
    write_series(path, "direct", [{"at": 1.0, "commits": 5.0}, {"at": 3.0, "commits": 6.0}])
    write_series(path, "az", [{"at": 9.0, "proxy_cores": 0.5}])
    assert json.loads(path.read_text()) == {
        "part": ["direct", "direct", "az"],
        "at": [1.0, 3.0, 9.0],
        "commits": [5.0, 6.0, None],
        "proxy_cores": [None, None, 0.5],
    }


def test_memory_counts_once_and_of_a_process_that_has_ended_not_at_all() -> None:
    own = os.getpid()
    found = resident_mib({"first": [own, own], "second": [own], "ended": [2**22 + 1]})
    assert found["first"] > 1
    assert (found["second"], found["ended"]) == (0, 0)


@pytest.mark.parametrize(
    ("options", "said"),
    [(Options(), {}), (Options(profile=True), {"profile": "not recorded: --report names no folder"})],
)
async def test_nobody_is_kept_busy_for_a_profile_that_is_not_to_be_had(options: Options, said: dict[str, str]) -> None:
    async def busy(record: Callable[[], Awaitable[None]]) -> None:
        raise AssertionError("kept busy")

    assert await profiled(options, {"api": 1}, busy) == said


async def test_a_profile_is_written_or_the_reason_why_not(tmp_path: Path) -> None:
    busy = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "print(flush=True)\nwhile True: pass"), stdout=asyncio.subprocess.PIPE
    )
    assert busy.stdout is not None
    await busy.stdout.readline()
    try:
        found = await recorded({"executor": busy.pid, "ended": 2**22 + 1}, tmp_path, "p2", seconds=2)
    finally:
        busy.kill()
        await busy.wait()
    assert "could not be recorded" in found["profile_ended"]
    graph, speedscope = tmp_path / "p2-executor.svg", tmp_path / "p2-executor.speedscope.json"
    if "could not be recorded" in found["profile_executor"]:  # ptrace is not allowed here
        assert not (graph.exists() and speedscope.exists())
    else:
        assert found["profile_executor"] == f"{graph.name}, {speedscope.name}"
        assert graph.read_text().lstrip().startswith("<?xml")
        assert json.loads(speedscope.read_text())["profiles"]
