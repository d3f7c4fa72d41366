"""From what `aiohttp` raises to a failure with its outcome and one clean line."""

import asyncio
import os
import re
import ssl

import aiohttp
from aiohttp.http import HttpProcessingError

from tocsin.common.store.rows import Outcome
from tocsin.common.target import Target
from tocsin.executor.transport.port import Failure

_UNCLEAN = re.compile(r"[^\x20-\x7e]+")
_MAX_TEXT = 300


def refused(error: Exception, address: str, target: Target) -> Failure:
    """The failure of a call of which nothing was sent."""
    where = f"{address} port {target.port}"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return Failure(Outcome.TLS_ERROR, f"certificate of {where} refused: {_tls(error.certificate_error)}")
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        return Failure(Outcome.TLS_ERROR, f"no TLS with {where}: {_tls(error.os_error)}")
    if target.scheme == "https" and _ended_in_handshake(error):
        return Failure(Outcome.TLS_ERROR, f"no TLS with {where}: connection closed during the handshake")
    if isinstance(error, asyncio.TimeoutError):
        return Failure(Outcome.CONNECT_ERROR, f"no connection to {where} within its part of the deadline")
    return Failure(Outcome.CONNECT_ERROR, f"no connection to {where}: {_plain(error)}")


def lost(error: Exception, started: float, status: int | None) -> Failure:
    """The failure of a call whose request was sent."""
    if isinstance(error, HttpProcessingError):
        return Failure(Outcome.PROTOCOL_ERROR, f"not an HTTP answer: {clean(error.message)}", started, status)
    if isinstance(error, aiohttp.ClientPayloadError):
        return Failure(Outcome.CONNECTION_LOST, "the answer was cut off in its body", started, status)
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return Failure(Outcome.CONNECTION_LOST, "connection closed without an answer", started, status)
    return Failure(Outcome.CONNECTION_LOST, f"connection lost: {_plain(error)}", started, status)


def clean(text: str) -> str:
    """One line of printable ASCII, not longer than a person reads."""
    return _UNCLEAN.sub(" ", text).strip()[:_MAX_TEXT]


def _ended_in_handshake(error: Exception) -> bool:
    """A connection that was made and then lost before it could be used; a refused one was never made."""
    return isinstance(error, aiohttp.ClientConnectorError) and isinstance(
        error.os_error, ConnectionResetError | ConnectionAbortedError | BrokenPipeError
    )


def _tls(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return clean(error.verify_message)
    if isinstance(error, ssl.SSLError) and error.reason:
        return clean(error.reason.lower().replace("_", " "))
    return clean(str(error))


def _plain(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        error = error.os_error
    if isinstance(error, OSError) and error.errno:
        return clean(os.strerror(error.errno).lower())
    return clean(str(error)) or clean(type(error).__name__)
