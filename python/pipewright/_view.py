"""How pictures are drawn: the keywords of every `plot`, which are the options of the program."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Union

from ._arguments import text, texts

__all__ = ["ChartView", "View", "words_of"]


class ChartView(TypedDict, total=False):
    """Of timelines and charts. `figure` draws for a paper: "column" is 240 points wide with text of 7 points, "page" 504
    with 8. `width` is in pixels, which are points in PDF, or on paper: "8.5cm", "85mm", "3.3in", "252pt". `font_size` is
    the size of the text in pixels, 11 by default, and `title` is above the picture. `without` leaves out parts: "memory",
    "transfers", "legend", "titles"; a chart has "titles" alone. Pages (.html) fill their window and take the title only."""

    figure: str
    width: Union[int, str]
    font_size: float
    title: str
    without: Union[str, Sequence[str]]


class View(ChartView, total=False):
    """Of timelines. `device_names` are the names of the rows, and `range` is the part of the time: "1.2ms..3ms"."""

    device_names: Union[str, Sequence[str]]
    range: str


_LISTS = ("without", "device_names")


def words_of(kind: type, view: Mapping[str, Any]) -> dict[str, list[str]]:
    """The keywords as the program's options take them. A list may be a text with commas, as on the command line."""
    words: dict[str, list[str]] = {}
    known = kind.__annotations__
    for name, value in view.items():
        if name not in known:
            raise TypeError(f"plot() has no keyword '{name}' here: {', '.join(known)}")
        if value is None:
            continue
        if name in _LISTS:
            words[name] = value.split(",") if isinstance(value, str) else texts(name, value)
            if not words[name]:
                del words[name]
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and name in ("width", "font_size"):
            words[name] = [f"{value:.15g}"]
        else:
            words[name] = [text(name, value)]
    return words
