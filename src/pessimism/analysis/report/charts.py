"""Charts as SVG. In a page their colours are variables of `figure.css`, so that they follow light and dark."""

import itertools
import json
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib import resources

from pessimism.analysis.report.wording import interval_text
from pessimism.analysis.statistics import Interval

COLOURS = 7  # of figure.css; further series repeat them with dashes
WIDTH, HEIGHT = 460, 280
LEFT, RIGHT, TOP, BOTTOM = 54, 14, 30, 40
ROW, LABELS = 24, 150  # of charts of intervals: height of a row, room for its label
LETTER = 6.2  # width that a letter of a label takes, at most on average
LINE = 15  # of labels above their rows
TITLE, KEY = 22, 17  # of files of their own: room for the title, and for each line of the legend
UNITS = ((1e6, "M"), (1e3, "K"))


@dataclass(frozen=True)
class Line:
    """A curve. `series` is its place among the colours; dashed ones are others' numbers."""

    label: str
    series: int
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    seeds: Sequence[int] = ()
    single: Mapping[str, tuple[Sequence[float], Sequence[float]]] = field(default_factory=dict)
    published: bool = False
    stepped: bool = False  # a value holds until the next x


@dataclass(frozen=True)
class Mark:
    """A single published point with its spread."""

    label: str
    series: int
    x: float
    y: float
    spread: float


@dataclass(frozen=True)
class LineChart:
    """Curves over a common axis."""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    marks: Sequence[Mark] = ()
    zero: bool = False  # draw the line y = 0
    shaded: float = 0  # x up to which the background is shaded
    height: int = HEIGHT

    @property
    def several_runs(self) -> bool:
        """Whether there are single runs behind a mean."""
        return any(line.single for line in self.lines)

    @property
    def x_range(self) -> tuple[float, float]:
        """First and last x, from 0."""
        ends = [line.x[-1] for line in self.lines] + [mark.x for mark in self.marks]
        return min(0.0, *(line.x[0] for line in self.lines)), max(ends) or 1.0

    @property
    def y_range(self) -> tuple[float, float]:
        """Everything that is drawn, with a little air."""
        values = [0.0] if self.zero else []
        for line in self.lines:
            values += [*line.y, *line.low, *line.high]
            values += [value for _, single in line.single.values() for value in single]
        for mark in self.marks:
            values += [mark.y - mark.spread, mark.y + mark.spread]
        return _with_air(min(values), max(values))

    def drawing(self) -> str:
        """Return the elements of the drawing."""
        frame = Frame(self.x_range, self.y_range)
        parts = [*frame.axes(self.x_label, self.y_label)]
        if self.shaded:
            width = max(frame.x(min(self.shaded, frame.x_range[1])) - LEFT, 0)
            parts.append(f'<rect class="shade" x="{LEFT}" y="{TOP}" width="{width:.1f}" height="{frame.height}"/>')
        if self.zero:
            parts.append(
                f'<line class="zero" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{frame.y(0):.1f}" y2="{frame.y(0):.1f}"/>'
            )
        parts += [_line(line, frame) for line in self.lines]
        parts += [_mark(mark, frame) for mark in self.marks]
        return "".join(parts)

    def data(self) -> str:
        """Return what a page needs to show values under the pointer, as JSON."""
        lines = [
            {
                "label": line.label,
                "series": line.series,
                "x": [_short(value) for value in line.x],
                "y": [_short(value) for value in line.y],
                "spread": [_short((high - low) / 2) for low, high in zip(line.low, line.high, strict=True)],
                "seeds": list(line.seeds),
                "published": line.published,
            }
            for line in self.lines
        ]
        lines += [
            {
                "label": mark.label,
                "series": mark.series,
                "x": [mark.x],
                "y": [mark.y],
                "spread": [mark.spread],
                "seeds": [],
            }
            for mark in self.marks
        ]
        plot = [LEFT, TOP, WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM]
        return _json({"plot": plot, "xRange": self.x_range, "xLabel": self.x_label, "lines": lines})


@dataclass(frozen=True)
class IntervalChart:
    """One row per label: a point and its interval."""

    title: str
    x_label: str
    rows: Sequence[tuple[str, int, Interval]]
    reference: float | None = None  # draw a line here
    span: tuple[float, float] | None = None  # of the axis; else what the rows take

    @property
    def labels(self) -> list[list[str]]:
        """The rows' labels as lines; long ones stand above their rows, over the whole width."""
        return [textwrap.wrap(label, int((WIDTH - LEFT - RIGHT) / LETTER)) for label, _, _ in self.rows]

    @property
    def beside(self) -> bool:
        """Whether labels stand beside their rows: all are short enough."""
        return all(len(label) * LETTER <= LABELS - 12 for label, _, _ in self.rows)

    @property
    def height(self) -> int:
        """Room for all rows and the axis."""
        above = 0 if self.beside else LINE * sum(map(len, self.labels))
        return TOP + BOTTOM + ROW * len(self.rows) + above

    def drawing(self) -> str:
        """Return the elements of the drawing."""
        bounds = [bound for _, _, interval in self.rows for bound in interval]
        bounds += [] if self.reference is None else [self.reference]
        height = self.height
        span = self.span or (min(bounds), max(bounds))
        frame = Frame(_with_air(*span), (0, 1), left=LABELS if self.beside else LEFT, total=height)
        parts = [*frame.horizontal(self.x_label)]
        if self.reference is not None:
            x = frame.x(self.reference)
            parts.append(f'<line class="zero" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{height - BOTTOM}"/>')
        top = float(TOP)
        for row, label in zip(self.rows, self.labels, strict=True):
            texts, top = self._label(label, top)
            parts.append(_interval_row(row, texts, top + ROW / 2, frame))
            top += ROW
        return "".join(parts)

    def _label(self, lines: Sequence[str], top: float) -> tuple[str, float]:
        """Return a row's label, and where the row begins below it."""
        if self.beside:
            place = f'x="{LABELS - 10}" y="{top + ROW / 2 + 4:.1f}" text-anchor="end"'
            return f'<text class="label" {place}>{escape(" ".join(lines))}</text>', top
        texts = [
            f'<text class="label" x="{LEFT}" y="{top + LINE * (index + 1) - 2:.1f}">{escape(line)}</text>'
            for index, line in enumerate(lines)
        ]
        return "".join(texts), top + LINE * len(lines)

    def data(self) -> str:
        """Return no data: each row has its values as a tooltip of its own."""
        return ""


def _interval_row(row: tuple[str, int, Interval], label: str, y: float, frame: "Frame") -> str:
    """Return a point with its whiskers; one of no width has caps all the same, so that it is seen."""
    name, series, interval = row
    parts = []
    if math.isfinite(interval.low):
        low, high = frame.x(interval.low), frame.x(interval.high)
        parts.append(f'<line class="whisker" x1="{low:.1f}" x2="{high:.1f}" y1="{y}" y2="{y}"/>')
        parts += [
            f'<line class="whisker" x1="{x:.1f}" x2="{x:.1f}" y1="{y - 7}" y2="{y + 7}"/>' for x in (low, high)
        ]
    parts.append(f'<circle class="point" cx="{frame.x(interval.point):.1f}" cy="{y}" r="4.5"/>')
    title = f"<title>{escape(f'{name}: {interval_text(interval)}')}</title>"
    return f'<g class="series {colour(series)}" data-series="{series}">{title}{label}{"".join(parts)}</g>'


Chart = LineChart | IntervalChart


class Frame:
    """The plane of a chart: from values to places, and the axes."""

    def __init__(
        self,
        x_range: tuple[float, float],
        y_range: tuple[float, float],
        *,
        left: int = LEFT,
        total: int = HEIGHT,
    ) -> None:
        self.x_range, self.y_range, self.left, self.total = x_range, y_range, left, total
        self.width, self.height = WIDTH - left - RIGHT, total - TOP - BOTTOM

    def x(self, value: float) -> float:
        """Return the place of a value from the left."""
        low, high = self.x_range
        return self.left + self.width * (value - low) / (high - low)

    def y(self, value: float) -> float:
        """Return the place of a value from the top."""
        low, high = self.y_range
        return TOP + self.height * (high - value) / (high - low)

    def axes(self, x_label: str, y_label: str) -> Iterator[str]:
        """Yield grid, ticks and names of both axes."""
        for tick in ticks(*self.y_range):
            y = self.y(tick)
            yield f'<line class="grid" x1="{self.left}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            yield f'<text x="{self.left - 7}" y="{y + 3.5:.1f}" text-anchor="end">{number(tick)}</text>'
        yield from self.horizontal(x_label, grid=False)
        yield f'<text class="name" x="{self.left}" y="{TOP - 10}">{escape(y_label)}</text>'

    def horizontal(self, x_label: str, *, grid: bool = True) -> Iterator[str]:
        """Yield the axis below."""
        bottom = self.total - BOTTOM
        for tick in ticks(*self.x_range):
            x = self.x(tick)
            top = TOP if grid else bottom
            yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom + 4}"/>'
            yield f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{number(tick)}</text>'
        right = WIDTH - RIGHT
        yield f'<text class="name" x="{right}" y="{bottom + 33}" text-anchor="end">{escape(x_label)}</text>'


def standalone(chart: Chart) -> str:
    """Return a chart as a file of its own: with its colours, its title and its legend."""
    keys = list({line.label: line for line in chart.lines}.values()) if isinstance(chart, LineChart) else []
    total = chart.height + TITLE + KEY * len(keys)
    legend = "".join(
        f'<g class="{colour(line.series)}{" published" if line.published else ""}">'
        f'<path class="line" d="M{LEFT} {y}L{LEFT + 22} {y}"/>'
        f'<text class="label" x="{LEFT + 30}" y="{y + 4}">{escape(line.label)}</text></g>'
        for y, line in ((chart.height + 6 + KEY * index, line) for index, line in enumerate(keys))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 {-TITLE} {WIDTH} {total}" '
        f'width="{WIDTH}" height="{total}" role="img"><style>{style()}</style>'
        f'<rect class="page" y="{-TITLE}" width="{WIDTH}" height="{total}"/>'
        f'<text class="heading" x="{LEFT}" y="-4">{escape(chart.title)}</text>{chart.drawing()}{legend}</svg>\n'
    )


def inline(chart: Chart) -> str:
    """Return a chart as part of a page, which has the colours."""
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {chart.height}" role="img">'
        f"<title>{escape(chart.title)}</title>{chart.drawing()}</svg>"
    )


def style() -> str:
    """Return the colours and strokes of all charts."""
    return resources.files(__package__).joinpath("figure.css").read_text(encoding="utf-8")


def colour(series: int) -> str:
    """Return the classes of a series."""
    dashes = series // COLOURS
    return f"s{series % COLOURS}" + (f" dash{min(dashes, 3)}" if dashes else "")


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return round numbers between two values."""
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [index * step for index in range(first, last + 1)]


def number(value: float) -> str:
    """Return a number as an axis shows it: 20K, 1.5M, 0.25."""
    for size, unit in UNITS:
        if abs(value) >= size:
            return f"{value / size:.6g}{unit}".replace("-", "\u2212")
    return f"{value:.4g}".replace("-", "\u2212")


def _line(line: Line, frame: Frame) -> str:
    def placed(values: Sequence[float]) -> list[tuple[float, float]]:
        points = list(zip(line.x, values, strict=True))
        if line.stepped:
            held = [(after, value) for (_, value), (after, _) in itertools.pairwise(points)]
            points = [point for pair in itertools.zip_longest(points, held) for point in pair if point]
        return [(frame.x(x), frame.y(y)) for x, y in points]

    places = placed(line.y)
    parts = [f'<path class="line" d="{_path(places)}"/>']
    if line.low and any(high > low for low, high in zip(line.low, line.high, strict=True)):
        edge = placed(line.high) + placed(line.low)[::-1]
        parts.insert(0, f'<path class="band" d="{_path(edge)}Z"/>')
    if len(places) < 3:
        parts += [f'<circle class="point" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in places]
    for name, (xs, ys) in line.single.items():
        path = _path([(frame.x(x), frame.y(y)) for x, y in zip(xs, ys, strict=True)])
        parts.append(f'<path class="single" d="{path}"><title>{escape(name)}</title></path>')
    kind = " published" if line.published else ""
    return f'<g class="series {colour(line.series)}{kind}" data-series="{line.series}">{"".join(parts)}</g>'


def _mark(mark: Mark, frame: Frame) -> str:
    x, y = frame.x(mark.x), frame.y(mark.y)
    low, high = frame.y(mark.y - mark.spread), frame.y(mark.y + mark.spread)
    text = f"{mark.label}: {mark.y:.6g} \u00b1 {mark.spread:.6g}"
    return (
        f'<g class="series published {colour(mark.series)}" data-series="{mark.series}">'
        f"<title>{escape(text)}</title>"
        f'<line class="whisker" x1="{x:.1f}" x2="{x:.1f}" y1="{low:.1f}" y2="{high:.1f}"/>'
        f'<path class="mark" d="M{x:.1f} {y - 6:.1f}l6 6l-6 6l-6 -6Z"/></g>'
    )


def _path(places: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)


def _with_air(low: float, high: float) -> tuple[float, float]:
    air = 0.05 * (high - low) or max(abs(low), 1.0) * 0.05
    return low - air, high + air


def _short(value: float) -> float:
    return float(f"{value:.5g}")


def _json(values: object) -> str:
    """Return JSON that may stand inside a page's script element."""
    return json.dumps(values, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
