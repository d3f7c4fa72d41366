"""Measurements run, end to end and small: the product, the endpoint and the judgement are the real ones."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.command import main
from bench.endpoint import ROOT

RUNS = {
    "p1": ["--plain", "--scale", "0.1"],
    "p2": ["--plain", "--scale", "0.01", "--steps", "3000", "--step-seconds", "1"],
    "begin": ["--short", "--scale", "0.01"],
}
JUDGED_BY_AMOUNT = {"p1", "p2"}
"""The others' bounds are ratios of times far too small here; that they come out is all that is asked."""


@pytest.mark.bench
@pytest.mark.parametrize("name", RUNS)
def test_a_small_run_is_reported(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", name, "--report", str(tmp_path), *RUNS[name]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    report = json.loads((tmp_path / f"{name}.json").read_text())
    assert set(report) == {"test", "environment", "targets", "figures", "lost", "duplicates", "not_meaning"}
    measured_on = report["environment"]
    assert {"cores", "cpu", "ram_gib", "kernel", "python", "postgresql", "fdatasync_ms"} <= set(measured_on)
    assert 0 < measured_on["loop_best_ms"] <= measured_on["loop_median_ms"]
    assert report["environment"]["postgresql_settings"]["fsync"] == "on"
    assert done.returncode == (0 if all(target["met"] for target in report["targets"]) else 1)
    assert all(target["value"] is not None for target in report["targets"])
    if name in JUDGED_BY_AMOUNT:
        assert (report["lost"], report["duplicates"]) == (0, 0)
        assert any(name.endswith("runs") and found > 0 for name, found in report["figures"].items())
        series = json.loads((tmp_path / f"{name}.series.json").read_text())
        assert {"at", "part", "commits", "dead_tuples", "executors_cores", "database_rss_mib"} <= set(series)
        assert {len(column) for column in series.values()} == {len(series["at"])} != {0}
    assert report["test"] in done.stdout


def test_the_list_names_every_measurement(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    listed = {line.split()[0] for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert set(RUNS) <= listed


@pytest.mark.parametrize(
    "arguments", [[], ["p99"], ["p1", "--scale", "0"], ["p2", "--steps", "0"], ["p2", "--steps", "x"]]
)
def test_wrong_usage_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage:" in capsys.readouterr().err
