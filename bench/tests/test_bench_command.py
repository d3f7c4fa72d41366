"""What the command line does around a measurement."""

import json
from itertools import count
from pathlib import Path

import pytest

from bench import command, measurements
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
    assert sorted(path.name for path in tmp_path.glob("*.json")) == ["broken.json", "slow.json"]
    assert json.loads((tmp_path / "broken.json").read_text())["figures"]["error"] == "RuntimeError: no database"
    assert "no database" in (tmp_path / "index.html").read_text()


def test_another_network_or_quotas_make_another_report(tmp_path: Path) -> None:
    assert command.main(["slow", "--report", str(tmp_path), "--network", "az"]) == 1
    assert command.main(["slow", "--report", str(tmp_path), "--network", "az", "--quotas"]) == 0
    assert sorted(path.name for path in tmp_path.glob("*.json")) == ["slow-az-quotas.json", "slow-az.json"]
    assert json.loads((tmp_path / "slow-az-quotas.json").read_text())["figures"]["p99"] == 300


def test_a_network_that_would_say_nothing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "OWN_NETWORK", {"slow": "it has no database"})
    with pytest.raises(SystemExit) as caught:
        command.main(["slow", "--network", "az"])
    assert caught.value.code == 2
    assert "slow takes no --network: it has no database" in capsys.readouterr().err
    assert command.main(["slow"]) == 1
    command.main(["all", "--network", "az", "--report", str(tmp_path)])
    report = json.loads((tmp_path / "slow-az.json").read_text())
    assert (report["targets"], report["figures"]["not_run"]) == ([], "it takes no --network: it has no database")


def test_what_takes_no_network_is_a_measurement() -> None:
    assert measurements.OWN_NETWORK.keys() < measurements.MEASUREMENTS.keys()


def test_each_report_says_how_long_its_test_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "perf_counter", count(0, 2.5).__next__)
    command.main(["all", "--report", str(tmp_path)])
    for name in ("broken", "slow"):
        assert json.loads((tmp_path / f"{name}.json").read_text())["figures"]["bench_seconds"] == 2.5


def test_rows_of_an_earlier_run_are_not_kept(tmp_path: Path) -> None:
    earlier = tmp_path / "slow.series.json"
    earlier.write_text("{}")
    command.main(["slow", "--report", str(tmp_path)])
    assert not earlier.exists()


def test_rounds_go_on_where_one_breaks_and_the_page_shows_all(tmp_path: Path) -> None:
    assert command.main(["all", "--repeat", "2", "--report", str(tmp_path)]) == 1
    found = json.loads((tmp_path / "slow.json").read_text())
    assert (found["targets"][1]["value"], found["figures"]["runs_of_the_test"]) == (300, 2)
    assert sorted(path.name for path in (tmp_path / "2").glob("*.json")) == ["broken.json", "slow.json"]
    assert "<code>slow</code>" in (tmp_path / "index.html").read_text()
