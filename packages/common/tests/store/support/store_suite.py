"""The conformance suite of a store: every check by its name."""

from collections.abc import Awaitable, Callable

import store_checks_begin
import store_checks_cancels
import store_checks_leases
import store_checks_returns
import store_checks_tenants
import store_checks_writes
from store_bench import Bench

Check = Callable[[Bench], Awaitable[None]]

_MODULES = (
    store_checks_begin,
    store_checks_returns,
    store_checks_leases,
    store_checks_tenants,
    store_checks_writes,
    store_checks_cancels,
)

CHECKS: dict[str, Check] = {
    name.removeprefix("check_"): check
    for module in _MODULES
    for name, check in vars(module).items()
    if name.startswith("check_")
}
