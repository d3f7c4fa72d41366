"""One suite for every store: in memory and PostgreSQL."""

import pytest

from store_bench import Bench
from store_suite import CHECKS


@pytest.mark.parametrize("check", CHECKS)
async def test_store(bench: Bench, check: str) -> None:
    await CHECKS[check](bench)
