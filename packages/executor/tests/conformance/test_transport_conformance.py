"""Every transport passes the whole suite."""

import pytest

from transport_suite import CHECKS, TRANSPORTS


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_transport_conforms(transport: str, check: str) -> None:
    await CHECKS[check](TRANSPORTS[transport])
