"""As much of PostgreSQL's protocol as tells which statement passes, whether it commits, and when it is answered.

Frontend/Backend protocol 3.0, "Message Formats": a type byte, then a length of four bytes that counts itself; only a
client's first messages have no type.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from tocsin.common.store.postgres.queries import query

COMMIT = "commit"
"""The name of a COMMIT that is sent as a simple query."""

_WRITES = re.compile(rb"\b(insert\s+into|delete\s+from)\s+(running|pending|history|tasks)\b", re.IGNORECASE)
_COUNTED = re.compile(rb"(?:(INSERT 0|UPDATE|DELETE|MERGE)|SELECT) (\d+)\0")
_SSL, _GSS, _CANCEL = 80877103, 80877104, 80877102
_UNTYPED = 4
_HEAD = 5


@cache
def statement_names() -> dict[str, str]:
    """The product's named statements by their texts."""
    folder = files("tocsin.common.store.postgres") / "sql"
    names = [entry.name.removesuffix(".sql") for entry in folder.iterdir() if entry.name.endswith(".sql")]
    return {query(name): name for name in names}


@dataclass(frozen=True, slots=True)
class Message:
    """`kind`: the type byte; empty where there is none. `raw`: all of its bytes."""

    kind: bytes
    raw: bytes

    @property
    def body(self) -> bytes:
        return self.raw[_HEAD:] if self.kind else self.raw[_UNTYPED:]

    @property
    def _code(self) -> int:
        """Of one without a type: the protocol's version, or what is asked instead of a session."""
        return int.from_bytes(self.body[:4], "big")

    @property
    def opens(self) -> bool:
        """Whether it begins a session."""
        return not self.kind and self._code not in (_SSL, _GSS, _CANCEL)

    @property
    def asks_for_encryption(self) -> bool:
        """The server answers with a single byte."""
        return not self.kind and self._code in (_SSL, _GSS)


class Splitter:
    """Cuts a stream of bytes into messages. `opening`: the first ones have no type byte, as a client's."""

    def __init__(self, *, opening: bool) -> None:
        self._opening = opening
        self._bytes = 0
        self._rest = b""

    def expect_byte(self) -> None:
        """The next message is a single byte."""
        self._bytes += 1

    def feed(self, data: bytes) -> list[Message]:
        """The messages that are complete now."""
        rest, at, found = self._rest + data, 0, []
        while size := self._size(rest, at):
            typed = not self._opening and not self._bytes
            message = Message(rest[at : at + 1] if typed else b"", rest[at : at + size])
            if self._bytes:
                self._bytes -= 1
            elif message.opens:
                self._opening = False
            found.append(message)
            at += size
        self._rest = rest[at:]
        return found

    def _size(self, rest: bytes, at: int) -> int:
        """The bytes of the message that begins at `at`; 0 where they have not all come."""
        there = len(rest) - at
        if self._bytes:
            return min(1, there)
        head = _UNTYPED if self._opening else _HEAD
        if there < head:
            return 0
        size = int.from_bytes(rest[at + head - 4 : at + head], "big") + head - 4
        return size if there >= size else 0


@dataclass(frozen=True, slots=True)
class Execution:
    """`name`: of the statement; "" of one that has none. `commits`: when it has been done, a write of a run or a task
    is committed."""

    name: str
    commits: bool


class Session:
    """What one client says: its application's name, and which statement each of its messages belongs to. `names`: the
    statements' names by their texts."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.application = ""
        self._names = names
        self._prepared: dict[bytes, Execution] = {}
        self._bound = ""
        self._in_transaction = False

    def sees(self, message: Message) -> Execution | None:
        """What this message executes; None where it executes nothing.

        A prepared statement begins with its Bind ("B"), a COMMIT is a simple query ("Q").
        """
        found = None
        if message.opens:
            self._open(message.body[4:])
        elif message.kind == b"P":
            name, text = message.body.split(b"\0", 2)[:2]
            self._prepared[name] = Execution(self._names.get(text.decode(), ""), bool(_WRITES.search(text)))
        elif message.kind == b"B":
            prepared = self._prepared.get(message.body.split(b"\0", 2)[1], Execution("", False))
            found = Execution(prepared.name, prepared.commits and not self._in_transaction)
        elif message.kind == b"Q":
            found = self._simple(message.body.strip(b"\0 ;\n").lower())
        if found is not None:
            self._bound = found.name
        return found

    def ends(self, message: Message) -> str | None:
        """What the server answers with one ReadyForQuery: the name of the statement, "" of another; None: nothing."""
        if not message.opens and message.kind not in (b"S", b"Q"):
            return None
        name, self._bound = self._bound, ""
        return name

    def _open(self, content: bytes) -> None:
        fields = content.split(b"\0")
        named = dict(zip(fields[::2], fields[1::2], strict=False))
        self.application = named.get(b"application_name", b"").decode(errors="replace")

    def _simple(self, text: bytes) -> Execution:
        is_commit = text == b"commit"
        if text.startswith(b"begin"):
            self._in_transaction = True
        elif is_commit or text == b"rollback":
            self._in_transaction = False
        return Execution(COMMIT if is_commit else "", is_commit)


class Tally:
    """How many rows the server's answers to one client tell of. `written`: by the transaction that is open."""

    def __init__(self) -> None:
        self.written = 0
        self._rows = 0

    def sees(self, message: Message) -> int | None:
        """When an answer ends: the rows that its statement returned or wrote; of a COMMIT, those that its transaction
        had written. None before. A row of nothing but nulls is what is answered of no row, and counts as none."""
        if message.kind == b"D" and _is_void(message.body):
            self._rows -= 1
        elif message.kind == b"C":
            self._count(message.body)
        if message.kind != b"Z":
            return None
        rows, self._rows = self._rows, 0
        if message.body == b"I":  # no transaction is open
            self.written = 0
        return rows

    def _count(self, tag: bytes) -> None:
        if tag == b"COMMIT\0":
            self._rows += self.written
        elif (found := _COUNTED.fullmatch(tag)) is not None:
            self._rows += int(found[2])
            if found[1] is not None:
                self.written += int(found[2])


def _is_void(row: bytes) -> bool:
    """Of a DataRow: a count of columns, and of each its length, -1 for null."""
    columns = int.from_bytes(row[:2], "big")
    return columns > 0 and row[2:] == b"\xff" * 4 * columns
