"""The plot of the hints: a line for each way, without and with an old transaction; what was not measured is a gap."""

from bench.hint_charts import Row, hint_charts

READS: list[Row] = [
    (100, 0, 1, False, 9.0, 9.0, 1.0, 1.0),
    (100, 10_000, 1, False, 1.0, 2.0, 1.0, 1.0),
    (1000, 10_000, 1, False, 3.0, 4.0, 1.0, 1.0),
    (1000, 10_000, 1, True, 5.0, 6.0, 1.0, 1.0),
    (100, 10_000, 8, False, 7.0, 8.0, 1.0, 1.0),
]


def test_reads_are_drawn_by_executors_at_the_largest_backlog() -> None:
    charts = hint_charts(READS, [(1, False, 100, 200), (8, False, 300, 400)])
    one, eight, rival = charts.series
    assert {line.name: line.values for line in one.lines} == {
        "scan": [1.0, 3.0],
        "scan, old transaction": [None, 5.0],
        "hints": [2.0, 4.0],
        "hints, old transaction": [None, 6.0],
    }
    assert (one.x, eight.x, rival.x) == ([100, 1000], [100], [1, 8])
    assert [line.values for line in rival.lines] == [[100, 300], [None, None], [200, 400], [None, None]]
    assert charts.tables[0].rows == [list(row) for row in READS]
