"""JSON (RFC 8259) read strictly and written back exactly.

Refused, by the path of what breaks the rule: NaN and Infinity, numbers beyond a double, integers of more
than `MAX_DIGITS` digits, a name twice in one object, NUL, lone surrogates, nesting deeper than
`MAX_DEPTH`. Integers are exact; a number with a fraction or an exponent keeps the digits it came with.
"""

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from tocsin.api.problems import InvalidError, not_json
from tocsin.common.errors import FieldError

MAX_DEPTH: Final = 64
"""Of a whole document: a task's `request.json` begins at the third level."""

MAX_DIGITS: Final = 1_000

_BOM = b"\xef\xbb\xbf"
_SUSPECT = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")
_SURROGATE = re.compile("[\ud800-\udfff]")
_quote = json.JSONEncoder(ensure_ascii=False).encode
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Number(float):
    """A number with a fraction or an exponent, and the text it came as."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> "Number":
        number = super().__new__(cls, text)
        number.text = text
        return number


@dataclass(frozen=True, slots=True)
class Raw:
    """JSON text that goes into a document as it is."""

    text: str


@dataclass(frozen=True, slots=True)
class _Refused:
    """Stands where something was read that is refused."""

    rule: str
    name: str | None = None


def decode(data: bytes) -> Any:
    """The value of a JSON text in UTF-8.

    Raises:
        Problem: it is not JSON at all.
        InvalidError: something in it is refused.
    """
    if data.startswith(_BOM):
        raise not_json("must not begin with a byte order mark")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise not_json("must be UTF-8") from None
    reader = _Reader()
    try:
        value = json.loads(
            text,
            parse_float=reader.fraction,
            parse_int=reader.integer,
            parse_constant=reader.constant,
            object_pairs_hook=reader.object,
        )
    except json.JSONDecodeError as error:
        raise not_json(f"must be JSON; it is not at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise _too_deep() from None
    _check_depth(text, value)
    if reader.refused or _SUSPECT.search(text):
        errors = list(_errors(value, ""))
        if errors:
            raise InvalidError(errors)
    return value


def encode(value: Any, *, sort_keys: bool = False) -> str:
    """JSON text without blanks. `value` is what `decode` gives, or made of the same types and `Raw`."""
    parts: list[str] = []
    _write(value, parts.append, sort_keys)
    return "".join(parts)


def _write(value: Any, out: Callable[[str], None], sort_keys: bool) -> None:
    kind = type(value)
    if kind is str:
        out(_quote(value))
    elif kind is int:
        out(str(value))
    elif kind is Number or kind is Raw:
        out(value.text)
    elif kind is dict:
        opening = "{"
        for name in sorted(value) if sort_keys else value:
            out(f"{opening}{_quote(name)}:")
            _write(value[name], out, sort_keys)
            opening = ","
        out("}" if value else "{}")
    elif kind is list:
        opening = "["
        for item in value:
            out(opening)
            _write(item, out, sort_keys)
            opening = ","
        out("]" if value else "[]")
    else:
        out(json.dumps(value, allow_nan=False))


def join(path: str, name: str | int) -> str:
    """A field's path, one step deeper. Names that are no plain words are quoted, and cut at 64 characters."""
    if isinstance(name, int):
        return f"{path}[{name}]"
    if not _PLAIN_NAME.fullmatch(name):
        name = json.dumps(name[:64])
    return f"{path}.{name}" if path else name


class _Reader:
    """The parser's hooks."""

    def __init__(self) -> None:
        self.refused = False

    def fraction(self, text: str) -> Number | _Refused:
        if len(text) > MAX_DIGITS:
            return self._refuse(f"must not have more than {MAX_DIGITS:,} digits")
        number = Number(text)
        return number if math.isfinite(number) else self._refuse("must lie within the range of a double")

    def integer(self, text: str) -> int | _Refused:
        if len(text) > MAX_DIGITS:
            return self._refuse(f"must not have more than {MAX_DIGITS:,} digits")
        return int(text)

    def constant(self, text: str) -> _Refused:
        return self._refuse(f"must be a JSON value: {text} is none")

    def object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any] | _Refused:
        members = dict(pairs)
        if len(members) == len(pairs):
            return members
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        return self._refuse("must be given once", twice)

    def _refuse(self, rule: str, name: str | None = None) -> _Refused:
        self.refused = True
        return _Refused(rule, name)


def _check_depth(text: str, value: Any) -> None:
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    layer = [value] if isinstance(value, list | dict) else []
    for _ in range(MAX_DEPTH):
        layer = [
            item
            for container in layer
            for item in (container.values() if isinstance(container, dict) else container)
            if isinstance(item, list | dict)
        ]
        if not layer:
            return
    raise _too_deep()


def _too_deep() -> InvalidError:
    return InvalidError([FieldError("(document)", f"must not be nested deeper than {MAX_DEPTH} levels")])


def _errors(value: Any, path: str) -> Iterator[FieldError]:
    match value:
        case _Refused(rule=rule, name=name):
            yield FieldError((path if name is None else join(path, name)) or "(document)", rule)
        case str():
            yield from _text_errors(value, path or "(document)")
        case dict():
            for name, item in value.items():
                inner = join(path, name)
                yield from _text_errors(name, inner)
                yield from _errors(item, inner)
        case list():
            for index, item in enumerate(value):
                yield from _errors(item, join(path, index))


def _text_errors(text: str, path: str) -> Iterator[FieldError]:
    if "\0" in text:
        yield FieldError(path, "must not contain NUL (U+0000)")
    if _SURROGATE.search(text):
        yield FieldError(path, "must not contain a lone surrogate")
