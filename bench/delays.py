"""A measurement's start delays as charts: how many of each length, and how they went over time."""

from collections.abc import Callable, Iterable, Mapping
from uuid import UUID

from bench.ledger import SlotKey
from bench.series import Band, Charts, delay_timeline, log_histogram


def delay_charts(
    delay_of: Mapping[SlotKey, float],
    group_of: Callable[[UUID], str] = lambda task: "all",
    order: Iterable[str] = (),
    bands: Iterable[tuple[str, float, float]] = (),
) -> Charts:
    """A histogram of delays, in seconds by slot, and their p99 by the second of the slot, each by the group that the
    task belongs to. `order` names groups that come first, where they have any slot; `bands` are stretches of time with
    something in them: a name, and its beginning and end in Unix seconds."""
    groups: dict[str, list[tuple[float, float]]] = {name: [] for name in order}
    for (task, slot), delay in delay_of.items():
        groups.setdefault(group_of(task), []).append((slot.timestamp(), delay))
    groups = {name: pairs for name, pairs in groups.items() if pairs}
    first = min((int(due) for pairs in groups.values() for due, _ in pairs), default=0)
    marked = [Band(name, began - first, ended - first) for name, began, ended in bands]
    timeline = delay_timeline("Start delay p99, by the second in which runs were due", groups, bands=marked)
    delays = {name: [delay for _, delay in pairs] for name, pairs in groups.items()}
    return Charts(series=[timeline], histograms=[log_histogram("Start delay", delays)])
