"""Every transport passes the whole suite."""

import pytest

from endpoints import TransportFactory
from tocsin.executor.transport.aiohttp_transport import AiohttpTransport
from tocsin.executor.transport.lean import LeanTransport
from transport_suite import CHECKS

TRANSPORTS: dict[str, TransportFactory] = {"aiohttp": AiohttpTransport, "lean": LeanTransport}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_transport_conforms(transport: str, check: str) -> None:
    await CHECKS[check](TRANSPORTS[transport])
