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


def test_a_part_of_the_peak_is_held_to_the_same_bounds_and_says_that_it_is_a_part() -> None:
    whole, part = report(GOOD, RUNS, HOSTS, {}), report(GOOD, RUNS // 4, HOSTS // 4, {})
    assert [target.target for target in part.targets] == [target.target for target in whole.targets]
    assert [target.target for target in whole.targets[:2]] == ["<= 15 s", "<= 6 s"]
    assert part.figures["part_of_the_peak_percent"] == 25
    assert "Only 25.0% of the peak" in part.not_meaning
    assert "Only" not in whole.not_meaning
