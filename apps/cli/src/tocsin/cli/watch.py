"""When an executor that Ray placed is to end, and by which way (rule 12)."""

from enum import StrEnum

GCS_LOST_SECONDS = 45.0
"""Without a GCS an actor lives about 60 s more, and a new head would know nothing of it."""


class Way(StrEnum):
    STAY = "stay"
    LEAVE = "leave"
    """By Ray's own way out: Ray knows that this end was meant, and restarts nothing."""
    ABANDON = "abandon"
    """At once and without Ray, whose own way out waits for the GCS. Where a GCS lives, it would restart the actor."""


class Watch:
    """Judges one look after another. Once an executor is to end it stays so; only the way out may change."""

    def __init__(self, now: float) -> None:
        self._gcs_seen = now
        self._ending = False

    def look(self, now: float, *, outdated: bool, gcs_answers: bool) -> Way:
        """What to do at `now` (seconds of one monotonic clock), given whether a newer generation has begun."""
        if gcs_answers:
            self._gcs_seen = now
        self._ending |= outdated or now - self._gcs_seen > GCS_LOST_SECONDS
        if not self._ending:
            return Way.STAY
        return Way.LEAVE if gcs_answers else Way.ABANDON
