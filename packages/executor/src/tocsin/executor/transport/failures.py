"""From what `aiohttp` raises to a failure with its outcome and one clean line."""

import asyncio

import aiohttp
from aiohttp.http import HttpProcessingError

from tocsin.common.store.rows import Outcome
from tocsin.common.target import Target
from tocsin.executor.transport import texts
from tocsin.executor.transport.port import Failure


def refused(error: Exception, address: str, target: Target) -> Failure:
    """The failure of a call of which nothing was sent."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return texts.certificate_refused(error.certificate_error, address, target)
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        return texts.no_tls(error.os_error, address, target)
    if target.scheme == "https" and _ended_in_handshake(error):
        return texts.closed_in_handshake(address, target)
    if isinstance(error, asyncio.TimeoutError):
        return texts.too_late(address, target)
    return texts.no_connection(_cause(error), address, target)


def lost(error: Exception, started: float, status: int | None, *, reused: bool = False) -> Failure:
    """The failure of a call whose request was sent."""
    if isinstance(error, HttpProcessingError):
        return Failure(Outcome.PROTOCOL_ERROR, texts.not_http(error.message), started, status)
    if isinstance(error, aiohttp.ClientPayloadError):
        return Failure(Outcome.CONNECTION_LOST, texts.CUT_OFF, started, status)
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return Failure(Outcome.CONNECTION_LOST, texts.CLOSED, started, status, reused)
    return Failure(Outcome.CONNECTION_LOST, texts.connection_lost(_cause(error)), started, status, reused)


def _ended_in_handshake(error: Exception) -> bool:
    """A connection that was made and then lost before it could be used; a refused one was never made."""
    return isinstance(error, aiohttp.ClientConnectorError) and isinstance(
        error.os_error, ConnectionResetError | ConnectionAbortedError | BrokenPipeError
    )


def _cause(error: Exception) -> Exception:
    return error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
