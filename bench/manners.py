"""How an endpoint behaves, as the first segment of a URL's path says: a pure function of path, run and attempt.

| segment | the call |
|---|---|
| `150ms` | is answered 200 after 150 ms |
| `1000-10000ms` | is answered 200 after 1 to 10 s, uniformly |
| `tail` | is answered 200 after 150 ms in the median, log-normally: one in a hundred takes 480 ms or more |
| `flaky` | as `tail`, but 503 on 30 % |
| `reset` | ends with its connection, at once and unanswered: the endpoint is down |
| `hang` | is never answered |
| anything else | is answered 200 at once |

What is drawn is drawn from the run's id and the number of the attempt, so the measuring side can work out afterwards
how a run had to end, and the attempts of one run are independent.
"""

import hashlib
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from statistics import NormalDist

TAIL_MEDIAN_SECONDS = 0.15
TAIL_SIGMA = 0.5
FLAKY_SHARE = 0.3

_RANGE = re.compile(rb"(\d{1,6})(?:-(\d{1,6}))?ms")
_STEPS = 1024
_TAIL = tuple(
    TAIL_MEDIAN_SECONDS * math.exp(TAIL_SIGMA * NormalDist().inv_cdf((step + 0.5) / _STEPS)) for step in range(_STEPS)
)


class Ending(Enum):
    """How a call ends."""

    OK = 200
    UNAVAILABLE = 503
    RESET = "reset"
    NEVER = "never"


Answer = tuple[float, Ending]
"""Seconds until the end, and the end."""


@dataclass(frozen=True, slots=True)
class Manner:
    """Waits `least` seconds, or uniformly `least` to `most`, or with the long tail, and then ends so."""

    least: float = 0.0
    most: float = 0.0
    has_tail: bool = False
    failing: float = 0.0
    ending: Ending = Ending.OK

    def answer(self, run_id: bytes, attempt: bytes) -> Answer:
        """What becomes of one call; both arguments as they stand on the wire."""
        if not self.has_tail and self.least == self.most:
            return self.least, self.ending
        drawn = hashlib.blake2b(run_id + b" " + attempt, digest_size=16).digest()
        place = int.from_bytes(drawn[:8], "big") / 2**64
        if not self.has_tail:
            return self.least + place * (self.most - self.least), self.ending
        fails = int.from_bytes(drawn[8:], "big") < self.failing * 2**64
        return _TAIL[int(place * _STEPS)], Ending.UNAVAILABLE if fails else self.ending


_NAMED = {
    b"tail": Manner(has_tail=True),
    b"flaky": Manner(has_tail=True, failing=FLAKY_SHARE),
    b"reset": Manner(ending=Ending.RESET),
    b"hang": Manner(ending=Ending.NEVER),
}
_AT_ONCE = Manner()


@lru_cache(maxsize=4_096)
def manner_of(segment: bytes) -> Manner:
    """The behaviour that a path's first segment names."""
    if (found := _RANGE.fullmatch(segment)) is not None:
        least = int(found[1]) / 1000
        return Manner(least, int(found[2]) / 1000 if found[2] else least)
    return _NAMED.get(segment, _AT_ONCE)


def possible_ends(answer: Callable[[int], Answer], attempts: int, timeout: float, slack: float = 0.0) -> frozenset[str]:
    """The states in which a run may end that has so many attempts of `timeout` seconds each.

    `answer` gives what the endpoint does with attempt 1, 2, ... An answer within `slack` seconds of the timeout may
    have come in time or not.
    """
    ends: set[str] = set()
    for attempt in range(1, attempts + 1):
        seconds, ending = answer(attempt)
        if ending is Ending.OK and seconds < timeout + slack:
            ends.add("succeeded")
            if seconds <= timeout - slack:
                return frozenset(ends)
    return frozenset({*ends, "dead"})
