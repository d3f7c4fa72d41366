"""Time as the world moves it. Every process has clocks of its own, set wrong as it pleases; the database has one."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

START = datetime(2026, 3, 10, 12, 0, 0, tzinfo=UTC)


class WorldTime:
    """Seconds since the world began, and the database's clock, which an administrator may step."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.step = timedelta()

    def advance(self, seconds: float) -> None:
        self.seconds += seconds

    def step_database(self, seconds: float) -> None:
        self.step += timedelta(seconds=seconds)

    def undisturbed_now(self) -> datetime:
        """What the database's clock would show had nobody set it back: all that a process can know of a step before its
        next heartbeat."""
        return START + timedelta(seconds=self.seconds)

    def database_now(self) -> datetime:
        return START + timedelta(seconds=self.seconds) + self.step


@dataclass(frozen=True, slots=True)
class ProcessClock:
    """A process's clocks: wall time is off by `skew` seconds; the others count from some instant of their own."""

    time: WorldTime
    skew: float
    since: float

    def now(self) -> datetime:
        return START + timedelta(seconds=self.time.seconds + self.skew)

    def monotonic(self) -> float:
        return self.since + self.time.seconds

    def boottime(self) -> float:
        return 2 * self.since + self.time.seconds


@dataclass(frozen=True, slots=True)
class DatabaseTime:
    """The database's clock, for the store in memory."""

    time: WorldTime

    def now(self) -> datetime:
        return self.time.database_now()

    def monotonic(self) -> float:
        return self.time.seconds

    def boottime(self) -> float:
        return self.time.seconds
