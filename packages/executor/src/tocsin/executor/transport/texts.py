"""The words of failures, the same for every transport: one clean line each."""

import os
import re
import ssl
from typing import Final

from tocsin.common.store.rows import Outcome
from tocsin.common.target import Target
from tocsin.executor.transport.port import Failure

CLOSED: Final = "connection closed without an answer"
CUT_OFF: Final = "the answer was cut off in its body"

_UNCLEAN = re.compile(r"[^\x20-\x7e]+")
_MAX_TEXT = 300


def certificate_refused(error: Exception, address: str, target: Target) -> Failure:
    return Failure(Outcome.TLS_ERROR, f"certificate of {_where(address, target)} refused: {_tls(error)}")


def no_tls(error: Exception, address: str, target: Target) -> Failure:
    return Failure(Outcome.TLS_ERROR, f"no TLS with {_where(address, target)}: {_tls(error)}")


def closed_in_handshake(address: str, target: Target) -> Failure:
    error = f"no TLS with {_where(address, target)}: connection closed during the handshake"
    return Failure(Outcome.TLS_ERROR, error)


def too_late(address: str, target: Target) -> Failure:
    error = f"no connection to {_where(address, target)} within its part of the deadline"
    return Failure(Outcome.CONNECT_ERROR, error)


def no_connection(error: Exception, address: str, target: Target) -> Failure:
    return Failure(Outcome.CONNECT_ERROR, f"no connection to {_where(address, target)}: {plain(error)}")


def connection_lost(error: Exception) -> str:
    return f"connection lost: {plain(error)}"


def not_http(text: str) -> str:
    return f"not an HTTP answer: {clean(text)}"


def ends_no_request(status: int) -> str:
    return f"the endpoint answered {status}, which ends no request"


def clean(text: str) -> str:
    """One line of printable ASCII, not longer than a person reads."""
    return _UNCLEAN.sub(" ", text).strip()[:_MAX_TEXT]


def plain(error: Exception) -> str:
    """What the operating system calls it, if it does."""
    if isinstance(error, OSError) and error.errno:
        return clean(os.strerror(error.errno).lower())
    return clean(str(error)) or clean(type(error).__name__)


def _where(address: str, target: Target) -> str:
    return f"{address} port {target.port}"


def _tls(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return clean(error.verify_message)
    if isinstance(error, ssl.SSLError) and error.reason:
        return clean(error.reason.lower().replace("_", " "))
    return clean(str(error))
