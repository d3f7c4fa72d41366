"""Endpoints and their caps: the calls that each has in flight, and the rows that wait for a full one to have room.

Such rows lie beside their queue, which goes on without them: a dead endpoint is passed over once, not at every
choice. No more than `PAGE` of one queue and endpoint are kept, and `FULL` of one queue; what is behind them is
left in the database, and its queue remembers from where.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TypeVar
from uuid import UUID

from tocsin.common.models import Priority
from tocsin.common.store.rows import Pending, Task
from tocsin.engine.tenant import FULL, PAGE, Queue

Endpoint = tuple[UUID, str]
"""Tenant, and host with port."""

QueueKey = tuple[UUID, int]

K = TypeVar("K")


def endpoint_of(task: Task) -> Endpoint:
    return task.tenant_id, task.call.endpoint


class Endpoints:
    def __init__(self) -> None:
        self.in_flight: Counter[Endpoint] = Counter()
        self._waiting: dict[Endpoint, dict[int, Queue]] = {}
        self._where: dict[UUID, Endpoint] = {}
        self._waiting_of: Counter[QueueKey] = Counter()

    def land(self, endpoint: Endpoint) -> None:
        """One call fewer."""
        count_down(self.in_flight, endpoint)

    def waiting(self, endpoint: Endpoint, priority: int) -> int:
        """How many rows of a queue wait for this endpoint."""
        queue = self._waiting.get(endpoint, {}).get(priority)
        return 0 if queue is None else len(queue)

    def waiting_of(self, key: QueueKey) -> int:
        """How many rows of a queue wait, for whatever endpoint."""
        return self._waiting_of[key]

    def wait(self, row: Pending, endpoint: Endpoint) -> Pending | None:
        """Keeps a row until its endpoint has room; says which row, this or a later one, there is no place for."""
        queue = self._waiting.setdefault(endpoint, {}).setdefault(int(row.priority), Queue())
        queue.add(row)
        self._where[row.run_id] = endpoint
        self._waiting_of[row.tenant_id, row.priority] += 1
        if len(queue) <= PAGE and self._waiting_of[row.tenant_id, row.priority] <= FULL:
            return None
        last = queue.last()
        self.leave(last)
        return last

    def leave(self, row: Pending) -> bool:
        """Takes a row out of the wait, whether it waits or not; says whether it did."""
        endpoint = self._where.pop(row.run_id, None)
        if endpoint is None:
            return False
        queues = self._waiting[endpoint]
        queues[row.priority].discard(row)
        count_down(self._waiting_of, (row.tenant_id, int(row.priority)))
        if not queues[row.priority]:
            del queues[row.priority]
        if not queues:
            del self._waiting[endpoint]
        return True

    def released(self, cap_of: Callable[[UUID], int | None]) -> list[Pending]:
        """Takes out, of each endpoint and priority, as many rows as the endpoint has room for by now, in due order.

        Of each priority, so that which is begun is still chosen among all. `cap_of` gives a tenant's cap.
        """
        found: list[Pending] = []
        for endpoint, queues in self._waiting.items():
            cap = cap_of(endpoint[0])
            room = None if cap is None else cap - self.in_flight[endpoint]
            if room is None or room > 0:
                found += (row for queue in queues.values() for row in queue.first(room))
        for row in found:
            self.leave(row)
        return found

    def of_tenant(self, tenant_id: UUID) -> list[Pending]:
        """The rows of a tenant that wait."""
        if not any(self._waiting_of[tenant_id, int(priority)] for priority in Priority):
            return []
        mine = (queues for endpoint, queues in self._waiting.items() if endpoint[0] == tenant_id)
        return [row for queues in mine for queue in queues.values() for row in queue]

    def __iter__(self) -> Iterator[Queue]:
        return (queue for queues in self._waiting.values() for queue in queues.values())


def count_down(counts: Counter[K], key: K) -> None:
    """One fewer; nothing is kept of what has come to none."""
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
