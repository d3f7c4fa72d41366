"""Start delay over time with the faults marked, as an SVG: a log axis, three lines, bands."""

from collections.abc import Sequence

from bench.page.axes import Axis
from bench.page.draw import LARGE, line_chart, svg
from bench.series import Band, Line, Series
from property_tests.chaos.delays import Second
from property_tests.chaos.ledger import Struck

DELAYS = Axis(1e-3, 100.0, "s", log=True)
"""The same in every plot; what lies beyond an end is drawn at that end."""

_CAPTION = "start delay by the second in which a slot was due; the bands are faults, grey where of the database alone"


def plot(seconds: Sequence[Second], faults: Sequence[Struck], title: str) -> str:
    """The SVG's text. `seconds` rise; a second without a due slot leaves a gap in the lines."""
    start = min([*(second.at for second in seconds[:1]), *(fault.began for fault in faults)], default=0.0)
    found = {second.at: second for second in seconds}
    every = [(at, found.get(at)) for at in range(seconds[0].at, seconds[-1].at + 1)] if seconds else []
    lines = [
        Line("max", [second.worst if second else None for _, second in every]),
        Line("p99", [second.p99 if second else None for _, second in every]),
        Line("p50", [second.p50 if second else None for _, second in every]),
    ]
    bands = [
        Band(fault.name, fault.began - start, fault.ended - start, fault.detail, other=not fault.database)
        for fault in faults
    ]
    x = [at + 0.5 - start for at, _ in every]
    series = Series(f"{title}: {_CAPTION}", "s", x, lines, log=True, bands=bands)
    return svg(line_chart(series, DELAYS, LARGE), alone=True) + "\n"
