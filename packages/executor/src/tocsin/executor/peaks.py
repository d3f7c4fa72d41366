"""What is due in the seconds to come: where it is much at once, connections are opened ahead. Values in, values out."""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from tocsin.common.target import Target

PEAK: Final = 100
"""Runs due in one second from which that second is a peak: fewer open what they need when they need it."""

PER_ENDPOINT: Final = 8
"""Connections opened ahead to one endpoint, at most; a call that finds none free opens its own."""

_Endpoint = tuple[str, str, int]


class Peaks:
    """Counts by second and endpoint. What is noted late, or little by little, counts as what was noted at once."""

    def __init__(self) -> None:
        self._seconds: dict[int, Counter[_Endpoint]] = {}
        self._targets: dict[int, dict[_Endpoint, Target]] = {}
        self._told: dict[int, Counter[_Endpoint]] = {}

    def note(self, due_at: datetime, target: Target) -> None:
        """A run of this endpoint is due then."""
        endpoint = (target.scheme, target.host, target.port)
        second = int(due_at.timestamp())
        self._seconds.setdefault(second, Counter())[endpoint] += 1
        self._targets.setdefault(second, {})[endpoint] = target

    def take(self, now: datetime) -> Iterator[tuple[Target, int]]:
        """The endpoints that peaks after `now` will need connections to, and how many in all, each as it has grown
        since it was last taken; what is past is forgotten."""
        for second in [second for second in self._seconds if second < now.timestamp()]:
            del self._seconds[second], self._targets[second]
            self._told.pop(second, None)
        for second, counts in self._seconds.items():
            if counts.total() < PEAK:
                continue
            told = self._told.setdefault(second, Counter())
            for endpoint, count in counts.items():
                wanted = min(count, PER_ENDPOINT)
                if wanted > told[endpoint]:
                    told[endpoint] = wanted
                    yield self._targets[second][endpoint], wanted
