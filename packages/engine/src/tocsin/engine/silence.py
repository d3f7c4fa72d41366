"""Silence: executors that exist and do not live. A frozen process is an actor to Ray, and to the database a lease that
has ended, or that nobody was left to judge; in a cell of one executor nobody takes its shards either.

The database alone says that a cell lacks a live executor. Only where it has said so for long, without a break, are the
cell's executors asked; only one that does not answer is ended, and another is started in its place.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tocsin.common.clock import Clock


@dataclass(frozen=True, slots=True)
class SilenceConfig:
    """Seconds. An executor has `patience` to take its lease, or to renew it, before it is asked whether it lives; twice
    as long each time that one was ended in vain, up to `longest`. What was seen before a `gap` without a look says
    nothing: the database was away, or this process, and the others had no chance. A round of the Supervisor that is
    merely long is no such gap."""

    patience: float = 30.0
    longest: float = 600.0
    gap: float = 30.0


class Silence:
    def __init__(self, clock: Clock, config: SilenceConfig | None = None) -> None:
        self._clock = clock
        self._config = config or SilenceConfig()
        self._since: dict[str, float] = {}
        self._patience: dict[str, float] = {}
        self._looked_at = -math.inf

    def look(self, executors: Mapping[str, int], live: Mapping[str, int]) -> dict[str, int]:
        """Says which cells have lacked living executors for long, and how many; one that was named has its patience
        anew. By cell, so many `executors` exist, and so many live."""
        now = self._clock.monotonic()
        if now - self._looked_at > self._config.gap:
            self._since.clear()
        self._looked_at = now
        lacks = {cell: count - live.get(cell, 0) for cell, count in executors.items() if count > live.get(cell, 0)}
        self._since = {cell: self._since.get(cell, now) for cell in lacks}
        for cell in live.keys() - lacks.keys():
            self._patience.pop(cell, None)
        overdue = [cell for cell, since in self._since.items() if now - since >= self._patience_of(cell)]
        for cell in overdue:
            self._since[cell] = now
        return {cell: lacks[cell] for cell in overdue}

    def ended(self, cell: str) -> None:
        """Some of a cell were ended: the next ones get more time, in case that these were slow to start."""
        self._patience[cell] = min(2 * self._patience_of(cell), self._config.longest)

    def _patience_of(self, cell: str) -> float:
        return self._patience.get(cell, self._config.patience)
