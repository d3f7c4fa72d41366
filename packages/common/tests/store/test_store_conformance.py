"""One suite for every store: in memory and PostgreSQL."""

from collections.abc import Awaitable, Callable

import pytest
import store_checks_begin
import store_checks_leases
import store_checks_returns
import store_checks_writes
from store_bench import Bench

Check = Callable[[Bench], Awaitable[None]]

CHECKS: dict[str, Check] = {
    name.removeprefix("check_"): check
    for module in (store_checks_begin, store_checks_returns, store_checks_leases, store_checks_writes)
    for name, check in vars(module).items()
    if name.startswith("check_")
}


@pytest.mark.parametrize("check", CHECKS)
async def test_store(bench: Bench, check: str) -> None:
    await CHECKS[check](bench)
