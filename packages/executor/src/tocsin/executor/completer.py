"""The completer: results in batches, kept and sent again until the database has them (promise 7, rules 4 and 9)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from tocsin.common.clock import Clock
from tocsin.common.errors import RowRefusedError, StoreUnavailableError
from tocsin.common.store.ports import RunStore
from tocsin.common.store.rows import Begun, Completion
from tocsin.common.telemetry.meter import Meter
from tocsin.common.telemetry.metrics import FLUSH_SECONDS, RUNS, STALE_WRITES

log = logging.getLogger("tocsin.executor.completer")

Committed = Callable[[Begun, Completion | None], None]


@dataclass(frozen=True, slots=True)
class CompleterConfig:
    """`batch` results a statement; `gather` seconds in which further ones may join the first."""

    batch: int = 500
    gather: float = 0.005
    longest_pause: float = 1.0


class Completer:
    """Tells `committed` of each run once its result, or its return to pending, is durable.

    A statement of unknown outcome is sent again unchanged: its key makes the second one a no-op.
    """

    def __init__(
        self,
        runs: RunStore,
        lease_id: UUID,
        clock: Clock,
        meter: Meter,
        committed: Committed,
        config: CompleterConfig | None = None,
    ) -> None:
        self._runs = runs
        self._lease_id = lease_id
        self._clock = clock
        self._meter = meter
        self._committed = committed
        self._config = config or CompleterConfig()
        self._results: list[tuple[Begun, Completion]] = []
        self._returns: list[Begun] = []
        self._under_way = 0
        self._wake = asyncio.Event()
        self._away = False

    def __len__(self) -> int:
        """Results and returns that are not yet committed."""
        return len(self._results) + len(self._returns) + self._under_way

    def add(self, run: Begun, completion: Completion) -> None:
        self._results.append((run, completion))
        self._wake.set()

    def put_back(self, run: Begun) -> None:
        """Returns a run that was never called."""
        self._returns.append(run)
        self._wake.set()

    async def run(self) -> None:
        """Flushes for ever; ends only by cancellation."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if len(self._results) < self._config.batch:
                await asyncio.sleep(self._config.gather)
            while self._results or self._returns:
                await self.flush()

    async def flush(self) -> None:
        """Writes one batch of each kind, trying until the database has it."""
        results, self._results = self._results[: self._config.batch], self._results[self._config.batch :]
        returns, self._returns = self._returns[: self._config.batch], self._returns[self._config.batch :]
        self._under_way = len(results) + len(returns)
        if results:
            await self._insist(lambda: self._complete(results))
            self._under_way -= len(results)
            for run, completion in results:
                self._meter.add(RUNS, 1, completion.outcome)
                self._tell(run, completion)
        if returns:
            pairs = [(run.run_id, run.fence) for run in returns]
            await self._insist(lambda: self._return(pairs))
            self._under_way -= len(returns)
            for run in returns:
                self._tell(run, None)

    def _tell(self, run: Begun, completion: Completion | None) -> None:
        """What the engine makes of it is its own matter: it must not keep other results from the database."""
        try:
            self._committed(run, completion)
        except Exception:
            log.exception("run %s: its end is stored, and could not be told", run.run_id)

    async def _return(self, pairs: Sequence[tuple[UUID, int]]) -> None:
        await self._runs.put_back(self._lease_id, pairs)

    async def _complete(self, results: Sequence[tuple[Begun, Completion]]) -> None:
        began = self._clock.monotonic()
        try:
            done = await self._runs.complete(self._lease_id, [completion for _, completion in results])
        except RowRefusedError as error:
            await self._bisect(results, error)
            return
        self._meter.observe(FLUSH_SECONDS, self._clock.monotonic() - began)
        if done.stale:
            self._meter.add(STALE_WRITES, len(done.stale))
            log.warning(
                "%d results came after their lease was taken for dead, and were recorded as stale",
                len(done.stale),
            )

    async def _bisect(self, results: Sequence[tuple[Begun, Completion]], error: RowRefusedError) -> None:
        """A batch that the database cannot hold: its halves, down to the row at fault, written in minimal form."""
        if len(results) > 1:
            middle = len(results) // 2
            await self._complete(results[:middle])
            await self._complete(results[middle:])
            return
        run, completion = results[0]
        log.error(
            "the result of run %s cannot be stored as it is (%s); storing its outcome alone",
            run.run_id,
            error,
        )
        try:
            await self._runs.complete(self._lease_id, [minimal(completion)])
        except RowRefusedError:
            log.exception("run %s: not even its outcome can be stored; it will be put back", run.run_id)

    async def _insist(self, write: Callable[[], Awaitable[None]]) -> None:
        pause = 0.05
        while True:
            try:
                await write()
            except StoreUnavailableError as error:
                if not self._away:
                    log.warning("results wait for the database (%s)", error)
                self._away = True
            except Exception:
                log.exception("results could not be written; trying again")
            else:
                if self._away:
                    log.warning("the database has taken the results that waited")
                self._away = False
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, self._config.longest_pause)


def minimal(completion: Completion) -> Completion:
    """The same end of the same attempt, without what an endpoint or a library had to say."""
    return replace(completion, error="the result could not be stored as it was", response=None, http_status=None)
