"""What a tenant may name as an endpoint: the rules for URLs and for request headers.

A URL is either refused when the task is made or called exactly as stored. Where clients, resolvers
and servers are known to read a form differently (RFC 3986, section 7.4; the WHATWG URL standard),
the form is refused. Whether an *address* may be called is not decided here but at each attempt, on
the addresses that the name then has (`tocsin.executor.egress`).

Normalisation, all of it: scheme and host in lower case; a host outside ASCII by UTS-46
(non-transitional) and IDNA 2008; the scheme's own port is dropped; an empty path becomes `/`;
characters that RFC 3986 does not allow in a path or query are percent-encoded as UTF-8 (RFC 3987,
section 3.1). Dot segments, doubled slashes, escapes and an empty query stay as given.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final

import idna

MAX_URL_CHARACTERS: Final = 4_096
MAX_HOST_CHARACTERS: Final = 253
MAX_LABEL_CHARACTERS: Final = 63
MAX_HEADERS: Final = 50
MAX_HEADER_BYTES: Final = 16 * 1024

DEFAULT_PORTS: Final = {"http": 80, "https": 443}

RESERVED_HEADERS: Final = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "idempotency-key",
        "keep-alive",
        "proxy-connection",
        "te",
        "traceparent",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Names that Tocsin or the connection sets; so are all that begin with one of `RESERVED_PREFIXES`."""

RESERVED_PREFIXES: Final = ("tocsin-", "webhook-")

_PARTS = re.compile(r"(?P<scheme>[A-Za-z]+)://(?P<authority>[^/?]*)(?P<path>[^?]*)(?P<query>\?.*)?", re.DOTALL)
_AUTHORITY = re.compile(r"(?P<host>\[[^\[\]]*\]|[^:\[\]]*)(?::(?P<port>.*))?")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_CONTROL_OR_BLANK = re.compile(r"[\x00-\x20\x7f-\xa0\u2028\u2029\ud800-\udfff]|\s")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TO_ENCODE = re.compile(r"[^!$%&'()*+,\-./0-9:;=?@A-Z_a-z~]")


@dataclass(frozen=True, slots=True)
class Target:
    """Where a call goes.

    `host` is lower-case ASCII: a name (with its trailing dot, if it has one) or an address without
    brackets. `path_and_query` is the request target as sent.
    """

    scheme: str
    host: str
    port: int
    path_and_query: str
    is_ip: bool

    @property
    def authority(self) -> str:
        """The value of `Host`: the port only where it is not the scheme's own (RFC 9110, section 7.2)."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path_and_query}"


def check_url(text: str) -> str:
    """The URL as it is stored and called.

    Raises:
        ValueError: one sentence with the rule that `text` breaks.
    """
    return parse_target(text).url


@lru_cache(maxsize=1_024)
def parse_target(url: str) -> Target:
    """The parts of a URL; of one that `check_url` returned, exactly its parts.

    Raises:
        ValueError: as `check_url`.
    """
    return _parse(url)


def check_headers(headers: dict[str, str]) -> dict[str, str]:
    """The headers as they are stored and sent: blanks around a value are dropped (RFC 9110, section 5.5).

    Raises:
        ValueError: one sentence with the rule that is broken, and the header that breaks it.
    """
    if len(headers) > MAX_HEADERS:
        raise ValueError(f"at most {MAX_HEADERS} headers are allowed")
    checked: dict[str, str] = {}
    seen: set[str] = set()
    size = 0
    for name, text in headers.items():
        value = text.strip(" ")
        _check_header(name, value)
        if name.lower() in seen:
            raise ValueError(f"header {name} is given twice: names do not differ by case")
        seen.add(name.lower())
        size += len(name) + len(value) + 4
        checked[name] = value
    if size > MAX_HEADER_BYTES:
        raise ValueError(f"headers must not exceed {MAX_HEADER_BYTES} bytes in all")
    return checked


def _check_header(name: str, value: str) -> None:
    if not _TOKEN.fullmatch(name):
        raise ValueError(f"header name {name[:40]!r} must be a token of letters, digits and !#$%&'*+-.^_`|~")
    lower = name.lower()
    if lower in RESERVED_HEADERS or lower.startswith(RESERVED_PREFIXES):
        raise ValueError(f"header {name[:40]} is reserved: it is set for each call")
    if _CONTROL.search(value):
        raise ValueError(f"the value of header {name[:40]} must not contain control characters")
    if any(character > "\xff" for character in value):
        raise ValueError(f"the value of header {name[:40]} must be Latin-1")


def _parse(text: str) -> Target:
    if len(text) > MAX_URL_CHARACTERS:
        raise ValueError(f"the URL must not exceed {MAX_URL_CHARACTERS:,} characters")
    _check_characters(text)
    parts = _PARTS.fullmatch(text)
    if parts is None or parts["scheme"].lower() not in DEFAULT_PORTS:
        raise ValueError("the URL must begin with http:// or https://")
    scheme = parts["scheme"].lower()
    if "@" in parts["authority"]:
        raise ValueError("the URL must not contain a user name or password; use a header")
    authority = _AUTHORITY.fullmatch(parts["authority"])
    if authority is None:
        raise ValueError("an IPv6 address in the URL must stand in brackets, and only such an address")
    port = _port(authority["port"], DEFAULT_PORTS[scheme])
    host, is_ip = _host(authority["host"])
    target = Target(scheme, host, port, _encode((parts["path"] or "/") + (parts["query"] or "")), is_ip)
    if len(target.url) > MAX_URL_CHARACTERS:
        raise ValueError(f"the URL, percent-encoded, must not exceed {MAX_URL_CHARACTERS:,} characters")
    return target


def _check_characters(text: str) -> None:
    if _CONTROL_OR_BLANK.search(text):
        raise ValueError("the URL must not contain blanks, line breaks or control characters")
    if "\\" in text:
        raise ValueError("the URL must not contain a backslash")
    if "#" in text:
        raise ValueError("the URL must not contain a fragment: it would never be sent")
    if _BAD_ESCAPE.search(text):
        raise ValueError("each % in the URL must be followed by two hexadecimal digits")


def _port(text: str | None, default: int) -> int:
    if text is None:
        return default
    if not _PORT.fullmatch(text) or int(text) > 65_535:
        raise ValueError("the port must be a number from 1 to 65535, without leading zeros")
    return int(text)


def _host(text: str) -> tuple[str, bool]:
    if not text:
        raise ValueError("the URL must name a host")
    if text.startswith("["):
        return _ipv6(text[1:-1]), True
    name = _ascii(text)
    labels = name.removesuffix(".").split(".")
    if _NUMBER.fullmatch(labels[-1]):  # as WHATWG: to some resolvers all of these are addresses
        return _ipv4(text), True
    for label in labels:
        if not label:
            raise ValueError("the host must not have empty labels (two dots in a row, or one in front)")
        if len(label) > MAX_LABEL_CHARACTERS:
            raise ValueError(f"a label of the host must not exceed {MAX_LABEL_CHARACTERS} characters")
        if not _LABEL.fullmatch(label):
            raise ValueError("a label of the host must be letters, digits, _ and, inside, -")
    if len(name.removesuffix(".")) > MAX_HOST_CHARACTERS:
        raise ValueError(f"the host must not exceed {MAX_HOST_CHARACTERS} characters")
    return name, False


def _ascii(text: str) -> str:
    """The host name in ASCII. Labels given in ASCII are not held to IDNA: DNS has names with underscores."""
    if text.isascii():
        return text.lower()
    if len(text) > MAX_HOST_CHARACTERS:
        raise ValueError(f"the host must not exceed {MAX_HOST_CHARACTERS} characters")
    try:
        mapped = idna.uts46_remap(text, std3_rules=False, transitional=False)
        return ".".join(label if label.isascii() else idna.alabel(label).decode("ascii") for label in mapped.split("."))
    except UnicodeError as error:  # idna.IDNAError is one
        raise ValueError("the host must be a name that IDNA 2008 allows") from error


def _ipv4(text: str) -> str:
    try:
        return str(IPv4Address(text))
    except AddressValueError as error:
        raise ValueError("a numeric host must be an IPv4 address of four decimal numbers") from error


def _ipv6(text: str) -> str:
    if "%" in text:
        raise ValueError("an IPv6 address in the URL must not have a zone")
    try:
        IPv6Address(text)
    except AddressValueError as error:
        raise ValueError("the host in brackets must be an IPv6 address") from error
    return text.lower()


def _encode(path_and_query: str) -> str:
    return _TO_ENCODE.sub(lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8")), path_and_query)
