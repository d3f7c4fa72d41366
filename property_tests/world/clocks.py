"""Time as the world moves it. Every process has clocks of its own, set wrong as it pleases; the database has one."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

START = datetime(2026, 3, 10, 12, 0, 0, tzinfo=UTC)


class WorldTime:
    """Time since the world began, and the database's clock, which an administrator may step.

    Whole milliseconds are counted. A process reckons with Unix seconds as floats, which come in steps of 2**-22 s: such
    an instant is a whole millisecond, or at least 1.9 ns away from each. An event loop fires its timers up to a
    nanosecond early; between the two nothing would be due, and nothing would pass, for ever.
    """

    def __init__(self) -> None:
        self._milliseconds = 0
        self.step = timedelta()

    @property
    def seconds(self) -> float:
        return self._milliseconds / 1000

    def advance(self, seconds: float) -> None:
        """Raises:
        AssertionError: that is no whole number of milliseconds, or a step back.
        """
        milliseconds = round(seconds * 1000)
        assert milliseconds >= 0, "time does not run backwards"
        assert abs(seconds * 1000 - milliseconds) < 1e-6, f"{seconds} s are no whole milliseconds"
        self._milliseconds += milliseconds

    def since_start(self, *, offset: float = 0.0) -> float:
        """Seconds on a clock that showed `offset`, whole milliseconds, when the world began."""
        return (self._milliseconds + round(offset * 1000)) / 1000

    def step_database(self, seconds: float) -> None:
        self.step += timedelta(seconds=seconds)

    def undisturbed_now(self) -> datetime:
        """What the database's clock would show had nobody set it back."""
        return START + timedelta(milliseconds=self._milliseconds)

    def database_now(self) -> datetime:
        return self.undisturbed_now() + self.step


@dataclass(frozen=True, slots=True)
class ProcessClock:
    """A process's clocks: wall time is off by `skew` seconds; the others count from some instant of their own."""

    time: WorldTime
    skew: float
    since: float

    def now(self) -> datetime:
        return self.time.undisturbed_now() + timedelta(seconds=self.skew)

    def monotonic(self) -> float:
        return self.time.since_start(offset=self.since)

    def boottime(self) -> float:
        return self.time.since_start(offset=2 * self.since)


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
