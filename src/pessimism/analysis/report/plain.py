"""Charts with plain colours and no style sheet, as Inkscape, rsvg-convert and LaTeX need them.

They know no CSS variables and draw in black what depends on one. Every rule of `figure.css` becomes attributes.
"""

import re
from functools import cache
from xml.etree import ElementTree

from pessimism.analysis.report.charts import style

Element = ElementTree.Element
Rules = tuple[tuple[tuple[str, ...], dict[str, str]], ...]
"""Selectors, each a chain of names such as (.published, .line), with what they set."""

SVG = "http://www.w3.org/2000/svg"
FONT = "Helvetica, Arial, sans-serif"
INHERITED = ("color", "font-size", "font-weight")


def plain(svg: str) -> Element:
    """Return a chart's drawing with all colours and strokes as attributes; what is not shown is left out."""
    ElementTree.register_namespace("", SVG)
    root = ElementTree.fromstring(svg)
    for style_element in root.findall(f"{{{SVG}}}style"):
        root.remove(style_element)
    root.set("font-family", FONT)
    _resolve(root, (), {"color": "#000000", "font-size": "11px", "font-weight": "normal"})
    return root


def text_of(root: Element) -> str:
    """Return a drawing as the text of a file."""
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _resolve(element: Element, above: tuple[frozenset[str], ...], inherited: dict[str, str]) -> None:
    names = frozenset([element.tag.rpartition("}")[2], *(f".{name}" for name in element.get("class", "").split())])
    path = (*above, names)
    rules, _ = sheet()
    found = dict(inherited)
    for selector, properties in rules:
        if _matches(selector, path):
            found |= properties
    _set(element, found)
    hidden = []
    for child in element:
        _resolve(child, path, {name: found[name] for name in INHERITED})
        if child.get("display") == "none":
            hidden.append(child)
    for child in hidden:
        element.remove(child)
    for name in ("class", "data-series", "role"):
        element.attrib.pop(name, None)


def _set(element: Element, found: dict[str, str]) -> None:
    """Write what an element draws with as its attributes."""
    kind = element.tag.rpartition("}")[2]
    wanted = {"fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "stroke-linecap", "opacity"}
    wanted |= {"display"} | ({"font-size", "font-weight"} if kind == "text" else set())
    if kind in ("g", "svg", "title", "defs"):
        wanted = {"display"}
    for name in sorted(wanted & set(found)):
        value = found["color"] if found[name] == "currentColor" else found[name]
        element.set(name, value.removesuffix("px"))


def _matches(selector: tuple[str, ...], path: tuple[frozenset[str], ...]) -> bool:
    """Tell whether a chain of names ends at the path's last element."""
    *before, last = selector
    if last not in path[-1]:
        return False
    places = iter(path[:-1])
    return all(any(name in names for names in places) for name in before)


@cache
def sheet() -> tuple[Rules, dict[str, str]]:
    """Return the rules of `figure.css` in light colours, and those colours by name."""
    text = re.sub(r"/\*.*?\*/", "", style(), flags=re.DOTALL)
    text = re.sub(r"@media[^{]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}", "", text)  # dark
    blocks = re.findall(r"([^{}]+)\{([^{}]*)\}", text)
    colours: dict[str, str] = {}
    rules: list[tuple[tuple[str, ...], dict[str, str]]] = []
    for selector, body in blocks:
        properties: dict[str, str] = dict(re.findall(r"([\w-]+)\s*:\s*([^;]+?)\s*(?:;|$)", body))
        if selector.strip() == ":root":
            colours |= properties
            continue
        values = {name: colours.get(value[4:-1], value) for name, value in properties.items()}  # var(--name)
        values.pop("font", None)
        rules.append((tuple(selector.split()), values))
    return tuple(rules), colours
