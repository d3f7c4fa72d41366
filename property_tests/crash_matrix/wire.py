"""As much of PostgreSQL's wire protocol (version 3.0, chapter "Message Formats") as tells which statement passes."""

from dataclasses import dataclass

COMMIT = "commit"
"""The name of a COMMIT that is sent as a simple query."""

_UNTYPED = 4
_HEAD = 5


@dataclass(frozen=True, slots=True)
class Message:
    """`kind`: the type byte; empty for a connection's first message, which has none. `raw`: all of its bytes."""

    kind: bytes
    raw: bytes

    @property
    def body(self) -> bytes:
        return self.raw[_HEAD:] if self.kind else self.raw[_UNTYPED:]


class Splitter:
    """Cuts a stream of bytes into messages. `opening`: the first one has no type byte, as a client's."""

    def __init__(self, *, opening: bool) -> None:
        self._opening = opening
        self._rest = b""

    def feed(self, data: bytes) -> list[Message]:
        """The messages that are complete now."""
        rest, found = self._rest + data, []
        while True:
            head = _UNTYPED if self._opening else _HEAD
            if len(rest) < head:
                break
            size = int.from_bytes(rest[head - 4 : head], "big") + head - 4
            if len(rest) < size:
                break
            found.append(Message(b"" if self._opening else rest[:1], rest[:size]))
            self._opening, rest = False, rest[size:]
        self._rest = rest
        return found


class Statements:
    """Which named statement each message of one client belongs to. `names`: the names by their texts."""

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names
        self._prepared: dict[bytes, str] = {}
        self._bound = ""

    def sees(self, message: Message) -> str | None:
        """The statement that this message executes; None where it executes none.

        A prepared one begins with its Bind ("B"), a COMMIT is a simple query ("Q").
        """
        if message.kind == b"P":
            name, _, rest = message.body.partition(b"\0")
            self._prepared[name] = self._names.get(rest.partition(b"\0")[0].decode(), "")
        elif message.kind == b"B":
            name = message.body.split(b"\0", 2)[1]
            self._bound = self._prepared.get(name, "")
            return self._bound or None
        elif message.kind == b"Q":
            is_commit = message.body.strip(b"\0 ;\n").lower() == b"commit"
            self._bound = COMMIT if is_commit else ""
            return self._bound or None
        return None

    def ends(self, message: Message) -> str | None:
        """What the server answers with one ReadyForQuery: the name of the statement, "" of another; None: nothing."""
        if message.kind not in (b"S", b"Q", b""):
            return None
        name, self._bound = self._bound, ""
        return name
