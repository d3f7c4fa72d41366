"""The page holds every report whole, is well formed, and asks for nothing."""

import math
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.folder import Folder, order, read_folder
from bench.page.build import page, row, section, write_page
from bench.report import Environment, Report, Target, at_least, at_most, exactly, not_run
from bench.seed_figures import found_for, seed_figure
from bench.series import Band, Charts, Line, Series, Table, log_histogram
from bench.summary import summary

MACHINE: Environment = {"cores": 2, "cpu": "a <fast> & cheap one", "postgresql_settings": {"fsync": "on"}}
CHARTS = Charts(
    series=[
        Series(
            "CPU", "cores", [0.0, 2.0, 4.0], [Line("executor <1>", [0.5, None, 0.7])], bands=[Band("kill & co", 1, 2)]
        ),
        Series("nothing", "s", [], [Line("none", [])], log=True),
        Series(
            "calls", "calls/s", [100.0, 8000.0], [Line("lean", [1e5, 4e4])], x_unit="in flight", x_log=True, log=True
        ),
    ],
    histograms=[log_histogram("start delay", {"critical": [0.001, 0.02], "low": []})],
    tables=[
        Table("drained", ["system", "jobs/s", "p99, ms"], [["ours", 11_400, 12.5], ["theirs", None, None]], ["jobs/s"])
    ],
)
P4 = Report(
    "p4",
    MACHINE,
    [
        at_most("critical start delay p99", 0.4, 0.112, "s"),
        at_most("high p99", 1, math.nan, "s"),
        exactly("lost", 0, 1),
    ],
    "what <slow> endpoints allow.",
    {"runs": 30_007, "nothing": None, "held": True, "way": "plain & short"},
    lost=1,
    duplicates=0,
    charts=CHARTS,
)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    P4.write(tmp_path)
    Report("p10", MACHINE, [at_least("rate", 10, 12, "runs/s")], "more.").write(tmp_path)
    Report("peers", {}, [], "a ranking.", charts=CHARTS).write(tmp_path)
    not_run("hints", "no Redis on this machine").write(tmp_path)
    (tmp_path / "p5.json").write_text('{"test": "p5"}')
    (tmp_path / "p4-executor.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>')
    (tmp_path / "p4-executor.speedscope.json").write_text("{}")
    return read_folder(tmp_path)


class Page(HTMLParser):
    """All text, and every address that a browser would ask for or follow; refuses what is not closed in order."""

    EMPTY = ("meta", "img", "br")

    def __init__(self, html: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data", "action")]
        assert tag != "script"
        if tag not in self.EMPTY:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_every_target_figure_and_meaning_is_on_the_page(folder: Folder) -> None:
    text = " ".join(Page(page(folder)).texts)
    for report in folder.reports.values():
        for target in report.targets:
            assert (target.name in text, target.target in text) == (True, True)
    for part in (
        "0.112 s",
        "nothing",
        "MISSED",
        "30,007",
        "plain & short",
        "what <slow> endpoints allow.",
        "a <fast> & cheap",
    ):
        assert part in text
    for part in (
        "11,400",
        "91.6 s",
        "kill & co",
        "executor <1>",
        "NOT RUN: no Redis on this machine",
        "2 of 4",
        "fsync",
    ):
        assert part in text
    assert "not a report" in text


def test_a_test_without_a_report_is_shown_as_not_run(folder: Folder) -> None:
    text = " ".join(Page(page(folder, ["p4", "p7"])).texts)
    assert "NOT RUN: no report in this folder" in text
    assert section("p7", folder).verdict == "not run"


def test_a_form_of_a_test_stands_for_it(tmp_path: Path) -> None:
    Report("p2-az", MACHINE, [], "more.").write(tmp_path)
    assert "NOT RUN" not in page(read_folder(tmp_path), ["p2"])


def test_the_page_asks_for_nothing_from_elsewhere(folder: Folder) -> None:
    html = page(folder)
    for address in Page(html).addresses:
        assert address.startswith(("#", "data:")) or address == "p4-executor.svg"
    assert not re.search(r"url\(|@import", html)
    assert set(re.findall(r"https?://[^\"' <]*", html)) == {"http://www.w3.org/2000/svg"}


def test_every_picture_is_well_formed(folder: Folder) -> None:
    pictures = re.findall(r"<svg.*?</svg>", page(folder), re.DOTALL)
    assert len(pictures) == 8
    for picture in pictures:
        ElementTree.fromstring(picture)
        assert "nan" not in picture.lower()


def test_a_page_of_an_empty_folder_is_a_page(tmp_path: Path) -> None:
    assert "0 of 0" in " ".join(Page(write_page(tmp_path).read_text()).texts)
    with pytest.raises(FileNotFoundError):
        write_page(tmp_path / "nowhere")


def test_flame_graphs_lie_with_their_test_also_those_of_single_rounds(folder: Folder) -> None:
    (folder.path / "2").mkdir()
    for name in ("p10-api.svg", "other.svg"):
        (folder.path / "2" / name).write_text("<svg/>")
    found = {test: [str(each) for each in paths] for test, paths in read_folder(folder.path).flames.items()}
    assert found == {"p4": ["p4-executor.svg"], "p10": ["2/p10-api.svg"], "": ["2/other.svg"]}
    assert "2/other.svg" in page(read_folder(folder.path))


@pytest.mark.parametrize(
    ("target", "used"),
    [
        (at_most("t", 10, 4, "s"), 0.4),
        (at_most("t", 10, 40, "s"), 1.0),
        (at_least("t", 10, 40), 0.25),
        (at_most("t", 10, math.nan), None),
        (at_most("t", 10, -1), None),
        (exactly("t", 10, 10), None),
        (Target("t", "in words", 1.0, True), None),
    ],
)
def test_the_bar_is_the_part_of_the_bound_that_was_used(target: Target, used: float | None) -> None:
    assert row("p1", target).used == used


def test_tests_come_in_order_and_know_their_seed() -> None:
    names = ["begin", "p10", "p3b", "p3", "p2-az", "p2"]
    assert sorted(names, key=order) == ["p2", "p2-az", "p3", "p3b", "p10", "begin"]
    assert found_for("p4-quotas", "Critical start delay p99") == "91.6 s"
    assert (found_for("p4", "something else"), found_for("unknown", "lost")) == ("", "")
    assert seed_figure("p2-az") == seed_figure("p2")


def test_the_summary_has_every_target_in_one_table_row(folder: Folder) -> None:
    text = summary(folder.path, ["p7"])
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in table} == {7}
    assert "| p4 | critical start delay p99 | 91.6 s | <= 0.4 s | 0.112 s | yes |" in table
    assert "|  | lost | 0 | = 0 | 1 | **no** |" in table
    assert any("NOT RUN: no Redis on this machine" in line for line in table)
    assert any(line.startswith("| p7 | NOT RUN") for line in table)
    assert "- `p4`, not meant: what <slow> endpoints allow." in text
