"""A measurement's start delays as charts: how many of each length, and how they went over time."""

from collections.abc import Iterable, Mapping

from bench.ledger import SlotKey
from bench.series import Band, Charts, delay_timeline, log_histogram, started_curve


def delay_charts(
    groups: Mapping[str, Mapping[SlotKey, float]], bands: Iterable[tuple[str, float, float]] = ()
) -> Charts:
    """A histogram of delays, in seconds by slot; their p99 by the second of the slot, where there are several; and what
    part had started how long after it was due. A line for each group that has any.

    `bands` are stretches of time with something in them: a name, its beginning and its end in Unix seconds.
    """
    pairs = {
        name: [(slot.timestamp(), delay) for (_, slot), delay in delay_of.items()]
        for name, delay_of in groups.items()
        if delay_of
    }
    first = min((int(due) for found in pairs.values() for due, _ in found), default=0)
    marked = [Band(name, began - first, ended - first) for name, began, ended in bands]
    timeline = delay_timeline("Start delay p99, by the second in which runs were due", pairs, bands=marked)
    delays = {name: [delay for _, delay in found] for name, found in pairs.items()}
    over_time = [timeline] if len(timeline.x) > 1 else []
    curve = started_curve("Started, of those due, by the time after that", delays)
    return Charts(series=[*over_time, curve], histograms=[log_histogram("Start delay", delays)])
