"""The measurements' own arithmetic: which step was held, what a ratio of pairs is, what flat means."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from bench.begin import median_ratio, worst_growth
from bench.drive import Outcome
from bench.frame import Network, Options
from bench.ledger import Judgement
from bench.p2 import SHORT_STEPS, STEPS, WANTED, cpu_ms_per_run, next_step, report, settle_and_seconds, verdict
from bench.report import Report

CLEAN = Judgement(
    expected=100, lost=0, duplicates=0, skipped=0, failed=0, strangers=0, early=0, unseen=0, delays=[0.01] * 100
)


def outcome(rate: int, judgement: Judgement = CLEAN, behind: int = 0) -> Outcome:
    return Outcome(
        rate=rate,
        seconds=10,
        judgement=judgement,
        arrived=10 * rate,
        behind=behind,
        processor={"executors": 1.0},
        wal_bytes=1_000_000,
        commits=100,
        elapsed=10.0,
    )


LOST = replace(CLEAN, lost=1)
DOUBLED = replace(CLEAN, duplicates=1)
SLOW = replace(CLEAN, delays=[0.01] * 98 + [1.5, 1.6])


def test_the_highest_step_that_was_held_counts() -> None:
    found = verdict([outcome(1000), outcome(3000)])
    assert found is not None
    assert found.rate == 3000


@pytest.mark.parametrize("judgement", [LOST, DOUBLED, SLOW])
def test_a_step_that_was_not_held_ends_the_climb(judgement: Judgement) -> None:
    found = verdict([outcome(1000), outcome(2000, judgement), outcome(3000)])
    assert found is not None
    assert found.rate == 1000


def test_on_the_way_down_the_first_step_that_is_held_counts() -> None:
    found = verdict([outcome(3000, SLOW), outcome(2000, LOST), outcome(1000)])
    assert found is not None
    assert found.rate == 1000
    assert verdict([outcome(3000, SLOW), outcome(2000, SLOW)]) is None


def climbed(steps: Sequence[int], ceiling: int, bears: int) -> list[int]:
    """The steps that are tried where rates up to `ceiling` are held, and above it `bears` calls a second come."""
    done: list[Outcome] = []
    while (step := next_step(steps, done)) is not None:
        held = step <= ceiling
        done.append(outcome(step) if held else replace(outcome(step, SLOW), arrived=10 * min(step, bears)))
    return [each.rate for each in done]


def test_rising_steps_go_on_while_they_are_held() -> None:
    assert climbed((1000, 2000, 3000), 2000, 2000) == [1000, 2000, 3000]
    assert climbed((1000, 2000, 3000), 900, 900) == [1000]
    assert climbed((1000, 2000), 9000, 9000) == [1000, 2000]


@pytest.mark.parametrize(
    ("ceiling", "bears", "tried"),
    [
        (10_000, 10_000, [10_000]),
        (9000, 9900, [10_000, 6000]),
        (6000, 7500, [10_000, 6000]),
        (5000, 5700, [10_000, 4500]),
        (4000, 5000, [10_000, 3000]),
        (1000, 900, [10_000, 3000]),
    ],
)
def test_falling_steps_go_below_what_came_and_are_two_at_most(ceiling: int, bears: int, tried: list[int]) -> None:
    assert climbed(SHORT_STEPS["direct"], ceiling, bears) == tried


def test_the_short_form_begins_with_the_target_and_the_other_rises() -> None:
    assert {network: steps[0] for network, steps in SHORT_STEPS.items()} == WANTED
    assert list(STEPS) == sorted(STEPS)


def test_a_backlog_at_the_end_is_not_held_however_short_the_delays() -> None:
    assert verdict([outcome(3000, behind=2)]) is not None
    assert verdict([outcome(3000, behind=3)]) is None


def test_one_late_run_in_a_hundred_is_held() -> None:
    assert verdict([outcome(3000, replace(CLEAN, delays=[0.01] * 99 + [1.5]))]) is not None


def judged(
    direct: list[Outcome], az: list[Outcome] | None = None, costs: Outcome | None = None, scale: float = 0.1
) -> Report:
    """P2's report, its rates scaled down to 1,000 and 600 a second."""
    climbs: dict[Network, list[Outcome]] = {"direct": direct, "az": az or [outcome(600)]}
    return report(Options(scale=scale), climbs, costs or outcome(1000), {}, {})


def missed(found: Report) -> list[str]:
    return [target.name for target in found.targets if not target.met]


def test_both_networks_have_their_own_rate_to_reach() -> None:
    assert judged([outcome(1000)]).met
    assert missed(judged([outcome(999)])) == ["direct: highest rate held"]
    assert missed(judged([outcome(1000)], [outcome(599)])) == ["az: highest rate held"]


def test_no_step_held_is_a_miss() -> None:
    found = judged([outcome(1000, SLOW)])
    assert not found.met
    assert found.targets[0].value == 0
    assert found.json()


def test_a_loss_in_the_step_too_fast_is_a_miss() -> None:
    assert judged([outcome(1000), outcome(4000, SLOW)]).met
    lossy = judged([outcome(1000)], [outcome(600), outcome(4000, LOST)])
    assert (lossy.lost, lossy.met) == (1, False)
    down = judged([outcome(4000, DOUBLED), outcome(2000, LOST), outcome(1000)])
    assert (down.lost, down.duplicates) == (1, 1)
    assert missed(down) == ["lost, all steps", "duplicates, all steps"]
    assert down.figures["direct_of_the_step"] == 1000
    assert judged([outcome(1000)], costs=outcome(1000, LOST)).lost == 1


def test_costs_are_those_of_the_product_for_each_run() -> None:
    spent = replace(
        outcome(1000), processor={"executors": 1.0, "database": 0.8, "ray": 0.2, "proxy": 9.0, "endpoint": 9}
    )
    assert cpu_ms_per_run(spent) == pytest.approx(0.2)
    assert missed(judged([outcome(1000)], costs=replace(spent, processor={"executors": 2.1}))) == [
        "processor time of the product a run"
    ]
    assert missed(judged([outcome(1000)], costs=replace(spent, wal_bytes=20_490_000))) == ["WAL a run"]
    assert missed(judged([outcome(1000)], costs=replace(spent, commits=201))) == ["commits a run"]


def test_without_a_step_held_nothing_is_known_of_costs() -> None:
    found = report(Options(), {"direct": [outcome(10_000, SLOW)]}, None, {}, {})
    assert {"processor time of the product a run", "WAL a run", "commits a run"} <= set(missed(found))
    assert found.json()


def test_costs_are_counted_from_a_minute_after_the_checkpoint_where_there_is_time() -> None:
    assert settle_and_seconds(Options()) == (60, 60)
    assert settle_and_seconds(Options(short=True)) == (10, 10)
    assert settle_and_seconds(Options(step_seconds=2)) == (2, 2)


def test_a_disturbance_that_lasts_cancels_out_of_pairs() -> None:
    assert median_ratio([1.0, 10.0, 1.0], [2.0, 20.0, 2.0]) == 2.0


def test_growth_is_the_worst_window_over_the_first() -> None:
    assert worst_growth([1.0] * 10 + [3.0] * 10 + [1.5] * 10, 3) == 3.0
    assert worst_growth([2.0] * 60, 6) == 1.0
