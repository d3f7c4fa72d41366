"""Which way finds what is due faster now: looks at the queues, or ids from the hint index. Pure: timings go in.

Both ways are taken all the time, one of them seldom, so that the verdict follows what changes. It changes only where
the other way is faster by a margin. An index that fails or lies loses it at once, and must prove itself anew.
"""

import statistics
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Way(StrEnum):
    """`SCAN`: a look at each queue from the margin. `HINTS`: ids from the index, looked up."""

    SCAN = "scan"
    HINTS = "hints"


@dataclass(frozen=True, slots=True)
class JudgeConfig:
    """`window` reads of each way count, and none with fewer than `least`. The other way takes over where it needs
    less than `edge` of the time a row. One read in `probe_every` goes the other way. An index lies of which less than
    `believed` of what it names is pending, as soon as it has named `enough`.
    """

    window: int = 15
    least: int = 5
    edge: float = 0.8
    probe_every: int = 10
    believed: float = 0.5
    enough: int = 20


@dataclass(frozen=True, slots=True)
class _Read:
    seconds: float
    named: int
    found: int


class HintJudge:
    def __init__(self, config: JudgeConfig | None = None) -> None:
        self._config = config or JudgeConfig()
        self.verdict = Way.SCAN
        self._scans = deque[_Read](maxlen=self._config.window)
        self._hints = deque[_Read](maxlen=self._config.window)
        self._disgraced = False
        self._since_hints = 0

    def next(self) -> Way:
        """The way of the next read. Hints are never taken twice running: what they do not know, the scan finds."""
        new = not self._disgraced and len(self._hints) < self._config.least
        every = 2 if new or self.verdict is Way.HINTS else self._config.probe_every
        self._since_hints += 1
        if self._since_hints < every:
            return Way.SCAN
        self._since_hints = 0
        return Way.HINTS

    def scanned(self, seconds: float, found: int) -> None:
        """A scan took so long, and found so many rows."""
        self._scans.append(_Read(seconds, found, found))
        self._judge()

    def hinted(self, seconds: float, named: int, found: int) -> bool:
        """The index named so many ids, and so many of them were found pending; says whether it can be believed."""
        self._hints.append(_Read(seconds, named, found))
        if self._lies(self._hints) or self._lies([self._hints[-1]]):
            self.failed()
            return False
        self._judge()
        return True

    def failed(self) -> None:
        """The index cannot be asked, or not be believed."""
        self.verdict = Way.SCAN
        self._disgraced = True
        self._hints.clear()

    def milliseconds_a_row(self, way: Way) -> float:
        """What a row costs by this way, of late; inf where nothing is known."""
        reads = self._scans if way is Way.SCAN else self._hints
        return 1000 * _cost(reads) if reads else float("inf")

    def _lies(self, reads: Iterable[_Read]) -> bool:
        reads = list(reads)
        named, found = sum(read.named for read in reads), sum(read.found for read in reads)
        return named >= self._config.enough and found < self._config.believed * named

    def _judge(self) -> None:
        if min(len(self._scans), len(self._hints)) < self._config.least:
            return
        scan, hints = _cost(self._scans), _cost(self._hints)
        is_blind = _rows(self._scans) > 0 == _rows(self._hints)  # as after a flush: quick, and finds nothing
        if is_blind or (self.verdict is Way.HINTS and scan < self._config.edge * hints):
            self.verdict = Way.SCAN
        elif self.verdict is Way.SCAN and hints < self._config.edge * scan:
            self.verdict = Way.HINTS


def _cost(reads: Iterable[_Read]) -> float:
    """Seconds a row, of medians: a checkpoint or a pause of the machine is not the way's fault. A read that finds
    nothing counts as one row."""
    reads = list(reads)
    return statistics.median(read.seconds for read in reads) / max(1.0, _rows(reads))


def _rows(reads: Iterable[_Read]) -> float:
    return statistics.median(read.found for read in reads)
