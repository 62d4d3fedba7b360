"""Pictures as SVG text: scales, axes and marks. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Protocol
from xml.sax.saxutils import escape, quoteattr

INK, FAINT, ACCENT = "#222222", "#d0d0d0", "#c2410c"
_STOPS = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (190, 205, 50))
"""Viridis up to a yellow that is still seen on white paper. Its lightness rises evenly, so it can be read in grey."""
LOG_RATIO = 1000.0
"""Positive values that span more than this have a logarithmic scale."""
MOST_TICKS = 6
MOST_CHARACTERS = 14


class Scale(Protocol):
    """Places values along an axis."""

    def place(self, value: Any) -> float | None:
        """From 0.0 to 1.0. None: the value has no place."""

    def ticks(self) -> list[tuple[float, str]]:
        """Places with labels."""


class LinearScale:
    """Numbers, evenly.

    Args:
        low, high: The ends.
    """

    def __init__(self, low: float, high: float) -> None:
        if low == high:
            low, high = low - (abs(low) or 1.0) / 2, high + (abs(high) or 1.0) / 2
        self.low, self.high = low, high

    def place(self, value: Any) -> float | None:
        if not is_number(value):
            return None
        return (float(value) - self.low) / (self.high - self.low)

    def ticks(self) -> list[tuple[float, str]]:
        step = _nice((self.high - self.low) / (MOST_TICKS - 1))
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        values = [index * step for index in range(first, last + 1)]
        return [((value - self.low) / (self.high - self.low), number(value)) for value in values]


class LogScale:
    """Positive numbers, by their logarithms.

    Args:
        low, high: The ends.
    """

    def __init__(self, low: float, high: float) -> None:
        self._low, self._high = math.log10(low), math.log10(high)

    def place(self, value: Any) -> float | None:
        if not is_number(value) or float(value) <= 0:
            return None
        return (math.log10(float(value)) - self._low) / (self._high - self._low)

    def ticks(self) -> list[tuple[float, str]]:
        powers = range(math.ceil(self._low - 1e-9), math.floor(self._high + 1e-9) + 1)
        every = max(1, math.ceil(len(powers) / MOST_TICKS))
        span = self._high - self._low
        return [((power - self._low) / span, number(10.0**power)) for power in powers[::every]]


class CategoryScale:
    """Any values, one beside the other.

    Args:
        values: In their order.
    """

    def __init__(self, values: Sequence[Any]) -> None:
        self._places = {
            text: (index + 0.5) / len(values) for index, text in enumerate(dict.fromkeys(map(str, values)))
        }

    def place(self, value: Any) -> float | None:
        return self._places.get(str(value))

    def ticks(self) -> list[tuple[float, str]]:
        return [(place, short(text)) for text, place in self._places.items()]


def scale_of(values: Sequence[Any]) -> Scale:
    """The scale that suits values: linear, logarithmic, or categories if one is no number."""
    if not values or not all(is_number(value) for value in values):
        return CategoryScale(sorted({str(value) for value in values}))
    low, high = min(map(float, values)), max(map(float, values))
    if low > 0 and high / low >= LOG_RATIO:
        return LogScale(low, high)
    return LinearScale(low, high)


def is_number(value: Any) -> bool:
    """Whether it is a finite number; truth values are none."""
    if isinstance(value, bool | str | bytes) or value is None:
        return False
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError, OverflowError):
        return False


def number(value: float) -> str:
    """A number for a label."""
    return f"{value + 0.0:.4g}"  # without the sign of -0.0


def short(text: str) -> str:
    """A text that is cut where it is too long for a label."""
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + "…"


def colour(share: float) -> str:
    """A colour from dark violet (0.0) to yellow (1.0)."""
    at = min(max(share, 0.0), 1.0) * (len(_STOPS) - 1)
    index = min(int(at), len(_STOPS) - 2)
    mixed = [round(a + (b - a) * (at - index)) for a, b in zip(_STOPS[index], _STOPS[index + 1], strict=True)]
    return "#{:02x}{:02x}{:02x}".format(*mixed)


class Drawing:
    """A picture that grows.

    Args:
        width, height: In pixels.
        title: Shown above, and read aloud.
    """

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height = width, height
        self._parts = [f"<title>{escape(title)}</title>"]
        self.rectangle(0, 0, width, height, "#ffffff")
        self.text(width / 2, 24, title, "middle", 15)

    def line(
        self, points: Sequence[tuple[float, float]], stroke: str, width: float = 1.0, **more: Any
    ) -> None:
        """Straight lines from point to point."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self._add("polyline", points=path, fill="none", stroke=stroke, stroke_width=width, **more)

    def circle(self, x: float, y: float, radius: float, fill: str, tip: str = "", **more: Any) -> None:
        """A dot. `tip`: shown where a mouse is over it."""
        inner = f"<title>{escape(tip)}</title>" if tip else ""
        self._add("circle", inner, cx=f"{x:.1f}", cy=f"{y:.1f}", r=radius, fill=fill, **more)

    def rectangle(self, x: float, y: float, width: float, height: float, fill: str, **more: Any) -> None:
        """A filled rectangle."""
        placed = {"x": f"{x:.1f}", "y": f"{y:.1f}", "width": f"{width:.1f}", "height": f"{height:.1f}"}
        self._add("rect", **placed, fill=fill, **more)

    def text(self, x: float, y: float, text: str, anchor: str = "start", size: int = 12, **more: Any) -> None:
        """A line of text. `anchor`: which part of it is at x: "start", "middle" or "end"."""
        placed = {"x": f"{x:.1f}", "y": f"{y:.1f}", "text_anchor": anchor, "font_size": size}
        self._add("text", escape(text), **placed, fill=INK, **more)

    def upright(self, x: float, y: float, text: str) -> None:
        """A line of text that reads upwards, centred at a point."""
        self.text(x, y, text, "middle", transform=f"rotate(-90 {x:.1f} {y:.1f})")

    def horizontal_axis(
        self, scale: Scale, left: float, right: float, y: float, label: str, top: float
    ) -> None:
        """An axis below a picture, with faint lines up to `top`."""
        for place, text in scale.ticks():
            x = left + place * (right - left)
            self.line([(x, top), (x, y)], FAINT)
            self.text(x, y + 18, text, "middle")
        self.line([(left, y), (right, y)], INK)
        self.text((left + right) / 2, y + 40, label, "middle")

    def vertical_axis(
        self, scale: Scale, bottom: float, top: float, x: float, label: str, right: float
    ) -> None:
        """An axis at the left of a picture, with faint lines up to `right`."""
        for place, text in scale.ticks():
            y = bottom - place * (bottom - top)
            self.line([(x, y), (right, y)], FAINT)
            self.text(x - 8, y + 4, text, "end")
        self.line([(x, bottom), (x, top)], INK)
        self.upright(x - 62, (bottom + top) / 2, label)

    def colour_bar(self, scale: Scale, x: float, bottom: float, top: float, label: str) -> None:
        """What the colours of a picture mean."""
        steps = 40
        edges = [bottom - (bottom - top) * index / steps for index in range(steps + 1)]
        for index, (low, high) in enumerate(pairwise(edges)):
            self.rectangle(x, high, 12, low - high + 0.5, colour((index + 0.5) / steps))
        for place, text in scale.ticks():
            self.text(x + 18, bottom - place * (bottom - top) + 4, text)
        self.text(x + 6, top - 12, short(label), "middle")

    def svg(self) -> str:
        """The picture."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
            f'height="{self.height}" font-family="Helvetica, Arial, sans-serif" role="img">'
        )
        return "\n".join([head, *self._parts, "</svg>"]) + "\n"

    def _add(self, tag: str, inner: str = "", **attributes: Any) -> None:
        written = " ".join(
            f"{name.rstrip('_').replace('_', '-')}={quoteattr(str(value))}"
            for name, value in attributes.items()
        )
        self._parts.append(f"<{tag} {written}>{inner}</{tag}>" if inner else f"<{tag} {written}/>")


def _nice(step: float) -> float:
    """The next of 1, 2, 5, 10, ... times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= step * (1 - 1e-9))
