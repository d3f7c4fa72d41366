"""Charts as SVG: lines over an axis with bands behind them, and histograms on logarithmic axes.

Own functions over the standard library's XML: matplotlib brings 100 MB and pictures of one colour scheme, plotly and
altair a script of megabytes, pygal no logarithmic x axis. Here colours are variables of the style below, so that one
chart suits light and dark, and a test can read the picture.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from bench.page.axes import SECONDS, Axis, Mark, axis_over, label, short, time_axis, time_marks
from bench.series import Band, Histogram, Line, Number, Series

LEFT, RIGHT, BOTTOM = 54, 14, 34
"""Pixels around the field."""

COLOURS = 8
MOST_POINTS = 2000
"""Of one line; of more, the largest of each stretch is drawn, so that no peak vanishes."""

DOTS_UP_TO = 40
"""Of a line with so few points each is a dot, with its value as a tooltip."""

_LETTER = 6.3
_ROW = 16

STYLE = """
:root { --c0:#2a78d6; --c1:#d9541e; --c2:#15936a; --c3:#a87400; --c4:#c64f86; --c5:#4a3aa7; --c6:#008300; --c7:#cf3a39;
  --ink:#1d1d1b; --soft:#66645f; --rule:#e4e2dc; --paper:#ffffff; --band:#8b8f98; }
@media (prefers-color-scheme: dark) {
  :root { --c0:#5b9df0; --c1:#ee7d4c; --c2:#3cbf92; --c3:#d6a21e; --c4:#e784b0; --c5:#a59bf0; --c6:#59b659;
    --c7:#f07b7a; --ink:#ecebe6; --soft:#a3a19a; --rule:#34332f; --paper:#1f1f1d; --band:#9aa0aa; }
}
.chart { font:11px system-ui,-apple-system,"Segoe UI",sans-serif }
.chart .paper { fill:var(--paper) }
.chart text { fill:var(--soft) }
.chart .title { fill:var(--ink); font-size:13px; font-weight:600 }
.chart .legend { fill:var(--ink) }
.chart .rule { stroke:var(--rule); stroke-width:1 }
.chart .line { fill:none; stroke-width:1.8; stroke-linejoin:round; stroke-linecap:round }
.chart .area { stroke-width:1.4; fill-opacity:.16 }
.chart .bin { fill:var(--ink); fill-opacity:0 }
.chart .bin:hover { fill-opacity:.08 }
.chart .band { fill:var(--band); fill-opacity:.2 }
.chart .band.other { fill:var(--c4); fill-opacity:.2 }
""" + "".join(f".chart .c{n} {{ stroke:var(--c{n}) }} .chart .f{n} {{ fill:var(--c{n}) }}\n" for n in range(COLOURS))


@dataclass(frozen=True, slots=True)
class Size:
    """Of a whole chart, in pixels before a browser scales it."""

    width: int
    height: int


SMALL = Size(600, 280)
"""Two of them stand side by side on the page."""

LARGE = Size(1200, 560)
"""A picture of its own."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A chart's two axes, `top` pixels below its upper edge."""

    x: Axis
    y: Axis
    top: float
    size: Size

    @property
    def right(self) -> float:
        return self.size.width - RIGHT

    @property
    def bottom(self) -> float:
        return self.size.height - BOTTOM

    def at(self, x: float, y: float) -> tuple[float, float]:
        """In pixels from the upper left."""
        return LEFT + self.x.share(x) * (self.right - LEFT), self.bottom - self.y.share(y) * (self.bottom - self.top)


def line_chart(series: Series, y: Axis | None = None, size: Size = SMALL) -> Element:
    """The lines of a series, with its bands behind them. `y` where the axis is to be the same in several charts."""
    names = [line.name for line in series.lines]
    chart, top = _chart(_titled(series.title, series.unit), names, size, headroom=_headroom(series))
    y = y or axis_over((value for line in series.lines for value in line.values), series.unit, log=series.log)
    in_seconds = series.x_unit == "s" and not series.x_log
    x = axis_over(series.x, series.x_unit, log=True) if series.x_log else _plain_axis(series)
    frame = Frame(x, y, top, size)
    for band in series.bands:
        _band(chart, band, frame)
    _axes(chart, frame, time_marks(x) if in_seconds else x.marks())
    for number, line in enumerate(series.lines):
        _line(chart, frame, series, line, number % COLOURS)
    return chart


def histogram_chart(histogram: Histogram) -> Element:
    """How many values lie in each bin; both axes are logarithmic, so that one late call in a million is seen."""
    chart, top = _chart(f"{histogram.title}, count", [group.name for group in histogram.groups], SMALL)
    most = max((value or 0 for group in histogram.groups for value in group.values), default=0)
    x = Axis(histogram.edges[0], histogram.edges[-1], histogram.unit, log=True)
    frame = Frame(x, Axis(0.6, max(1.0, most) * 1.3, "", log=True), top, SMALL)
    _axes(chart, frame, x.marks())
    for number, group in enumerate(histogram.groups):
        _steps(chart, frame, histogram.edges, group, number % COLOURS)
    for number, (low, high) in enumerate(itertools.pairwise(histogram.edges)):
        left, _ = frame.at(low, 1)
        right, _ = frame.at(high, 1)
        box = {"x": _px(left), "width": _px(right - left), "y": _px(top), "height": _px(frame.bottom - top)}
        counts = ", ".join(f"{group.name}: {group.values[number] or 0:,}" for group in histogram.groups)
        bin_ = SubElement(chart, "rect", {"class": "bin", **box})
        SubElement(bin_, "title").text = f"{label(low, histogram.unit)} to {label(high, histogram.unit)}: {counts}"
    return chart


def svg(chart: Element, *, alone: bool = False) -> str:
    """The text; `alone`: as a file of its own, with its style and its ground in it."""
    if alone:
        ground = Element("rect", {"class": "paper", "width": "100%", "height": "100%"})
        style = Element("style")
        style.text = STYLE
        chart.insert(0, ground)
        chart.insert(0, style)
    return ElementTree.tostring(chart, encoding="unicode")


def _chart(title: str, names: Sequence[str], size: Size, headroom: int = 0) -> tuple[Element, float]:
    """A chart with its title and legend, and where the field below them begins."""
    chart = Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "class": "chart",
            "role": "img",
            "viewBox": f"0 0 {size.width} {size.height}",
        },
    )
    chart.set("aria-label", title)
    _text(chart, "title", 4, 16, title)
    x, y = 4.0, 34.0
    for number, name in enumerate(names if len(names) > 1 else ()):
        width = 26 + len(name) * _LETTER
        if x + width > size.width and x > 4:
            x, y = 4.0, y + _ROW
        box = {"x": _px(x), "y": _px(y - 8), "width": "10", "height": "10", "rx": "2"}
        SubElement(chart, "rect", {"class": f"f{number % COLOURS}", **box})
        _text(chart, "legend", x + 14, y + 1, name)
        x += width
    return chart, (y if len(names) > 1 else 18) + 14 + headroom


def _titled(title: str, unit: str) -> str:
    """The unit stands in the title, but for durations, whose marks have units of their own."""
    return title if unit in SECONDS or not unit else f"{title}, {unit}"


def _headroom(series: Series) -> int:
    """Pixels for the bands' names, which stand at 60 degrees above the field."""
    longest = max((len(band.name) for band in series.bands), default=0)
    return math.ceil(longest * 4.8) + 6 if longest else 0


def _plain_axis(series: Series) -> Axis:
    instants = sorted([*series.x, *(band.began for band in series.bands), *(band.ended for band in series.bands)])
    if series.x_unit == "s":
        return time_axis(instants)
    low, high = (instants[0], instants[-1]) if instants else (0.0, 1.0)
    return Axis(low, high if high > low else low + 1, series.x_unit)


def _axes(chart: Element, frame: Frame, marks: Iterable[Mark]) -> None:
    for value, text in _bare(frame.y).marks(7):
        left, y = frame.at(frame.x.low, value)
        ends = {"x1": _px(left), "x2": _px(frame.right), "y1": _px(y), "y2": _px(y)}
        SubElement(chart, "line", {"class": "rule", **ends})
        _text(chart, "mark", left - 6, y + 4, text, anchor="end")
    left, bottom = frame.at(frame.x.low, frame.y.low)
    ends = {"x1": _px(left), "x2": _px(frame.right), "y1": _px(bottom), "y2": _px(bottom)}
    SubElement(chart, "line", {"class": "rule", **ends})
    for value, text in marks:
        x, bottom = frame.at(value, frame.y.low)
        ends = {"x1": _px(x), "x2": _px(x), "y1": _px(bottom), "y2": _px(bottom + 4)}
        SubElement(chart, "line", {"class": "rule", **ends})
        _text(chart, "mark", x, bottom + 18, text, anchor="middle")


def _bare(axis: Axis) -> Axis:
    return axis if axis.unit in SECONDS else replace(axis, unit="")


def _line(chart: Element, frame: Frame, series: Series, line: Line, colour: int) -> None:
    """One stroke for each stretch without a gap; a value alone is a dot."""
    points = _thinned(series.x, line.values)
    dots = sum(value is not None for _, value in points) <= DOTS_UP_TO
    for known, stretch in itertools.groupby(points, key=lambda point: point[1] is not None):
        if not known:
            continue
        places = [(x, value, *frame.at(x, value)) for x, value in stretch if value is not None]
        if len(places) > 1:
            path = " ".join(f"{_px(left)},{_px(top)}" for *_, left, top in places)
            stroke = SubElement(chart, "polyline", {"class": f"line c{colour}", "points": path})
            SubElement(stroke, "title").text = line.name
        if dots or len(places) == 1:
            for x, value, left, top in places:
                dot = {"cx": _px(left), "cy": _px(top), "r": "2.6", "class": f"f{colour}"}
                where = f"{short(x)} {series.x_unit}".rstrip()
                SubElement(
                    SubElement(chart, "circle", dot), "title"
                ).text = f"{line.name}, {where}: {label(value, series.unit)}"


def _thinned(x: Sequence[float], values: Sequence[Number]) -> list[tuple[float, Number]]:
    points = list(zip(x, values, strict=True))
    if len(points) <= MOST_POINTS:
        return points
    size = math.ceil(len(points) / MOST_POINTS)
    stretches = [points[first : first + size] for first in range(0, len(points), size)]
    return [max(stretch, key=lambda point: -math.inf if point[1] is None else point[1]) for stretch in stretches]


def _steps(chart: Element, frame: Frame, edges: Sequence[float], group: Line, colour: int) -> None:
    """The outline of a group's counts; empty bins lie on the ground."""
    if not any(group.values):
        return
    places = [frame.at(edges[0], frame.y.low)]
    for (low, high), count in zip(itertools.pairwise(edges), group.values, strict=True):
        places += [frame.at(low, count or frame.y.low), frame.at(high, count or frame.y.low)]
    places.append(frame.at(edges[-1], frame.y.low))
    path = " ".join(f"{_px(x)},{_px(y)}" for x, y in places)
    SubElement(chart, "polygon", {"class": f"area c{colour} f{colour}", "points": path})


def _band(chart: Element, band: Band, frame: Frame) -> None:
    left, bottom = frame.at(band.began, frame.y.low)
    right, _ = frame.at(band.ended, frame.y.low)
    group = SubElement(chart, "g", {"class": "fault"})
    box = {"x": _px(left), "y": _px(frame.top), "width": _px(max(1.5, right - left)), "height": _px(bottom - frame.top)}
    SubElement(group, "rect", {"class": "band other" if band.other else "band", **box})
    turned = SubElement(group, "text", {"transform": f"translate({_px(left + 4)},{_px(frame.top - 4)}) rotate(-60)"})
    turned.text = band.name
    SubElement(group, "title").text = band.detail or band.name


def _text(chart: Element, kind: str, x: float, y: float, text: str, anchor: str = "start") -> None:
    place = {"class": kind, "x": _px(x), "y": _px(y), "text-anchor": anchor}
    SubElement(chart, "text", place).text = text


def _px(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
