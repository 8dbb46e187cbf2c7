"""A plain chart as PDF and PNG, drawn by Matplotlib from the very elements of its SVG."""

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

Element = ElementTree.Element
SCALE = 72 / 96  # points of a PDF in a pixel of SVG
DENSITY = 220  # dots per inch of a PNG


def available() -> bool:
    """Tell whether Matplotlib is installed (extra: report)."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def draw(root: Element, *paths: Path) -> None:
    """Write a drawing of `plain` to files whose names end in .pdf or .png."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    left, top, width, height = map(float, root.attrib["viewBox"].split())
    with mpl.rc_context({"font.family": "sans-serif", "font.sans-serif": ["Helvetica", "Arial", "DejaVu Sans"]}):
        figure = Figure(figsize=(width / 96, height / 96))
        FigureCanvasAgg(figure)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        axes.set_xlim(left, left + width)
        axes.set_ylim(top + height, top)
        for order, element in enumerate(root.iter()):
            kind = element.tag.rpartition("}")[2]
            if kind in SHAPES:
                SHAPES[kind](axes, element, order)
        for path in paths:
            # No date in the file: the same runs give the same bytes.
            metadata = {"CreationDate": None} if path.suffix == ".pdf" else {}
            figure.savefig(path, dpi=DENSITY, metadata=metadata)


def _number(element: Element, name: str, default: float = 0.0) -> float:
    return float(element.get(name, default))


def _line_style(element: Element) -> dict[str, Any]:
    dashes = element.get("stroke-dasharray")
    width = _number(element, "stroke-width", 1.0) * SCALE
    found: dict[str, Any] = {"linewidth": width, "alpha": _number(element, "opacity", 1.0)}
    found["color"] = element.get("stroke", "#000000")
    if dashes:
        found["linestyle"] = (0, [float(part) * SCALE / width for part in dashes.split()])
    return found


def _points(text: str) -> list[tuple[float, float]]:
    """Return the corners of a path that has nothing but straight lines."""
    points: list[tuple[float, float]] = []
    for command, x, y in re.findall(r"([MLl])(-?[\d.]+) (-?[\d.]+)", text):
        before = points[-1] if command == "l" else (0.0, 0.0)
        points.append((before[0] + float(x), before[1] + float(y)))
    return points


def _path(axes: Any, element: Element, order: int) -> None:  # noqa: ANN401
    from matplotlib.patches import Polygon

    text = element.get("d", "")
    points, fill, stroke = _points(text), element.get("fill", "none"), element.get("stroke", "none")
    if text.endswith("Z"):
        look = {"facecolor": fill, "edgecolor": stroke, "alpha": _number(element, "opacity", 1.0)}
        width = _number(element, "stroke-width", 1.0) * SCALE if stroke != "none" else 0.0
        axes.add_patch(Polygon(points, closed=True, linewidth=width, zorder=order, **look))
    elif points:
        axes.plot(*zip(*points, strict=True), zorder=order, **_line_style(element))


def _line(axes: Any, element: Element, order: int) -> None:  # noqa: ANN401
    x = [_number(element, "x1"), _number(element, "x2")]
    y = [_number(element, "y1"), _number(element, "y2")]
    axes.plot(x, y, zorder=order, **_line_style(element))


def _rect(axes: Any, element: Element, order: int) -> None:  # noqa: ANN401
    from matplotlib.patches import Rectangle

    place = (_number(element, "x"), _number(element, "y"))
    size = (_number(element, "width"), _number(element, "height"))
    axes.add_patch(Rectangle(place, *size, facecolor=element.get("fill", "#000000"), linewidth=0, zorder=order))


def _circle(axes: Any, element: Element, order: int) -> None:  # noqa: ANN401
    from matplotlib.patches import Circle

    place = (_number(element, "cx"), _number(element, "cy"))
    axes.add_patch(Circle(place, _number(element, "r"), facecolor=element.get("fill"), linewidth=0, zorder=order))


def _text(axes: Any, element: Element, order: int) -> None:  # noqa: ANN401
    anchors = {"start": "left", "middle": "center", "end": "right"}
    axes.text(
        _number(element, "x"),
        _number(element, "y"),
        (element.text or "").replace("$", r"\$"),
        ha=anchors[element.get("text-anchor", "start")],
        va="baseline",
        color=element.get("fill", "#000000"),
        fontsize=_number(element, "font-size", 11.0) * SCALE,
        fontweight="bold" if element.get("font-weight") == "600" else "normal",
        zorder=order,
    )


SHAPES = {"path": _path, "line": _line, "rect": _rect, "circle": _circle, "text": _text}
