"""The conformance suite of a transport: every check, by name, to be run on a factory of the transport.

A check is `async def check(make: TransportFactory) -> None` and raises AssertionError. Numbers in the
names are those of the public bug reports that the checks replay.
"""

import inspect
from collections.abc import Awaitable, Callable
from types import ModuleType

import checks_answers
import checks_egress
import checks_faults
import checks_gate
import checks_tls
from endpoints import TransportFactory
from tocsin.executor.transport.aiohttp_transport import AiohttpTransport
from tocsin.executor.transport.lean import LeanTransport

TRANSPORTS: dict[str, TransportFactory] = {"aiohttp": AiohttpTransport, "lean": LeanTransport}

Check = Callable[[TransportFactory], Awaitable[None]]


def _checks(module: ModuleType) -> dict[str, Check]:
    return {
        name: value
        for name, value in vars(module).items()
        if inspect.iscoroutinefunction(value)
        and value.__module__ == module.__name__
        and list(inspect.signature(value).parameters) == ["make"]
    }


CHECKS: dict[str, Check] = {
    name: check
    for module in (checks_answers, checks_egress, checks_faults, checks_gate, checks_tls)
    for name, check in _checks(module).items()
}
