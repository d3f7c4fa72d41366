"""Start delay over time with the faults marked, as an SVG written by hand: a log axis, three lines, bands."""

import math
from collections.abc import Callable, Sequence
from html import escape

from property_tests.chaos.delays import Second
from property_tests.chaos.ledger import Struck

WIDTH, HEIGHT = 1200, 560
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 150, 50
LOWEST, HIGHEST = 1e-3, 100.0
"""Seconds at the ends of the axis; what lies beyond is drawn at its end."""

_LINES: tuple[tuple[str, str, Callable[[Second], float]], ...] = (
    ("max", "#c62828", lambda second: second.worst),
    ("p99", "#ef6c00", lambda second: second.p99),
    ("p50", "#1565c0", lambda second: second.p50),
)
_MARKS = ((0.001, "1 ms"), (0.01, "10 ms"), (0.1, "100 ms"), (1.0, "1 s"), (10.0, "10 s"), (100.0, "100 s"))


def plot(seconds: Sequence[Second], faults: Sequence[Struck], title: str) -> str:
    """The SVG's text. `seconds` rise; a second without a due slot leaves a gap in the lines."""
    start = min([*(second.at for second in seconds[:1]), *(fault.began for fault in faults[:1])], default=0.0)
    end = max([*(second.at + 1 for second in seconds[-1:]), *(fault.ended for fault in faults[-1:])], default=1.0)

    def x(instant: float) -> float:
        return LEFT + (instant - start) / max(1.0, end - start) * (WIDTH - LEFT - RIGHT)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"',
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="20" font-size="15">{escape(title)}</text>',
        *_legend(),
        *(_band(fault, x) for fault in faults),
        *_axes(start, end, x),
    ]
    for _, colour, value in _LINES:
        parts += _line(seconds, colour, value, x)
    return "\n".join([*parts, "</svg>"]) + "\n"


def y_of(delay: float) -> float:
    """Where a delay lies, in pixels from the top."""
    share = (math.log10(min(HIGHEST, max(LOWEST, delay))) - math.log10(LOWEST)) / math.log10(HIGHEST / LOWEST)
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def _legend() -> list[str]:
    return [
        f'<text x="{WIDTH - RIGHT - 150 + 50 * n}" y="20" fill="{colour}">{name}</text>'
        for n, (name, colour, _) in enumerate(_LINES)
    ]


def _band(fault: Struck, x: Callable[[float], float]) -> str:
    left, width = x(fault.began), max(1.5, x(fault.ended) - x(fault.began))
    colour = "#90a4ae" if fault.database else "#ce93d8"
    return (
        f'<g class="fault"><rect x="{left:.1f}" y="{TOP}" width="{width:.1f}" height="{HEIGHT - TOP - BOTTOM}"'
        f' fill="{colour}" fill-opacity="0.35"/><text transform="translate({left + 4:.1f},{TOP - 4}) rotate(-60)"'
        f' font-size="10">{escape(fault.name)}</text><title>{escape(fault.detail)}</title></g>'
    )


def _axes(start: float, end: float, x: Callable[[float], float]) -> list[str]:
    parts = []
    for delay, text in _MARKS:
        y = y_of(delay)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#e0e0e0"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
    every = next(step for step in (10, 30, 60, 300, 600, 3600) if (end - start) / step <= 20 or step == 3600)
    for n in range(int((end - start) // every) + 1):
        at = x(start + n * every)
        label = f"{n * every} s" if every < 60 else f"{n * every // 60} min"
        parts.append(f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{label}</text>')
    caption = "start delay by the second in which a slot was due; the bands are faults"
    parts.append(f'<text x="{LEFT}" y="{HEIGHT - 10}">{caption}</text>')
    return parts


def _line(
    seconds: Sequence[Second], colour: str, value: Callable[[Second], float], x: Callable[[float], float]
) -> list[str]:
    """One stroke for each stretch of seconds without a gap."""
    strokes: list[list[str]] = []
    before: int | None = None
    for second in seconds:
        if before is None or second.at != before + 1:
            strokes.append([])
        strokes[-1].append(f"{x(second.at + 0.5):.1f},{y_of(value(second)):.1f}")
        before = second.at
    return [
        f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="1.2"/>'
        for points in strokes
    ]
