"""Rounds become medians in the folder above them; what reads reports refuses what it cannot read."""

import io
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from bench.collected import charts_of, collected
from bench.command import main
from bench.folder import read_folder
from bench.reading import read
from bench.repeated import repeated
from bench.report import Report, at_most, exactly


class Rounds:
    """Measures nothing: the n-th round finds `found[n]`; the middle one loses a run."""

    def __init__(self, *found: float) -> None:
        self.found = found
        self.seen: list[tuple[list[str], Path | None]] = []

    def __call__(self, names: Sequence[str], folder: Path | None) -> list[Report]:
        number = len(self.seen)
        self.seen.append((list(names), folder))
        lost = int(number == 1)
        targets = [at_most("p99", 20, self.found[number], "ms"), exactly("lost", 0, lost)]
        reports = [Report(name, {"cores": 2}, targets, "more.", lost=lost, duplicates=0) for name in names]
        for report in reports if folder is not None else ():
            report.write(folder)  # type: ignore[arg-type]
        return reports


def quiet() -> Console:
    return Console(file=io.StringIO(), width=200)


def test_three_rounds_become_their_medians_and_p9_runs_once(tmp_path: Path) -> None:
    rounds = Rounds(1.0, 30.0, 3.0)
    assert not repeated(["p1", "p9"], 3, tmp_path, rounds, quiet())
    assert rounds.seen == [
        (["p1", "p9"], tmp_path / "1"),
        (["p1"], tmp_path / "2"),
        (["p1"], tmp_path / "3"),
    ]
    found = read_folder(tmp_path).reports
    assert [target.value for target in found["p1"].targets] == [3.0, 1]
    assert [target.met for target in found["p1"].targets] == [True, False]
    assert (found["p1"].lost, found["p9"].lost) == (1, 0)
    assert (tmp_path / "index.html").exists()


def test_reports_of_other_tests_in_the_folders_do_not_judge(tmp_path: Path) -> None:
    for name in ("p2", "p9"):
        Report(name, {}, [exactly("lost", 0, 1)], "more.").write(tmp_path / "2")
    assert repeated(["p9"], 3, tmp_path, Rounds(1.0, 1.0, 1.0), quiet())
    assert list(read_folder(tmp_path).reports) == ["p9"]


def test_one_round_needs_no_folder_and_several_do() -> None:
    assert repeated(["p1"], 1, None, Rounds(1.0), quiet())
    assert not repeated(["p1"], 1, None, Rounds(30.0), quiet())
    with pytest.raises(ValueError, match="folder"):
        repeated(["p1"], 2, None, Rounds(1.0), quiet())


def test_readers_say_what_they_lack(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Report("p1", {}, [exactly("lost", 0, 0)], "more.").write(tmp_path)
    assert read("summary", [tmp_path], 1.15, [], quiet()) == 0
    assert "| p1 | lost |" in capsys.readouterr().out
    assert read("page", [tmp_path], 1.15, ["p2"], quiet()) == 0
    assert read("compare", [tmp_path, tmp_path], 1.15, [], quiet()) == 0
    assert read("compare", [tmp_path], 1.15, [], quiet()) == 2
    assert read("page", [], 1.15, [], quiet()) == 2
    assert read("page", [tmp_path / "nowhere"], 1.15, [], quiet()) == 2


@pytest.mark.parametrize(
    "arguments", [["p1", "--repeat", "2"], ["p1", "--repeat", "0", "--report", "x"], ["p1", "DIR"]]
)
def test_a_command_line_that_asks_for_what_cannot_be_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(arguments)
    assert refused.value.code == 2


COLUMNS: dict[str, list[float | None]] = {
    "at": [100.0, 102.0, 104.0],
    "part": ["1,000 runs/s", "2,000 runs/s", "2,000 runs/s"],  # type: ignore[list-item]
    "commits": [5.0, 6.0, 7.0],
    "lock_waits": [0.0, 0.0, 0.0],
    "executor_cores": [0.5, 0.6, None],
    "api_cores": [0.1, 0.1, 0.1],
    "something_new": [1.0, 2.0, 3.0],
}


def test_what_the_collector_wrote_becomes_charts_by_kind() -> None:
    charts = {series.title: series for series in charts_of(COLUMNS)}
    processor = charts["Processor by part of the system"]
    assert [(line.name, list(line.values)) for line in processor.lines] == [
        ("executor", [0.5, None, 0.6, None]),
        ("api", [0.1, None, 0.1, 0.1]),
    ]
    assert processor.x == [0.0, 1.0, 2.0, 4.0]
    assert [(band.name, band.began, band.ended) for band in processor.bands] == [
        ("1,000 runs/s", 0.0, 0.0),
        ("2,000 runs/s", 2.0, 4.0),
    ]
    assert set(charts) == {"Processor by part of the system", "Commits", "something new"}


def test_a_file_that_the_collector_did_not_write_is_said_to_be_none(tmp_path: Path) -> None:
    assert collected(tmp_path / "none.series.json") == []
    (tmp_path / "p1.series.json").write_text("[]")
    Report("p1", {}, [], "more.").write(tmp_path)
    assert "holds no columns" in read_folder(tmp_path).unreadable["p1"]
