"""Time as a parameter: the process's clocks, one that a test moves, and what is known of the database's."""

import time
from collections import deque
from datetime import UTC, datetime, timedelta
from typing import Protocol

PARKED = datetime.max.replace(tzinfo=UTC)
"""`due_at` of a parked next row; PostgreSQL stores it as `infinity`."""


class Clock(Protocol):
    """Where a process takes time from. Only this module reads the machine's clocks."""

    def now(self) -> datetime:
        """Wall time, UTC. For ids and logs; never for due-ness or leases, which the database decides."""
        ...

    def monotonic(self) -> float:
        """Seconds, never set back. For durations."""
        ...

    def boottime(self) -> float:
        """Seconds that count on while the machine is suspended. For trust in a lease."""
        ...


class SystemClock:
    """The machine's clocks."""

    # macOS: CLOCK_MONOTONIC counts on through sleep (its clock_gettime(3)); there is no CLOCK_BOOTTIME.
    _BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def now(self) -> datetime:
        return datetime.now(UTC)  # noqa: TID251

    def monotonic(self) -> float:
        return time.monotonic()  # noqa: TID251

    def boottime(self) -> float:
        return time.clock_gettime(self._BOOT)


class ManualClock:
    """A clock that stands until it is moved. Wall time may be set back; durations may not."""

    def __init__(self, now: datetime, monotonic: float = 1000.0) -> None:
        self._now = now
        self._monotonic = monotonic
        self._boottime = monotonic

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def boottime(self) -> float:
        return self._boottime

    def advance(self, seconds: float) -> None:
        """Moves all three clocks on together."""
        if seconds < 0:
            raise ValueError("durations do not run backwards; use set_wall")
        self._now += timedelta(seconds=seconds)
        self._monotonic += seconds
        self._boottime += seconds

    def set_wall(self, now: datetime) -> None:
        """Steps wall time alone, as an administrator or NTP would."""
        self._now = now

    def suspend(self, seconds: float) -> None:
        """As a laptop's lid: wall and boot time go on, the monotonic clock does not."""
        self._now += timedelta(seconds=seconds)
        self._boottime += seconds


class DatabaseClock:
    """A lower bound of the database's time, from samples that heartbeats bring (rule 11).

    A sample says: at the monotonic instant `received` the database's clock already showed at least
    `t_db`. So `t_db + (monotonic now - received)` never runs ahead of the database, and the greatest
    of the last samples is the tightest. A sample that the others contradict (even its upper bound
    lies below them) means that the database's clock was set back: the others are dropped. So is what
    is older than `KEEP_SECONDS` when another comes: where this machine's clock runs too fast, the oldest
    is the greatest, and ahead by what has drifted since, an outage's length included.
    """

    KEEP_SECONDS = 20.0
    _KEEP = 16

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._samples: deque[tuple[float, float]] = deque(maxlen=self._KEEP)
        self._best: float | None = None

    def sample(self, t_db: datetime, sent: float, received: float) -> None:
        """Takes the database's time `t_db`, read between the monotonic instants `sent` and `received`."""
        offset = t_db.timestamp() - received
        upper = t_db.timestamp() - sent
        if self._best is not None and upper < self._best:
            self._samples.clear()
        self._samples.append((received, offset))
        while received - self._samples[0][0] > self.KEEP_SECONDS:
            self._samples.popleft()
        self._best = max(offset for _, offset in self._samples)

    @property
    def known(self) -> bool:
        return self._best is not None

    def timestamp(self) -> float:
        """The lower bound of database time now, in Unix seconds.

        Raises:
            RuntimeError: before the first sample.
        """
        if self._best is None:
            raise RuntimeError("no sample of the database's clock yet")
        return self._best + self._clock.monotonic()

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.timestamp(), UTC)

    def monotonic_at(self, instant: datetime) -> float:
        """The monotonic instant at which the lower bound reaches `instant`: never early."""
        if self._best is None:
            raise RuntimeError("no sample of the database's clock yet")
        return instant.timestamp() - self._best
