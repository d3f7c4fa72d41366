"""What became of a peer: losses, duplicates, the best of several attempts, the targets and the table."""

import sys
import tomllib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest

from bench.frame import Options, Screen
from bench.ledger import Arrival
from bench.peers import measurement
from bench.peers.catalogue import PEERS, PROJECT, Peer, locked_versions, version_of
from bench.peers.driver import with_database
from bench.peers.installation import NotInstalledError, python_of, pythons_of
from bench.peers.verdict import COLUMNS, Outcome, Row, best_drain, best_steady, cells, figures, judged, note, targets

A, B, STRANGER = UUID(int=1), UUID(int=2), UUID(int=9)
SLOT = datetime(2026, 3, 1, tzinfo=UTC)
DUE = {A: 100.0, B: 100.0}
BARE = next(peer for peer in PEERS if peer.is_bare)


def arrival(name: UUID, at: float) -> Arrival:
    return Arrival(at, name, name, SLOT)


def drained(seconds: float, jobs: int = 1000, lost: int = 0, duplicates: int = 0, fault: str | None = None) -> Outcome:
    delays = [seconds / jobs * (n + 1) for n in range(jobs)]
    return Outcome(processes=1, expected=jobs, delays=delays, lost=lost, duplicates=duplicates, fault=fault)


def row(name: str, drain: float, steady: float = 1.0) -> Row:
    return Row(name, "1", "as it is", [drained(drain)], [drained(steady)])


def test_every_job_called_once() -> None:
    found = judged(DUE, [arrival(B, 100.5), arrival(A, 100.2), arrival(STRANGER, 1.0)], processes=2)
    assert (found.lost, found.duplicates, found.early, found.whole) == (0, 0, 0, True)
    assert found.delays == pytest.approx([0.2, 0.5])
    assert found.seconds == pytest.approx(0.5)
    assert found.rate == pytest.approx(4.0)


def test_a_job_without_a_call_is_lost() -> None:
    found = judged(DUE, [arrival(A, 100.2)], processes=1)
    assert (found.lost, found.whole) == (1, False)


def test_calls_beyond_the_first_are_duplicates_and_the_first_counts() -> None:
    found = judged(DUE, [arrival(A, 103.0), arrival(A, 101.0), arrival(B, 100.0), arrival(A, 102.0)], processes=1)
    assert (found.duplicates, found.seconds) == (2, 1.0)


def test_a_call_before_its_instant_is_early() -> None:
    assert judged(DUE, [arrival(A, 99.9), arrival(B, 100.0)], processes=1).early == 1


def test_without_any_call_there_is_no_rate() -> None:
    found = judged(DUE, [], processes=1, fault="cut")
    assert found.lost == 2
    assert found.rate != found.rate
    assert cells(Row("x", "", "", [found]))[COLUMNS.index("jobs/s")] is None


def test_the_best_is_the_fastest_that_is_whole() -> None:
    slow, fast, lossy = drained(4.0), drained(2.0), drained(1.0, lost=1)
    assert best_drain([slow, fast, lossy]) is fast
    assert best_steady([slow, fast, lossy]) is fast
    assert best_drain([]) is None


def test_of_broken_ones_the_best_got_furthest() -> None:
    little, more = drained(0.001, jobs=1, fault="cut"), drained(9.0, jobs=500, fault="cut")
    assert best_drain([little, more]) is more
    assert best_steady([little, more]) is more


OURS = row("tocsin", 1.0, 0.1)
PEERS_BEHIND = [row("pgqueuer", 2.0), row("arq", 1.5, 0.2)]


def test_ahead_of_all_is_met() -> None:
    found = targets(OURS, PEERS_BEHIND)
    assert all(target.met for target in found)
    assert [target.value for target in found] == [0, 0, 2, 2, 1.5, 2.0, 0.5]


def test_targets_of_several_rounds_have_the_same_names_whoever_was_the_best() -> None:
    other = targets(OURS, [row("pgqueuer", 2.0, 0.2), row("arq", 2.5)])
    assert [target.name for target in other] == [target.name for target in targets(OURS, PEERS_BEHIND)]


@pytest.mark.parametrize(
    ("ours", "peers", "missed"),
    [
        (OURS, [row("pgqueuer", 2.0), row("arq", 0.9)], {4}),
        (OURS, [row("pgqueuer", 1.6)], {5}),
        (OURS, [row("pgqueuer", 2.0, 0.05)], {6}),
        (OURS, [*PEERS_BEHIND, Row("celery", "1", "", not_run="no uv")], {3}),
        (replace(OURS, drains=[drained(1.0, lost=1)]), PEERS_BEHIND, {0, 2}),
        (replace(OURS, drains=[drained(1.0, duplicates=1)]), PEERS_BEHIND, {1}),
        (replace(OURS, steadies=[]), PEERS_BEHIND, {2, 6}),
        (OURS, [row("arq", 2.0)], {5}),
        (OURS, [], {4, 5, 6}),
        (OURS, [Row("pgqueuer", "1", "", not_run="no uv")], {3, 4, 5, 6}),
    ],
)
def test_what_falls_short_is_missed(ours: Row, peers: list[Row], missed: set[int]) -> None:
    assert {number for number, target in enumerate(targets(ours, peers)) if not target.met} == missed


def test_a_peer_that_broke_after_its_first_jobs_is_not_the_best() -> None:
    broken = [drained(0.001, jobs=1, lost=999, fault="work ended with 1")]
    assert all(target.met for target in targets(OURS, [row("pgqueuer", 2.0), Row("arq", "1", "", broken, broken)]))


def test_a_row_says_what_its_reader_must_know() -> None:
    assert note(OURS) == ""
    assert note(Row("arq", "1", "", not_run="no redis-server")) == "NOT RUN: no redis-server"
    drain = replace(drained(1.0, fault="cut: it did not finish in its time"), kept=990, early=3, cold=7)
    cut = Row("arq", "1", "", [drain])
    assert note(cut) == (
        "drain: cut: it did not finish in its time, 1,000 of 1,000 called; "
        "drain: 7 jobs of its warm-up were still to come; drain: 3 calls early; "
        "drain: 990 results kept of 1,000 calls"
    )
    assert len(cells(cut)) == len(cells(Row("x", "", "", not_run="y"))) == len(COLUMNS)


def test_flat_figures_have_names_of_words() -> None:
    flat = figures([OURS, Row("arq", "1", "", not_run="no uv")])
    assert flat["tocsin_jobs_per_s"] == 1000
    assert flat["tocsin_jobs_per_s_of_1"] == 1000
    assert flat["tocsin_steady_p99_ms"] == pytest.approx(99)
    assert flat["arq_note"] == "NOT RUN: no uv"
    assert all(name.replace("_", "").isalnum() for name in flat)


def test_every_peer_has_an_adapter_a_group_and_locked_versions() -> None:
    groups = tomllib.loads((PROJECT / "pyproject.toml").read_text())["dependency-groups"]
    for peer in PEERS:
        assert (PROJECT / f"{peer.name}_peer.py").exists()
        assert peer.is_bare or (peer.name in groups and version_of(peer))
    assert len(locked_versions((PROJECT / "uv.lock").read_text())) > len(PEERS)


def test_a_package_that_is_not_locked_has_no_version() -> None:
    with pytest.raises(KeyError):
        version_of(Peer("nobody", "", packages=("no-such-package",)))


async def test_without_uv_nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NotInstalledError, match="uv"):
        await python_of(PEERS[0])


async def test_one_environment_that_cannot_be_had_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    found = await pythons_of([PEERS[0], BARE])
    assert isinstance(found[PEERS[0]], NotInstalledError)
    assert found[BARE] == Path(sys.executable)


async def test_a_peer_that_cannot_be_had_is_said_to_be_so(tmp_path: Path) -> None:
    bench = measurement.Bench(Options(), Screen(), tmp_path, "", endpoint=None)  # type: ignore[arg-type]
    found = await measurement.measured(bench, PEERS[0], NotInstalledError("uv sync: no such version"))
    assert (found.not_run, found.drain, found.steady) == ("uv sync: no such version", None, None)


def test_a_database_of_the_same_server() -> None:
    assert with_database("postgresql://u:p@127.0.0.1:5/postgres", "x_1") == "postgresql://u:p@127.0.0.1:5/x_1"
    assert with_database("postgresql://u@h/a?host=/s", "b") == "postgresql://u@h/b?host=/s"
