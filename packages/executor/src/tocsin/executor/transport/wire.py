"""A request as bytes (RFC 9112, sections 3 and 6)."""

from functools import lru_cache

from tocsin.common.target import Target
from tocsin.executor.transport.port import OutgoingRequest

_BODILESS = frozenset({"GET", "HEAD", "DELETE"})


def serialize(request: OutgoingRequest) -> bytes:
    """Head and body. A method that may carry a body says its length even when it is 0."""
    lines = [_start(request.method, request.target)]
    lines += [f"{name}: {value}\r\n" for name, value in request.headers]
    if request.body or request.method not in _BODILESS:
        lines.append(f"Content-Length: {len(request.body)}\r\n")
    lines.append("\r\n")
    return "".join(lines).encode("latin-1") + request.body


@lru_cache(maxsize=32_768)
def _start(method: str, target: Target) -> str:
    """The request line and `Host`, which has no trailing dot: servers match it literally."""
    authority = target.authority
    if target.host.endswith("."):
        authority = target.host[:-1] + authority[len(target.host) :]
    return f"{method} {target.path_and_query} HTTP/1.1\r\nHost: {authority}\r\n"
