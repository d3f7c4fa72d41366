"""From what the event loop and `ssl` raise to a failure with its outcome and one clean line."""

import ssl

from tocsin.common.target import Target
from tocsin.executor.transport import texts
from tocsin.executor.transport.port import Failure


def refused(error: Exception, address: str, target: Target) -> Failure:
    """The failure of a call of which nothing was sent."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return texts.certificate_refused(error, address, target)
    if isinstance(error, ssl.SSLError):
        return texts.no_tls(error, address, target)
    if target.scheme == "https" and isinstance(error, ConnectionResetError | ConnectionAbortedError | BrokenPipeError):
        return texts.closed_in_handshake(address, target)
    if isinstance(error, TimeoutError) and error.errno is None:
        return texts.too_late(address, target)
    return texts.no_connection(error, address, target)
