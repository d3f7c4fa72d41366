"""Runs whose last call went out on a connection that turned out to be dead: they are called again at once, and once."""

from dataclasses import replace
from uuid import UUID

from tocsin.executor.transport.port import Failure, OutgoingRequest, Response


class StaleCalls:
    """Remembers at most `size` such runs, and forgets the oldest ones first: of a run that is forgotten, as in a
    process that ends, no more is lost than that its next call may meet an old connection too."""

    def __init__(self, size: int = 10_000) -> None:
        self._size = size
        self._again: dict[UUID, None] = {}

    def request(self, run_id: UUID, request: OutgoingRequest) -> OutgoingRequest:
        """The request as it is to go out: on a fresh connection, if the call before it was stale."""
        return request._replace(fresh=True) if run_id in self._again else request

    def result(self, run_id: UUID, result: Response | Failure) -> Response | Failure:
        """The result as it is to be judged: not stale twice in a row, whatever the transport says."""
        repeated = run_id in self._again
        if repeated:
            del self._again[run_id]
        if not (isinstance(result, Failure) and result.reused):
            return result
        if repeated:
            return replace(result, reused=False)
        self._again[run_id] = None
        if len(self._again) > self._size:
            del self._again[next(iter(self._again))]
        return result
