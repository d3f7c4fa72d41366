"""A minute of real chaos: the whole product, three faults, and a verdict that holds."""

import json
from pathlib import Path

import pytest
from rich.console import Console

from bench.frame import Screen
from property_tests.chaos.command import chaos
from property_tests.chaos.report import misses, show, write
from property_tests.chaos.stage import Options

OPTIONS = Options(
    seconds=85,
    rate=50,
    seed=3,
    faults=("kill-executor", "cut-connections", "drop-answers"),
    ttl=4.0,
)


@pytest.mark.chaos
@pytest.mark.timeout(300)
async def test_a_minute_of_chaos_holds_every_promise(tmp_path: Path) -> None:
    result = await chaos(OPTIONS, Screen(Console(quiet=True)), tmp_path)
    broken = [finding for finding in result.verdict.findings if not finding.held]
    assert broken == []
    assert misses(result) == []
    assert sorted(fault.name for fault in result.faults if fault.missed is None) == sorted(OPTIONS.faults)
    assert result.left == []
    assert max(recovery.after_began for recovery in result.recoveries) <= 15.0  # seconds, on a machine that is shared
    write(result, tmp_path)
    written = json.loads((tmp_path / "chaos.json").read_text())
    assert written["lost"] == 0
    assert [fault["name"] for fault in written["faults"]] == [fault.name for fault in result.faults]
    assert (tmp_path / "chaos.svg").read_text().count('class="fault"') == len(result.faults)
    assert "## Faults" in (tmp_path / "chaos.md").read_text()
    show(result, Console(quiet=True))
