"""What is due in the seconds to come: where it is much at once, connections are opened ahead. Values in, values out."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from tocsin.common.target import Target
from tocsin.executor.transport.connecting import OPENED_AHEAD_SECONDS

PEAK: Final = 100
"""Runs due in one second, over one scheme, from which that second is a peak: fewer open what they need when they need
it."""

PER_ENDPOINT: Final = 8
"""Connections opened ahead to an endpoint of few runs, at most; a call that finds none free opens its own."""

RUNS_A_CONNECTION: Final = 16
"""Of an endpoint with many runs one more for as many: on 8 connections, a thousand calls would wait for new ones."""

MOST_PER_ENDPOINT: Final = 64

_Endpoint = tuple[str, int]
_Moment = tuple[int, str]
"""A second, and a scheme."""


@dataclass(eq=False, slots=True)
class _Due:
    """What is due at one moment. `grown`: the endpoints of which more is due than when they were last told."""

    total: int = 0
    counts: dict[_Endpoint, int] = field(default_factory=dict)
    targets: dict[_Endpoint, Target] = field(default_factory=dict)
    told: dict[_Endpoint, int] = field(default_factory=dict)
    grown: dict[_Endpoint, None] = field(default_factory=dict)


class Peaks:
    """Counts by second and endpoint. What is noted late, or little by little, counts as what was noted at once."""

    def __init__(self) -> None:
        self._due: dict[_Moment, _Due] = {}

    def __len__(self) -> int:
        """The moments of which something is known."""
        return len(self._due)

    def note(self, due_at: datetime, target: Target) -> None:
        """A run of this endpoint is due then."""
        moment = int(due_at.timestamp()), target.scheme
        due = self._due.get(moment)
        if due is None:
            due = self._due[moment] = _Due()
        endpoint = target.host, target.port
        due.total += 1
        due.counts[endpoint] = due.counts.get(endpoint, 0) + 1
        due.targets[endpoint] = target
        due.grown[endpoint] = None

    def take(self, now: datetime) -> Iterator[tuple[Target, int]]:
        """The endpoints that peaks soon after `now` will need connections to, and how many in all, each as it has grown
        since it was last taken; what is past is forgotten."""
        at = now.timestamp()
        for moment in [moment for moment in self._due if moment[0] < at]:
            del self._due[moment]
        for (second, scheme), due in self._due.items():
            if due.total < PEAK or second > at + OPENED_AHEAD_SECONDS[scheme]:
                continue
            grown, due.grown = due.grown, {}
            for endpoint in grown:
                wanted = wanted_of(due.counts[endpoint])
                if wanted > due.told.get(endpoint, 0):
                    due.told[endpoint] = wanted
                    yield due.targets[endpoint], wanted


def wanted_of(runs: int) -> int:
    """How many connections to one endpoint are opened ahead of so many runs."""
    return min(runs, max(PER_ENDPOINT, min(MOST_PER_ENDPOINT, runs // RUNS_A_CONNECTION)))
