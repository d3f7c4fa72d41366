"""What the measurements of single parts make of their times: every bound catches what it is there for."""

from dataclasses import replace

import pytest

from bench import completion, create, fairness, heads, retention, scale
from bench.begin import WANTED, Begins
from bench.begin import report as begin_report
from bench.create import Step
from bench.drive import Outcome
from bench.fairness import Found, Pick
from bench.frame import Network, Options
from bench.ledger import Judgement
from bench.report import Report
from bench.retention import Removal, Removals
from bench.seed_figures import found_for


def missed(report: Report) -> list[str]:
    """The targets that were not met."""
    assert report.json()
    return [target.name for target in report.targets if not target.met]


# --- begin ------------------------------------------------------------------------------------------------------------


def begun(rate: float, network: Network = "direct", away: float | None = None) -> Report:
    seconds = [1000 / rate] * 6
    batched = {("few_idle", 1000): seconds}
    options = Options(network=network)
    far = [] if away is None else [1000 / away] * 3
    return begin_report(options, Begins(seconds, seconds, seconds, 0.1), batched, seconds, 0, 1000, {}, far)


@pytest.mark.parametrize("network", WANTED)
def test_the_bound_of_begin_is_that_of_the_network(network: Network) -> None:
    assert missed(begun(WANTED[network] + 1, network)) == []
    assert missed(begun(WANTED[network] - 1, network)) == ["begin + plant beside few idle tasks"]


def test_begin_is_asked_from_1_ms_away_too() -> None:
    assert missed(begun(55_001, away=40_001)) == []
    assert missed(begun(55_001, away=39_999)) == ["begin + plant, the database 1 ms away"]
    assert found_for("begin", "begin + plant, the database 1 ms away") == "18,360/s"


# --- heads ------------------------------------------------------------------------------------------------------------

CELLS = {
    (queues, size, how): [0.001 * queues] * 3
    for queues in (100, 1000)
    for size in (0, 10_000, 100_000)
    for how in (heads.START, heads.HELD_START)
}


def read(seconds: heads.Seconds, right: set[bool]) -> Report:
    return heads.report(seconds, [(0.001, 0.001)], right, {})


def test_heads_that_cost_the_same_beside_a_backlog_are_met() -> None:
    assert missed(read(CELLS, {True})) == []


def test_one_way_of_reading_that_grows_with_the_backlog_is_a_miss() -> None:
    grown = {**CELLS, (1000, 100_000, heads.HELD_START): [1.6] * 3}
    assert heads.worst_ratio(grown) == pytest.approx(1.6)
    assert len(missed(read(grown, {True}))) == 1


def test_a_read_without_the_rows_that_are_there_is_a_miss() -> None:
    assert missed(read(CELLS, {True, False})) == ["reads with a wrong number of rows"]


# --- completion -------------------------------------------------------------------------------------------------------

TIMES = {("terminal", 500): [0.01] * 3, ("retry", 500): [0.02] * 3, ("singly", 100): [0.1] * 3}


def completed(held: completion.Seconds, lost: int = 0) -> Report:
    return completion.report(TIMES, held, 500, lost, {})


def test_batches_are_compared_by_rows_and_not_by_statements() -> None:
    assert completion.gain(TIMES, 500) == pytest.approx(50)
    assert missed(completed(TIMES)) == []


def test_a_batch_that_gains_little_is_a_miss() -> None:
    slow = {**TIMES, ("terminal", 500): [0.1] * 3}
    assert missed(completion.report(slow, slow, 500, 0, {})) == [
        "rows a second in batches of 500, times those one at a time"
    ]


def test_one_ending_that_an_old_transaction_slows_down_is_a_miss() -> None:
    slowed = {**TIMES, ("retry", 500): [0.032] * 3}
    assert missed(completed(slowed)) == ["time under an old transaction, times that without"]


def test_a_completion_that_was_not_applied_is_a_miss() -> None:
    assert missed(completed(TIMES, lost=1)) == ["completions asked for and not applied"]


def test_of_a_mixed_batch_some_are_retries_and_most_are_not() -> None:
    retries = sum(completion.is_retry("mixed", number) for number in range(100))
    assert retries == 100 / completion.MIXED_RETRIES
    assert all(completion.is_retry("retry", number) for number in range(100))
    assert not any(completion.is_retry("terminal", number) for number in range(100))


# --- retention --------------------------------------------------------------------------------------------------------

DROPPED = Removal(seconds=0.02, wal_bytes=100_000, dead_rows=0, vacuum_seconds=0.001, vacuum_wal_bytes=0)
DELETED = Removal(0.1, 10_000_000, 1000, 0.9, 5_000_000)
REMOVALS = Removals([DROPPED] * 3, [DELETED] * 3, [0.01] * 3, [0.02] * 3, [0.05] * 3, 0)


def removed(found: Removals) -> list[str]:
    return missed(retention.report(found, 1000, 0, {}))


def test_what_a_delete_leaves_to_vacuum_counts_as_its_own() -> None:
    assert retention.cost_ratio(REMOVALS, retention.whole_seconds) == pytest.approx(0.021)
    assert removed(REMOVALS) == []


def test_a_drop_that_costs_as_a_delete_does_is_a_miss() -> None:
    assert len(removed(replace(REMOVALS, dropped=[replace(DROPPED, wal_bytes=2_000_000)] * 3))) == 1
    assert len(removed(replace(REMOVALS, dropped=[replace(DROPPED, seconds=0.5)] * 3))) == 1


def test_a_drop_that_leaves_dead_rows_or_rows_or_holds_up_completions_is_a_miss() -> None:
    one_dead = [DROPPED, DROPPED, replace(DROPPED, dead_rows=1)]
    assert removed(replace(REMOVALS, dropped=one_dead)) == ["dead rows that drops left"]
    assert removed(replace(REMOVALS, left=1)) == ["rows that a removal left"]
    assert removed(replace(REMOVALS, waits_dropped=[0.6] * 3)) == ["longest completion beside a drop"]


# --- fairness ---------------------------------------------------------------------------------------------------------

FAIR = Found(
    ours={size: [Pick(0.004, 0.002)] * 3 for size in (10_000, 1_000_000)},
    rival={10_000: [0.006] * 3, 1_000_000: [0.6] * 3},
    crowded_part=0.001,
    missed=0,
)


def picked(found: Found) -> list[str]:
    return missed(fairness.report(found, 1001, {}))


def test_a_pick_that_does_not_grow_with_the_backlog_is_met() -> None:
    assert fairness.growth(FAIR.rival) == pytest.approx(100)
    assert picked(FAIR) == []


def test_a_pick_whose_choice_or_reading_grows_is_a_miss() -> None:
    for slow in (Pick(0.008, 0.002), Pick(0.004, 0.006)):
        assert len(picked(replace(FAIR, ours={**FAIR.ours, 1_000_000: [slow] * 3}))) == 1


def test_picks_that_the_backlog_takes_more_than_its_part_of_are_a_miss() -> None:
    assert len(picked(replace(FAIR, crowded_part=0.003))) == 1


def test_picks_of_fewer_runs_are_a_miss() -> None:
    assert picked(replace(FAIR, missed=1)) == ["runs fewer than asked for"]


# --- create -----------------------------------------------------------------------------------------------------------


def steps(rates: dict[int, int]) -> list[Step]:
    return [Step(n, 1.0, [0.01] * rate, {"api": 0.5}) for n, rate in rates.items()]


def test_a_rate_that_falls_with_more_connections_is_a_miss() -> None:
    held = create.report(steps({1: 100, 8: 300, 32: 290}), [0.1], 0, 0, {})
    assert missed(held) == []
    assert held.figures["api_cpu_us_per_task_over_8"] == round(0.5e6 / 300)
    assert len(missed(create.report(steps({1: 100, 8: 300, 32: 200}), [0.1], 0, 0, {}))) == 1


def test_a_task_that_is_not_there_and_a_refused_request_are_misses() -> None:
    taken = steps({1: 100, 8: 300, 32: 300})
    assert missed(create.report(taken, [0.1], 1, 0, {})) == ["tasks answered as created, without one next row each"]
    assert missed(create.report(taken, [0.1], 0, 1, {})) == ["requests refused"]


# --- scale ------------------------------------------------------------------------------------------------------------

CLEAN = Judgement(
    expected=100, lost=0, duplicates=0, skipped=0, failed=0, strangers=0, early=0, unseen=0, delays=[0.01] * 100
)


def outcome(delay: float, lost: int = 0, duplicates: int = 0) -> Outcome:
    judgement = replace(CLEAN, delays=[delay] * 100, lost=lost, duplicates=duplicates)
    return Outcome(10, 10, judgement, 100, 0, {"executors": 1.0}, 1, 1, 10.0)


def scaled(outcomes: list[tuple[Outcome, Outcome]], begin: float = 2.0, not_begun: int = 0) -> list[str]:
    return missed(scale.report(outcomes, [(1.0, begin)] * 3, not_begun, {}))


def test_a_spell_that_falls_on_one_pair_decides_nothing() -> None:
    even = (outcome(0.01), outcome(0.011))
    assert scaled([even, (outcome(0.01), outcome(0.1)), even]) == []


def test_both_sizes_are_said_to_be_measured_after_each_other() -> None:
    found = scale.report([(outcome(0.01), outcome(0.01))], [(1.0, 1.0)], 0, {})
    assert found.figures["measured"] == "after each other, in turn, while both products run"


def test_delays_and_begins_that_grow_with_idle_tasks_are_misses() -> None:
    assert len(scaled([(outcome(0.01), outcome(0.013))] * 3)) == 1
    assert len(scaled([(outcome(0.01), outcome(0.01))] * 3, begin=2.6)) == 1


def test_a_loss_a_duplicate_or_a_begin_undone_in_any_load_is_a_miss() -> None:
    even = (outcome(0.01), outcome(0.01))
    assert scaled([even, (outcome(0.01, lost=1), outcome(0.01))]) == ["lost"]
    assert scaled([even, (outcome(0.01), outcome(0.01, duplicates=1))]) == ["duplicates"]
    assert scaled([even], not_begun=1) == ["idle tasks asked for and not begun"]
