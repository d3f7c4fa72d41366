"""The verdict on the peak over TLS."""

import pytest

from bench.ledger import Judgement
from bench.p10 import HOSTS, RUNS, report
from bench.report import Report


def judgement(slowest: float, lost: int = 0, duplicates: int = 0, failed: int = 0) -> Judgement:
    return Judgement(RUNS, lost, duplicates, 0, failed, 0, 0, 0, [0.1, slowest])


GOOD = {"cold": judgement(14.0), "ahead": judgement(5.0)}


def missed(judged: Report) -> list[str]:
    return [target.name for target in judged.targets if not target.met]


def test_a_peak_that_starts_in_time_is_met() -> None:
    judged = report(GOOD, RUNS, HOSTS, {})
    assert judged.met
    assert judged.figures["cold_start_delay_p99_ms"] == 14_000.0


@pytest.mark.parametrize(
    ("name", "bad", "target"),
    [
        ("cold", judgement(15.5), "cold: all started within"),
        ("ahead", judgement(6.5), "ahead: all started within"),
        ("ahead", judgement(5.0, lost=1), "lost"),
        ("cold", judgement(5.0, duplicates=1), "duplicates"),
        ("cold", judgement(5.0, failed=1), "skipped, failed, early, unexpected"),
    ],
)
def test_each_bound_is_held(name: str, bad: Judgement, target: str) -> None:
    assert missed(report({**GOOD, name: bad}, RUNS, HOSTS, {})) == [target]


def test_bounds_shrink_with_the_runs() -> None:
    judged = report({"cold": judgement(1.6), "ahead": judgement(0.9)}, RUNS // 10, HOSTS // 10, {})
    assert missed(judged) == ["cold: all started within"]
    assert [target.target for target in judged.targets[:2]] == ["<= 1.5 s", "<= 1 s"]
