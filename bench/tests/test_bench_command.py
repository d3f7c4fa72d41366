"""What the command line does around a measurement."""

import json
from pathlib import Path

import pytest

from bench import command
from bench.frame import Measurement, Options, Screen
from bench.report import Report, at_most, exactly


async def broken(options: Options, screen: Screen) -> Report:
    raise RuntimeError("no database")


async def slow(options: Options, screen: Screen) -> Report:
    environment = {"quotas": "0.5 cores"} if options.quotas else {}
    return Report("slow", environment, [exactly("lost", 0, 0), at_most("p99", 20, 300, "ms")], "anything")


@pytest.fixture(autouse=True)
def _measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    made = {name: Measurement(name, "", run) for name, run in (("broken", broken), ("slow", slow))}
    monkeypatch.setattr(command, "MEASUREMENTS", made)


def test_one_that_breaks_fails_and_keeps_no_other_from_running(tmp_path: Path) -> None:
    assert command.main(["all", "--report", str(tmp_path)]) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["slow.json"]


def test_another_network_or_quotas_make_another_report(tmp_path: Path) -> None:
    assert command.main(["slow", "--report", str(tmp_path), "--network", "az"]) == 1
    assert command.main(["slow", "--report", str(tmp_path), "--network", "az", "--quotas"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["slow-az-quotas.json", "slow-az.json"]
    assert json.loads((tmp_path / "slow-az-quotas.json").read_text())["figures"]["p99"] == 300


def test_rows_of_an_earlier_run_are_not_kept(tmp_path: Path) -> None:
    earlier = tmp_path / "slow.series.json"
    earlier.write_text("{}")
    command.main(["slow", "--report", str(tmp_path)])
    assert not earlier.exists()
