"""As much of PostgreSQL's protocol as it takes to know which message commits, and when its answer is complete.

Frontend/Backend protocol 3.0, "Message Formats": a type byte, then a length of four bytes that counts itself; only
the first messages of a connection have no type.
"""

import re
import struct

_SSL, _GSS, _CANCEL = 80877103, 80877104, 80877102
_WRITES = re.compile(rb"\b(insert\s+into|delete\s+from)\s+(running|pending|history|tasks)\b", re.IGNORECASE)
_READY = b"Z"


class Messages:
    """Cuts a stream into messages. `typed`: whether they begin with a type byte."""

    def __init__(self, typed: bool) -> None:
        self.typed = typed
        self._rest = b""

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """The messages that are now complete, as (type, content)."""
        self._rest += data
        found: list[tuple[bytes, bytes]] = []
        while True:
            head = 1 if self.typed else 0
            if len(self._rest) < head + 4:
                return found
            (size,) = struct.unpack_from("!I", self._rest, head)
            if len(self._rest) < head + size:
                return found
            kind, content = self._rest[:head], self._rest[head + 4 : head + size]
            self._rest = self._rest[head + size :]
            found.append((kind, content))
            if not self.typed:
                (code,) = struct.unpack_from("!I", content)
                self.typed = code not in (_SSL, _GSS, _CANCEL)


class Client:
    """Reads what a client says: its application's name, and which of its messages commits something of a run."""

    def __init__(self) -> None:
        self.application = ""
        self._messages = Messages(typed=False)
        self._writing: set[bytes] = set()
        self._in_transaction = False

    def feed(self, data: bytes) -> bool:
        """Whether one of the messages that are now complete commits a write."""
        commits = False
        for kind, content in self._messages.feed(data):
            if not kind:
                self._start(content)
            elif kind == b"P":
                name, text = content.split(b"\0", 2)[:2]
                (self._writing.add if _WRITES.search(text) else self._writing.discard)(name)
            elif kind == b"B":
                commits |= content.split(b"\0", 2)[1] in self._writing and not self._in_transaction
            elif kind == b"Q":
                commits |= self._simple(content.rstrip(b"\0; \n").upper())
        return commits

    def _start(self, content: bytes) -> None:
        fields = content[4:].split(b"\0")
        named = dict(zip(fields[::2], fields[1::2], strict=False))
        self.application = named.get(b"application_name", b"").decode(errors="replace")

    def _simple(self, text: bytes) -> bool:
        if text.startswith(b"BEGIN"):
            self._in_transaction = True
        elif text in (b"COMMIT", b"ROLLBACK"):
            self._in_transaction = False
            return text == b"COMMIT"
        return False


class Answer:
    """Waits for the end of one answer: from then on, what was asked has been done, and committed."""

    def __init__(self) -> None:
        self._messages = Messages(typed=True)

    def complete(self, data: bytes) -> bool:
        return any(kind == _READY for kind, _ in self._messages.feed(data))
