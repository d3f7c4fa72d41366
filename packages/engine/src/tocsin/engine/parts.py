"""Parts: a round of reads goes on where one of its parts fails, and fails itself where the database answers none."""

import logging
from collections.abc import Awaitable

from tocsin.common.errors import StoreUnavailableError

log = logging.getLogger("tocsin.engine.read")


class Parts:
    """`asked` is to grow with each statement: a part that asks nothing is no answer."""

    def __init__(self) -> None:
        self.asked = 0
        self.answered = False
        self.after_outage = False
        """The round before this one was answered by nobody."""
        self._error: StoreUnavailableError | None = None
        self._said_failed = False

    def begin(self) -> None:
        """A new round."""
        self.after_outage = self.outage is not None
        self.answered, self._error = False, None

    async def run(self, part: Awaitable[int | None]) -> int:
        """The part's count, 0 where it failed."""
        asked = self.asked
        try:
            added = await part
        except StoreUnavailableError as error:
            self._error = self._error or error
            return 0
        self.answered |= self.asked > asked
        return added or 0

    @property
    def outage(self) -> StoreUnavailableError | None:
        """The first error of this round, where the database has answered no part of it so far."""
        return None if self.answered else self._error

    def end(self) -> None:
        """Says that a part failed though the database answered others: once, until nothing fails."""
        if self._error is not None and not self._said_failed:
            log.warning("a part of a round failed (%s); it is tried again", self._error)
        self._said_failed = self._error is not None
