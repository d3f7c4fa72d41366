"""Of several runs: the median of what was found, the sum of what went wrong."""

import math

import pytest

from bench.medians import median_report
from bench.report import Environment, Figure, Report, Target, at_least, at_most, bound_of, exactly, not_run
from bench.series import Charts, Line, Series


def report(*targets: Target, lost: int | None = 0, name: str = "t", **figures: Figure) -> Report:
    charts = Charts(series=[Series(name, "s", [0.0], [Line("a", [1.0])])])
    machine: Environment = {"cores": 2, "loop_median_ms": 10.0 + (lost or 0), "postgresql_settings": {"fsync": "on"}}
    return Report("p1", machine, targets, "anything.", figures, lost=lost, duplicates=lost, charts=charts)


def of_three(one: Target, two: Target, three: Target) -> Target:
    return median_report([report(one), report(two), report(three)]).targets[0]


@pytest.mark.parametrize(("values", "taken", "met"), [((1, 9, 5), 5, True), ((11, 12, 5), 11, False)])
def test_a_target_is_that_of_the_run_in_the_middle(values: tuple[int, int, int], taken: int, met: bool) -> None:
    one, two, three = (at_most("p99", 10, value, "ms") for value in values)
    assert of_three(one, two, three) == Target("p99", "<= 10 ms", taken, met)


@pytest.mark.parametrize(
    ("make", "worse"), [(lambda value: at_most("p99", 10, value), 9), (lambda value: at_least("rate", 5, value), 7)]
)
def test_of_two_runs_the_worse_counts(make, worse: int) -> None:  # type: ignore[no-untyped-def]
    assert median_report([report(make(7)), report(make(9))]).targets[0].value == worse


def test_a_run_that_found_nothing_is_the_worst() -> None:
    assert of_three(at_most("p", 10, math.nan), at_most("p", 10, 3), at_most("p", 10, 4)).value == 4
    assert of_three(at_least("r", 10, math.nan), at_least("r", 10, 30), at_least("r", 10, 40)).value == 30
    assert not of_three(at_most("p", 10, math.nan), at_most("p", 10, math.nan), at_most("p", 10, 4)).met


def test_one_loss_in_three_runs_is_a_loss() -> None:
    """A median would say 0."""
    lost = of_three(
        exactly("lost, all steps", 0, 0), exactly("lost, all steps", 0, 1), exactly("lost, all steps", 0, 0)
    )
    assert lost == Target("lost, all steps", "= 0", 1, False)
    together = median_report([report(lost=0), report(lost=2), report(lost=1)])
    assert (together.lost, together.duplicates) == (3, 3)
    assert median_report([report(lost=None), report(lost=None)]).lost is None


def test_duplicates_are_summed_beside_the_calls_in_flight_of_each_run() -> None:
    again = of_three(
        at_most("kill: called again", 200, 150, "calls"),
        at_most("kill: called again", 210, 211, "calls"),
        at_most("kill: called again", 190, 0, "calls"),
    )
    assert again == Target("kill: called again", "<= 600 calls", 361, False)


def test_seconds_until_calls_came_again_are_no_count() -> None:
    first = of_three(*(at_most("first called again", 15, seconds, "s") for seconds in (3.0, 9.0, 4.0)))
    assert (first.target, first.value) == ("<= 15 s", 4.0)
    assert median_report([report(lost_s=1.0), report(lost_s=3.0), report(lost_s=2.0)]).figures["lost_s"] == 2.0


def test_an_exact_target_is_met_where_every_run_met_it() -> None:
    assert of_three(exactly("runs", 400, 400), exactly("runs", 400, 399), exactly("runs", 400, 400)).value == 399
    assert of_three(*[exactly("runs", 400, 400)] * 3).met


def test_a_target_that_a_run_does_not_have_is_missed_there() -> None:
    found = median_report([report(exactly("lost", 0, 0), at_most("p99", 5, 1)), report(exactly("lost", 0, 0))])
    assert [target.met for target in found.targets] == [True, False]


def test_figures_are_medians_but_for_faults_and_words() -> None:
    found = median_report(
        [
            report(p50=1.0, lost_in_all=1, way="a", empty=None, sometimes=None),
            report(p50=3.0, lost_in_all=0, way="b", empty=None, sometimes=4),
            report(p50=2.0, lost_in_all=1, way="a", empty=None, sometimes=6),
        ]
    )
    assert str(median_report([report(runs=3), report(runs=5)]).figures["runs"]) == "4"
    wanted = {"p50": 2.0, "lost_in_all": 2, "way": "a / b", "empty": None, "sometimes": 5}
    assert found.figures == {"runs_of_the_test": 3, **wanted}


def test_the_environment_is_the_machines_with_medians_of_what_was_read_anew() -> None:
    found = median_report([report(lost=0), report(lost=9), report(lost=1)]).environment
    assert found == {"cores": 2, "loop_median_ms": 11.0, "postgresql_settings": {"fsync": "on"}}


def test_charts_are_those_of_the_run_in_the_middle_with_a_table_of_each() -> None:
    found = median_report(
        [report(at_most("p", 9, value), name=name) for value, name in ((3.0, "best"), (9.0, "worst"), (5.0, "middle"))]
    )
    assert found.charts.series[0].title == "middle"
    assert found.charts.tables[-1].rows == [["p", 3.0, 9.0, 5.0, 5.0]]


def test_runs_that_were_not_had_are_left_out() -> None:
    absent = not_run("p1", "no Redis here")
    assert median_report([absent, absent]).reason_not_run == "no Redis here"
    assert median_report([absent, report(at_most("p", 9, 3)), absent]).targets[0].value == 3


def test_runs_of_different_tests_are_refused() -> None:
    with pytest.raises(ValueError, match="one and the same"):
        median_report([report(), Report("p2", {}, (), "anything.")])


@pytest.mark.parametrize(
    "target", [at_most("t", 50, 1, "ms"), at_least("t", 55_000, 1, "runs/s"), exactly("t", 0, 1), at_most("t", 0.02, 1)]
)
def test_bounds_are_read_back(target: Target) -> None:
    assert str(bound_of(target.target)) == target.target


def test_a_bound_in_words_has_no_direction() -> None:
    assert bound_of("within 3 sigma of 600") is None
